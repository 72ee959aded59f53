// Combinations that are legal but rarely meant: accepted, with a warning that says what will happen.

#include <cstring>

#include "policy/validator_fields.h"

namespace sluice::policy {
namespace {

std::uint32_t class_node(const Validation& validation, std::uint32_t root, const char* name) noexcept {
  std::uint32_t classes = validation.document.find(root, "executionClasses");
  return classes == kNoNode ? kNoNode : validation.document.find(classes, name);
}

bool is_entered(const Policy& policy, std::uint8_t index) noexcept {
  if (index == policy.default_class) return true;
  for (std::uint16_t i = 0; i < policy.assign_count; i++) {
    if (policy.assign[i].execution_class == index) return true;
  }
  for (std::uint8_t i = 0; i < policy.class_count; i++) {
    if (policy.class_setting[0] != '\0' && (policy.classes[i].may_enter >> index & 1U) != 0) return true;
  }
  return false;
}

void check_borrowing(Validation& validation, std::uint32_t node, const Path& path, const ExecutionClass& one) noexcept {
  if (one.borrow.from_classes == 0) return;
  std::uint64_t lendable = 0;
  for (std::uint8_t i = 0; i < validation.policy.class_count; i++) {
    if ((one.borrow.from_classes >> i & 1U) != 0) lendable += validation.policy.classes[i].permits;
  }
  const Path borrow = child(path, "borrow");
  if (one.borrow.max != kNoLimit && one.borrow.max > lendable) {
    FindingText finding = validation.warning(node, child(borrow, "max"));
    finding.message.add("max ").add(one.borrow.max).add(" is more than the lenders' permits, ").add(lendable);
  }
  if (one.permits == kNoLimit) {
    FindingText finding = validation.warning(node, borrow);
    finding.message.add("has no effect: the class has no limit of its own");
    finding.fix.add("add permits, or remove borrow");
  }
}

void check_class(Validation& validation, std::uint32_t root, const Path& classes, std::uint8_t index) noexcept {
  const Policy& policy = validation.policy;
  const ExecutionClass& one = policy.classes[index];
  const Path path = child(classes, one.name);
  std::uint32_t node = class_node(validation, root, one.name);
  if (index == policy.default_class && one.transaction_time_limit_ms != kNoTimeLimit) {
    FindingText finding = validation.warning(node, child(path, "transactionTimeLimitMs"));
    finding.message.add("a time limit on the class that catches every session: pg_dump and migrations meet it too");
    finding.fix.add("assign those roles to a class without transactionTimeLimitMs");
  }
  if (one.permits == 0) {
    FindingText finding = validation.warning(node, child(path, "permits"));
    finding.message.add("0 permits admit no transaction: each waits in the queue until its deadline");
  }
  if (one.permits != kNoLimit && one.permits > policy.server_session_permits) {
    FindingText finding = validation.warning(node, child(path, "permits"));
    finding.message.add("permits ").add(one.permits).add(" is more than serverSessionPermits ");
    finding.message.add(policy.server_session_permits).add(" and limits nothing: each transaction needs a session");
  }
  if (!is_entered(policy, index)) {
    FindingText finding = validation.warning(node, path);
    finding.message.add(
        "no session comes into this class: no rule of assign names it, it is not defaultClass, and no ");
    finding.message.add("class lists it in mayEnter");
    finding.fix.add("add an assign rule for it, or list it in mayEnter of ")
        .add(policy.classes[policy.default_class].name);
  }
  if (one.may_enter != 0 && policy.class_setting[0] == '\0') {
    FindingText finding = validation.warning(node, child(path, "mayEnter"));
    finding.message.add("has no effect: declare.classSetting is empty, so that nobody can declare a class");
  }
  check_borrowing(validation, node, path, one);
}

void check_administrators(Validation& validation, std::uint32_t root, const Path& top) noexcept {
  const Policy& policy = validation.policy;
  std::uint32_t reserve = validation.document.find(root, "adminReserve");
  if (policy.admin_reserve == 0) {
    FindingText finding = validation.warning(reserve == kNoNode ? root : reserve, child(top, "adminReserve"));
    finding.message.add("0: once sessions are used up only a superuser on a Unix socket is sure to get in");
    finding.fix.add("reserve at least 3 sessions");
  }
  if (policy.admin_role_count == 0) {
    FindingText finding = validation.warning(root, child(top, "adminRoles"));
    finding.message.add("no administrator is named: only superusers can use the admin reserve");
    finding.fix.add(
        "name the roles that monitor and repair, for example adminRoles: {monitor: {guaranteedSessions: 1}}");
  }
  if (policy.login_headroom == 0) {
    std::uint32_t node = validation.document.find(root, "loginHeadroom");
    FindingText finding = validation.warning(node == kNoNode ? root : node, child(top, "loginHeadroom"));
    finding.message.add("0: logins in progress hold slots too, so a burst of them can take the last one");
    finding.fix.add("leave at least 5");
  }
}

// One tenant for everybody makes weights, limits per tenant and fairness say nothing.
void check_tenancy(Validation& validation, std::uint32_t root, const Path& top) noexcept {
  const Policy& policy = validation.policy;
  const Document& document = validation.document;
  std::uint32_t tenants = document.find(root, "tenants");
  if (policy.tenant_key == TenantKey::role && tenants != kNoNode) {
    std::uint32_t only = document.node(tenants).first_child;
    bool single = only != kNoNode && document.node(only).next == kNoNode;
    if (single && !contains(document.text(document.node(only).key), '*')) {
      FindingText finding = validation.warning(tenants, child(top, "tenants"));
      finding.message.add(
          "a single tenant under tenantKey role: when all applications share one login role, there is ");
      finding.message.add("nothing to be fair between");
      finding.fix.add("use tenantKey: database, or setting with declare.trustedRoles, or add a rule for \"*\"");
    }
  }
  const Path declare = child(top, "declare");
  std::uint32_t declare_node = document.find(root, "declare");
  if (policy.tenant_key == TenantKey::setting && (policy.trusted_role_count == 0 || policy.tenant_setting[0] == '\0')) {
    bool nobody = policy.trusted_role_count == 0;
    FindingText finding = validation.warning(declare_node == kNoNode ? root : declare_node,
                                             child(declare, nobody ? "trustedRoles" : "tenantSetting"));
    finding.message.add("tenantKey is setting, but ").add(nobody ? "no role is trusted to name" : "no setting names");
    finding.message.add(" its tenant: every session counts under its role");
    finding.fix.add(nobody ? "list the application's role in declare.trustedRoles" : "set declare.tenantSetting");
  }
  if (policy.tenant_key != TenantKey::setting && policy.trusted_role_count > 0) {
    FindingText finding = validation.warning(declare_node, child(declare, "trustedRoles"));
    finding.message.add("has no effect: tenants are taken from a setting only with tenantKey: setting");
  }
}

void check_inflight(Validation& validation, std::uint32_t root, const Path& top) noexcept {
  const Policy& policy = validation.policy;
  std::uint64_t most = 0;
  for (std::uint8_t i = 0; i < policy.class_count; i++) {
    const ExecutionClass& one = policy.classes[i];
    std::uint64_t reach = one.permits;
    if (one.borrow.from_classes != 0) reach += one.borrow.max;
    if (reach > most) most = reach;
  }
  std::uint32_t tenants = validation.document.find(root, "tenants");
  const Path path = child(top, "tenants");
  for (std::uint16_t i = 0; i < policy.tenant_rule_count; i++) {
    const TenantRule& rule = policy.tenant_rules[i];
    if (rule.max_inflight == kNoLimit || rule.max_inflight <= most) continue;
    const Path at = child(path, rule.pattern);
    FindingText finding = validation.warning(validation.document.find(tenants, rule.pattern), child(at, "maxInflight"));
    finding.message.add("maxInflight ").add(rule.max_inflight).add(" is more than any class's permits, ").add(most);
    finding.message.add(", and limits nothing");
    finding.fix.add("lower it below ").add(most).add(", or leave it out");
  }
}

void check_clocks(Validation& validation, std::uint32_t root, const Path& top) noexcept {
  const Policy& policy = validation.policy;
  if (policy.leak_after_ms >= policy.lease_ms) return;
  std::uint32_t node = validation.document.find(root, "leakAfterMs");
  FindingText finding = validation.warning(node == kNoNode ? root : node, child(top, "leakAfterMs"));
  finding.message.add("leakAfterMs ").add(policy.leak_after_ms).add(" is shorter than leaseMs ").add(policy.lease_ms);
  finding.message.add(": a healthy idle session is reported as leaked before its lease ends");
}

}  // namespace

void check_doubtful(Validation& validation, std::uint32_t root, const Path& top) noexcept {
  const Path classes = child(top, "executionClasses");
  for (std::uint8_t i = 0; i < validation.policy.class_count && validation.policy.bulkheads; i++) {
    check_class(validation, root, classes, i);
  }
  check_administrators(validation, root, top);
  check_tenancy(validation, root, top);
  if (validation.policy.bulkheads) check_inflight(validation, root, top);
  check_clocks(validation, root, top);
}

}  // namespace sluice::policy
