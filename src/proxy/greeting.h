// Finds out what a client is greeted with whose startup packet brought settings: a session of its own applies them to a
// real connection, with a Sync that nobody sent, and what the server reports and refuses is kept instead of sent. So a
// client hears of a wrong value at its login, as from PostgreSQL itself, and of a right one in the server's spelling.
//
// Sans-I/O: bytes for the server go to the Output that is handed in.
#pragma once

#include <string>
#include <vector>

#include "proxy/output.h"
#include "proxy/session.h"
#include "proxy/startup_parameters.h"
#include "wire/error_response.h"
#include "wire/header_walker.h"

namespace sluice::proxy {

class Greeting final : private Output {
 public:
  // `snapshot` is what connections of this pool report when they are opened.
  Greeting(const SessionOptions& options, std::uint64_t id, const std::vector<Setting>& startup,
           const std::vector<Setting>& snapshot);

  void assign(ServerState& server, Time now, Output& out);
  void take_server(wire::Bytes bytes, Time now, Output& out);
  void server_lost(Time now, Output& out);
  void tick(Time now, Output& out);
  [[nodiscard]] Time next_deadline() const noexcept { return session_.next_deadline(); }

  // The server connection is free again, to be given back with discard().
  [[nodiscard]] bool finished() const noexcept { return finished_; }
  [[nodiscard]] Discard discard() const noexcept { return discard_; }
  [[nodiscard]] const std::vector<Setting>& parameters() const noexcept { return parameters_; }
  // What the server, or the session, said against it: the payload of an ErrorResponse, or empty.
  [[nodiscard]] wire::Bytes error() const noexcept { return error_; }

 private:
  void to_client(wire::Bytes bytes) override;
  void to_server(wire::Bytes bytes) override;
  void go_on(Time now);

  SessionOptions options_;
  std::vector<Setting> parameters_;
  Session session_;
  Output* server_ = nullptr;
  wire::HeaderWalker walker_{wire::Direction::backend};
  std::vector<std::uint8_t> payload_;  // of the message that is being read
  std::vector<std::uint8_t> error_;
  Discard discard_ = Discard::none;
  bool asked_ = false;
  bool finished_ = false;
};

[[nodiscard]] Settings to_settings(const std::vector<Setting>& list);

// The snapshot with the client's own values where these need no server to be spelled.
[[nodiscard]] std::vector<Setting> overlaid(const std::vector<Setting>& snapshot, const std::vector<Setting>& startup);
// Whether a client with these settings can be greeted from the snapshot alone.
[[nodiscard]] bool needs_no_server(const std::vector<Setting>& snapshot, const std::vector<Setting>& startup);

}  // namespace sluice::proxy
