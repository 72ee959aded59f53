// Who gets how much: tenants, databaseCaps, roleCaps.

#include <iterator>

#include "policy/defaults.h"
#include "policy/validator_fields.h"

namespace sluice::policy {
namespace {

constexpr const char* kTenantFields[] = {"weight", "maxInflight", "maxSessions", "guaranteedSessions", "maxTenants"};
constexpr const char* kDatabaseFields[] = {"maxSessions",         "burstReserve",
                                           "burstReserveAfterMs", "guaranteedSessionsPerTenant",
                                           "maxTenants",          "minSessionAgeMs"};
constexpr const char* kRoleFields[] = {"maxSessions", "connectsPerSecond"};

constexpr Range kSessions{0, kMostSessions, "sessions"};
constexpr Range kConnects{0, 1'000'000, "sessions a second"};
constexpr Range kPermits{0, kMostSessions, "permits"};
constexpr Range kWeight{1, 1000, "relative weight"};
constexpr Range kTenants{0, kMostSessions, "tenants"};
constexpr Range kWait{0, kDayMs, "milliseconds"};

bool is_wildcard(const TenantRule& rule) noexcept { return contains(rule.pattern, '*'); }

// A tenant's name is as long as what makes it: "database/role" and settings may be longer than one PostgreSQL name.
std::size_t pattern_bytes(TenantKey key) noexcept {
  bool one_name = key == TenantKey::role || key == TenantKey::database;
  return one_name ? kNameBytes : kTenantBytes;
}

void check_tenant_rule(Validation& validation, std::uint32_t node, const Path& path, TenantRule& rule) noexcept {
  if (rule.guaranteed_sessions > rule.max_sessions) {
    FindingText finding = validation.error(node, child(path, "guaranteedSessions"));
    finding.message.add("guaranteedSessions ").add(rule.guaranteed_sessions).add(" is more than maxSessions ");
    finding.message.add(rule.max_sessions).add(": the guarantee could never be used");
    finding.fix.add("lower guaranteedSessions to ").add(rule.max_sessions).add(" or raise maxSessions");
  }
  if (rule.max_inflight != kNoLimit && rule.max_inflight > rule.max_sessions) {
    FindingText finding = validation.warning(node, child(path, "maxInflight"));
    finding.message.add("maxInflight ").add(rule.max_inflight).add(" cannot be reached with maxSessions ");
    finding.message.add(rule.max_sessions).add(": each transaction needs a session");
    finding.fix.add("lower maxInflight to ").add(rule.max_sessions);
  }
  if (validation.policy.tenant_key == TenantKey::database_role && !contains(rule.pattern, '/') && !is_wildcard(rule)) {
    FindingText finding = validation.warning(node, path);
    finding.message.add("matches no tenant: with tenantKey database+role a tenant is named database/role");
    finding.fix.add("write ").add(rule.pattern).add("/* or */").add(rule.pattern);
  }
}

// How many tenants a rule guarantees sessions to: one for a name, maxTenants for a pattern.
void settle_guarantee(Validation& validation, std::uint32_t node, const Path& path, TenantRule& rule,
                      Field max_tenants) noexcept {
  bool wildcard = is_wildcard(rule);
  if (max_tenants == Field::valid && (!wildcard || rule.guaranteed_sessions == 0)) {
    FindingText finding = validation.warning(node, child(path, "maxTenants"));
    finding.message.add(wildcard ? "has no effect without guaranteedSessions"
                                 : "has no effect: the name is not a pattern, it is one tenant");
    finding.fix.add("remove it");
  }
  if (wildcard && rule.guaranteed_sessions > 0 && rule.max_tenants == 0 && max_tenants != Field::invalid) {
    FindingText finding = validation.error(node, child(path, "maxTenants"));
    finding.message.add("a guarantee of ")
        .add(rule.guaranteed_sessions)
        .add(" sessions for a pattern needs maxTenants:");
    finding.message.add(" their product must fit serverSessionPermits");
    finding.fix.add("say how many tenants are guaranteed, for example maxTenants: 10");
  }
  if (!wildcard) rule.max_tenants = 1;
  if (rule.guaranteed_sessions == 0) rule.max_tenants = 0;
}

void set_tenant_defaults(TenantRule& rule) noexcept {
  rule.weight = kDefaultTenantWeight;
  rule.max_inflight = kNoLimit;
  rule.max_sessions = kNoLimit;
}

void read_tenant(Validation& validation, std::uint32_t node, const Path& path, TenantRule& rule) noexcept {
  set_tenant_defaults(rule);
  bool named = validation.copy_key(node, path, pattern_bytes(validation.policy.tenant_key), rule.pattern);
  if (!validation.expect_object(node, path)) return;
  validation.check_fields(node, path, kTenantFields, std::size(kTenantFields));
  validation.read_number(node, path, "weight", kWeight, rule.weight);
  validation.read_number(node, path, "maxInflight", kPermits, rule.max_inflight);
  validation.read_number(node, path, "maxSessions", kSessions, rule.max_sessions);
  validation.read_number(node, path, "guaranteedSessions", kSessions, rule.guaranteed_sessions);
  Field max_tenants = validation.read_number(node, path, "maxTenants", kTenants, rule.max_tenants);
  if (!named) return;
  check_tenant_rule(validation, node, path, rule);
  settle_guarantee(validation, node, path, rule, max_tenants);
}

void check_database_cap(Validation& validation, std::uint32_t node, const Path& path, const DatabaseCap& cap) noexcept {
  const Path guarantee = child(path, "guaranteedSessionsPerTenant");
  if (cap.max_sessions == kNoLimit) {
    FindingText finding = validation.warning(node, child(path, "maxSessions"));
    finding.message.add("is missing: without it this entry limits nothing");
    finding.fix.add("add maxSessions, or remove the entry");
    return;
  }
  if (cap.guaranteed_sessions_per_tenant == 0) {
    FindingText finding = validation.warning(node, guarantee);
    finding.message.add("a cap without a guaranteed minimum: tenants with few sessions can starve behind large ones");
    finding.fix.add("add guaranteedSessionsPerTenant and maxTenants");
    return;
  }
  if (cap.max_tenants == 0) {
    FindingText finding = validation.error(node, child(path, "maxTenants"));
    finding.message.add("a guarantee of ").add(cap.guaranteed_sessions_per_tenant);
    finding.message.add(" sessions per tenant needs maxTenants: their product must fit maxSessions ")
        .add(cap.max_sessions);
    finding.fix.add("write maxTenants: ").add(cap.max_sessions / cap.guaranteed_sessions_per_tenant).add(" or less");
    return;
  }
  std::uint64_t sum = static_cast<std::uint64_t>(cap.guaranteed_sessions_per_tenant) * cap.max_tenants;
  if (sum <= cap.max_sessions) return;
  FindingText finding = validation.error(node, guarantee);
  finding.message.add("guaranteedSessionsPerTenant ").add(cap.guaranteed_sessions_per_tenant).add(" x maxTenants ");
  finding.message.add(cap.max_tenants).add(" = ").add(sum).add(", which is ").add(sum - cap.max_sessions);
  finding.message.add(" more than maxSessions ").add(cap.max_sessions);
  finding.fix.add("lower guaranteedSessionsPerTenant to ").add(cap.max_sessions / cap.max_tenants);
  finding.fix.add(" or raise maxSessions to ").add(sum);
}

void read_database_cap(Validation& validation, std::uint32_t node, const Path& path, DatabaseCap& cap) noexcept {
  cap.max_sessions = kNoLimit;
  cap.burst_reserve_after_ms = kDefaultBurstReserveAfterMs;
  cap.min_session_age_ms = kDefaultMinSessionAgeMs;
  (void)validation.copy_key(node, path, kNameBytes, cap.database);
  if (!validation.expect_object(node, path)) return;
  validation.check_fields(node, path, kDatabaseFields, std::size(kDatabaseFields));
  std::uint32_t errors_before = validation.errors();
  validation.read_number(node, path, "maxSessions", kSessions, cap.max_sessions);
  validation.read_number(node, path, "burstReserve", kSessions, cap.burst_reserve);
  validation.read_number(node, path, "burstReserveAfterMs", kWait, cap.burst_reserve_after_ms);
  validation.read_number(node, path, "guaranteedSessionsPerTenant", kSessions, cap.guaranteed_sessions_per_tenant);
  validation.read_number(node, path, "maxTenants", kTenants, cap.max_tenants);
  validation.read_number(node, path, "minSessionAgeMs", kWait, cap.min_session_age_ms);
  if (validation.errors() == errors_before) check_database_cap(validation, node, path, cap);
}

void read_database_caps(Validation& validation, std::uint32_t caps, const Path& path) noexcept {
  if (!validation.expect_object(caps, path)) return;
  validation.check_duplicates(caps, path);
  Policy& policy = validation.policy;
  const Document& document = validation.document;
  for (std::uint32_t i = document.node(caps).first_child; i != kNoNode; i = document.node(i).next) {
    const Path at = child(path, document.text(document.node(i).key));
    if (policy.database_cap_count == kMaxDatabaseCaps) {
      FindingText finding = validation.error(i, at);
      finding.message.add("is one database cap too many, at most ").add(kMaxDatabaseCaps).add(" are possible");
      return;
    }
    read_database_cap(validation, i, at, policy.database_caps[policy.database_cap_count++]);
  }
}

void read_role_caps(Validation& validation, std::uint32_t caps, const Path& path) noexcept {
  if (!validation.expect_object(caps, path)) return;
  validation.check_duplicates(caps, path);
  Policy& policy = validation.policy;
  const Document& document = validation.document;
  for (std::uint32_t i = document.node(caps).first_child; i != kNoNode; i = document.node(i).next) {
    const Path at = child(path, document.text(document.node(i).key));
    if (policy.role_cap_count == kMaxRoleCaps) {
      FindingText finding = validation.error(i, at);
      finding.message.add("is one role cap too many, at most ").add(kMaxRoleCaps).add(" are possible");
      finding.fix.add("cap tenants instead: tenants takes patterns");
      return;
    }
    RoleCap& cap = policy.role_caps[policy.role_cap_count++];
    cap.max_sessions = kNoLimit;
    cap.connects_per_second = kNoLimit;
    (void)validation.copy_key(i, at, kNameBytes, cap.role);
    if (!validation.expect_object(i, at)) continue;
    validation.check_fields(i, at, kRoleFields, std::size(kRoleFields));
    const Field sessions = validation.read_number(i, at, "maxSessions", kSessions, cap.max_sessions);
    const Field connects = validation.read_number(i, at, "connectsPerSecond", kConnects, cap.connects_per_second);
    if (sessions != Field::absent || connects != Field::absent) continue;
    FindingText finding = validation.warning(i, child(at, "maxSessions"));
    finding.message.add("is missing: without it, or connectsPerSecond, this entry limits nothing");
    finding.fix.add("add one of the two, or remove the entry");
  }
}

}  // namespace

void read_tenants(Validation& validation, std::uint32_t root, const Path& top) noexcept {
  Policy& policy = validation.policy;
  const Document& document = validation.document;
  const Path path = child(top, "tenants");
  bool everyone = false;
  std::uint32_t tenants = document.find(root, "tenants");
  if (tenants != kNoNode && validation.expect_object(tenants, path)) {
    validation.check_duplicates(tenants, path);
    everyone = document.find(tenants, "*") != kNoNode;
    std::uint32_t most = everyone ? kMaxTenantRules : kMaxTenantRules - 1;
    for (std::uint32_t i = document.node(tenants).first_child; i != kNoNode; i = document.node(i).next) {
      const Path at = child(path, document.text(document.node(i).key));
      if (policy.tenant_rule_count == most) {
        FindingText finding = validation.error(i, at);
        finding.message.add("is one tenant rule too many, at most ")
            .add(kMaxTenantRules)
            .add(" including \"*\" are possible");
        finding.fix.add("use patterns: tenants with the same limits need one rule");
        break;
      }
      read_tenant(validation, i, at, policy.tenant_rules[policy.tenant_rule_count++]);
    }
  }
  if (everyone || policy.tenant_rule_count >= kMaxTenantRules) return;
  // Every tenant has a rule: one without limits for whoever the document does not name.
  TenantRule& rest = policy.tenant_rules[policy.tenant_rule_count++];
  set_tenant_defaults(rest);
  rest.pattern[0] = '*';
}

void read_caps(Validation& validation, std::uint32_t root, const Path& top) noexcept {
  std::uint32_t databases = validation.document.find(root, "databaseCaps");
  if (databases != kNoNode) read_database_caps(validation, databases, child(top, "databaseCaps"));
  std::uint32_t roles = validation.document.find(root, "roleCaps");
  if (roles != kNoNode) read_role_caps(validation, roles, child(top, "roleCaps"));
}

}  // namespace sluice::policy
