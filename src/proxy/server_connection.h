// One connection to a PostgreSQL server, from connect() to its end: TCP, TLS, login, and then whoever it is assigned
// to. Owns the channel and what travels with the connection from client to client. Whether it is opened, kept or closed
// is the pools' decision, what its bytes mean the session's.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/channel.h"
#include "proxy/pool_actions.h"
#include "proxy/server_login.h"
#include "proxy/server_state.h"
#include "proxy/tls_context.h"

namespace sluice::proxy {

class ServerConnection;

class ServerOwner {
 public:
  virtual void server_opened(ServerConnection& server) = 0;
  virtual void server_open_failed(ServerConnection& server, const ConnectFailure& failure) = 0;
  // Only once it is open.
  virtual void server_received(ServerConnection& server, wire::Bytes bytes) = 0;
  virtual void server_ended(ServerConnection& server) = 0;
  virtual void server_drained(ServerConnection& server) = 0;

 protected:
  ~ServerOwner() = default;
};

// Where to and as whom.
struct ServerTarget {
  Address address;
  std::string host;  // for the certificate and SNI
  SocketOptions socket;
  const TlsClientContext* tls = nullptr;
  ServerLoginOptions login;
  std::string user;
  std::string database;
  std::vector<Setting> settings;
  ScramSecret secret;
};

class ServerConnection final : public ChannelHandler, public Output {
 public:
  ServerConnection(ChannelHub& hub, ServerId id, ServerTarget target, ServerOwner& owner);

  // Begins; the outcome is told in a later turn, or at once if the descriptor could not even begin.
  void open();

  [[nodiscard]] ServerId id() const noexcept { return id_; }
  [[nodiscard]] bool is_open() const noexcept { return phase_ == Phase::open; }
  // Why it could not be opened, for the credentials.
  [[nodiscard]] bool keys_outdated() const noexcept {
    return login_ && login_->failure() == ServerFailure::keys_outdated;
  }
  [[nodiscard]] bool secret_sent() const noexcept { return login_ && login_->secret_sent(); }
  // What the server itself said; null if it said nothing.
  [[nodiscard]] const wire::ErrorFields* server_error() const noexcept {
    return login_ && login_->failure() == ServerFailure::refused ? &login_->error() : nullptr;
  }
  [[nodiscard]] const ServerLogin& login() const noexcept { return *login_; }
  [[nodiscard]] const ServerTarget& target() const noexcept { return target_; }
  [[nodiscard]] const std::string& user() const noexcept { return target_.user; }
  [[nodiscard]] Channel& channel() noexcept { return *channel_; }
  [[nodiscard]] ServerState& state() noexcept { return *state_; }

  void send(wire::Bytes bytes) { channel_->send(bytes); }
  // Terminate, FIN, gone.
  void close();

  void to_server(wire::Bytes bytes) override { channel_->send(bytes); }
  void to_client(wire::Bytes) override {}

 private:
  enum class Phase : std::uint8_t { connecting, tls_handshake, login, open, closed };

  void channel_received(Channel& channel, wire::Bytes bytes) override;
  void channel_step(Channel& channel) override;
  void channel_ended(Channel& channel, StreamStatus how) override;
  void channel_drained(Channel& channel) override { (void)channel, owner_.server_drained(*this); }

  void connected();
  void handshake();
  void take_step(ServerLoginStep step);
  void fail(FailureKind kind, std::string_view sqlstate, std::string message);
  void fail_login();

  ServerId id_;
  ServerTarget target_;
  ServerOwner& owner_;
  std::unique_ptr<Channel> channel_;
  std::optional<ServerLogin> login_;
  std::optional<ServerState> state_;
  std::vector<std::uint8_t> held_;  // what the login has not taken yet
  Phase phase_ = Phase::connecting;
};

}  // namespace sluice::proxy
