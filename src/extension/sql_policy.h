// What validate(), publish() and activate() share: the table of policies under its lock.
#pragma once

#include "extension/pg.h"
#include "extension/policy_store.h"

namespace sluice::extension {

// Raises unless `function` may change policies here and now: 55000 in another database than pg_sluice.database, 25006
// on a standby or in a read-only transaction, 25001 under an isolation level that would see old policies.
void require_policy_database(const char* function);

// The following need SPI connected.
void lock_policies();
std::uint64_t newest_generation();

// Remembers what decides after this statement, if that is `changed_generation` (0: whatever it is).
void apply_stored_at_commit(std::int64_t changed_generation);

}  // namespace sluice::extension
