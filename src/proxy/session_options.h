// What a pool's configuration says about the sessions it serves: the profile, and the limits of everything a session
// keeps. One object a pool, shared by its sessions and never changed while one of them lives.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proxy/profile.h"
#include "proxy/time.h"

namespace sluice::proxy {

// How many of a pool's server connections clients may keep for themselves. Owned by the pool.
struct PinBudget {
  std::size_t limit = 0;  // at most half of max_size
  std::size_t used = 0;
};

struct SessionOptions {
  Profile profile = Profile::compatible;
  Untracked untracked = Untracked::refuse;
  // The client keeps its first server connection until it leaves: a pool in session mode. Within the budget below.
  bool keeps_server = false;
  PinBudget* pins = nullptr;  // without one nothing can be kept, and `session` refuses

  // A client that holds a server connection and says nothing for so long loses it: 25P03.
  Time idle_transaction_timeout = kNever;
  // How long the server may go on with what a client sent that closed its connection in good order.
  Time client_gone_grace = 5 * kSecond;
  // How long the session's own statements may take: setting up, reading back, rolling back.
  Time housekeeping_timeout = 10 * kSecond;

  std::uint32_t max_message_bytes = 0x3FFFFFFE;  // a client's message, refused from its header alone
  std::size_t max_owed_replies = 1024;           // at so many unanswered messages the client is not read
  std::size_t max_client_statements = 10000;     // named statements of one client; 54000 beyond
  std::size_t max_client_statement_bytes = 16 << 20;
  std::size_t max_unnamed_statement_bytes = 64 << 10;  // longer unnamed statements do not outlive their assignment
  std::size_t max_server_statements = 1000;            // of one server connection; the least recently used is closed
  std::size_t max_server_statement_bytes = 8 << 20;
  std::size_t max_settings = 256;  // of one client; beyond, its server connection is not reused
};

}  // namespace sluice::proxy
