// Rules over several sections of the document: the sums that must fit, and combinations that are legal but doubtful.

#include "policy/validator_fields.h"

namespace sluice::policy {
namespace {

// The section's own line where the document has the section, else that of the document.
std::uint32_t node_or_root(const Validation& validation, std::uint32_t root, const char* name) noexcept {
  std::uint32_t node = validation.document.find(root, name);
  return node == kNoNode ? root : node;
}

void check_hard_limit(Validation& validation, std::uint32_t root, const Path& top) noexcept {
  const Policy& policy = validation.policy;
  std::uint32_t most = validation.facts.max_connections;
  if (!validation.facts.known || policy.hard_connection_limit <= most) return;
  FindingText finding =
      validation.error(node_or_root(validation, root, "hardConnectionLimit"), child(top, "hardConnectionLimit"));
  finding.message.add("hardConnectionLimit ").add(policy.hard_connection_limit).add(" is more than max_connections ");
  finding.message.add(most).add(" of this server");
  finding.fix.add("lower hardConnectionLimit to ").add(most).add(", or raise max_connections and restart the server");
}

void check_budget(Validation& validation, std::uint32_t root, const Path& top, bool hard_limit_given) noexcept {
  Policy& policy = validation.policy;
  const ServerFacts& facts = validation.facts;
  std::uint32_t superuser_reserved = facts.known ? facts.superuser_reserved_connections : 0;
  std::uint32_t reserved = facts.known ? facts.reserved_connections : 0;
  std::uint64_t sum = static_cast<std::uint64_t>(policy.server_session_permits) + policy.admin_reserve +
                      policy.login_headroom + superuser_reserved + reserved;
  if (!hard_limit_given) {
    // Without a server the document's own sum is all there is to go by.
    policy.hard_connection_limit = facts.known ? facts.max_connections : static_cast<std::uint32_t>(sum);
  }
  bool over_server = facts.known && policy.hard_connection_limit > facts.max_connections;
  std::uint32_t limit = over_server ? facts.max_connections : policy.hard_connection_limit;
  if (sum <= limit) return;

  std::uint64_t excess = sum - limit;
  FindingText finding =
      validation.error(node_or_root(validation, root, "serverSessionPermits"), child(top, "serverSessionPermits"));
  finding.message.add("serverSessionPermits ").add(policy.server_session_permits);
  finding.message.add(" + adminReserve ").add(policy.admin_reserve);
  finding.message.add(" + loginHeadroom ").add(policy.login_headroom);
  if (facts.known) {
    finding.message.add(" + superuser_reserved_connections ").add(superuser_reserved);
    finding.message.add(" + reserved_connections ").add(reserved);
  }
  finding.message.add(" = ").add(sum).add(", which is ").add(excess).add(" more than ");
  bool by_server = over_server || !hard_limit_given;
  finding.message.add(by_server ? "max_connections " : "hardConnectionLimit ").add(limit);
  if (policy.server_session_permits > excess) {
    finding.fix.add("lower serverSessionPermits to ").add(policy.server_session_permits - excess);
  } else {
    finding.fix.add("lower the reserves");
  }
  finding.fix.add(by_server ? ", or raise max_connections to " : ", or raise hardConnectionLimit to ").add(sum);
}

void check_tenant_guarantees(Validation& validation, std::uint32_t root, const Path& top, bool sound) noexcept {
  Policy& policy = validation.policy;
  std::uint64_t sum = 0;
  for (std::uint16_t i = 0; i < policy.tenant_rule_count; i++) {
    const TenantRule& rule = policy.tenant_rules[i];
    sum += static_cast<std::uint64_t>(rule.guaranteed_sessions) * rule.max_tenants;
  }
  policy.guaranteed_total = sum < kNoLimit ? static_cast<std::uint32_t>(sum) : kNoLimit;
  if (!sound || sum <= policy.server_session_permits) return;

  FindingText finding = validation.error(node_or_root(validation, root, "tenants"), child(top, "tenants"));
  constexpr std::size_t kRoomForTotal = 120;  // behind the terms stands the total, whatever the number of terms
  finding.message.add("guaranteed sessions ");
  std::uint32_t left_out = 0;
  bool first = true;
  for (std::uint16_t i = 0; i < policy.tenant_rule_count; i++) {
    const TenantRule& rule = policy.tenant_rules[i];
    if (rule.guaranteed_sessions == 0) continue;
    if (finding.message.length() + kRoomForTotal > sizeof(Finding::message) - kTenantBytes && !first) {
      left_out++;
      continue;
    }
    finding.message.add(first ? "" : " + ").add_quoted(rule.pattern).add(" ").add(rule.guaranteed_sessions);
    if (contains(rule.pattern, '*')) finding.message.add(" x maxTenants ").add(rule.max_tenants);
    first = false;
  }
  if (left_out > 0) finding.message.add(" + ").add(left_out).add(" more");
  finding.message.add(" = ").add(sum).add(", which is ").add(sum - policy.server_session_permits);
  finding.message.add(" more than serverSessionPermits ").add(policy.server_session_permits);
  finding.fix.add("lower guaranteedSessions or maxTenants, or raise serverSessionPermits to ").add(sum);
}

void check_admin_guarantees(Validation& validation, std::uint32_t root, const Path& top, bool sound) noexcept {
  const Policy& policy = validation.policy;
  std::uint64_t sum = 0;
  for (std::uint8_t i = 0; i < policy.admin_role_count; i++) sum += policy.admin_roles[i].guaranteed_sessions;
  if (!sound || sum <= policy.admin_reserve) return;
  FindingText finding = validation.error(node_or_root(validation, root, "adminRoles"), child(top, "adminRoles"));
  finding.message.add("guaranteed sessions ");
  bool first = true;
  for (std::uint8_t i = 0; i < policy.admin_role_count; i++) {
    const AdminRole& role = policy.admin_roles[i];
    if (role.guaranteed_sessions == 0 || finding.message.length() > sizeof(Finding::message) / 2) continue;
    finding.message.add(first ? "" : " + ").add_quoted(role.name).add(" ").add(role.guaranteed_sessions);
    first = false;
  }
  finding.message.add(" = ").add(sum).add(", which is ").add(sum - policy.admin_reserve);
  finding.message.add(" more than adminReserve ").add(policy.admin_reserve);
  finding.fix.add("raise adminReserve to ").add(sum).add(", or lower the guarantees");
}

void check_database_ceilings(Validation& validation, std::uint32_t root, const Path& top) noexcept {
  const Policy& policy = validation.policy;
  const Document& document = validation.document;
  std::uint32_t caps = document.find(root, "databaseCaps");
  const Path path = child(top, "databaseCaps");
  for (std::uint16_t i = 0; i < policy.database_cap_count; i++) {
    const DatabaseCap& cap = policy.database_caps[i];
    std::uint64_t ceiling = static_cast<std::uint64_t>(cap.max_sessions) + cap.burst_reserve;
    if (cap.max_sessions == kNoLimit || ceiling <= policy.server_session_permits) continue;
    std::uint32_t node = document.find(caps, cap.database);
    const Path at = child(path, cap.database);
    if (cap.burst_reserve == 0) {
      FindingText finding = validation.warning(node, child(at, "maxSessions"));
      finding.message.add("maxSessions ").add(cap.max_sessions).add(" is more than serverSessionPermits ");
      finding.message.add(policy.server_session_permits).add(" and limits nothing");
      continue;
    }
    FindingText finding = validation.error(node, child(at, "burstReserve"));
    finding.message.add("maxSessions ").add(cap.max_sessions).add(" + burstReserve ").add(cap.burst_reserve).add(" = ");
    finding.message.add(ceiling).add(", which is ").add(ceiling - policy.server_session_permits);
    finding.message.add(" more than serverSessionPermits ").add(policy.server_session_permits);
    finding.message.add(": a burst reserve lies inside it");
    finding.fix.add("lower maxSessions or burstReserve, or raise serverSessionPermits to ").add(ceiling);
  }
}

void check_replication(Validation& validation, std::uint32_t root, const Path& top) noexcept {
  const Policy& policy = validation.policy;
  const ServerFacts& facts = validation.facts;
  if (!facts.known || policy.replication_reserve <= facts.max_wal_senders) return;
  FindingText finding =
      validation.error(node_or_root(validation, root, "replicationReserve"), child(top, "replicationReserve"));
  finding.message.add("replicationReserve ").add(policy.replication_reserve).add(" is more than max_wal_senders ");
  finding.message.add(facts.max_wal_senders).add(" of this server");
  finding.fix.add("lower replicationReserve, or raise max_wal_senders to ").add(policy.replication_reserve);
  finding.fix.add(" and restart the server");
}

}  // namespace

void check_sums(Validation& validation, std::uint32_t root, const Path& top, Budget budget) noexcept {
  if (budget.sound) {
    if (budget.hard_limit_given) check_hard_limit(validation, root, top);
    check_budget(validation, root, top, budget.hard_limit_given);
    check_database_ceilings(validation, root, top);
  }
  check_tenant_guarantees(validation, root, top, budget.sound);
  check_admin_guarantees(validation, root, top, budget.sound);
  check_replication(validation, root, top);
}

}  // namespace sluice::policy
