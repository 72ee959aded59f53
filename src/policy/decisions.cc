#include "policy/decisions.h"

#include <cstring>

#include "policy/text.h"

namespace sluice::policy {
namespace {

std::uint32_t literal_length(const char* pattern) noexcept {
  std::uint32_t literals = 0;
  for (; *pattern != '\0'; pattern++) literals += *pattern != '*' ? 1 : 0;
  return literals;
}

std::uint16_t find_admin_role(const Policy& policy, const char* role) noexcept {
  for (std::uint16_t i = 0; i < policy.admin_role_count; i++) {
    if (std::strcmp(policy.admin_roles[i].name, role) == 0) return i;
  }
  return kNone;
}

std::uint16_t find_database_cap(const Policy& policy, const char* database) noexcept {
  for (std::uint16_t i = 0; i < policy.database_cap_count; i++) {
    if (std::strcmp(policy.database_caps[i].database, database) == 0) return i;
  }
  return kNone;
}

std::uint16_t find_role_cap(const Policy& policy, const char* role) noexcept {
  for (std::uint16_t i = 0; i < policy.role_cap_count; i++) {
    if (std::strcmp(policy.role_caps[i].role, role) == 0) return i;
  }
  return kNone;
}

bool rule_applies(const AssignRule& rule, std::uint16_t index, const Login& login) noexcept {
  switch (rule.by) {
    case AssignBy::role:
      return pattern_matches(rule.pattern, login.role);
    case AssignBy::database:
      return pattern_matches(rule.pattern, login.database);
    case AssignBy::member_of:
      return (login.memberships[index / 64] >> (index % 64) & 1U) != 0;
  }
  return false;
}

std::uint16_t find_assign_rule(const Policy& policy, const Login& login) noexcept {
  for (std::uint16_t i = 0; i < policy.assign_count; i++) {
    if (rule_applies(policy.assign[i], i, login)) return i;
  }
  return kNone;
}

// FNV-1a, 64 bits (http://www.isthe.com/chongo/tech/comp/fnv/).
std::uint64_t hash_text(std::uint64_t hash, const char* text) noexcept {
  for (; *text != '\0'; text++) hash = (hash ^ static_cast<unsigned char>(*text)) * 1099511628211ULL;
  return hash;
}

// "database/role". A slash in the database's name is written %2F (and % as %25), so that the first slash always is the
// separator and two different pairs never share a key. A pair that becomes too long by that is cut and ends in a hash.
void write_database_role(const char* database, const char* role, char* out) noexcept {
  TextWriter tenant(out, kTenantBytes);
  for (const char* c = database; *c != '\0'; c++) {
    if (*c == '/') {
      tenant.add("%2F");
    } else if (*c == '%') {
      tenant.add("%25");
    } else {
      tenant.add(c, 1);
    }
  }
  tenant.add("/").add(role);
  if (!tenant.cut()) return;
  std::uint64_t hash = hash_text(hash_text(hash_text(14695981039346656037ULL, database), "/"), role);
  char suffix[17];
  suffix[0] = '~';
  for (std::size_t i = 0; i < 16; i++) suffix[i + 1] = "0123456789abcdef"[hash >> (60 - 4 * i) & 15U];
  std::size_t kept = kTenantBytes - 1 - sizeof(suffix);
  while (kept > 0 && (static_cast<unsigned char>(out[kept]) & 0xC0U) == 0x80U) kept--;
  tenant.rewind(kept);
  tenant.add(suffix, sizeof(suffix));
}

// A tenant that a session names itself is believed from trusted roles only, and only if it is stored whole: cut, it
// could be another tenant's name.
bool accepts_declared_tenant(const Policy& policy, const Login& login) noexcept {
  const char* declared = login.declared_tenant;
  if (declared == nullptr || declared[0] == '\0') return false;
  return strnlen(declared, kTenantBytes) < kTenantBytes && is_trusted(policy, login.role);
}

void write_tenant(const Policy& policy, const Login& login, char* out) noexcept {
  switch (policy.tenant_key) {
    case TenantKey::role:
      break;
    case TenantKey::database:
      TextWriter(out, kTenantBytes).add(login.database);
      return;
    case TenantKey::database_role:
      write_database_role(login.database, login.role, out);
      return;
    case TenantKey::setting:
      if (!accepts_declared_tenant(policy, login)) break;
      TextWriter(out, kTenantBytes).add(login.declared_tenant);
      return;
  }
  TextWriter(out, kTenantBytes).add(login.role);
}

}  // namespace

// Matches greedily and returns to the last '*' on a mismatch: linear in practice, at worst pattern times text, both
// short.
bool pattern_matches(const char* pattern, const char* text) noexcept {
  const char* after_star = nullptr;
  const char* retry_at = nullptr;
  while (*text != '\0') {
    if (*pattern == '*') {
      after_star = ++pattern;
      retry_at = text;
    } else if (*pattern == *text) {
      pattern++;
      text++;
    } else if (after_star != nullptr) {
      pattern = after_star;
      text = ++retry_at;
    } else {
      return false;
    }
  }
  while (*pattern == '*') pattern++;
  return *pattern == '\0';
}

std::uint16_t tenant_rule(const Policy& policy, const char* tenant) noexcept {
  std::uint16_t best = kNone;
  std::uint32_t best_literals = 0;
  for (std::uint16_t i = 0; i < policy.tenant_rule_count; i++) {
    const char* pattern = policy.tenant_rules[i].pattern;
    if (!contains(pattern, '*')) {
      if (std::strcmp(pattern, tenant) == 0) return i;
      continue;
    }
    std::uint32_t literals = literal_length(pattern);
    bool better = best == kNone || literals > best_literals;
    if (better && pattern_matches(pattern, tenant)) {
      best = i;
      best_literals = literals;
    }
  }
  return best;
}

std::uint16_t declared_class(const Policy& policy, std::uint8_t from, const char* name) noexcept {
  if (from >= policy.class_count) return kNone;
  if (!policy.bulkheads) return from;  // one class for all: every name means it, so that applications need no change
  for (std::uint16_t i = 0; i < policy.class_count; i++) {
    if (std::strcmp(policy.classes[i].name, name) != 0) continue;
    bool allowed = i == from || (policy.classes[from].may_enter >> i & 1U) != 0;
    return allowed ? i : kNone;
  }
  return kNone;
}

bool is_trusted(const Policy& policy, const char* role) noexcept {
  for (std::uint16_t i = 0; i < policy.trusted_role_count; i++) {
    if (std::strcmp(policy.trusted_roles[i], role) == 0) return true;
  }
  return false;
}

void identify(const Policy& policy, const Login& login, Identity& identity) noexcept {
  std::memset(&identity, 0, sizeof(identity));
  // A superuser named in adminRoles stays a superuser and also claims what that name is guaranteed.
  identity.admin_role = find_admin_role(policy, login.role);
  if (login.superuser) {
    identity.standing = Standing::superuser;
  } else {
    identity.standing = identity.admin_role != kNone ? Standing::admin_role : Standing::ordinary;
  }
  identity.assign_rule = find_assign_rule(policy, login);
  identity.execution_class =
      identity.assign_rule != kNone ? policy.assign[identity.assign_rule].execution_class : policy.default_class;
  identity.database_cap = find_database_cap(policy, login.database);
  identity.role_cap = find_role_cap(policy, login.role);
  write_tenant(policy, login, identity.tenant);
}

}  // namespace sluice::policy
