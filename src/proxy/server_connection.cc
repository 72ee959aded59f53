#include "proxy/server_connection.h"

#include <utility>

#include "wire/frontend_messages.h"

namespace sluice::proxy {
namespace {

// What the login leaves for later is less than a message it refuses anyway.
constexpr std::size_t kMaxHeldBytes = 64 * 1024;

}  // namespace

ServerConnection::ServerConnection(ChannelHub& hub, ServerId id, ServerTarget target, ServerOwner& owner)
    : id_(id), target_(std::move(target)), owner_(owner) {
  channel_ = std::make_unique<Channel>(hub, Stream::connect(target_.address, target_.socket), *this);
}

void ServerConnection::open() {
  if (channel_->closed()) {
    fail(FailureKind::unreachable, "08006", channel_->stream().error());
    return;
  }
  channel_->begin_step(true);
}

void ServerConnection::channel_step(Channel&) {
  if (phase_ == Phase::tls_handshake) {
    handshake();
    return;
  }
  StreamStatus status = channel_->stream().finish_connect();
  if (status == StreamStatus::would_block) return;
  if (status != StreamStatus::done) {
    fail(FailureKind::unreachable, "08006", channel_->stream().error());
    return;
  }
  connected();
}

void ServerConnection::connected() {
  phase_ = Phase::login;
  channel_->end_step();
  login_.emplace(target_.login, target_.user, target_.database, target_.settings, std::move(target_.secret));
  take_step(login_->start(*this));
}

void ServerConnection::handshake() {
  StreamStatus status = channel_->stream().handshake();
  if (status == StreamStatus::would_block) return;
  if (status != StreamStatus::done) {
    fail(FailureKind::unreachable, "08006", "TLS with the server failed: " + channel_->stream().error());
    return;
  }
  phase_ = Phase::login;
  channel_->end_step();
  X509* certificate = channel_->stream().peer_certificate();
  take_step(
      login_->tls_started(certificate == nullptr ? std::vector<std::uint8_t>() : server_end_point(certificate), *this));
}

void ServerConnection::channel_received(Channel&, wire::Bytes bytes) {
  if (phase_ == Phase::open) {
    owner_.server_received(*this, bytes);
    return;
  }
  if (phase_ != Phase::login) return;
  held_.insert(held_.end(), bytes.begin(), bytes.end());
  wire::Bytes input = held_;
  ServerLoginStep step = login_->receive(input, *this);
  std::vector<std::uint8_t> rest(input.begin(), input.end());
  channel_->flush();  // what the login sent may point into held_
  held_ = std::move(rest);
  if (held_.size() > kMaxHeldBytes) {
    fail(FailureKind::unreachable, "08P01", "the server sent more than a login has");
    return;
  }
  take_step(step);
}

void ServerConnection::take_step(ServerLoginStep step) {
  channel_->flush();
  switch (step) {
    case ServerLoginStep::need_more:
      return;
    case ServerLoginStep::start_tls:
      if (!channel_->stream().start_tls(*target_.tls, target_.host)) {
        fail(FailureKind::unreachable, "08006", channel_->stream().error());
        return;
      }
      phase_ = Phase::tls_handshake;
      channel_->begin_step(false);
      handshake();
      return;
    case ServerLoginStep::failed:
      fail_login();
      return;
    case ServerLoginStep::ready:
      break;
  }
  if (!held_.empty()) {
    fail(FailureKind::unreachable, "08P01", "the server went on behind its ReadyForQuery");
    return;
  }
  phase_ = Phase::open;
  std::vector<std::uint8_t>().swap(held_);
  Settings reported;
  for (const Setting& setting : login_->parameters()) reported.set(setting.name, setting.value);
  state_.emplace(target_.user, std::move(reported));
  owner_.server_opened(*this);
}

void ServerConnection::fail_login() {
  // The server shows another salt where the password was changed, and where it hides that the role may not log in.
  if (login_->failure() == ServerFailure::keys_outdated) {
    fail(FailureKind::rejected, "28P01", "password authentication failed for user \"" + target_.user + "\"");
    return;
  }
  if (login_->failure() != ServerFailure::refused) {
    FailureKind kind = login_->failure() == ServerFailure::protocol ? FailureKind::unreachable : FailureKind::rejected;
    fail(kind, "08006", login_->reason());
    return;
  }
  std::string_view sqlstate = login_->error().sqlstate();
  // Full, starting up, shutting down: alive, and worth to be asked again.
  bool not_now = sqlstate == "53300" || sqlstate == "57P03" || sqlstate == "57P01" || sqlstate == "57P02";
  fail(not_now ? FailureKind::full : FailureKind::rejected, sqlstate, std::string(login_->error().message()));
}

void ServerConnection::fail(FailureKind kind, std::string_view sqlstate, std::string message) {
  ConnectFailure failure{kind, std::string(sqlstate), std::move(message)};
  channel_->close();
  phase_ = Phase::closed;
  owner_.server_open_failed(*this, failure);
}

void ServerConnection::channel_ended(Channel&, StreamStatus how) {
  if (phase_ == Phase::closed) return;
  if (phase_ == Phase::open) {
    phase_ = Phase::closed;
    channel_->close();
    owner_.server_ended(*this);
    return;
  }
  fail(FailureKind::unreachable, "08006",
       how == StreamStatus::end ? "the server closed the connection during the login" : channel_->stream().error());
}

void ServerConnection::close() {
  if (phase_ == Phase::closed) return;
  if (phase_ == Phase::open) {
    std::uint8_t terminate[5];
    wire::ByteWriter out(terminate);
    wire::write_terminate(out);
    channel_->send(out.written());
    channel_->flush();
    channel_->stream().shut_down();
  }
  phase_ = Phase::closed;
  channel_->close();
}

}  // namespace sluice::proxy
