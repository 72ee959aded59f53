// Logins with a cleartext password (auth.method = "password"): what the check wants verified is tried on the server, by
// logging in as the client would. Owns the check and those connections, which are closed as soon as they have answered:
// a pool opens its own with the keys that came of it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "proxy/loop.h"
#include "proxy/password_check.h"
#include "proxy/server_connection.h"

namespace sluice::proxy {

class PasswordVerifier final : public ServerOwner {
 public:
  struct Events {
    // Where to log in as this role, as of now; the secret is filled in here.
    std::function<ServerTarget(const std::string& user, const std::string& database)> target;
    std::function<void(LoginNumber login)> accepted;
    std::function<void(LoginNumber login, bool rate_limited)> rejected;
    // No verdict: the server's own error where it said something.
    std::function<void(LoginNumber login, const wire::ErrorFields* error, const std::string& message)> unavailable;
    // The wait for one of max_verifications took too long: 53300.
    std::function<void(LoginNumber login)> busy;
  };

  PasswordVerifier(ChannelHub& hub, const PasswordOptions& options, const AuthFailureOptions& failures, Events events);
  ~PasswordVerifier();

  void ask(LoginNumber login, const std::string& user, const std::string& database, const std::string& address,
           std::string_view password);
  // The login has ended, one way or the other.
  void withdraw(LoginNumber login);

  [[nodiscard]] PasswordCheck& check() noexcept { return check_; }

 private:
  struct Asking {
    std::string user;
    std::string database;
    std::string address;
    Secret password;
    Time deadline = kNever;
  };
  struct Trial {
    std::uint64_t verification;
    LoginNumber login;
    std::unique_ptr<ServerConnection> server;
  };

  void server_opened(ServerConnection& server) override;
  void server_open_failed(ServerConnection& server, const ConnectFailure& failure) override;
  void server_received(ServerConnection&, wire::Bytes) override {}
  void server_ended(ServerConnection&) override {}
  void server_drained(ServerConnection&) override {}

  void decide(LoginNumber login);
  void ask_again(const std::vector<LoginNumber>& logins);
  [[nodiscard]] Trial finish(ServerConnection& server);
  void expire();
  void set_deadline();

  ChannelHub& hub_;
  PasswordCheck check_;
  Events events_;
  std::unordered_map<LoginNumber, Asking> asking_;
  std::unordered_map<ServerId, Trial> trials_;
  std::vector<std::unique_ptr<ServerConnection>> finished_;  // until nothing of theirs is on the stack any more
  ServerId last_trial_ = 0;
  Timer deadline_;
  Task clean_up_;
};

}  // namespace sluice::proxy
