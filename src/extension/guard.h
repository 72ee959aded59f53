// The guard worker: shared memory only, no database, no heavyweight lock; starts with the postmaster. It wakes every
// 100 ms, or when its latch is set, and does one round of each of its jobs.
#pragma once

#include "extension/pg.h"
#include "extension/shared.h"

namespace sluice::extension {

void register_workers();  // guard and publisher, from _PG_init

// What both workers tell about themselves: worker_started() once in their main function, worker_beat() in each round.
// The status is cleared when the process exits.
void worker_started(WorkerStatus& status);
void worker_beat(WorkerStatus& status);

// The jobs of a round, each in a file of its own. None of them raises.
void watch_switch();       // guard_switch.cc: copies pg_sluice.enforcement to the shared word, admits the waiters
void watch_schedule();     // guard_schedule.cc: what the ledger's schedule needs time for
void watch_time_limits();  // guard_time_limits.cc: cancel, then terminate; borrowed permits too
void watch_lock_cycles();  // guard_lock_cycles.cc: promote blockers, overdraft
void watch_sessions();     // guard_reclaim.cc: reclaims on proof, leak alerts
void watch_logins();       // guard_logins.cc: the login guard

// Does the policy decide now, that is may the guard end or refuse anything in its name? Read without the lock.
bool policy_enforced();

// Zeroed memory for the life of the worker, for tables that a job sizes when it first runs.
void* worker_memory(std::size_t bytes);

// One line of a kind at most every ten seconds; the next one tells how many were left out.
struct LogThrottle {
  std::int64_t last_us;
  std::uint64_t left_out;

  bool pass(std::int64_t now, std::uint64_t& suppressed) {
    if (last_us != 0 && now - last_us < 10'000'000) {
      ++left_out;
      return false;
    }
    last_us = now;
    suppressed = left_out;
    left_out = 0;
    return true;
  }
};

}  // namespace sluice::extension

extern "C" {
PGDLLEXPORT void sluice_guard_main(Datum argument);
PGDLLEXPORT void sluice_publisher_main(Datum argument);
}
