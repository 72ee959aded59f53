// One client from its first byte to ReadyForQuery. It decides and has no descriptor: the edge hands in bytes, does the
// one thing that is wanted, and tells the outcome. Owns nothing but what the client has said so far. Its secrets are
// wiped when it goes; the edge wipes its own buffer after a login.
//
// Bytes: receive() takes from the front of its input what it has understood. The rest is the edge's to keep and to
// present again with what came behind it: never more than kMaxStartupBytes. Before start_tls the input has to be all
// that the descriptor holds so far, and what was not taken has to go into the handshake: so peek until then, or
// feed the handshake from memory. After `accepted` the rest belongs to the session.
//
// One deadline over all phases is the edge's, and so is the cap on logins in progress: no server connection and no slot
// of a pool is taken before the client has proved who it is.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/credentials.h"
#include "proxy/login_options.h"
#include "proxy/output.h"
#include "proxy/scram_keys.h"
#include "proxy/scram_server.h"
#include "proxy/startup_parameters.h"
#include "wire/backend_messages.h"
#include "wire/error_response.h"
#include "wire/header_walker.h"
#include "wire/startup.h"

namespace sluice::proxy {

enum class LoginStep : std::uint8_t {
  need_more,        // call receive() when more bytes have come
  start_tls,        // send what was put out, then shake hands; call tls_started()
  lookup_verifier,  // call verifier() for user()
  verify_password,  // call password_accepted() or refuse(); password() is valid until then
  pool_snapshot,    // call snapshot() or refuse()
  accepted,         // send; the session begins with ReadyForQuery sent
  cancel_request,   // act on cancel_target(); answer nothing, close
  close,            // send what was put out, close
};

// Where a login is, for logs. One that failed stays where it failed.
enum class LoginPhase : std::uint8_t { start, tls_handshake, startup, verifier, proof, password, snapshot, done };
[[nodiscard]] std::string_view phase_name(LoginPhase phase) noexcept;

// How it ended, for client_rejects_total and auth_failures_total.
enum class LoginOutcome : std::uint8_t {
  running,
  accepted,
  cancel,
  protocol,         // not the protocol, or not a start we know
  tls_required,     //
  unsupported,      // a startup parameter, a version
  rejected,         // wrong password or proof: tell the credentials and the failures
  unknown_role,     // as rejected, and as far as the client can see the same
  unusable_role,    // the role has no SCRAM verifier; reason() says why
  channel_binding,  // downgrade, or another certificate than ours
  refused,          // by the caller, through refuse()
};

// What the edge knows of the connection once TLS is up.
struct TlsFacts {
  bool postgresql_alpn = false;         // ALPN chose "postgresql"; a must where the client began with TLS
  std::vector<std::uint8_t> end_point;  // server_end_point() of the certificate this very connection was shown
};

// Longest password message and SASL message that are taken. PostgreSQL's own limit for SASL is 1024.
inline constexpr std::uint32_t kMaxPasswordBytes = 4096;
inline constexpr std::uint32_t kMaxSaslBytes = 1024;

class ClientLogin {
 public:
  explicit ClientLogin(const ClientLoginOptions& options) noexcept;
  ~ClientLogin();
  ClientLogin(const ClientLogin&) = delete;
  ClientLogin& operator=(const ClientLogin&) = delete;

  [[nodiscard]] LoginStep receive(wire::Bytes& input, Output& out);
  [[nodiscard]] LoginStep tls_started(TlsFacts facts);
  // What the credentials found: a verifier, or nothing that could let this client in. Not for a lookup that failed:
  // that is refuse()'d with its error.
  [[nodiscard]] LoginStep verifier(const FoundVerifier& found, Output& out);
  [[nodiscard]] LoginStep password_accepted(Output& out);
  // ParameterStatus of a real connection of the client's own role and database, and the key that is to cancel for it:
  // four bytes, or up to 256 where version() is 3.2.
  [[nodiscard]] LoginStep snapshot(std::span<const Setting> parameters, const wire::BackendKey& key, Output& out);
  // Ends the login with a FATAL of the caller's, or with the server's own error as it came. At any time after the first
  // byte, but not while TLS is being started: close then.
  [[nodiscard]] LoginStep refuse(const wire::ErrorText& error, Output& out);
  [[nodiscard]] LoginStep refuse(const wire::ErrorFields& error, Output& out);
  // As a wrong password is refused: 28P01, with the words of the server.
  [[nodiscard]] LoginStep refuse_password(Output& out);

