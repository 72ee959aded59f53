#include "proxy/scram_keys.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <stringprep.h>

#include <algorithm>
#include <memory>

namespace sluice::proxy {
namespace {

constexpr std::string_view kClientKeyText = "Client Key";
constexpr std::string_view kServerKeyText = "Server Key";
constexpr std::size_t kNonceBytes = 18;
// The longest that one character becomes under NFKC: U+FDFA, 18 characters of two bytes for one of three.
constexpr std::size_t kMaxGrowth = 18;

ScramKey exclusive_or(const ScramKey& left, const ScramKey& right) noexcept {
  ScramKey result;
  for (std::size_t i = 0; i < result.bytes.size(); i++) result.bytes[i] = left.bytes[i] ^ right.bytes[i];
  return result;
}

struct MacDeleter {
  void operator()(EVP_MAC* mac) const noexcept { EVP_MAC_free(mac); }
  void operator()(EVP_MAC_CTX* context) const noexcept { EVP_MAC_CTX_free(context); }
};

// Looked up once: a fetch costs more than the HMAC itself.
EVP_MAC* hmac_algorithm() {
  static const std::unique_ptr<EVP_MAC, MacDeleter> algorithm(EVP_MAC_fetch(nullptr, "HMAC", nullptr));
  return algorithm.get();
}

}  // namespace

bool equal_keys(const ScramKey& left, const ScramKey& right) noexcept {
  return CRYPTO_memcmp(left.bytes.data(), right.bytes.data(), left.bytes.size()) == 0;
}

Secret& Secret::operator=(const Secret& other) {
  if (this != &other) *this = Secret(other);
  return *this;
}

Secret& Secret::operator=(Secret&& other) noexcept {
  if (this == &other) return *this;
  wipe();
  text_.swap(other.text_);
  return *this;
}

void Secret::wipe() noexcept {
  OPENSSL_cleanse(text_.data(), text_.size());
  text_.clear();
}

bool same_verifier(const Verifier& left, const Verifier& right) noexcept {
  return left.iterations == right.iterations && left.salt == right.salt &&
         equal_keys(left.stored_key, right.stored_key);
}

bool parse_verifier(std::string_view text, Verifier& verifier) {
  wire::ScramVerifier parsed = {};
  if (!wire::read_scram_verifier(text, parsed)) return false;
  verifier.iterations = parsed.iterations;
  verifier.salt = parsed.salt;
  std::copy_n(parsed.stored_key, wire::kScramKeyBytes, verifier.stored_key.bytes.begin());
  std::copy_n(parsed.server_key, wire::kScramKeyBytes, verifier.server_key.bytes.begin());
  OPENSSL_cleanse(&parsed, sizeof(parsed));
  return true;
}

ScramKey hmac_sha256(wire::Bytes key, std::initializer_list<wire::Bytes> parts) {
  ScramKey result;
  std::unique_ptr<EVP_MAC_CTX, MacDeleter> context(EVP_MAC_CTX_new(hmac_algorithm()));
  char digest[] = "SHA256";
  const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string("digest", digest, 0), OSSL_PARAM_construct_end()};
  // An empty key is a key; OpenSSL takes a null pointer as "the one from before".
  static const std::uint8_t nothing = 0;
  const std::uint8_t* bytes = key.empty() ? &nothing : key.data();
  bool done = context != nullptr && EVP_MAC_init(context.get(), bytes, key.size(), parameters) == 1;
  for (wire::Bytes part : parts) done = done && EVP_MAC_update(context.get(), part.data(), part.size()) == 1;
  std::size_t length = 0;
  done = done && EVP_MAC_final(context.get(), result.bytes.data(), &length, result.bytes.size()) == 1;
  // Never a constant that somebody could count on: a value that equals nothing.
  if (!done) static_cast<void>(random_bytes(result.bytes));
  return result;
}

ScramKey sha256(wire::Bytes data) {
  ScramKey result;
  SHA256(data.data(), data.size(), result.bytes.data());
  return result;
}

bool salted_password(std::string_view password, wire::Bytes salt, std::uint32_t iterations, ScramKey& salted) {
  return PKCS5_PBKDF2_HMAC(password.data(), static_cast<int>(password.size()), salt.data(),
                           static_cast<int>(salt.size()), static_cast<int>(iterations), EVP_sha256(),
                           static_cast<int>(salted.bytes.size()), salted.bytes.data()) == 1;
}

