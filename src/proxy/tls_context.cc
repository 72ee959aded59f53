#include "proxy/tls_context.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <time.h>

#include <cstring>
#include <string_view>

namespace sluice::proxy {
namespace {

// The protocol list of ALPN as it is on the wire: each name behind its length.
constexpr std::string_view kAlpnOnWire("\x0Apostgresql");
static_assert(kAlpnOnWire.size() == kAlpnOnWire[0] + 1U && kAlpnOnWire.substr(1) == kAlpnProtocol);

// A marker whose address says "direct TLS" in an SSL's application data.
const char kDirect = 0;

bool is_direct(SSL* tls) { return SSL_get_app_data(tls) == &kDirect; }

int select_protocol(SSL* tls, const unsigned char** out, unsigned char* length, const unsigned char* offered,
                    unsigned int offered_length, void*) {
  unsigned char* selected = nullptr;
  int found = SSL_select_next_proto(&selected, length, reinterpret_cast<const unsigned char*>(kAlpnOnWire.data()),
                                    static_cast<unsigned int>(kAlpnOnWire.size()), offered, offered_length);
  if (found == OPENSSL_NPN_NEGOTIATED) {
    *out = selected;
    return SSL_TLSEXT_ERR_OK;
  }
  // Behind an SSLRequest the protocol is settled already, whatever a client's TLS library offers by habit.
  return is_direct(tls) ? SSL_TLSEXT_ERR_ALERT_FATAL : SSL_TLSEXT_ERR_NOACK;
}

// select_protocol is not asked about clients that offer nothing.
int check_hello(SSL* tls, int* alert, void*) {
  const unsigned char* extension = nullptr;
  std::size_t length = 0;
  if (!is_direct(tls) ||
      SSL_client_hello_get0_ext(tls, TLSEXT_TYPE_application_layer_protocol_negotiation, &extension, &length) == 1) {
    return SSL_CLIENT_HELLO_SUCCESS;
  }
  *alert = SSL_AD_NO_APPLICATION_PROTOCOL;
  return SSL_CLIENT_HELLO_ERROR;
}

// A process in the background has nobody to ask for a pass phrase.
int no_pass_phrase(char*, int, int, void*) { return -1; }

TlsContextPointer new_context(const SSL_METHOD* method, TlsVersion min_version) {
  TlsContextPointer context(SSL_CTX_new(method));
  if (context == nullptr) return nullptr;
  SSL_CTX* tls = context.get();
  SSL_CTX_set_min_proto_version(tls, min_version == TlsVersion::tls13 ? TLS1_3_VERSION : TLS1_2_VERSION);
  SSL_CTX_set_options(tls, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET |
                               SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_mode(tls, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_session_cache_mode(tls, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(tls, 0);
  SSL_CTX_set_read_ahead(tls, 1);
  SSL_CTX_set_default_passwd_cb(tls, no_pass_phrase);
  return context;
}

// Empty, or what is wrong with the pair of files.
std::string use_certificate(SSL_CTX* context, const std::string& certificate_file, const std::string& key_file) {
  if (SSL_CTX_use_certificate_chain_file(context, certificate_file.c_str()) != 1) {
    return "certificate file \"" + certificate_file + "\": " + tls_error_text();
  }
  if (SSL_CTX_use_PrivateKey_file(context, key_file.c_str(), SSL_FILETYPE_PEM) != 1) {
    // OpenSSL compares the two at once.
    bool mismatch = ERR_GET_REASON(ERR_peek_error()) == X509_R_KEY_VALUES_MISMATCH ||
                    ERR_GET_REASON(ERR_peek_error()) == X509_R_KEY_TYPE_MISMATCH;
    std::string reason = tls_error_text();
    if (mismatch) return "key file \"" + key_file + "\" does not belong to certificate \"" + certificate_file + "\"";
    return "key file \"" + key_file + "\": " + reason;
  }
  if (SSL_CTX_check_private_key(context) != 1) {
    return "key file \"" + key_file + "\" does not belong to certificate \"" + certificate_file +
           "\": " + tls_error_text();
  }
  return "";
}

std::string use_roots(SSL_CTX* context, const std::string& root_file) {
  bool good = root_file.empty() ? SSL_CTX_set_default_verify_paths(context) == 1
                                : SSL_CTX_load_verify_locations(context, root_file.c_str(), nullptr) == 1;
  if (!good) return "root file \"" + root_file + "\": " + tls_error_text();
  return "";
}

std::string name_text(const X509_NAME* name) {
  std::unique_ptr<BIO, decltype(&BIO_free)> memory(BIO_new(BIO_s_mem()), &BIO_free);
  if (memory == nullptr || X509_NAME_print_ex(memory.get(), name, 0, XN_FLAG_RFC2253) < 0) return "";
  char* text = nullptr;
  long length = BIO_get_mem_data(memory.get(), &text);
  return {text, static_cast<std::size_t>(length)};
}

std::string time_text(const ASN1_TIME* time) {
  tm parts{};
  char text[32];
  if (ASN1_TIME_to_tm(time, &parts) != 1) return "?";
  return {text, strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

}  // namespace

void FreeTlsContext::operator()(SSL_CTX* context) const noexcept { SSL_CTX_free(context); }

std::string TlsServerContext::load(const TlsServerOptions& options) {
  ERR_clear_error();
  TlsContextPointer fresh = new_context(TLS_server_method(), options.min_version);
  if (fresh == nullptr) return "no TLS: " + tls_error_text();
  std::string reason = use_certificate(fresh.get(), options.certificate_file, options.key_file);
  if (!reason.empty()) return reason;
  SSL_CTX_set_alpn_select_cb(fresh.get(), select_protocol, nullptr);
  SSL_CTX_set_client_hello_cb(fresh.get(), check_hello, nullptr);
  context_ = std::move(fresh);
  return "";
}

std::string TlsServerContext::description() const {
  const X509* certificate = context_ == nullptr ? nullptr : SSL_CTX_get0_certificate(context_.get());
  if (certificate == nullptr) return "no certificate";
  return name_text(X509_get_subject_name(certificate)) + ", valid until " + time_text(X509_get0_notAfter(certificate));
}

std::string TlsClientContext::load(const TlsClientOptions& options) {
  ERR_clear_error();
  if (options.mode == ServerTlsMode::disable) {
    context_.reset();
    mode_ = options.mode;
    return "";
  }
  TlsContextPointer fresh = new_context(TLS_client_method(), options.min_version);
  if (fresh == nullptr) return "no TLS: " + tls_error_text();
  if (options.mode >= ServerTlsMode::verify_ca) {
    std::string reason = use_roots(fresh.get(), options.root_file);
    if (!reason.empty()) return reason;
    SSL_CTX_set_verify(fresh.get(), SSL_VERIFY_PEER, nullptr);
    SSL_CTX_set_verify_depth(fresh.get(), kMaxCertificateDepth);
  }
  if (!options.certificate_file.empty()) {
    std::string reason = use_certificate(fresh.get(), options.certificate_file, options.key_file);
    if (!reason.empty()) return reason;
  }
  context_ = std::move(fresh);
  mode_ = options.mode;
  return "";
}

void require_alpn(SSL* tls) noexcept { SSL_set_app_data(tls, const_cast<char*>(&kDirect)); }

std::string tls_error_text() {
  constexpr int kMost = 3;
  std::string text;
  for (int count = 0; count < kMost; count++) {
    const char* data = nullptr;
    int flags = 0;
    unsigned long code = ERR_get_error_all(nullptr, nullptr, nullptr, &data, &flags);
    if (code == 0) break;
    if (!text.empty()) text += "; ";
    const char* reason = ERR_SYSTEM_ERROR(code) ? std::strerror(ERR_GET_REASON(code)) : ERR_reason_error_string(code);
    text += reason != nullptr ? reason : "error " + std::to_string(code);
  }
  ERR_clear_error();
  return text.empty() ? "no reason given" : text;
}

}  // namespace sluice::proxy
