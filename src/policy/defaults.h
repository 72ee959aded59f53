// What a field of the policy document means when it is left out. docs/policy.md lists the same values for people.
#pragma once

#include <cstdint>

namespace sluice::policy {

inline constexpr std::uint32_t kDefaultAdminReserve = 3;
inline constexpr std::uint32_t kDefaultLoginHeadroom = 5;
inline constexpr std::uint32_t kDefaultQueueDeadlineMs = 30000;
inline constexpr std::uint32_t kDefaultAgingMs = 1000;
inline constexpr std::uint32_t kDefaultBorrowTtlMs = 5000;
inline constexpr std::uint32_t kDefaultOverdraftMax = 2;
inline constexpr std::uint32_t kDefaultTenantWeight = 1;
inline constexpr std::uint32_t kDefaultBurstReserveAfterMs = 3000;
inline constexpr std::uint32_t kDefaultMinSessionAgeMs = 30000;
inline constexpr std::uint32_t kDefaultEvictIdleAfterMs = 1000;
inline constexpr std::uint32_t kDefaultRetryBaseMs = 200;
inline constexpr std::uint32_t kDefaultLeaseMs = 10000;
inline constexpr std::uint32_t kDefaultLeakAfterMs = 3600000;
inline constexpr char kDefaultClassSetting[] = "pg_sluice.class";
inline constexpr char kDefaultTenantSetting[] = "pg_sluice.tenant";

}  // namespace sluice::policy