ScramKey client_key(const ScramKey& salted) { return hmac_sha256(salted.bytes, {wire::as_bytes(kClientKeyText)}); }

ScramKey server_key(const ScramKey& salted) { return hmac_sha256(salted.bytes, {wire::as_bytes(kServerKeyText)}); }

ScramKey stored_key(const ScramKey& client_key) { return sha256(client_key.bytes); }

bool derive_keys(std::string_view password, std::string_view salt, std::uint32_t iterations, ClientKeys& keys) {
  std::uint8_t raw[wire::kMaxSaltBytes];
  std::size_t length = 0;
  if (iterations == 0 || !wire::read_base64(salt, raw, length)) return false;
  ScramKey salted;
  if (!salted_password(password, {raw, length}, iterations, salted)) return false;
  keys.client_key = client_key(salted);
  keys.verifier.iterations = iterations;
  keys.verifier.salt = salt;
  keys.verifier.stored_key = stored_key(keys.client_key);
  keys.verifier.server_key = server_key(salted);
  return true;
}

ScramKey client_proof(const ScramKey& client_key, const ScramKey& stored_key, std::string_view auth_message) {
  return exclusive_or(client_key, hmac_sha256(stored_key.bytes, {wire::as_bytes(auth_message)}));
}

ScramKey server_signature(const ScramKey& server_key, std::string_view auth_message) {
  return hmac_sha256(server_key.bytes, {wire::as_bytes(auth_message)});
}

bool verify_proof(const ScramKey& proof, const ScramKey& stored_key, std::string_view auth_message,
                  ScramKey& client_key) {
  ScramKey candidate = exclusive_or(proof, hmac_sha256(stored_key.bytes, {wire::as_bytes(auth_message)}));
  if (!equal_keys(sha256(candidate.bytes), stored_key)) return false;
  client_key = candidate;
  return true;
}

bool random_bytes(std::span<std::uint8_t> out) noexcept {
  return RAND_bytes(out.data(), static_cast<int>(out.size())) == 1;
}

std::string random_nonce() {
  std::uint8_t raw[kNonceBytes];
  return random_bytes(raw) ? to_base64(raw) : std::string();
}

std::string to_base64(wire::Bytes bytes) {
  std::string text(wire::base64_length(bytes.size()), '\0');
  wire::ByteWriter writer({reinterpret_cast<std::uint8_t*>(text.data()), text.size()});
  wire::write_base64(writer, bytes);
  return text;
}

std::vector<std::uint8_t> server_end_point(const X509* certificate) {
  int digest = NID_undef;
  // OpenSSL computes what it caches about a certificate on first use, so its functions take no const; it locks for it.
  auto* mutable_certificate = const_cast<X509*>(certificate);
  if (certificate == nullptr || X509_get_signature_info(mutable_certificate, &digest, nullptr, nullptr, nullptr) != 1) {
    return {};
  }
  if (digest == NID_undef) return {};
  if (digest == NID_md5 || digest == NID_sha1) digest = NID_sha256;
  const EVP_MD* algorithm = EVP_get_digestbynid(digest);
  if (algorithm == nullptr) return {};
  std::vector<std::uint8_t> hash(EVP_MAX_MD_SIZE);
  unsigned length = 0;
  if (X509_digest(certificate, algorithm, hash.data(), &length) != 1) return {};
  hash.resize(length);
  return hash;
}

Secret saslprep(std::string_view password) {
  bool ascii =
      std::all_of(password.begin(), password.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  // The profile would forbid some ASCII, control characters; PostgreSQL does not look at ASCII at all.
  if (ascii || password.find('\0') != std::string_view::npos) return Secret(password);
  std::vector<char> buffer(password.size() * kMaxGrowth + 1);
  std::copy(password.begin(), password.end(), buffer.begin());
  int result = ::stringprep(buffer.data(), buffer.size(), STRINGPREP_NO_UNASSIGNED, stringprep_saslprep);
  bool prepared = result == STRINGPREP_OK && buffer[0] != '\0';
  Secret secret(prepared ? std::string_view(buffer.data()) : password);
  OPENSSL_cleanse(buffer.data(), buffer.size());
  return secret;
}

}  // namespace sluice::proxy
