// The compiled policy: a fixed-size, trivially copyable image of one `dbAdmissionPolicy.v1` document. It lives in
// shared memory, is compared and copied as bytes, and is never changed in place. validator.h makes it; decisions.h
// reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace sluice::policy {

inline constexpr std::size_t kNameBytes = 64;     // a PostgreSQL identifier with its NUL
inline constexpr std::size_t kTenantBytes = 128;  // "database/role" with its NUL

inline constexpr std::uint32_t kMaxClasses = 16;
inline constexpr std::uint32_t kMaxTenantRules = 256;
inline constexpr std::uint32_t kMaxAssignRules = 128;
inline constexpr std::uint32_t kMaxAdminRoles = 32;
inline constexpr std::uint32_t kMaxDatabaseCaps = 64;
inline constexpr std::uint32_t kMaxRoleCaps = 64;
inline constexpr std::uint32_t kMaxTrustedRoles = 32;

// "A limit left out means none; 0 means admit none." No server has this many backends, so sums with it stay in 22 bits.
inline constexpr std::uint32_t kNoLimit = (1U << 22) - 1;
inline constexpr std::uint32_t kNoTimeLimit = 0xFFFFFFFFU;

enum class PoolMode : std::uint8_t { transaction, session, statement };
enum class TenantKey : std::uint8_t { role, database, database_role, setting };
enum class BorrowExpiry : std::uint8_t { mark, cancel };

struct BorrowRule {
  std::uint32_t from_classes;  // bit i: may borrow from class i
  std::uint32_t max;           // permits
  std::uint32_t ttl_ms;
  BorrowExpiry on_expiry;
};

struct ExecutionClass {
  char name[kNameBytes];
  std::uint32_t permits;
  std::uint32_t max_queue;
  std::uint32_t queue_deadline_ms;
  std::uint32_t aging_ms;
  std::uint32_t transaction_time_limit_ms;  // kNoTimeLimit: none
  std::uint32_t may_enter;                  // bit i: a session of this class may declare class i
  BorrowRule borrow;
};

struct TenantRule {
  char pattern[kTenantBytes];  // '*' matches any run; the most specific pattern wins (decisions.h)
  std::uint32_t weight;
  std::uint32_t max_inflight;
  std::uint32_t max_sessions;
  std::uint32_t guaranteed_sessions;
  std::uint32_t max_tenants;  // how many tenants of a wildcard are guaranteed; 0 where nothing is
};

enum class AssignBy : std::uint8_t { role, database, member_of };

struct AssignRule {
  AssignBy by;
  std::uint8_t execution_class;
  char pattern[kNameBytes];  // member_of: a role name, no pattern
};

struct AdminRole {
  char name[kNameBytes];
  std::uint32_t guaranteed_sessions;
};

struct DatabaseCap {
  char database[kNameBytes];
  std::uint32_t max_sessions;
  std::uint32_t burst_reserve;
  std::uint32_t burst_reserve_after_ms;
  std::uint32_t guaranteed_sessions_per_tenant;
  std::uint32_t max_tenants;
  std::uint32_t min_session_age_ms;
};

struct RoleCap {
  char role[kNameBytes];
  std::uint32_t max_sessions;
  std::uint32_t connects_per_second;
};

struct Policy {
  char database[kTenantBytes];  // label/role, as written
  std::uint64_t generation;     // 0: nothing is published
  std::uint32_t hard_connection_limit;
  std::uint32_t server_session_permits;
  std::uint32_t admin_reserve;
  std::uint32_t login_headroom;
  std::uint32_t replication_reserve;
  std::uint32_t guaranteed_total;  // the sum of tenants' session guarantees, wildcards by max_tenants
  std::uint32_t overdraft_max;
  std::uint32_t retry_base_ms;
  std::uint32_t lease_ms;
  std::uint32_t leak_after_ms;
  std::uint32_t evict_idle_after_ms;
  PoolMode pool_mode;
  TenantKey tenant_key;
  bool write_role;  // database: …/write
  bool bulkheads;
  bool evict_direct;
  bool evict_proxied;
  std::uint8_t default_class;
  std::uint8_t class_count;
  std::uint8_t admin_role_count;
  std::uint16_t tenant_rule_count;
  std::uint16_t assign_count;
  std::uint16_t database_cap_count;
  std::uint16_t role_cap_count;
  std::uint16_t trusted_role_count;
  char class_setting[kNameBytes];   // declare.classSetting; empty: nobody may declare
  char tenant_setting[kNameBytes];  // declare.tenantSetting; empty: none
  ExecutionClass classes[kMaxClasses];
  TenantRule tenant_rules[kMaxTenantRules];
  AssignRule assign[kMaxAssignRules];
  AdminRole admin_roles[kMaxAdminRoles];
  DatabaseCap database_caps[kMaxDatabaseCaps];
  RoleCap role_caps[kMaxRoleCaps];
  char trusted_roles[kMaxTrustedRoles][kNameBytes];
};

static_assert(std::is_trivially_copyable_v<Policy> && std::is_standard_layout_v<Policy>);

// Admits everything and counts it under one class named "default": what holds while nothing is published.
void make_unlimited_policy(Policy& policy) noexcept;

}  // namespace sluice::policy
