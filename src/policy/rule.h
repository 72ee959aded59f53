// A rule is one limit of the policy. Core functions name the rule that refused by field and index; rule_path() writes
// the path a reader finds in their document ("executionClasses.batch.maxQueue").
#pragma once

#include <cstddef>
#include <cstdint>

#include "policy/policy.h"
#include "policy/status.h"

namespace sluice::policy {

enum class RuleField : std::uint8_t {
  none,
  server_session_permits,
  admin_reserve,
  admin_guarantee,  // adminRoles.<name>.guaranteedSessions
  login_headroom,
  class_permits,  // executionClasses.<name>.permits
  class_max_queue,
  class_queue_deadline,
  class_time_limit,
  class_borrow_ttl,     // executionClasses.<name>.borrow.ttlMs
  tenant_max_inflight,  // tenants.<pattern>.maxInflight
  tenant_max_sessions,
  database_max_sessions,
  role_max_sessions,
  role_connects,  // roleCaps.<role>.connectsPerSecond
  overdraft_max,
};

struct Rule {
  RuleField field;
  std::uint16_t index;  // into the policy's table of that field
};

// An answer with the numbers a refusal reports. For Status::ok and queued, rule/used/limit are unset.
struct Outcome {
  Status status;
  Rule rule;
  std::uint32_t used;
  std::uint32_t limit;
};

[[nodiscard]] constexpr Outcome outcome(Status status) noexcept { return {status, {RuleField::none, 0}, 0, 0}; }

// Writes the path into out (always NUL-terminated, cut at a character if too small) and returns its length.
std::size_t rule_path(const Policy& policy, Rule rule, char* out, std::size_t size) noexcept;

}  // namespace sluice::policy
