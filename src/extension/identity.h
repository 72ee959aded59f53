// Collects what the policy asks about a role from the catalogue, so that the pure decision can be made without it.
#pragma once

#include "extension/pg.h"
#include "policy/decisions.h"

namespace sluice::extension {

// Fills `identity` for role and database under `policy` (a process-local copy). Looks up memberships only when the
// policy has memberOf rules, in the one way that leaves PostgreSQL's membership cache unharmed. Needs an open
// transaction. May raise.
void identify_role(const policy::Policy& policy, const char* role, Oid role_oid, bool superuser, const char* database,
                   const char* declared_tenant, policy::Identity& identity);

// A palloc'd copy of the deciding policy, taken under the shared lock, with the version it had. The image is large;
// pfree it.
policy::Policy* copy_policy(std::uint64_t* version = nullptr);

}  // namespace sluice::extension
