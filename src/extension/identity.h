// Collects what the policy asks about a role from the catalogue, so that the pure decision can be made without it.
#pragma once

#include "extension/pg.h"
#include "policy/decisions.h"

namespace sluice::extension {

// Fills `identity` for role and database under `policy` (a process-local copy). Looks up memberships only when the policy has
// memberOf rules, in the one way that leaves PostgreSQL's membership cache unharmed. Needs an open transaction. May raise.
void identify_role(const policy::Policy& policy, const char* role, Oid role_oid, bool superuser, const char* database,
                   const char* declared_tenant, policy::Identity& identity);

// A process-local copy of the deciding policy, refreshed when the ledger's version moved. Takes the lock shared.
const policy::Policy& local_policy();

// Mode that decides now: the policy's activation, lowered by pg_sluice.enforcement of this process.
ledger::Mode effective_mode();

}  // namespace sluice::extension
