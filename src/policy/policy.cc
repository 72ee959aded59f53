#include "policy/policy.h"

#include <cstring>

#include "policy/defaults.h"

namespace sluice::policy {

void make_unlimited_policy(Policy& policy) noexcept {
  std::memset(&policy, 0, sizeof(policy));
  policy.hard_connection_limit = kNoLimit;
  policy.server_session_permits = kNoLimit;
  policy.retry_base_ms = kDefaultRetryBaseMs;
  policy.lease_ms = kDefaultLeaseMs;
  policy.leak_after_ms = kDefaultLeakAfterMs;
  policy.evict_idle_after_ms = kDefaultEvictIdleAfterMs;
  policy.pool_mode = PoolMode::transaction;
  policy.tenant_key = TenantKey::role;
  policy.write_role = true;
  policy.bulkheads = true;

  policy.class_count = 1;
  ExecutionClass& only = policy.classes[0];
  std::memcpy(only.name, "default", sizeof("default"));
  only.permits = kNoLimit;
  only.max_queue = kNoLimit;
  only.queue_deadline_ms = kDefaultQueueDeadlineMs;
  only.aging_ms = kDefaultAgingMs;
  only.transaction_time_limit_ms = kNoTimeLimit;

  policy.tenant_rule_count = 1;
  TenantRule& everyone = policy.tenant_rules[0];
  everyone.pattern[0] = '*';
  everyone.weight = kDefaultTenantWeight;
  everyone.max_inflight = kNoLimit;
  everyone.max_sessions = kNoLimit;
}

}  // namespace sluice::policy
