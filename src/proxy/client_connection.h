// One client, from accept() to the last byte: its login, and then its session. Carries out what both decide on the
// channels, and asks its owner for everything that concerns others: verifiers, server connections, cancels.
//
// The owner keeps it until client_finished(), which is told when neither the client nor a server connection of its
// session needs it any more, and destroys it after the turn.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proxy/channel.h"
#include "proxy/client_login.h"
#include "proxy/listener.h"
#include "proxy/pool_actions.h"
#include "proxy/server_connection.h"
#include "proxy/session.h"

namespace sluice::proxy {

class ClientConnection;

class ClientOwner {
 public:
  // The login asks; answered with verifier(), password_accepted(), snapshot() or refuse(), at once or later.
  virtual void client_wants_verifier(ClientConnection& client) = 0;
  virtual void client_wants_password_checked(ClientConnection& client) = 0;
  virtual void client_wants_snapshot(ClientConnection& client) = 0;
  virtual void client_cancels(const wire::CancelTarget& target) = 0;
  // The login is over, with its outcome.
  virtual void client_login_ended(ClientConnection& client) = 0;
  // The session asks; answered with assign() or refuse_wait(), unless the client leaves the queue.
  virtual void client_waits(ClientConnection& client) = 0;
  virtual void client_leaves_queue(ClientConnection& client) = 0;
  virtual void client_released(ClientConnection& client, ServerConnection& server, Discard discard) = 0;
  virtual void client_wants_cancel(ClientConnection& client) = 0;
  virtual void client_finished(ClientConnection& client) = 0;

 protected:
  ~ClientOwner() = default;
};

struct ClientLimits {
  std::size_t buffer_bytes = 256 << 10;  // unsent to one side, before the other is no longer read
  Time stall_timeout = kNever;
  SocketOptions socket;
  Time login_timeout = 15 * kSecond;  // from accept() to ReadyForQuery, over all phases
};

class ClientConnection final : public ChannelHandler, public Output {
 public:
  ClientConnection(ChannelHub& hub, WaiterId id, AcceptedClient accepted, const ClientLoginOptions& options,
                   const TlsServerContext* tls, const ClientLimits& limits, ClientOwner& owner);
  ~ClientConnection();

  [[nodiscard]] WaiterId id() const noexcept { return id_; }
  [[nodiscard]] ClientLogin& login() noexcept { return *login_; }
  [[nodiscard]] bool logged_in() const noexcept { return session_ != nullptr; }
  [[nodiscard]] const std::string& peer() const noexcept { return peer_; }
  [[nodiscard]] const std::string& user() const noexcept { return user_; }
  [[nodiscard]] const std::string& database() const noexcept { return database_; }

  [[nodiscard]] bool login_timed_out() const noexcept { return login_timed_out_; }

  // --- Answers to the login.
  void verifier(const FoundVerifier& found);
  void password_accepted();
  void refuse_password();
  void refuse_login(const wire::ErrorText& error);
  void refuse_login(const wire::ErrorFields& error);
  // The deadline of the login, or the end of the proxy: no answer is due any more.
  void abort_login(const wire::ErrorText& error);
  // The session begins; `parameters` are what the client is greeted with.
  void snapshot(std::span<const Setting> parameters, const wire::BackendKey& key,
                std::shared_ptr<const SessionOptions> options, const ClientLimits& limits, const Settings& startup,
                const Settings& greeted);

  // --- The session's part of the pool.
  void assign(ServerConnection& server);
  void refuse_wait(const wire::ErrorText& error);
  void server_received(wire::Bytes bytes);
  void server_lost();
  void server_drained();
  [[nodiscard]] ServerConnection* server() noexcept { return server_; }
  [[nodiscard]] Session* session() noexcept { return session_.get(); }
  [[nodiscard]] bool waiting() const noexcept { return waiting_; }

  // FATAL as soon as nothing is under way.
  void shut_down(const wire::ErrorText& error);
  // Gone at once, without a word.
  void drop();

  PoolId pool = 0;
  bool attached = false;

  void to_client(wire::Bytes bytes) override { channel_.send(bytes); }
  void to_server(wire::Bytes bytes) override {
    if (server_ != nullptr) server_->send(bytes);
  }

 private:
  enum class Stage : std::uint8_t { first_byte, login, tls_handshake, owner, session, closing, finished };

  void channel_received(Channel& channel, wire::Bytes bytes) override;
  void channel_step(Channel& channel) override;
  void channel_ended(Channel& channel, StreamStatus how) override;
  void channel_drained(Channel& channel) override;

  void look_at_first_byte();
  void handshake();
  void go_on_with_login();
  void take_step(LoginStep step);
  void start_tls();
  void take(wire::Bytes bytes);
  [[nodiscard]] std::size_t pump(wire::Bytes input);
  void pump_inbox();
  [[nodiscard]] bool settle();
  void end_login();
  void consider_departure();
  void update_flow();
  void due();
  void begin_closing();
  void finish();

  ChannelHub& hub_;
  WaiterId id_;
  ClientSlot slot_;
  std::string peer_;
  std::string user_;
  std::string database_;
  const TlsServerContext* tls_;
  ClientLimits limits_;
  ClientOwner& owner_;
  std::optional<ClientLogin> login_;
  std::shared_ptr<const SessionOptions> session_options_;  // as they were at its login, whatever is reloaded since
  std::unique_ptr<Session> session_;
  ServerConnection* server_ = nullptr;
  std::vector<std::uint8_t> inbox_;  // what was received and not taken yet
  HeldMemory held_;                  // by the inbox
  Timer timer_;
  Stage stage_ = Stage::first_byte;
  bool direct_tls_ = false;
  bool waiting_ = false;    // in the pool's queue
  bool pumping_ = false;    // pump() is on the stack
  bool cancelled_ = false;  // the session's wish was told to the owner
  bool login_timed_out_ = false;
  bool login_over_ = false;             // and the owner was told
  bool told_gone_ = false;              // the session knows of the departure
  std::optional<Departure> departure_;  // the client has gone, its last messages may still be to be taken
  Channel channel_;
};

}  // namespace sluice::proxy
