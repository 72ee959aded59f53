#include "proxy/client_login.h"

#include "proxy/message_buffer.h"
#include "wire/frontend_messages.h"

namespace sluice::proxy {
namespace {

constexpr std::string_view kVersions = ": server supports 3.0 to 3.";

std::string version_text(std::uint32_t version) {
  return std::to_string(version >> 16U) + "." + std::to_string(version & 0xFFFFU);
}

std::uint32_t max_payload(const ClientLoginOptions& options) noexcept {
  return options.method == ClientMethod::password ? kMaxPasswordBytes : kMaxSaslBytes;
}

}  // namespace

std::string_view phase_name(LoginPhase phase) noexcept {
  switch (phase) {
    case LoginPhase::start:
      return "start";
    case LoginPhase::tls_handshake:
      return "tls_handshake";
    case LoginPhase::startup:
      return "startup";
    case LoginPhase::verifier:
      return "verifier";
    case LoginPhase::proof:
      return "proof";
    case LoginPhase::password:
      return "password";
    case LoginPhase::snapshot:
      return "snapshot";
    case LoginPhase::done:
      return "done";
  }
  return "unknown";
}

ClientLogin::ClientLogin(const ClientLoginOptions& options) noexcept
    : options_(options), walker_(wire::Direction::frontend, wire::Phase::login, max_payload(options)) {}

ClientLogin::~ClientLogin() { OPENSSL_cleanse(storage_.data(), storage_.size()); }

LoginStep ClientLogin::receive(wire::Bytes& input, Output& out) {
  bool reading_start = phase_ == LoginPhase::start || phase_ == LoginPhase::startup;
  if (step_ != LoginStep::need_more) return step_;
  return wanted(reading_start ? read_start(input, out) : read_answer(input, out));
}

LoginStep ClientLogin::read_start(wire::Bytes& input, Output& out) {
  for (;;) {
    wire::StartupPacket packet = wire::read_startup(input);
    if (packet.kind == wire::StartupKind::need_more) return LoginStep::need_more;
    if (packet.kind == wire::StartupKind::direct_tls) {
      bool first = phase_ == LoginPhase::start && !asked_tls_ && !asked_gssenc_;
      if (!first || !options_.tls_available) return end(LoginOutcome::protocol, "TLS begins where none is expected");
      direct_tls_ = true;
      phase_ = LoginPhase::tls_handshake;
      return LoginStep::start_tls;
    }
    wire::Bytes rest = input.subspan(packet.size);
    LoginStep step = start_packet(packet, rest, out);
    input = rest;
    if (step != LoginStep::need_more || phase_ == LoginPhase::password) return step;
  }
}

LoginStep ClientLogin::start_packet(const wire::StartupPacket& packet, wire::Bytes rest, Output& out) {
  switch (packet.kind) {
    case wire::StartupKind::ssl_request:
    case wire::StartupKind::gssenc_request:
      return encryption_request(packet, rest, out);
    case wire::StartupKind::cancel_request:
      cancel_key_.assign(packet.cancel.key.begin(), packet.cancel.key.end());
      cancel_ = {packet.cancel.process_id, cancel_key_};
      phase_ = LoginPhase::done;
      outcome_ = LoginOutcome::cancel;
      return LoginStep::cancel_request;
    case wire::StartupKind::startup_message:
      return startup_message(packet, out);
    case wire::StartupKind::unsupported_version:
      old_protocol_ = packet.version >> 16U < 3 && packet.version != 0;
      return fail(LoginOutcome::unsupported, "protocol " + version_text(packet.version), "0A000",
                  "unsupported frontend protocol " + version_text(packet.version) + std::string(kVersions) +
                      std::to_string(options_.newest_protocol & 0xFFFFU),
                  "", out);
    case wire::StartupKind::invalid_layout:
      return violation("invalid startup packet layout: expected terminator as last byte", out);
    default:
      // As the server does, without an answer: what sends such a thing may not even speak this protocol.
      return end(LoginOutcome::protocol, "invalid length of startup packet");
  }
}

LoginStep ClientLogin::encryption_request(const wire::StartupPacket& packet, wire::Bytes rest, Output& out) {
  bool tls = packet.kind == wire::StartupKind::ssl_request;
  bool& asked = tls ? asked_tls_ : asked_gssenc_;
  if (asked || (tls && in_tls_)) {
    return fail(LoginOutcome::protocol, "the same encryption was requested twice", "0A000",
                "unsupported frontend protocol " + version_text(packet.version) + std::string(kVersions) +
                    std::to_string(options_.newest_protocol & 0xFFFFU),
                "", out);
  }
  asked = true;
  bool accept = tls && options_.tls_available;
  const std::uint8_t letter = accept ? 'S' : 'N';
  // What follows a request before its answer was put there by somebody who wants it to count as encrypted.
  if (!accept || rest.empty()) out.to_client({&letter, 1});
  if (!rest.empty()) {
    return violation(tls ? "received unencrypted data after SSL request"
                         : "received unencrypted data after GSSAPI encryption request",
                     out);
  }
  if (!accept) return LoginStep::need_more;
  phase_ = LoginPhase::tls_handshake;
  return LoginStep::start_tls;
}

LoginStep ClientLogin::tls_started(TlsFacts facts) {
  if (step_ != LoginStep::start_tls) return step_;
  if (direct_tls_ && !facts.postgresql_alpn) {
    return wanted(end(LoginOutcome::protocol, "TLS without SSLRequest and without ALPN \"postgresql\""));
  }
  tls_ = std::move(facts);
  in_tls_ = true;
  phase_ = LoginPhase::startup;
  return wanted(LoginStep::need_more);
}

LoginStep ClientLogin::startup_message(const wire::StartupPacket& packet, Output& out) {
  if (options_.tls_required && !in_tls_) {
    return fail(LoginOutcome::tls_required, "startup in plaintext", "28000", "this connection requires TLS",
                "Use sslmode=require or better.", out);
  }
  version_ = packet.version < options_.newest_protocol ? packet.version : options_.newest_protocol;
  std::uint32_t protocol_options = wire::summarize_startup(packet.parameters).protocol_options;
  if (wire::must_negotiate(packet.version, options_.newest_protocol, protocol_options)) {
    out.to_client(make_message(packet.parameters.size(), [&](wire::ByteWriter& writer) {
      wire::write_negotiate_protocol_version(writer, version_, packet.parameters);
    }));
  }
  StartupRefusal refusal =
      read_startup_parameters(packet.parameters, options_.profile, options_.allow_replication, parameters_);
  if (!refusal.sqlstate.empty()) {
    return fail(LoginOutcome::unsupported, refusal.message, refusal.sqlstate, refusal.message, refusal.hint, out);
  }
  storage_.resize(max_payload(options_));
  collector_.emplace(storage_);
  if (options_.method == ClientMethod::scram) {
    phase_ = LoginPhase::verifier;
    return LoginStep::lookup_verifier;
  }
  out.to_client(make_message(0, [](wire::ByteWriter& writer) {
    wire::write_authentication(writer, wire::AuthenticationCode::cleartext_password, {});
  }));
  phase_ = LoginPhase::password;
  return LoginStep::need_more;
}

LoginStep ClientLogin::verifier(const FoundVerifier& found, Output& out) {
  if (step_ != LoginStep::lookup_verifier) return step_;
  bool real = found.kind == FindKind::verifier;
  if (found.kind == FindKind::unknown) {
    doom_ = LoginOutcome::unknown_role;
    doom_reason_ = "the role does not exist, may not log in, or is no longer valid";
  } else if (!real) {
    doom_ = LoginOutcome::unusable_role;
    doom_reason_ = found.cause;
  }
  scram_.emplace(found.verifier, tls_.end_point, !real);
  out.to_client(make_message(kScramMechanism.size() + kScramPlusMechanism.size(), [&](wire::ByteWriter& writer) {
    if (scram_->offers_plus()) {
      wire::write_sasl_offer(writer, kScramPlusMechanism, kScramMechanism);
    } else {
      wire::write_sasl_offer(writer, kScramMechanism, {});
    }
  }));
  phase_ = LoginPhase::proof;
  return wanted(LoginStep::need_more);
}

LoginStep ClientLogin::read_answer(wire::Bytes& input, Output& out) {
  for (;;) {
    wire::Piece piece = walker_.next(input);
    switch (piece.kind) {
      case wire::PieceKind::nothing:
      case wire::PieceKind::partial_header:
        return LoginStep::need_more;
      case wire::PieceKind::unknown_type:
        return violation(
            (scram_ ? "expected SASL response, got message type " : "expected password response, got message type ") +
                std::to_string(piece.type),
            out);
      case wire::PieceKind::invalid_length:
        return violation("invalid message length", out);
      case wire::PieceKind::message:
        break;
    }
    wire::Collected collected = collector_->add(piece);
    if (collected == wire::Collected::more) continue;
    if (collected == wire::Collected::too_long) return violation("invalid message length", out);
    LoginStep step = answer(collector_->payload(), out);
    OPENSSL_cleanse(storage_.data(), storage_.size());
    if (step != LoginStep::need_more) return step;
  }
}

LoginStep ClientLogin::answer(wire::Bytes payload, Output& out) {
  if (!scram_) return take_password(payload, out);
  return sasl_begun_ ? sasl_final(payload, out) : sasl_first(payload, out);
}

LoginStep ClientLogin::take_password(wire::Bytes payload, Output& out) {
  std::string_view password;
  if (!wire::read_password(payload, password)) return violation("invalid password packet", out);
  if (password.empty()) {
    return fail(LoginOutcome::rejected, "empty password", "28P01", "empty password returned by client", "", out);
  }
  password_ = Secret(password);
  return LoginStep::verify_password;
}

LoginStep ClientLogin::sasl_first(wire::Bytes payload, Output& out) {
  wire::SaslInitialResponse response = {};
  if (!wire::read_sasl_initial_response(payload, response)) return violation("malformed SASL response", out);
  std::string reply;
  ScramResult result = scram_->first(response.mechanism, wire::as_text(response.data), reply);
  if (result != ScramResult::go_on) return scram_failed(result, out);
  sasl_begun_ = true;
  out.to_client(make_message(reply.size(), [&](wire::ByteWriter& writer) {
    wire::write_authentication(writer, wire::AuthenticationCode::sasl_continue, wire::as_bytes(reply));
  }));
  return LoginStep::need_more;
}

LoginStep ClientLogin::sasl_final(wire::Bytes payload, Output& out) {
  std::string reply;
  ScramResult result = scram_->final(wire::as_text(payload), reply);
  if (result != ScramResult::proved) return scram_failed(result, out);
  keys_.verifier = scram_->verifier();
  keys_.client_key = scram_->client_key();
  plus_ = scram_->uses_plus();
  out.to_client(make_message(reply.size(), [&](wire::ByteWriter& writer) {
    wire::write_authentication(writer, wire::AuthenticationCode::sasl_final, wire::as_bytes(reply));
  }));
  return proved(out);
}

LoginStep ClientLogin::scram_failed(ScramResult result, Output& out) {
  std::string reason(scram_->reason());
  switch (result) {
    case ScramResult::wrong_proof:
      reason_ = doom_reason_;
      outcome_ = doom_;
      return refuse_password(out);
    case ScramResult::downgrade:
      return fail(LoginOutcome::channel_binding, reason, "28000", "SCRAM channel binding negotiation error", "", out);
    case ScramResult::binding_differs:
      return fail(LoginOutcome::channel_binding, reason, "28000", "SCRAM channel binding check failed", "", out);
    case ScramResult::no_randomness:
      return fail(LoginOutcome::refused, reason, "XX000", "could not generate random nonce", "", out);
    default:
      return violation("malformed SCRAM message: " + reason, out);
  }
}

LoginStep ClientLogin::password_accepted(Output& out) {
  if (step_ != LoginStep::verify_password) return step_;
  password_.wipe();
  return wanted(proved(out));
}

LoginStep ClientLogin::proved(Output& out) {
  out.to_client(make_message(
      0, [](wire::ByteWriter& writer) { wire::write_authentication(writer, wire::AuthenticationCode::ok, {}); }));
  phase_ = LoginPhase::snapshot;
  return LoginStep::pool_snapshot;
}

LoginStep ClientLogin::snapshot(std::span<const Setting> parameters, const wire::BackendKey& key, Output& out) {
  if (step_ != LoginStep::pool_snapshot) return step_;
  for (const Setting& parameter : parameters) {
    // This one the client has set for itself, whatever the connection was opened with.
    bool own = same_setting(parameter.name, "application_name");
    wire::ParameterStatus status = {parameter.name, own ? parameters_.application_name() : parameter.value};
    out.to_client(make_message(status.name.size() + status.value.size(),
                               [&](wire::ByteWriter& writer) { wire::write_parameter_status(writer, status); }));
  }
  out.to_client(make_message(key.key.size(), [&](wire::ByteWriter& writer) {
    wire::write_backend_key(writer, key);
    wire::write_ready_for_query(writer, wire::TransactionStatus::idle);
  }));
  phase_ = LoginPhase::done;
  outcome_ = LoginOutcome::accepted;
  return wanted(LoginStep::accepted);
}

LoginStep ClientLogin::refuse(const wire::ErrorText& error, Output& out) {
  if (is_over() || phase_ == LoginPhase::tls_handshake) return step_;
  put_error(error, out);
  return wanted(end(outcome_ == LoginOutcome::running ? LoginOutcome::refused : outcome_, std::string(error.message)));
}

LoginStep ClientLogin::refuse(const wire::ErrorFields& error, Output& out) {
  if (is_over() || phase_ == LoginPhase::tls_handshake) return step_;
  out.to_client(
      make_message(text_bytes(error), [&](wire::ByteWriter& writer) { wire::write_error(writer, 'E', error); }));
  return wanted(end(LoginOutcome::refused, std::string(error.message())));
}

LoginStep ClientLogin::refuse_password(Output& out) {
  if (outcome_ == LoginOutcome::running) outcome_ = LoginOutcome::rejected;
  std::string message = "password authentication failed for user \"" + parameters_.user + "\"";
  return refuse({"FATAL", "28P01", message, {}, {}}, out);
}

LoginStep ClientLogin::violation(const std::string& message, Output& out) {
  return fail(LoginOutcome::protocol, message, "08P01", message, "", out);
}

LoginStep ClientLogin::fail(LoginOutcome outcome, std::string reason, std::string_view sqlstate,
                            std::string_view message, std::string_view hint, Output& out) {
  put_error({"FATAL", sqlstate, message, {}, hint}, out);
  return end(outcome, std::move(reason));
}

LoginStep ClientLogin::end(LoginOutcome outcome, std::string reason) {
  password_.wipe();
  outcome_ = outcome;
  if (reason_.empty()) reason_ = std::move(reason);
  return LoginStep::close;
}

void ClientLogin::put_error(const wire::ErrorText& error, Output& out) {
  if (!old_protocol_) {
    out.to_client(make_message(text_bytes(error), [&](wire::ByteWriter& writer) { wire::write_error(writer, error); }));
    return;
  }
  // Before 3.0 a message had no length and an error was one text.
  std::string text = "E" + std::string(error.severity) + ":  " + std::string(error.message) + "\n";
  out.to_client({reinterpret_cast<const std::uint8_t*>(text.c_str()), text.size() + 1});
}

}  // namespace sluice::proxy
