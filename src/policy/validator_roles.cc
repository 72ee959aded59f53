// Who is who: adminRoles, assign, declare.

#include <cstring>
#include <iterator>

#include "policy/defaults.h"
#include "policy/validator_fields.h"

namespace sluice::policy {
namespace {

constexpr const char* kAdminFields[] = {"guaranteedSessions"};
constexpr const char* kAssignFields[] = {"role", "database", "memberOf", "class"};
constexpr const char* kDeclareFields[] = {"classSetting", "tenantSetting", "trustedRoles"};
constexpr Range kSessions{0, kMostSessions, "sessions"};

// A name is taken literally here; a '*' is almost always meant as a pattern.
void warn_of_pattern(Validation& validation, std::uint32_t node, const Path& path, const char* name) noexcept {
  if (!contains(name, '*')) return;
  FindingText finding = validation.warning(node, path);
  finding.message.add("is taken as a name, not as a pattern: only a role or database of exactly this name is meant");
  finding.fix.add("write one entry per name");
}

void read_assign_rule(Validation& validation, std::uint32_t node, const Path& path, AssignRule& rule) noexcept {
  if (!validation.expect_object(node, path)) return;
  validation.check_fields(node, path, kAssignFields, std::size(kAssignFields));
  constexpr AssignBy kKinds[] = {AssignBy::role, AssignBy::database, AssignBy::member_of};
  std::uint32_t conditions = 0;
  for (std::size_t i = 0; i < std::size(kKinds); i++) {
    if (validation.read_name(node, path, kAssignFields[i], kNameBytes, rule.pattern) == Field::absent) continue;
    rule.by = kKinds[i];
    conditions++;
  }
  if (conditions != 1) {
    FindingText finding = validation.error(node, path);
    finding.message.add("must name exactly one of role, database or memberOf, found ").add(conditions);
    finding.fix.add(conditions == 0 ? "add the one that is meant" : "write one rule for each; the first match wins");
  } else if (rule.by == AssignBy::member_of) {
    warn_of_pattern(validation, node, child(path, "memberOf"), rule.pattern);
  }
  const Path class_path = child(path, "class");
  std::uint32_t named = validation.document.find(node, "class");
  if (named == kNoNode) {
    FindingText finding = validation.error(node, class_path);
    finding.message.add("is missing");
    finding.fix.add("name the execution class that matching sessions belong to");
    return;
  }
  int index = validation.policy.class_count == 0 ? -1 : validation.read_class(named, class_path);
  if (index >= 0) rule.execution_class = static_cast<std::uint8_t>(index);
}

// classSetting and tenantSetting must be names of custom settings, "prefix.name"; empty switches the declaration off.
void read_setting(Validation& validation, std::uint32_t object, const Path& path, const char* field,
                  char* out) noexcept {
  std::uint32_t node = validation.document.find(object, field);
  if (node == kNoNode) return;
  const Node& value = validation.document.node(node);
  if (value.kind == NodeKind::string && validation.document.text(value.text)[0] == '\0') {
    out[0] = '\0';
    return;
  }
  const Path at = child(path, field);
  if (!validation.copy_name(node, at, kNameBytes, out)) return;
  bool well_formed = true;
  bool at_start = true;
  std::uint32_t dots = 0;
  for (const char* c = out; *c != '\0'; c++) {
    bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || *c == '_';
    bool digit = (*c >= '0' && *c <= '9') || *c == '$';
    bool dot = *c == '.';
    dots += dot ? 1 : 0;
    if (!(letter || ((digit || dot) && !at_start))) well_formed = false;
    at_start = dot;
  }
  if (well_formed && !at_start && dots == 1) return;
  FindingText finding = validation.error(node, at);
  finding.message.add("must be the name of a custom setting, prefix.name, found ").add_quoted(out);
  finding.fix.add("write for example ")
      .add(out == validation.policy.class_setting ? kDefaultClassSetting : kDefaultTenantSetting);
}

}  // namespace

void read_admin_roles(Validation& validation, std::uint32_t root, const Path& top) noexcept {
  std::uint32_t roles = validation.document.find(root, "adminRoles");
  if (roles == kNoNode) return;
  const Path path = child(top, "adminRoles");
  if (!validation.expect_object(roles, path)) return;
  validation.check_duplicates(roles, path);
  Policy& policy = validation.policy;
  const Document& document = validation.document;
  for (std::uint32_t i = document.node(roles).first_child; i != kNoNode; i = document.node(i).next) {
    const Path at = child(path, document.text(document.node(i).key));
    if (policy.admin_role_count == kMaxAdminRoles) {
      FindingText finding = validation.error(i, at);
      finding.message.add("is one admin role too many, at most ").add(kMaxAdminRoles).add(" are possible");
      return;
    }
    AdminRole& role = policy.admin_roles[policy.admin_role_count++];
    if (validation.copy_key(i, at, kNameBytes, role.name)) warn_of_pattern(validation, i, at, role.name);
    if (!validation.expect_object(i, at)) continue;
    validation.check_fields(i, at, kAdminFields, std::size(kAdminFields));
    validation.read_number(i, at, "guaranteedSessions", kSessions, role.guaranteed_sessions);
  }
}

void read_assign(Validation& validation, std::uint32_t root, const Path& top) noexcept {
  std::uint32_t list = validation.document.find(root, "assign");
  if (list == kNoNode) return;
  const Path path = child(top, "assign");
  if (!validation.expect_array(list, path)) return;
  Policy& policy = validation.policy;
  const Document& document = validation.document;
  std::uint32_t catch_all = kNoNode;
  for (std::uint32_t i = document.node(list).first_child; i != kNoNode; i = document.node(i).next) {
    const Path at = entry(path, policy.assign_count);
    if (policy.assign_count == kMaxAssignRules) {
      FindingText finding = validation.error(i, at);
      finding.message.add("is one rule too many, at most ").add(kMaxAssignRules).add(" are possible");
      finding.fix.add("use patterns or memberOf to say the same with fewer rules");
      return;
    }
    if (catch_all != kNoNode) {
      FindingText finding = validation.warning(i, at);
      finding.message.add("is never reached: assign[").add(catch_all).add("] matches every session before it");
      finding.fix.add("move the rule for everybody to the end, or make it defaultClass");
    }
    AssignRule& rule = policy.assign[policy.assign_count];
    read_assign_rule(validation, i, at, rule);
    bool everybody = rule.by != AssignBy::member_of && std::strcmp(rule.pattern, "*") == 0;
    if (everybody && catch_all == kNoNode) catch_all = policy.assign_count;
    policy.assign_count++;
  }
}

void read_declare(Validation& validation, std::uint32_t root, const Path& top) noexcept {
  Policy& policy = validation.policy;
  const Document& document = validation.document;
  TextWriter(policy.class_setting, kNameBytes).add(kDefaultClassSetting);
  TextWriter(policy.tenant_setting, kNameBytes).add(kDefaultTenantSetting);
  std::uint32_t declare = document.find(root, "declare");
  if (declare == kNoNode) return;
  const Path path = child(top, "declare");
  if (!validation.expect_object(declare, path)) return;
  validation.check_fields(declare, path, kDeclareFields, std::size(kDeclareFields));
  read_setting(validation, declare, path, "classSetting", policy.class_setting);
  read_setting(validation, declare, path, "tenantSetting", policy.tenant_setting);

  std::uint32_t list = document.find(declare, "trustedRoles");
  if (list == kNoNode) return;
  const Path list_path = child(path, "trustedRoles");
  if (!validation.expect_array(list, list_path)) return;
  for (std::uint32_t i = document.node(list).first_child; i != kNoNode; i = document.node(i).next) {
    const Path at = entry(list_path, policy.trusted_role_count);
    if (policy.trusted_role_count == kMaxTrustedRoles) {
      FindingText finding = validation.error(i, at);
      finding.message.add("is one trusted role too many, at most ").add(kMaxTrustedRoles).add(" are possible");
      return;
    }
    char* name = policy.trusted_roles[policy.trusted_role_count];
    if (!validation.copy_name(i, at, kNameBytes, name)) continue;
    warn_of_pattern(validation, i, at, name);
    for (std::uint16_t other = 0; other < policy.trusted_role_count; other++) {
      if (std::strcmp(policy.trusted_roles[other], name) != 0) continue;
      validation.error(i, at).message.add("role ").add(name).add(" is listed twice");
    }
    policy.trusted_role_count++;
  }
}

}  // namespace sluice::policy
