#include "proxy/server_login.h"

#include <openssl/evp.h>

#include <algorithm>

#include "proxy/message_buffer.h"
#include "proxy/scram_server.h"
#include "wire/frontend_messages.h"

namespace sluice::proxy {
namespace {

// An ErrorResponse is the longest message of a login.
constexpr std::uint32_t kMaxLoginMessageBytes = 30000;
constexpr std::size_t kMd5SaltBytes = 4;

// A server that has no TLS answers one letter.
constexpr std::uint8_t kTlsAccepted = 'S';
constexpr std::uint8_t kTlsDeclined = 'N';

bool add_md5(std::string& text, std::string_view first, std::string_view second) {
  std::uint8_t digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  bool done = context != nullptr && EVP_DigestInit_ex(context, EVP_md5(), nullptr) == 1 &&
              EVP_DigestUpdate(context, first.data(), first.size()) == 1 &&
              EVP_DigestUpdate(context, second.data(), second.size()) == 1 &&
              EVP_DigestFinal_ex(context, digest, &length) == 1;
  EVP_MD_CTX_free(context);
  constexpr char kDigits[] = "0123456789abcdef";
  for (unsigned i = 0; done && i < length; i++) {
    text += kDigits[digest[i] >> 4U];
    text += kDigits[digest[i] & 0xFU];
  }
  return done;
}

}  // namespace

std::string_view failure_name(ServerFailure failure) noexcept {
  switch (failure) {
    case ServerFailure::none:
      return "none";
    case ServerFailure::tls_refused:
      return "tls_refused";
    case ServerFailure::protocol:
      return "protocol";
    case ServerFailure::refused:
      return "refused";
    case ServerFailure::method:
      return "method";
    case ServerFailure::keys_outdated:
      return "keys_outdated";
    case ServerFailure::unproved:
      return "unproved";
    case ServerFailure::too_expensive:
      return "too_expensive";
  }
  return "unknown";
}

ServerLogin::ServerLogin(const ServerLoginOptions& options, std::string user, std::string database,
                         std::vector<Setting> settings, ScramSecret secret)
    : options_(options),
      user_(std::move(user)),
      database_(std::move(database)),
      settings_(std::move(settings)),
      secret_(std::move(secret)),
      version_(options.protocol),
      walker_(wire::Direction::backend, wire::Phase::login, kMaxLoginMessageBytes),
      storage_(kMaxLoginMessageBytes),
      collector_(storage_) {}

ServerLoginStep ServerLogin::start(Output& out) {
  if (options_.tls) {
    out.to_server(make_message(0, [](wire::ByteWriter& writer) { wire::write_ssl_request(writer); }));
    state_ = State::ssl_answer;
  } else {
    send_startup(out);
  }
  return ServerLoginStep::need_more;
}

ServerLoginStep ServerLogin::ssl_answer(wire::Bytes& input, Output& out) {
  if (input.empty()) return ServerLoginStep::need_more;
  std::uint8_t answer = input[0];
  input = input.subspan(1);
  if (answer == kTlsDeclined && options_.tls_required) return fail(ServerFailure::tls_refused, "the server has no TLS");
  // An error in plaintext could come from anybody, so its text is not passed on.
  if (answer != kTlsAccepted && answer != kTlsDeclined) {
    return fail(ServerFailure::tls_refused, "the server answers SSLRequest with an error");
  }
  if (!input.empty())
    return fail(ServerFailure::protocol, "the server sends plaintext behind its answer to SSLRequest");
  if (answer == kTlsDeclined) {
    send_startup(out);
    return ServerLoginStep::need_more;
  }
  state_ = State::handshake;
  return ServerLoginStep::start_tls;
}

ServerLoginStep ServerLogin::tls_started(std::vector<std::uint8_t> end_point, Output& out) {
  if (state_ != State::handshake) return fail(ServerFailure::protocol, "TLS was not asked for");
  in_tls_ = true;
  end_point_ = std::move(end_point);
  send_startup(out);
  return ServerLoginStep::need_more;
}

void ServerLogin::send_startup(Output& out) {
  std::size_t texts = user_.size() + database_.size();
  for (const Setting& setting : settings_) texts += setting.name.size() + setting.value.size() + 2;
  out.to_server(make_message(texts, [&](wire::ByteWriter& writer) {
    wire::begin_startup_message(writer, options_.protocol);
    wire::add_startup_parameter(writer, "user", user_);
    wire::add_startup_parameter(writer, "database", database_);
    for (const Setting& setting : settings_) wire::add_startup_parameter(writer, setting.name, setting.value);
    wire::end_startup_message(writer);
  }));
  state_ = State::login;
}

ServerLoginStep ServerLogin::receive(wire::Bytes& input, Output& out) {
  switch (state_) {
    case State::failed:
      return ServerLoginStep::failed;
    case State::ready:
      return ServerLoginStep::ready;
    case State::handshake:
      return ServerLoginStep::start_tls;
    case State::start:
      return input.empty() ? ServerLoginStep::need_more : fail(ServerFailure::protocol, "the server speaks first");
    case State::ssl_answer:
      return ssl_answer(input, out);
    case State::login:
      break;
  }
  for (;;) {
    wire::Piece piece = walker_.next(input);
    if (piece.kind == wire::PieceKind::nothing || piece.kind == wire::PieceKind::partial_header) {
      return ServerLoginStep::need_more;
    }
    if (piece.kind != wire::PieceKind::message) return fail(ServerFailure::protocol, "not a message of a login");
    wire::Collected collected = collector_.add(piece);
    if (collected == wire::Collected::more) continue;
    if (collected == wire::Collected::too_long) return fail(ServerFailure::protocol, "a message is too long");
    ServerLoginStep step = message(piece.type, collector_.payload(), out);
    if (step != ServerLoginStep::need_more) return step;
  }
}

ServerLoginStep ServerLogin::message(std::uint8_t type, wire::Bytes payload, Output& out) {
  wire::TransactionStatus status = {};
  bool taken = true;
  switch (type) {
    case 'N':
      break;
    case 'R':
      return authentication(payload, out);
    case 'E':
      return server_error(payload);
    case 'v':
      taken = take_version(payload);
      break;
    case 'S':
      taken = authenticated_ && take_parameter(payload);
      break;
    case 'K':
      taken = authenticated_ && take_key(payload);
      break;
    case 'Z':
      taken = authenticated_ && wire::read_ready_for_query(payload, status) && status == wire::TransactionStatus::idle;
      if (!taken) break;
      state_ = State::ready;
      return ServerLoginStep::ready;
    default:
      taken = false;
      break;
  }
  if (taken) return ServerLoginStep::need_more;
  return fail(ServerFailure::protocol,
              std::string("malformed or unexpected message '") + static_cast<char>(type) + "'");
}

bool ServerLogin::take_parameter(wire::Bytes payload) {
  wire::ParameterStatus status = {};
  if (!wire::read_parameter_status(payload, status)) return false;
  for (Setting& known : server_parameters_) {
    if (known.name != status.name) continue;
    known.value = status.value;
    return true;
  }
  if (server_parameters_.size() == kMaxServerParameters) return false;
  server_parameters_.push_back({std::string(status.name), std::string(status.value)});
  return true;
}

bool ServerLogin::take_key(wire::Bytes payload) {
  wire::BackendKey key = {};
  if (!cancel_key_.empty() || !wire::read_backend_key(payload, version_, key)) return false;
  process_id_ = key.process_id;
  cancel_key_.assign(key.key.begin(), key.key.end());
  return true;
}

// We send no options of the protocol, so a server cannot miss any; and it cannot ask for more than we have asked for.
bool ServerLogin::take_version(wire::Bytes payload) {
  wire::NegotiatedVersion negotiated = {};
  bool readable = !authenticated_ && wire::read_negotiated_version(payload, negotiated);
  if (!readable || negotiated.unknown_options != 0 || negotiated.version >= version_) return false;
  if (negotiated.version < wire::kProtocol30) return false;
  version_ = negotiated.version;
  return true;
}

ServerLoginStep ServerLogin::authentication(wire::Bytes payload, Output& out) {
  wire::Authentication asked = {};
  if (authenticated_ || !wire::read_authentication(payload, asked)) {
    return fail(ServerFailure::protocol, "malformed or unexpected authentication request");
  }
  switch (asked.code) {
    case wire::AuthenticationCode::ok:
      return authentication_ok();
    case wire::AuthenticationCode::sasl:
      return begin_sasl(asked.data, out);
    case wire::AuthenticationCode::sasl_continue:
      return continue_sasl(asked.data, out);
    case wire::AuthenticationCode::sasl_final:
      if (!scram_ || !sasl_answered_) return fail(ServerFailure::protocol, "SASL ends before it has begun");
      server_proved_ = scram_->finish(wire::as_text(asked.data));
      if (!server_proved_) return fail(ServerFailure::unproved, "the server's SCRAM signature is wrong");
      return ServerLoginStep::need_more;
    case wire::AuthenticationCode::cleartext_password:
    case wire::AuthenticationCode::md5_password:
      return send_password(asked.code, asked.data, out);
    default:
      return fail(ServerFailure::method, "the server asks for an authentication method that is not supported: " +
                                             std::to_string(static_cast<std::uint32_t>(asked.code)));
  }
}

ServerLoginStep ServerLogin::authentication_ok() {
  bool asked = scram_.has_value() || secret_sent_;
  if (scram_ && !server_proved_) return fail(ServerFailure::unproved, "the server ends SCRAM without a signature");
  if (!asked && !options_.allow_nothing) {
    return fail(ServerFailure::method, "the server asks for no authentication, which is not allowed");
  }
  authenticated_ = true;
  return ServerLoginStep::need_more;
}

ServerLoginStep ServerLogin::begin_sasl(wire::Bytes mechanisms, Output& out) {
  if (scram_ || secret_sent_) return fail(ServerFailure::protocol, "the server asks twice");
  bool plus = in_tls_ && !end_point_.empty() && wire::offers_mechanism(mechanisms, kScramPlusMechanism);
  if (!plus && !wire::offers_mechanism(mechanisms, kScramMechanism)) {
    return fail(ServerFailure::method, "the server offers no SASL mechanism that is supported");
  }
  if (secret_.empty()) return fail(ServerFailure::method, "the server asks for a password and none is known");
  scram_.emplace(secret_, plus, end_point_, options_.max_iterations);
  std::string first = scram_->first();
  if (first.empty()) return fail(ServerFailure::protocol, "no random bytes for a nonce");
  std::string_view mechanism = plus ? kScramPlusMechanism : kScramMechanism;
  out.to_server(make_message(mechanism.size() + first.size(), [&](wire::ByteWriter& writer) {
    wire::write_sasl_initial_response(writer, {mechanism, wire::as_bytes(first)});
  }));
  return ServerLoginStep::need_more;
}

ServerLoginStep ServerLogin::continue_sasl(wire::Bytes data, Output& out) {
  if (!scram_ || sasl_answered_) return fail(ServerFailure::protocol, "SASL goes on before it has begun");
  std::string reply;
  switch (scram_->final(wire::as_text(data), reply)) {
    case ScramAnswer::go_on:
      break;
    case ScramAnswer::malformed:
      return fail(ServerFailure::protocol, "malformed SCRAM message of the server");
    case ScramAnswer::keys_outdated:
      return fail(ServerFailure::keys_outdated, "the server's verifier differs from the one that is known here");
    case ScramAnswer::too_expensive:
      return fail(ServerFailure::too_expensive, "the server wants more SCRAM iterations than are allowed");
    case ScramAnswer::failed:
      return fail(ServerFailure::protocol, "the password could not be hashed");
  }
  sasl_answered_ = true;
  secret_sent_ = true;
  out.to_server(make_message(
      reply.size(), [&](wire::ByteWriter& writer) { wire::write_sasl_response(writer, wire::as_bytes(reply)); }));
  return ServerLoginStep::need_more;
}

ServerLoginStep ServerLogin::send_password(wire::AuthenticationCode code, wire::Bytes salt, Output& out) {
  bool cleartext = code == wire::AuthenticationCode::cleartext_password;
  if (scram_ || secret_sent_) return fail(ServerFailure::protocol, "the server asks twice");
  if (cleartext ? !options_.allow_cleartext || !in_tls_ : !options_.allow_md5) {
    return fail(ServerFailure::method, cleartext ? "the server asks for a cleartext password, which is not allowed"
                                                 : "the server asks for md5, which is not allowed");
  }
  if (secret_.password.empty()) return fail(ServerFailure::method, "the server asks for a password and none is known");
  if (!cleartext && salt.size() != kMd5SaltBytes) return fail(ServerFailure::protocol, "malformed salt of md5");
  std::string hash;
  std::string text = "md5";
  if (!cleartext && (!add_md5(hash, secret_.password.view(), user_) || !add_md5(text, hash, wire::as_text(salt)))) {
    return fail(ServerFailure::method, "md5 is not available");
  }
  std::string_view answer = cleartext ? secret_.password.view() : std::string_view(text);
  std::vector<std::uint8_t> made =
      make_message(answer.size(), [&](wire::ByteWriter& writer) { wire::write_password(writer, answer); });
  out.to_server(made);
  OPENSSL_cleanse(made.data(), made.size());
  OPENSSL_cleanse(hash.data(), hash.size());
  secret_sent_ = true;
  return ServerLoginStep::need_more;
}

ServerLoginStep ServerLogin::server_error(wire::Bytes payload) {
  error_payload_.assign(payload.begin(), payload.end());
  if (!wire::read_error(error_payload_, error_)) {
    error_.clear();
    return fail(ServerFailure::protocol, "malformed ErrorResponse");
  }
  return fail(ServerFailure::refused, "the server refused: " + std::string(error_.sqlstate()));
}

ServerLoginStep ServerLogin::fail(ServerFailure failure, std::string reason) {
  state_ = State::failed;
  failure_ = failure;
  reason_ = std::move(reason);
  return ServerLoginStep::failed;
}

}  // namespace sluice::proxy
