#include "policy/rule.h"

#include "policy/text.h"

namespace sluice::policy {
namespace {

void add_entry(TextWriter& path, const char* table, bool known, const char* name, const char* field) noexcept {
  path.add(table).add(".");
  if (known) {
    path.add_path_name(name);
  } else {
    path.add("?");  // the index is beyond the table: a fault that must stay visible, not a crash
  }
  path.add(".").add(field);
}

void add_class(TextWriter& path, const Policy& policy, std::uint16_t index, const char* field) noexcept {
  bool known = index < policy.class_count && index < kMaxClasses;
  add_entry(path, "executionClasses", known, known ? policy.classes[index].name : "", field);
}

void add_tenant(TextWriter& path, const Policy& policy, std::uint16_t index, const char* field) noexcept {
  bool known = index < policy.tenant_rule_count && index < kMaxTenantRules;
  add_entry(path, "tenants", known, known ? policy.tenant_rules[index].pattern : "", field);
}

void add_admin_role(TextWriter& path, const Policy& policy, std::uint16_t index) noexcept {
  bool known = index < policy.admin_role_count && index < kMaxAdminRoles;
  add_entry(path, "adminRoles", known, known ? policy.admin_roles[index].name : "", "guaranteedSessions");
}

void add_database_cap(TextWriter& path, const Policy& policy, std::uint16_t index) noexcept {
  bool known = index < policy.database_cap_count && index < kMaxDatabaseCaps;
  add_entry(path, "databaseCaps", known, known ? policy.database_caps[index].database : "", "maxSessions");
}

void add_role_cap(TextWriter& path, const Policy& policy, std::uint16_t index, const char* field) noexcept {
  bool known = index < policy.role_cap_count && index < kMaxRoleCaps;
  add_entry(path, "roleCaps", known, known ? policy.role_caps[index].role : "", field);
}

}  // namespace

std::size_t rule_path(const Policy& policy, Rule rule, char* out, std::size_t size) noexcept {
  TextWriter path(out, size);
  switch (rule.field) {
    case RuleField::none:
      break;
    case RuleField::server_session_permits:
      path.add("serverSessionPermits");
      break;
    case RuleField::admin_reserve:
      path.add("adminReserve");
      break;
    case RuleField::admin_guarantee:
      add_admin_role(path, policy, rule.index);
      break;
    case RuleField::login_headroom:
      path.add("loginHeadroom");
      break;
    case RuleField::class_permits:
      add_class(path, policy, rule.index, "permits");
      break;
    case RuleField::class_max_queue:
      add_class(path, policy, rule.index, "maxQueue");
      break;
    case RuleField::class_queue_deadline:
      add_class(path, policy, rule.index, "queueDeadlineMs");
      break;
    case RuleField::class_time_limit:
      add_class(path, policy, rule.index, "transactionTimeLimitMs");
      break;
    case RuleField::class_borrow_ttl:
      add_class(path, policy, rule.index, "borrow.ttlMs");
      break;
    case RuleField::tenant_max_inflight:
      add_tenant(path, policy, rule.index, "maxInflight");
      break;
    case RuleField::tenant_max_sessions:
      add_tenant(path, policy, rule.index, "maxSessions");
      break;
    case RuleField::database_max_sessions:
      add_database_cap(path, policy, rule.index);
      break;
    case RuleField::role_max_sessions:
      add_role_cap(path, policy, rule.index, "maxSessions");
      break;
    case RuleField::role_connects:
      add_role_cap(path, policy, rule.index, "connectsPerSecond");
      break;
    case RuleField::overdraft_max:
      path.add("overdraft.max");
      break;
  }
  return path.length();
}

}  // namespace sluice::policy
