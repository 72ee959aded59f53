// Certificates and rules that TLS connections are made with, as server for clients and as client towards servers. Owns
// the OpenSSL contexts; a connection keeps the one it was opened with, so loading anew touches live sessions not at
// all.
//
// Everywhere: TLS 1.2 or newer; no compression, no renegotiation, no session tickets, no session cache. A FIN without
// close_notify counts as the end, because many drivers leave so.
#pragma once

#include <openssl/types.h>

#include <cstdint>
#include <memory>
#include <string>

namespace sluice::proxy {

inline constexpr char kAlpnProtocol[] = "postgresql";
// Deepest chain of a certificate that is followed.
inline constexpr int kMaxCertificateDepth = 10;

enum class TlsVersion : std::uint8_t { tls12, tls13 };

struct FreeTlsContext {
  void operator()(SSL_CTX* context) const noexcept;
};
using TlsContextPointer = std::unique_ptr<SSL_CTX, FreeTlsContext>;

struct TlsServerOptions {
  std::string certificate_file;  // PEM, the chain behind the certificate
  std::string key_file;          // PEM, without a pass phrase
  TlsVersion min_version = TlsVersion::tls12;

  bool operator==(const TlsServerOptions&) const = default;
};

class TlsServerContext {
 public:
  // Loads certificate and key. On failure whatever was loaded before stays in use, and the answer is the reason as
  // text; an empty answer is success.
  [[nodiscard]] std::string load(const TlsServerOptions& options);

  [[nodiscard]] bool loaded() const noexcept { return context_ != nullptr; }
  [[nodiscard]] SSL_CTX* context() const noexcept { return context_.get(); }
  // Subject and end of validity of what is in use, for the log.
  [[nodiscard]] std::string description() const;

 private:
  TlsContextPointer context_;
};

// How a server's TLS is used, in PostgreSQL's terms (sslmode).
enum class ServerTlsMode : std::uint8_t {
  disable,      // never
  prefer,       // if the server offers it; no certificate is checked
  require,      // always; no certificate is checked
  verify_ca,    // the certificate must come from a trusted authority
  verify_full,  // and be made out to the host that was asked for
};

struct TlsClientOptions {
  ServerTlsMode mode = ServerTlsMode::verify_full;
  std::string root_file;         // trusted authorities, PEM; empty: the system's
  std::string certificate_file;  // our own certificate, if servers ask for one
  std::string key_file;
  TlsVersion min_version = TlsVersion::tls12;

  bool operator==(const TlsClientOptions&) const = default;
};

class TlsClientContext {
 public:
  // As TlsServerContext::load. With mode disable nothing is loaded.
  [[nodiscard]] std::string load(const TlsClientOptions& options);

  [[nodiscard]] bool loaded() const noexcept { return context_ != nullptr; }
  [[nodiscard]] ServerTlsMode mode() const noexcept { return mode_; }
  [[nodiscard]] bool verifies() const noexcept { return mode_ >= ServerTlsMode::verify_ca; }
  [[nodiscard]] bool verifies_host() const noexcept { return mode_ == ServerTlsMode::verify_full; }
  [[nodiscard]] SSL_CTX* context() const noexcept { return context_.get(); }

 private:
  TlsContextPointer context_;
  ServerTlsMode mode_ = ServerTlsMode::disable;
};

// Marks a connection of a server context as direct TLS: its ClientHello must offer kAlpnProtocol, or it is refused with
// no_application_protocol.
void require_alpn(SSL* tls) noexcept;

// The oldest errors of OpenSSL's queue as text, which empties it.
[[nodiscard]] std::string tls_error_text();

}  // namespace sluice::proxy
