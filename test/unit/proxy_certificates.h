// Keys and certificates made on the spot, in a folder that goes with the test.
#pragma once

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

namespace sluice::proxy::test {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    const char* parent = std::getenv("TMPDIR");
    path = std::string(parent != nullptr ? parent : "/tmp") + "/sluice_proxy_XXXXXX";
    EXPECT_NE(mkdtemp(path.data()), nullptr);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] std::string file(const std::string& name) const { return path + "/" + name; }

  std::string path;
};

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;

enum class KeyKind { rsa, rsa_pss, ec, ed25519 };

inline Key new_key(KeyKind kind) {
  EVP_PKEY* key = nullptr;
  switch (kind) {
    case KeyKind::rsa:
      key = EVP_RSA_gen(2048);
      break;
    case KeyKind::ec:
      key = EVP_EC_gen("P-256");
      break;
    case KeyKind::ed25519:
      key = EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519");
      break;
    case KeyKind::rsa_pss: {
      EVP_PKEY_CTX* context = EVP_PKEY_CTX_new_id(EVP_PKEY_RSA_PSS, nullptr);
      EVP_PKEY_keygen_init(context);
      EVP_PKEY_CTX_set_rsa_keygen_bits(context, 2048);
      EVP_PKEY_keygen(context, &key);
      EVP_PKEY_CTX_free(context);
      break;
    }
  }
  EXPECT_NE(key, nullptr);
  return {key, &EVP_PKEY_free};
}

// A certificate for `key` in the name of `name`, signed by the issuer, or by itself where there is none. `alternative`
// is the subjectAltName ("DNS:a,IP:127.0.0.1"), empty for none.
inline Certificate new_certificate(EVP_PKEY* key, const std::string& name, const std::string& alternative,
                                   X509* issuer = nullptr, EVP_PKEY* issuer_key = nullptr, bool authority = false) {
  static long serial = 1;
  Certificate certificate(X509_new(), &X509_free);
  X509* x509 = certificate.get();
  X509_set_version(x509, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(x509), serial++);
  X509_gmtime_adj(X509_getm_notBefore(x509), -3600);
  X509_gmtime_adj(X509_getm_notAfter(x509), 86400);
  X509_set_pubkey(x509, key);
  X509_NAME* subject = X509_get_subject_name(x509);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1,
                             0);
  X509_set_issuer_name(x509, issuer == nullptr ? subject : X509_get_subject_name(issuer));
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer == nullptr ? x509 : issuer, x509, nullptr, nullptr, 0);
  auto extend = [&](int nid, const std::string& value) {
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
    EXPECT_NE(extension, nullptr);
    X509_add_ext(x509, extension, -1);
    X509_EXTENSION_free(extension);
  };
  if (authority) extend(NID_basic_constraints, "critical,CA:TRUE");
  if (!alternative.empty()) extend(NID_subject_alt_name, alternative);
  EVP_PKEY* signer = issuer_key == nullptr ? key : issuer_key;
  const EVP_MD* digest = EVP_PKEY_get_id(signer) == EVP_PKEY_ED25519 ? nullptr : EVP_sha256();
  EXPECT_GT(X509_sign(x509, signer, digest), 0);
  return certificate;
}

inline void write_certificate(const std::string& file, X509* certificate) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::fopen(file.c_str(), "w"), &std::fclose);
  ASSERT_NE(out, nullptr);
  EXPECT_EQ(PEM_write_X509(out.get(), certificate), 1);
}

inline void write_key(const std::string& file, EVP_PKEY* key, const char* pass_phrase = nullptr) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::fopen(file.c_str(), "w"), &std::fclose);
  ASSERT_NE(out, nullptr);
  const EVP_CIPHER* cipher = pass_phrase == nullptr ? nullptr : EVP_aes_256_cbc();
  EXPECT_EQ(PEM_write_PrivateKey(out.get(), key, cipher, nullptr, 0, nullptr, const_cast<char*>(pass_phrase)), 1);
}

// NAME.crt and NAME.key in the folder, signed by itself.
inline void write_pair(const TemporaryFolder& folder, const std::string& name, KeyKind kind = KeyKind::ec,
                       const std::string& alternative = "DNS:localhost") {
  Key key = new_key(kind);
  Certificate certificate = new_certificate(key.get(), name, alternative);
  write_certificate(folder.file(name + ".crt"), certificate.get());
  write_key(folder.file(name + ".key"), key.get());
}

}  // namespace sluice::proxy::test
