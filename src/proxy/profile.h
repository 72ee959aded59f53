// The three choices that say what kind of pool it is. The configuration sets them; login, session and pools act on
// them.
#pragma once

#include <cstdint>

namespace sluice::proxy {

// strict: one transaction, unnamed objects, no settings, and a refusal ends the session. compatible: what drivers
// expect of PostgreSQL; settings and named statements follow the client from server to server.
enum class Profile : std::uint8_t { strict, compatible };

enum class PoolMode : std::uint8_t {
  transaction,  // a connection is handed on after every transaction
  session,      // a client keeps its connection until it leaves, so all of them may be pinned
};

// What becomes of a statement that leaves something behind which cannot be carried to another server: advisory locks of
// the session, LISTEN, temporary tables, WITH HOLD cursors, PREPARE, LOAD.
enum class Untracked : std::uint8_t {
  refuse,   // 0A000 in the statement's place
  discard,  // it runs, and the server connection is closed at the transaction's end
  session,  // it runs, and the client keeps this server connection until it leaves
};

}  // namespace sluice::proxy
