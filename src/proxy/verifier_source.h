// The connection that reads roles' verifiers, and the roles that wait for it. Owns one server connection, which it
// opens when it is first needed and again when it broke; asks for one role at a time, within a time limit that covers
// opening.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "proxy/credentials.h"
#include "proxy/loop.h"
#include "proxy/server_connection.h"
#include "proxy/verifier_lookup.h"

namespace sluice::proxy {

// Why nothing was learned: what a client that waited is told.
struct LookupFailure {
  std::string sqlstate;
  std::string message;
};

class VerifierSource final : public ServerOwner {
 public:
  struct Events {
    std::function<ServerTarget()> target;  // where to connect, as of now
    // The credentials know more about `user` now, or `failure` says why not.
    std::function<void(const std::string& user, const LookupFailure* failure)> done;
  };

  // The hub and the credentials must outlive it.
  VerifierSource(ChannelHub& hub, Credentials& credentials, Events events);
  ~VerifierSource();

  void set_query(std::string query, Time timeout);
  // The credentials said lookup_needed.
  void look_up(const std::string& user);
  // A reload: the next lookup opens a connection anew.
  void reconnect();

 private:
  void server_opened(ServerConnection& server) override;
  void server_open_failed(ServerConnection& server, const ConnectFailure& failure) override;
  void server_received(ServerConnection& server, wire::Bytes bytes) override;
  void server_ended(ServerConnection& server) override;
  void server_drained(ServerConnection&) override {}

  void next();
  void open();
  void finish(const LookupFailure* failure);
  void drop_server();

  ChannelHub& hub_;
  Credentials& credentials_;
  Events events_;
  std::string query_{kDefaultVerifierQuery};
  Time timeout_ = 5 * kSecond;
  std::deque<std::string> waiting_;  // the front one is being looked up
  std::unique_ptr<VerifierLookup> lookup_;
  std::unique_ptr<ServerConnection> server_;
  std::vector<std::unique_ptr<ServerConnection>> finished_;  // until nothing of theirs is on the stack any more
  std::vector<std::uint8_t> held_;
  Timer limit_;
  Task clean_up_;
  bool fresh_ = false;  // the connection was opened for this lookup, so its failure is final
};

}  // namespace sluice::proxy
