// The guard worker: shared memory only, no database, no heavyweight lock; starts with the postmaster. It wakes every 100 ms, or
// when its latch is set, and does one round of each of its jobs.
#pragma once

#include "extension/pg.h"

namespace sluice::extension {

void register_workers();  // guard and publisher, from _PG_init

// The jobs of a round, each in a file of its own. None of them raises.
void watch_switch();        // guard_switch.cc: copies pg_sluice.enforcement to the shared word, admits the waiters
void watch_time_limits();   // guard_time_limits.cc: cancel, then terminate
void watch_lock_cycles();   // guard_lock_cycles.cc: promote blockers, overdraft
void watch_sessions();      // guard_reclaim.cc: reclaims on proof, leak alerts
void watch_logins();        // guard_logins.cc: the login guard

}  // namespace sluice::extension

extern "C" {
PGDLLEXPORT void sluice_guard_main(Datum argument);
PGDLLEXPORT void sluice_publisher_main(Datum argument);
}
