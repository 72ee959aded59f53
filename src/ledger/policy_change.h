// Putting a policy into force: limits, weights and guarantees of every class, tenant and row change under the lock
// while permits stay held. Classes are matched by name; a class that is gone drains in its slot before the slot is
// reused.
#pragma once

#include <cstdint>

#include "ledger/admission.h"
#include "ledger/region.h"

namespace sluice::ledger {

// table_full when the classes of old and new policy do not fit together before the old ones have drained.
// Raised limits grant waiters at once, and leaving enforcement admits every waiter. While wakes.more is set, repeat
// with fresh wakes: dispatch() of each class when enforcing, else admit_waiters().
[[nodiscard]] Status apply_policy(const Ledger& ledger, const Exclusive& lock, const policy::Policy& policy, Mode mode,
                                  std::int64_t now_us, Wakes& wakes) noexcept;

// Use against limits under `policy`, for activate: one entry a rule that limits anything (tenants only where they came
// near a limit). Those with now > limit come first. Returns the number of entries written.
struct OverLimit {
  Rule rule;  // into `policy`
  std::uint32_t now, peak, limit;
  std::uint64_t would_refuse, would_wait;
  char name[policy::kTenantBytes];  // class, tenant, database, role or admin role
};
[[nodiscard]] std::uint32_t compare_policy(const Ledger& ledger, const Shared& lock, const policy::Policy& policy,
                                           OverLimit* entries, std::uint32_t max_entries) noexcept;

// The class slot that carries a policy class now, or kNil.
[[nodiscard]] std::uint32_t class_slot(const Ledger& ledger, const Shared& lock, std::uint32_t policy_index) noexcept;
[[nodiscard]] std::uint32_t find_class(const Ledger& ledger, const Shared& lock, const char* name) noexcept;

}  // namespace sluice::ledger