  // From lookup_verifier and verify_password on.
  [[nodiscard]] const StartupParameters& parameters() const noexcept { return parameters_; }
  [[nodiscard]] const std::string& user() const noexcept { return parameters_.user; }
  [[nodiscard]] const std::string& database() const noexcept { return parameters_.database; }
  // The protocol that is spoken: the smaller of both sides' newest.
  [[nodiscard]] std::uint32_t version() const noexcept { return version_; }
  [[nodiscard]] bool in_tls() const noexcept { return in_tls_; }
  [[nodiscard]] bool used_channel_binding() const noexcept { return plus_; }

  [[nodiscard]] std::string_view password() const noexcept { return password_.view(); }
  [[nodiscard]] const wire::CancelTarget& cancel_target() const noexcept { return cancel_; }
  // From pool_snapshot on, where the method is SCRAM: what the client proved, for the credentials.
  [[nodiscard]] const ClientKeys& client_keys() const noexcept { return keys_; }

  [[nodiscard]] LoginPhase phase() const noexcept { return phase_; }
  [[nodiscard]] LoginOutcome outcome() const noexcept { return outcome_; }
  // A sentence for the log on why it ended; the client may have been told less.
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }

 private:
  [[nodiscard]] LoginStep read_start(wire::Bytes& input, Output& out);
  [[nodiscard]] LoginStep start_packet(const wire::StartupPacket& packet, wire::Bytes rest, Output& out);
  [[nodiscard]] LoginStep encryption_request(const wire::StartupPacket& packet, wire::Bytes rest, Output& out);
  [[nodiscard]] LoginStep startup_message(const wire::StartupPacket& packet, Output& out);
  [[nodiscard]] LoginStep ask_for_proof(Output& out);
  [[nodiscard]] LoginStep read_answer(wire::Bytes& input, Output& out);
  [[nodiscard]] LoginStep sasl_first(wire::Bytes payload, Output& out);
  [[nodiscard]] LoginStep sasl_final(wire::Bytes payload, Output& out);
  [[nodiscard]] LoginStep take_password(wire::Bytes payload, Output& out);
  [[nodiscard]] LoginStep answer(wire::Bytes payload, Output& out);
  [[nodiscard]] LoginStep scram_failed(ScramResult result, Output& out);
  [[nodiscard]] LoginStep violation(const std::string& message, Output& out);
  [[nodiscard]] LoginStep proved(Output& out);
  [[nodiscard]] LoginStep fail(LoginOutcome outcome, std::string reason, std::string_view sqlstate,
                               std::string_view message, std::string_view hint, Output& out);
  [[nodiscard]] LoginStep end(LoginOutcome outcome, std::string reason);
  [[nodiscard]] bool is_over() const noexcept {
    return step_ == LoginStep::accepted || step_ == LoginStep::cancel_request || step_ == LoginStep::close;
  }
  LoginStep wanted(LoginStep step) noexcept { return step_ = step; }
  void put_error(const wire::ErrorText& error, Output& out);

  ClientLoginOptions options_;
  LoginPhase phase_ = LoginPhase::start;
  LoginStep step_ = LoginStep::need_more;
  LoginOutcome outcome_ = LoginOutcome::running;
  bool asked_tls_ = false;
  bool asked_gssenc_ = false;
  bool direct_tls_ = false;
  bool in_tls_ = false;
  bool plus_ = false;
  bool old_protocol_ = false;  // older than 3.0: errors have another form
  std::uint32_t version_ = wire::kProtocol30;
  TlsFacts tls_;
  StartupParameters parameters_;
  LoginOutcome doom_ = LoginOutcome::rejected;  // what a wrong proof means for the role that was found
  std::string doom_reason_;
  std::optional<ScramServer> scram_;
  bool sasl_begun_ = false;
  Secret password_;
  ClientKeys keys_;
  wire::CancelTarget cancel_ = {};
  std::vector<std::uint8_t> cancel_key_;
  std::string reason_;
  wire::HeaderWalker walker_;
  std::vector<std::uint8_t> storage_;
  std::optional<wire::Collector> collector_;
};

}  // namespace sluice::proxy
