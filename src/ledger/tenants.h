// Tenants by name: a hash table of fixed size. An entry without sessions, tickets and debts may be recycled for a
// newcomer.
#pragma once

#include <cstdint>

#include "ledger/region.h"

namespace sluice::ledger {

// The tenant's index, made when new. When nothing can be recycled the answer is kOverflowTenant, counted in
// tenant_overflows.
[[nodiscard]] std::uint32_t tenant_for(const Ledger& ledger, const Exclusive& lock, const char* name,
                                       std::int64_t now_us) noexcept;

// The tenant's index or kNil.
[[nodiscard]] std::uint32_t find_tenant(const Ledger& ledger, const Shared& lock, const char* name) noexcept;

// Gives the tenant the rule, session limits and guarantee, and its rows the weight and limit, that the policy in force
// has for its name. The caller promotes and dispatches where a limit rose.
void adopt_rule(const Ledger& ledger, const Exclusive& lock, std::uint32_t tenant, std::int64_t now_us) noexcept;

// Session permits a policy holds back for tenants, whether they have come already or not.
[[nodiscard]] std::uint32_t guarantee_total(const policy::Policy& policy) noexcept;

}  // namespace sluice::ledger
