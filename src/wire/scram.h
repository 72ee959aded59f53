// The messages of SCRAM-SHA-256 and SCRAM-SHA-256-PLUS as text (RFC 5802, RFC 7677), without any cryptography: what is
// to be hashed or signed is handed out as views. As in PostgreSQL the user name in the message is ignored, because the
// startup packet has named the user already, and extensions that are marked mandatory are refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "wire/bytes.h"

namespace sluice::wire {

inline constexpr std::size_t kScramKeyBytes = 32;
// Limits on what a peer may make us work or remember. PostgreSQL's own nonces have 24 characters and its default is
// 4096 iterations.
inline constexpr std::size_t kMaxNonceBytes = 256;
inline constexpr std::size_t kMaxSaltBytes = 1024;
inline constexpr std::uint32_t kMaxIterations = 10'000'000;

// The gs2 header's first letter.
enum class ChannelBinding : std::uint8_t {
  unsupported = 'n',  // the client cannot
  not_offered = 'y',  // the client could, and believes that the server cannot: a downgrade where PLUS was offered
  required = 'p',     // the client does; binding names the type
};

struct ClientFirst {
  ChannelBinding channel_binding;
  std::string_view binding_type;  // "tls-server-end-point" where required
  std::string_view gs2_header;    // with its last comma: begins what the client-final message repeats
  std::string_view bare;          // first part of the AuthMessage
  std::string_view nonce;
};

struct ServerFirst {
  std::string_view nonce;
  std::string_view salt;  // in base64
  std::uint32_t iterations;
};

struct ClientFinal {
  std::string_view channel_binding;  // in base64: gs2 header and binding data
  std::string_view nonce;
  std::string_view proof;          // in base64
  std::string_view without_proof;  // last part of the AuthMessage
};

[[nodiscard]] bool read_client_first(std::string_view message, ClientFirst& first) noexcept;
// `client_nonce` is what the client sent: the server's nonce must begin with it and go on.
[[nodiscard]] bool read_server_first(std::string_view message, std::string_view client_nonce,
                                     ServerFirst& first) noexcept;
[[nodiscard]] bool read_client_final(std::string_view message, ClientFinal& final_message) noexcept;
// The signature in base64. False for an error message ("e=…") as well.
[[nodiscard]] bool read_server_final(std::string_view message, std::string_view& signature) noexcept;

void write_client_first(ByteWriter& out, std::string_view gs2_header, std::string_view nonce) noexcept;
void write_server_first(ByteWriter& out, std::string_view client_nonce, std::string_view server_nonce,
                        std::string_view salt, std::uint32_t iterations) noexcept;
void write_client_final(ByteWriter& out, std::string_view without_proof, std::string_view proof) noexcept;
void write_server_final(ByteWriter& out, std::string_view signature) noexcept;

// Standard base64 with padding. Decoding accepts nothing that encoding would not have produced; it answers false for a
// text that does not fit as well.
[[nodiscard]] constexpr std::size_t base64_length(std::size_t bytes) noexcept { return (bytes + 2) / 3 * 4; }
void write_base64(ByteWriter& out, Bytes bytes) noexcept;
[[nodiscard]] bool read_base64(std::string_view text, std::span<std::uint8_t> out, std::size_t& length) noexcept;

// A password as pg_authid keeps it: SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>
struct ScramVerifier {
  std::uint32_t iterations;
  std::string_view salt;  // in base64
  std::uint8_t stored_key[kScramKeyBytes];
  std::uint8_t server_key[kScramKeyBytes];
};
[[nodiscard]] bool read_scram_verifier(std::string_view text, ScramVerifier& verifier) noexcept;

}  // namespace sluice::wire
