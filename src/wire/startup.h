// The untyped packets a client sends before it has logged in: SSLRequest, GSSENCRequest, CancelRequest and
// StartupMessage. Nothing is copied; every view points into the caller's input.
//
// Source: PostgreSQL's documentation, "Message Formats", and what ProcessStartupPacket() accepts. Stricter than the
// server in one point: SSLRequest and GSSENCRequest have exactly 8 bytes, so that nothing hides behind them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "wire/bytes.h"

namespace sluice::wire {

inline constexpr std::uint32_t kMaxStartupBytes = 10004;  // the server's 10000 and the length word
inline constexpr std::uint32_t kMinStartupBytes = 8;
inline constexpr std::size_t kMinCancelKeyBytes = 4;
inline constexpr std::size_t kMaxCancelKeyBytes = 256;
inline constexpr std::size_t kMaxNameBytes = 63;

inline constexpr std::uint32_t kProtocol30 = 3U << 16U;
inline constexpr std::uint32_t kProtocol32 = 3U << 16U | 2U;
inline constexpr std::uint32_t kCancelRequestCode = 1234U << 16U | 5678U;
inline constexpr std::uint32_t kSslRequestCode = 1234U << 16U | 5679U;
inline constexpr std::uint32_t kGssencRequestCode = 1234U << 16U | 5680U;

enum class StartupKind : std::uint8_t {
  need_more,            // not yet a whole packet
  direct_tls,           // a TLS record instead of a packet: the handshake begins at the first byte
  ssl_request,          //
  gssenc_request,       //
  cancel_request,       // cancel holds the key
  startup_message,      // protocol 3.x; parameters is well-formed
  unsupported_version,  // FATAL 0A000
  invalid_length,       // close at once without an answer, as the server does
  invalid_layout,       // FATAL 08P01
};

// What a client sends to cancel. The key of protocol 3.0 has four bytes; only a key that equals the issued one, length
// included, may act.
struct CancelTarget {
  std::uint32_t process_id;
  Bytes key;
};

struct StartupPacket {
  StartupKind kind;
  std::size_t size;       // bytes of the whole packet, once its length is known and allowed; else 0
  std::uint32_t version;  // the code or protocol version as sent
  CancelTarget cancel;
  Bytes parameters;  // startup_message: name NUL value NUL … NUL
};

// Reads the packet at the beginning of `input`. The length is judged as soon as its four bytes are there, so a refusal
// never waits for a body.
[[nodiscard]] StartupPacket read_startup(Bytes input) noexcept;

// The pairs of a well-formed StartupMessage in the order they were sent.
class ParameterReader {
 public:
  explicit ParameterReader(Bytes parameters) noexcept : reader_(parameters) {}
  [[nodiscard]] bool next(std::string_view& name, std::string_view& value) noexcept;

 private:
  ByteReader reader_;
};

enum class Replication : std::uint8_t { no, physical, logical, invalid };

enum class StartupProblem : std::uint8_t {
  none,
  no_user,              // 28000
  name_too_long,        // 42622: user or database has more than 63 bytes
  invalid_replication,  // 22023
};

// What every login needs to know. The last of several equal names counts, as in the server.
struct StartupSummary {
  StartupProblem problem;
  std::string_view user;
  std::string_view database;  // the user's name where the client named none
  std::string_view options;   // for OptionsReader
  std::string_view application_name;
  Replication replication;
  std::uint32_t protocol_options;  // how many names begin with "_pq_.": all unknown, so NegotiateProtocolVersion
};

[[nodiscard]] StartupSummary summarize_startup(Bytes parameters) noexcept;

// Whether NegotiateProtocolVersion is due: a newer minor version than `newest`, or protocol options nobody knows.
[[nodiscard]] bool must_negotiate(std::uint32_t version, std::uint32_t newest, std::uint32_t protocol_options) noexcept;

// Writes NegotiateProtocolVersion: the version that is spoken from now on (the smaller of both sides'), and the names
// of the protocol options that were not understood, read again from the client's parameters.
void write_negotiate_protocol_version(ByteWriter& out, std::uint32_t version, Bytes parameters) noexcept;

void write_ssl_request(ByteWriter& out) noexcept;
void write_cancel_request(ByteWriter& out, const CancelTarget& target) noexcept;

// A StartupMessage is begun, gets its pairs, and is ended with a NUL.
void begin_startup_message(ByteWriter& out, std::uint32_t version) noexcept;
void add_startup_parameter(ByteWriter& out, std::string_view name, std::string_view value) noexcept;
void end_startup_message(ByteWriter& out) noexcept;

// Compares secrets in a time that depends on their lengths only.
[[nodiscard]] bool equal_in_constant_time(Bytes left, Bytes right) noexcept;

}  // namespace sluice::wire
