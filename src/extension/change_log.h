// sluice.changes: the durable log of who changed what governs the server. Every entry also goes to the server's log.
// Writers are publish() and activate() in their own transaction, and the publisher for what it sees in shared memory.
#pragma once

#include "extension/pg.h"

#include <cstdint>

namespace sluice::extension {

struct Change {
  const char* who;          // role; nullptr: the server itself
  const char* what;         // publish, activate, switch, boot, worker, policy
  std::int64_t generation;  // 0: none
  const char* why;          // a sentence
  Jsonb* diff;              // nullptr: none
};

// Needs SPI connected. Raises on SQL errors.
void write_change(const Change& change);

// Deletes what is older than the newest kMaxChanges entries. Needs SPI connected.
inline constexpr int kMaxChanges = 10000;
void trim_changes();

// The name of the session's login role (palloc'd): who a change is ascribed to, whatever SET ROLE or SECURITY DEFINER
// say.
char* session_role();

}  // namespace sluice::extension
