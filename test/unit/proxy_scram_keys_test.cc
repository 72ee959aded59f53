#include "proxy/scram_keys.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

namespace sluice::proxy {
namespace {

using namespace std::string_literals;

// The exchange of RFC 7677, section 3: user "user", password "pencil".
constexpr std::string_view kSalt = "W22ZaJ0SNY7soEsUEjb6gQ==";
const std::string kAuthMessage =
    "n=user,r=rOprNGfwEbeRWgbNEkqO,"
    "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
    "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";

TEST(ProxyScramKeys, GiveTheProofAndTheSignatureOfTheRfc) {
  ClientKeys keys;
  ASSERT_TRUE(derive_keys("pencil", kSalt, 4096, keys));
  ScramKey proof = client_proof(keys.client_key, keys.verifier.stored_key, kAuthMessage);
  EXPECT_EQ(to_base64(proof.bytes), "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
  EXPECT_EQ(to_base64(server_signature(keys.verifier.server_key, kAuthMessage).bytes),
            "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
}

TEST(ProxyScramKeys, AProofGivesTheClientsKeyAwayAndAWrongOneNothing) {
  ClientKeys keys;
  ASSERT_TRUE(derive_keys("pencil", kSalt, 4096, keys));
  ScramKey proof = client_proof(keys.client_key, keys.verifier.stored_key, kAuthMessage);
  ScramKey found;
  EXPECT_TRUE(verify_proof(proof, keys.verifier.stored_key, kAuthMessage, found));
  EXPECT_TRUE(equal_keys(found, keys.client_key));
  for (std::size_t i = 0; i < proof.bytes.size(); i++) {
    ScramKey wrong = proof;
    wrong.bytes[i] ^= 1;
    ScramKey untouched;
    EXPECT_FALSE(verify_proof(wrong, keys.verifier.stored_key, kAuthMessage, untouched));
    EXPECT_TRUE(equal_keys(untouched, ScramKey()));
  }
  EXPECT_FALSE(verify_proof(proof, keys.verifier.stored_key, kAuthMessage + "x", found));
}

TEST(ProxyScramKeys, HmacIsThatOfRfc4231AndPartsAreJoined) {
  std::string key(20, '\x0b');
  constexpr std::string_view kExpected = "sDRMYdjbOFNcqK/OrwvxK4gdwgDJgz2nJuk3bC4yz/c=";
  wire::Bytes bytes = wire::as_bytes(key);
  EXPECT_EQ(to_base64(hmac_sha256(bytes, {wire::as_bytes("Hi There")}).bytes), kExpected);
  EXPECT_EQ(to_base64(hmac_sha256(bytes, {wire::as_bytes("Hi "), {}, wire::as_bytes("There")}).bytes), kExpected);
  EXPECT_TRUE(equal_keys(hmac_sha256({}, {}), hmac_sha256({}, {}))) << "an empty key is a key";
}

TEST(ProxyScramKeys, NoSaltThatIsNoBase64AndNoZeroIterations) {
  ClientKeys keys;
  EXPECT_FALSE(derive_keys("pencil", "not base64", 4096, keys));
  EXPECT_FALSE(derive_keys("pencil", kSalt, 0, keys));
}

TEST(ProxyScramKeys, AVerifierIsReadAsPostgresqlWritesIt) {
  ClientKeys keys;
  ASSERT_TRUE(derive_keys("pencil", kSalt, 4096, keys));
  std::string text = "SCRAM-SHA-256$4096:" + std::string(kSalt) + "$" + to_base64(keys.verifier.stored_key.bytes) +
                     ":" + to_base64(keys.verifier.server_key.bytes);
  Verifier verifier;
  ASSERT_TRUE(parse_verifier(text, verifier));
  EXPECT_TRUE(same_verifier(verifier, keys.verifier));
  EXPECT_TRUE(equal_keys(verifier.server_key, keys.verifier.server_key));
  EXPECT_FALSE(parse_verifier("md5" + std::string(32, 'a'), verifier));
  EXPECT_FALSE(parse_verifier("", verifier));
  EXPECT_FALSE(parse_verifier(text.substr(0, text.size() - 1), verifier));
}

TEST(ProxyScramKeys, VerifiersDifferInSaltIterationsOrKey) {
  ClientKeys keys;
  ASSERT_TRUE(derive_keys("pencil", kSalt, 4096, keys));
  Verifier other = keys.verifier;
  EXPECT_TRUE(same_verifier(other, keys.verifier));
  other.iterations++;
  EXPECT_FALSE(same_verifier(other, keys.verifier));
  other = keys.verifier;
  other.salt = "AAAA";
  EXPECT_FALSE(same_verifier(other, keys.verifier));
  other = keys.verifier;
  other.stored_key.bytes[31] ^= 1;
  EXPECT_FALSE(same_verifier(other, keys.verifier));
}

TEST(ProxyScramKeys, NoncesHaveTheLengthOfPostgresqlsAndNeverRepeat) {
  std::string first = random_nonce();
  EXPECT_EQ(first.size(), 24U);
  EXPECT_NE(first, random_nonce());
  EXPECT_EQ(first.find(','), std::string::npos);
}

TEST(ProxyScramKeys, PasswordsArePreparedAsTheServerDoes) {
  EXPECT_EQ(saslprep("pencil").view(), "pencil");
  EXPECT_EQ(saslprep("I\xC2\xADX").view(), "IX") << "a soft hyphen vanishes";
  EXPECT_EQ(saslprep("\xC2\xAA").view(), "a") << "a feminine ordinal becomes its letter";
  EXPECT_EQ(saslprep("\xE2\x85\xA8").view(), "IX") << "a Roman nine becomes two letters";
  EXPECT_EQ(saslprep("a\xC2\xA0"
                     "b")
                .view(),
            "a b")
      << "a blank that does not break is a blank";
  EXPECT_EQ(saslprep("\xEF\xB7\xBA\xEF\xB7\xBA").view().size(), 2 * 33U) << "the longest that a character can become";
}

TEST(ProxyScramKeys, PasswordsThatCannotBePreparedAreUsedAsTheyStand) {
  for (std::string password : {"\x07"s, "a\x7F"s, "\xC3"s, "\xFF\xFEz"s, "\xC2\x80"s,
                               "\xD8\xA7"
                               "1"s,
                               "\xC2\xAD"s, "\xF0\x9F\xA6\x84"s, "\xC3\xA9\0x"s, ""s}) {
    EXPECT_EQ(saslprep(password).view(), password);
  }
}

TEST(ProxyScramKeys, ASecretIsGoneAfterItWasWipedOrMoved) {
  Secret secret("a password that is longer than a string keeps in itself");
  Secret copy = secret;
  Secret moved = std::move(secret);
  EXPECT_EQ(moved.view(), copy.view());
  EXPECT_TRUE(secret.empty());  // NOLINT: that is what is asked
  moved.wipe();
  EXPECT_TRUE(moved.empty());
  copy = Secret("b");
  EXPECT_EQ(copy.view(), "b");
  copy = static_cast<const Secret&>(copy);
  EXPECT_EQ(copy.view(), "b");
}

// --- tls-server-end-point ---

struct Free {
  void operator()(EVP_PKEY* key) const noexcept { EVP_PKEY_free(key); }
  void operator()(X509* certificate) const noexcept { X509_free(certificate); }
};
using Key = std::unique_ptr<EVP_PKEY, Free>;
using Certificate = std::unique_ptr<X509, Free>;

Certificate signed_with(EVP_PKEY* key, const EVP_MD* digest, bool pss) {
  Certificate certificate(X509_new());
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key);
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  EVP_PKEY_CTX* parameters = nullptr;
  EXPECT_EQ(EVP_DigestSignInit(context, &parameters, digest, nullptr, key), 1);
  if (pss) {
    EXPECT_EQ(EVP_PKEY_CTX_set_rsa_padding(parameters, RSA_PKCS1_PSS_PADDING), 1);
  }
  EXPECT_GT(X509_sign_ctx(certificate.get(), context), 0);
  EVP_MD_CTX_free(context);
  return certificate;
}

std::vector<std::uint8_t> hash_of(const X509* certificate, const EVP_MD* digest) {
  std::vector<std::uint8_t> hash(EVP_MAX_MD_SIZE);
  unsigned length = 0;
  X509_digest(certificate, digest, hash.data(), &length);
  hash.resize(length);
  return hash;
}

TEST(ProxyScramKeys, ACertificateIsHashedByItsSignaturesDigest) {
  Key rsa(EVP_RSA_gen(2048));
  Key curve(EVP_EC_gen("P-256"));
  const struct {
    EVP_PKEY* key;
    const EVP_MD* signature;
    bool pss;
    const EVP_MD* expected;
  } cases[] = {
      {rsa.get(), EVP_md5(), false, EVP_sha256()},      {rsa.get(), EVP_sha1(), false, EVP_sha256()},
      {rsa.get(), EVP_sha256(), false, EVP_sha256()},   {rsa.get(), EVP_sha384(), false, EVP_sha384()},
      {rsa.get(), EVP_sha512(), false, EVP_sha512()},   {rsa.get(), EVP_sha256(), true, EVP_sha256()},
      {rsa.get(), EVP_sha512(), true, EVP_sha512()},    {curve.get(), EVP_sha1(), false, EVP_sha256()},
      {curve.get(), EVP_sha224(), false, EVP_sha224()}, {curve.get(), EVP_sha384(), false, EVP_sha384()},
  };
  for (const auto& kind : cases) {
    Certificate certificate = signed_with(kind.key, kind.signature, kind.pss);
    EXPECT_EQ(server_end_point(certificate.get()), hash_of(certificate.get(), kind.expected))
        << EVP_MD_get0_name(kind.signature) << (kind.pss ? " PSS" : "");
  }
}

TEST(ProxyScramKeys, ACertificateWhoseSignatureHasNoDigestBindsNoChannel) {
  Key key(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
  Certificate certificate = signed_with(key.get(), nullptr, false);
  EXPECT_TRUE(server_end_point(certificate.get()).empty());
  EXPECT_TRUE(server_end_point(nullptr).empty());
}

}  // namespace
}  // namespace sluice::proxy
