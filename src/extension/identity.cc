#include "extension/pg.h"

#include "extension/identity.h"

#include <cstring>

#include "extension/shared.h"

namespace sluice::extension {

namespace {

// roles_is_member_of() caches its list per role and kind of question. While MyDatabaseId is 0 that list lacks
// pg_database_owner, and a list cached then would be believed for the rest of the session. Asking about another pair of
// roles replaces the cached entry; a predefined pair always exists and is never the login role.
void displace_membership_cache() { (void)is_member_of_role_nosuper(ROLE_PG_MONITOR, ROLE_PG_READ_ALL_STATS); }

void collect_memberships(const policy::Policy& policy, Oid role_oid, std::uint64_t* bits) {
  bool asked = false;
  for (std::uint32_t i = 0; i < policy.assign_count; i++) {
    const policy::AssignRule& rule = policy.assign[i];
    if (rule.by != policy::AssignBy::member_of) continue;
    const Oid wanted = get_role_oid(rule.pattern, true);
    if (!OidIsValid(wanted)) continue;
    asked = true;
    if (is_member_of_role_nosuper(role_oid, wanted)) bits[i / 64] |= std::uint64_t{1} << (i % 64);
  }
  if (asked) displace_membership_cache();
}

}  // namespace

void identify_role(const policy::Policy& policy, const char* role, Oid role_oid, bool superuser, const char* database,
                   const char* declared_tenant, policy::Identity& identity) {
  policy::Login login = {};
  login.role = role;
  login.database = database;
  login.superuser = superuser;
  login.declared_tenant = declared_tenant;
  if (OidIsValid(role_oid)) collect_memberships(policy, role_oid, login.memberships);
  policy::identify(policy, login, identity);
}

policy::Policy* copy_policy(std::uint64_t* version) {
  auto* copy = static_cast<policy::Policy*>(palloc(sizeof(policy::Policy)));
  SharedLedger lock;
  std::memcpy(copy, &the_ledger.header->policy, sizeof(*copy));
  if (version != nullptr) *version = the_ledger.header->policy_version;
  return copy;
}

}  // namespace sluice::extension
