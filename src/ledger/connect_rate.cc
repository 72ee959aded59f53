#include "ledger/connect_rate.h"

#include <cstring>

namespace sluice::ledger {

namespace {

constexpr std::int64_t kSecondUs = 1'000'000;

// 0: the cap does not limit the rate, or admits nobody, so that there is nothing to remember.
[[nodiscard]] std::int64_t pace_us(const Ledger& ledger, std::uint16_t cap) noexcept {
  const policy::Policy& policy = ledger.header->policy;
  if (cap >= policy.role_cap_count || cap >= policy::kMaxRoleCaps) return 0;
  const std::uint32_t limit = policy.role_caps[cap].connects_per_second;
  return limit == policy::kNoLimit || limit == 0 ? 0 : kSecondUs / limit;
}

}  // namespace

std::uint32_t recent_connects(const Ledger& ledger, const Shared&, std::uint16_t cap, std::int64_t now_us) noexcept {
  const std::int64_t pace = pace_us(ledger, cap);
  if (pace == 0) return 0;
  const std::int64_t ahead = ledger.header->role_connects_until_us[cap] - now_us;
  if (ahead <= 0) return 0;
  const std::int64_t used = (ahead + pace - 1) / pace;
  const std::uint32_t limit = ledger.header->policy.role_caps[cap].connects_per_second;
  return used < limit ? static_cast<std::uint32_t>(used) : limit;
}

void note_connect(const Ledger& ledger, const Exclusive&, std::uint16_t cap, std::int64_t now_us) noexcept {
  const std::int64_t pace = pace_us(ledger, cap);
  if (pace == 0) return;
  std::int64_t& until = ledger.header->role_connects_until_us[cap];
  until = (until > now_us ? until : now_us) + pace;
  // In shadow more may come than the limit lets; the debt ends at a second's worth all the same.
  if (until > now_us + kSecondUs) until = now_us + kSecondUs;
}

void forget_connects(const Ledger& ledger, const Exclusive&) noexcept {
  std::memset(ledger.header->role_connects_until_us, 0, sizeof(ledger.header->role_connects_until_us));
}

}  // namespace sluice::ledger
