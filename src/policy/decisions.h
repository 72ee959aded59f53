// Who a login is under a policy: tenant, class, admin standing. Pure look-ups over the compiled image.
#pragma once

#include <cstddef>
#include <cstdint>

#include "policy/policy.h"

namespace sluice::policy {

// Facts about a login. memberships: bit i is set when the role is a member of assign[i].pattern (only asked for
// member_of rules; the caller collects them because only it can look into the catalogue).
struct Login {
  const char* role;
  const char* database;
  bool superuser;
  const char* declared_tenant;  // value of the tenant setting, or nullptr; used for trusted roles only
  std::uint64_t memberships[kMaxAssignRules / 64];
};

enum class Standing : std::uint8_t { ordinary, admin_role, superuser };

struct Identity {
  Standing standing;
  std::uint8_t execution_class;
  std::uint16_t admin_role;    // index into admin_roles, or kNone
  std::uint16_t assign_rule;   // which assign rule matched, or kNone (defaultClass)
  std::uint16_t database_cap;  // index or kNone
  std::uint16_t role_cap;      // index or kNone
  char tenant[kTenantBytes];
};

inline constexpr std::uint16_t kNone = 0xFFFF;

void identify(const Policy& policy, const Login& login, Identity& identity) noexcept;

// The most specific tenant rule for a name: exact first, then most literal characters, then document order. A compiled
// policy always holds a rule for "*" (the validator adds one without limits), so kNone only comes from a damaged image.
[[nodiscard]] std::uint16_t tenant_rule(const Policy& policy, const char* tenant) noexcept;

[[nodiscard]] bool pattern_matches(const char* pattern, const char* text) noexcept;

// The class a session of class `from` gets when it declares `name`: index, or kNone when there is no such class or
// `mayEnter` does not list it. Declaring one's own class is always allowed; with bulkheads off every name means the one
// class there is.
[[nodiscard]] std::uint16_t declared_class(const Policy& policy, std::uint8_t from, const char* name) noexcept;

[[nodiscard]] bool is_trusted(const Policy& policy, const char* role) noexcept;

}  // namespace sluice::policy
