// The messages of the server that a proxy reads or makes itself. Readers take a payload without its header and answer
// false for anything that is not exactly the documented format; views point into the payload.
#pragma once

#include <cstdint>
#include <string_view>

#include "wire/bytes.h"

namespace sluice::wire {

enum class TransactionStatus : std::uint8_t { idle = 'I', in_transaction = 'T', failed = 'E' };

[[nodiscard]] bool read_ready_for_query(Bytes payload, TransactionStatus& status) noexcept;
void write_ready_for_query(ByteWriter& out, TransactionStatus status) noexcept;

struct ParameterStatus {
  std::string_view name;
  std::string_view value;
};
[[nodiscard]] bool read_parameter_status(Bytes payload, ParameterStatus& parameter) noexcept;
void write_parameter_status(ByteWriter& out, const ParameterStatus& parameter) noexcept;

// The key has four bytes in protocol 3.0 and 4 to 256 in 3.2.
struct BackendKey {
  std::uint32_t process_id;
  Bytes key;
};
[[nodiscard]] bool read_backend_key(Bytes payload, std::uint32_t version, BackendKey& key) noexcept;
void write_backend_key(ByteWriter& out, const BackendKey& key) noexcept;

[[nodiscard]] bool read_command_complete(Bytes payload, std::string_view& tag) noexcept;
void write_command_complete(ByteWriter& out, std::string_view tag) noexcept;

// Types without a payload: '1', '2', '3', 'I', 'n', 's'.
void write_empty_message(ByteWriter& out, char type) noexcept;

// The server's answer to a StartupMessage of a version or with options it does not know.
struct NegotiatedVersion {
  std::uint32_t version;
  std::uint32_t unknown_options;
};
[[nodiscard]] bool read_negotiated_version(Bytes payload, NegotiatedVersion& negotiated) noexcept;

enum class AuthenticationCode : std::uint32_t {
  ok = 0,
  cleartext_password = 3,
  md5_password = 5,
  gss = 7,
  gss_continue = 8,
  sspi = 9,
  sasl = 10,
  sasl_continue = 11,
  sasl_final = 12,
};

// Codes that are not listed are handed on as they are: the caller refuses what it does not expect.
struct Authentication {
  AuthenticationCode code;
  Bytes data;  // the salt of md5, the list of mechanisms, or the mechanism's own data
};
[[nodiscard]] bool read_authentication(Bytes payload, Authentication& authentication) noexcept;
void write_authentication(ByteWriter& out, AuthenticationCode code, Bytes data) noexcept;

// Whether the list of AuthenticationSASL names `mechanism`. A list without its terminator names nothing.
[[nodiscard]] bool offers_mechanism(Bytes mechanisms, std::string_view mechanism) noexcept;

// AuthenticationSASL with one or two mechanisms; `second` may be empty.
void write_sasl_offer(ByteWriter& out, std::string_view first, std::string_view second) noexcept;

}  // namespace sluice::wire
