// The cryptography of SCRAM-SHA-256 (RFC 5802, RFC 7677, RFC 5929) on top of OpenSSL: keys, proofs, signatures, the
// hash of a certificate for channel binding, and random bytes. The texts of the messages are wire/scram.h's. Owns the
// types that hold secrets; they wipe themselves.
#pragma once

#include <openssl/crypto.h>
#include <openssl/x509.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wire/bytes.h"
#include "wire/scram.h"

namespace sluice::proxy {

// Any of the 32-byte values: a key, a proof, a signature, a digest.
struct ScramKey {
  std::array<std::uint8_t, wire::kScramKeyBytes> bytes = {};

  ScramKey() = default;
  ScramKey(const ScramKey&) = default;
  ScramKey& operator=(const ScramKey&) = default;
  ~ScramKey() { OPENSSL_cleanse(bytes.data(), bytes.size()); }

  [[nodiscard]] wire::Bytes view() const noexcept { return bytes; }
};

// In a time that does not depend on the contents.
[[nodiscard]] bool equal_keys(const ScramKey& left, const ScramKey& right) noexcept;

// A text that is wiped before its memory is given back. Its memory is never inside the object, where a move would leave
// a copy behind, and its size is set once.
class Secret {
 public:
  Secret() = default;
  explicit Secret(std::string_view text) : text_(text.begin(), text.end()) {}
  Secret(const Secret&) = default;
  Secret(Secret&&) noexcept = default;
  Secret& operator=(const Secret& other);
  Secret& operator=(Secret&& other) noexcept;
  ~Secret() { wipe(); }

  [[nodiscard]] std::string_view view() const noexcept { return {text_.data(), text_.size()}; }
  [[nodiscard]] bool empty() const noexcept { return text_.empty(); }
  void wipe() noexcept;

 private:
  std::vector<char> text_;
};

// What a server knows of a password: enough to verify a client, not enough to log in as one.
struct Verifier {
  std::uint32_t iterations = 0;
  std::string salt;  // in base64
  ScramKey stored_key;
  ScramKey server_key;
};

// Equal salt, iterations and StoredKey: keys made for one log in to the other. In constant time as far as keys go.
[[nodiscard]] bool same_verifier(const Verifier& left, const Verifier& right) noexcept;

// Reads "SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>". False for anything else, as md5.
[[nodiscard]] bool parse_verifier(std::string_view text, Verifier& verifier);

// A verifier with the key that its client proved to have: enough to log in wherever the verifier is the same.
struct ClientKeys {
  Verifier verifier;
  ScramKey client_key;
};

// One HMAC-SHA-256 over all parts in their order.
[[nodiscard]] ScramKey hmac_sha256(wire::Bytes key, std::initializer_list<wire::Bytes> parts);
[[nodiscard]] ScramKey sha256(wire::Bytes data);

// PBKDF2 of a password that saslprep() has been asked about. False when OpenSSL cannot, which is a lack of memory.
[[nodiscard]] bool salted_password(std::string_view password, wire::Bytes salt, std::uint32_t iterations,
                                   ScramKey& salted);
[[nodiscard]] ScramKey client_key(const ScramKey& salted);
[[nodiscard]] ScramKey server_key(const ScramKey& salted);
[[nodiscard]] ScramKey stored_key(const ScramKey& client_key);

// All that a password is worth with one salt (in base64). False for a salt that is no base64.
[[nodiscard]] bool derive_keys(std::string_view password, std::string_view salt, std::uint32_t iterations,
                               ClientKeys& keys);

// `auth_message` is the three parts with their commas, joined.
[[nodiscard]] ScramKey client_proof(const ScramKey& client_key, const ScramKey& stored_key,
                                    std::string_view auth_message);
[[nodiscard]] ScramKey server_signature(const ScramKey& server_key, std::string_view auth_message);
// Whether the proof belongs to the stored key; then `client_key` is what it was made with.
[[nodiscard]] bool verify_proof(const ScramKey& proof, const ScramKey& stored_key, std::string_view auth_message,
                                ScramKey& client_key);

// From the operating system's generator. False when it has none to give: nobody may be let in then.
[[nodiscard]] bool random_bytes(std::span<std::uint8_t> out) noexcept;
// A fresh nonce: 24 characters of base64, as PostgreSQL's. Empty when random_bytes() fails.
[[nodiscard]] std::string random_nonce();

[[nodiscard]] std::string to_base64(wire::Bytes bytes);

// The binding data of tls-server-end-point: the certificate's hash by its signature's digest, with SHA-256 instead of
// MD5 and SHA-1. Empty where the signature names no digest (Ed25519): channel binding cannot be offered then.
[[nodiscard]] std::vector<std::uint8_t> server_end_point(const X509* certificate);

// A password as SCRAM wants it (RFC 4013, unassigned characters refused). As in PostgreSQL a password that is no UTF-8,
// or that the profile forbids, is used as it stands.
[[nodiscard]] Secret saslprep(std::string_view password);

}  // namespace sluice::proxy
