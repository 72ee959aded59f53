// Our login to a server, from the first byte to ReadyForQuery. It decides and has no descriptor: the edge hands in what
// the server sent and does what is wanted. Nothing that is worth anything is sent to a server that does not ask by an
// allowed method, and a server that does not prove to know the verifier is not used. Owns what the server said of the
// new connection.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/login_options.h"
#include "proxy/output.h"
#include "proxy/scram_client.h"
#include "proxy/scram_keys.h"
#include "proxy/startup_parameters.h"
#include "wire/backend_messages.h"
#include "wire/error_response.h"
#include "wire/header_walker.h"

namespace sluice::proxy {

inline constexpr std::size_t kMaxServerParameters = 128;

enum class ServerLoginStep : std::uint8_t {
  need_more,  // call receive() when more has come
  start_tls,  // shake hands, with the certificate verified against the host; call tls_started()
  ready,      // idle, and what is left of the input is not to be there: a server that goes on talking is not used
  failed,     // failure(); close
};

enum class ServerFailure : std::uint8_t {
  none,
  tls_refused,  // the server has no TLS
  protocol,     // not the protocol: 08P01 for the log, 08006 for a client
  refused,      // the server said no: error() has its fields
  method,       // it asked for something that is not allowed, or that we have no secret for
  // Its salt or iterations are not those of the key, and nothing was sent: to the client a 28P01, because so a server
  // also hides that a role has expired or lost its password.
  keys_outdated,
  unproved,       // its signature is wrong: it does not know the verifier
  too_expensive,  // more iterations than max_iterations
};
[[nodiscard]] std::string_view failure_name(ServerFailure failure) noexcept;

class ServerLogin {
 public:
  // `settings` go into the StartupMessage behind user and database, as they are.
  ServerLogin(const ServerLoginOptions& options, std::string user, std::string database, std::vector<Setting> settings,
              ScramSecret secret);
  ServerLogin(const ServerLogin&) = delete;
  ServerLogin& operator=(const ServerLogin&) = delete;

  // Writes SSLRequest, or the StartupMessage where TLS is off.
  [[nodiscard]] ServerLoginStep start(Output& out);
  [[nodiscard]] ServerLoginStep receive(wire::Bytes& input, Output& out);
  // `end_point` is server_end_point() of the server's certificate; empty: no channel binding.
  [[nodiscard]] ServerLoginStep tls_started(std::vector<std::uint8_t> end_point, Output& out);

  // Once ready.
  [[nodiscard]] const std::vector<Setting>& parameters() const noexcept { return server_parameters_; }
  [[nodiscard]] std::uint32_t process_id() const noexcept { return process_id_; }
  [[nodiscard]] wire::Bytes cancel_key() const noexcept { return cancel_key_; }
  [[nodiscard]] std::uint32_t version() const noexcept { return version_; }
  // What SCRAM was done with, where it was done with a password: the keys that are worth keeping (L7).
  [[nodiscard]] bool has_keys() const noexcept { return secret_.has_keys; }
  [[nodiscard]] const ClientKeys& keys() const noexcept { return secret_.keys; }

  [[nodiscard]] ServerFailure failure() const noexcept { return failure_; }
  // A sentence for the log; without secrets.
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }
  // The server's ErrorResponse, where it is `refused`; views into this object.
  [[nodiscard]] const wire::ErrorFields& error() const noexcept { return error_; }
  // Whether a proof or password has gone out: a refusal before that says nothing about the password (L9).
  [[nodiscard]] bool secret_sent() const noexcept { return secret_sent_; }
  // AuthenticationOk came: whatever was refused after that, the password was right.
  [[nodiscard]] bool authenticated() const noexcept { return authenticated_; }

 private:
  enum class State : std::uint8_t { start, ssl_answer, handshake, login, ready, failed };

  [[nodiscard]] ServerLoginStep ssl_answer(wire::Bytes& input, Output& out);
  void send_startup(Output& out);
  [[nodiscard]] ServerLoginStep message(std::uint8_t type, wire::Bytes payload, Output& out);
  [[nodiscard]] ServerLoginStep authentication(wire::Bytes payload, Output& out);
  [[nodiscard]] ServerLoginStep authentication_ok();
  [[nodiscard]] ServerLoginStep begin_sasl(wire::Bytes mechanisms, Output& out);
  [[nodiscard]] ServerLoginStep continue_sasl(wire::Bytes data, Output& out);
  [[nodiscard]] ServerLoginStep send_password(wire::AuthenticationCode code, wire::Bytes salt, Output& out);
  [[nodiscard]] ServerLoginStep server_error(wire::Bytes payload);
  [[nodiscard]] bool take_parameter(wire::Bytes payload);
  [[nodiscard]] bool take_key(wire::Bytes payload);
  [[nodiscard]] bool take_version(wire::Bytes payload);
  [[nodiscard]] ServerLoginStep fail(ServerFailure failure, std::string reason);

  ServerLoginOptions options_;
  std::string user_;
  std::string database_;
  std::vector<Setting> settings_;
  ScramSecret secret_;
  State state_ = State::start;
  bool in_tls_ = false;
  bool secret_sent_ = false;
  bool authenticated_ = false;
  bool server_proved_ = false;
  bool sasl_answered_ = false;
  std::vector<std::uint8_t> end_point_;
  std::optional<ScramClient> scram_;
  std::uint32_t version_;
  std::vector<Setting> server_parameters_;
  std::uint32_t process_id_ = 0;
  std::vector<std::uint8_t> cancel_key_;
  ServerFailure failure_ = ServerFailure::none;
  std::string reason_;
  std::vector<std::uint8_t> error_payload_;
  wire::ErrorFields error_;
  wire::HeaderWalker walker_;
  std::vector<std::uint8_t> storage_;
  wire::Collector collector_;
};

}  // namespace sluice::proxy
