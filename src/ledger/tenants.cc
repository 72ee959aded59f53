#include "ledger/tenants.h"

#include <cstring>

#include "ledger/atomics.h"
#include "ledger/journal.h"
#include "ledger/scheduler.h"
#include "policy/decisions.h"

namespace sluice::ledger {

namespace {

// Entries looked at, and of these records searched for, when a newcomer finds the table full.
constexpr std::uint32_t kMaxRecycleScan = 64;
constexpr std::uint32_t kMaxRecordSearches = 4;
// An entry that was looked up a moment ago may be about to get its first session or ticket.
constexpr std::int64_t kMinIdleUs = 1'000'000;

[[nodiscard]] std::uint32_t bucket_of(const Ledger& ledger, const char* name) noexcept {
  std::uint32_t hash = 2166136261U;  // FNV-1a
  for (; *name != '\0'; name++) hash = (hash ^ static_cast<unsigned char>(*name)) * 16777619U;
  return (hash ^ (hash >> 15)) & (tenant_bucket_count(ledger.header->sizes) - 1);
}

void unchain(const Ledger& ledger, std::uint32_t tenant) noexcept {
  std::uint32_t* link = &ledger.tenant_buckets[bucket_of(ledger, ledger.tenants[tenant].name)];
  for (std::uint32_t steps = 0; *link != kNil && steps < ledger.header->sizes.tenants; steps++) {
    if (*link == tenant) {
      *link = ledger.tenants[tenant].hash_next;
      return;
    }
    link = &ledger.tenants[*link].hash_next;
  }
}

[[nodiscard]] bool looks_idle(const Ledger& ledger, const Exclusive& lock, std::uint32_t tenant,
                              std::int64_t now_us) noexcept {
  const Tenant& entry = ledger.tenants[tenant];
  if (entry.sessions > 0 || now_us - entry.last_used_us < kMinIdleUs) return false;
  for (std::uint32_t klass = 0; klass < ledger.header->sizes.classes; klass++) {
    const RowWord word = unpack_row(load(row_at(ledger, tenant, klass).word));
    if (word.in_use > 0 || word.parked > 0) return false;
    // Who has had more than its share must not start anew under another name.
    if (has_debt(ledger, lock, tenant * ledger.header->sizes.classes + klass, now_us)) return false;
  }
  return true;
}

// A ticket that still names the tenant could take on its rows without a lock, or would fold its statistics into them;
// an administrator's session names it without being counted in it.
[[nodiscard]] bool is_named(const Ledger& ledger, std::uint32_t tenant) noexcept {
  for (std::uint32_t i = 0; i < ledger.header->sizes.sessions; i++) {
    const Session& session = ledger.sessions[i];
    if (session.tenant == tenant && holds_session_permit(static_cast<SessionState>(load(session.state)))) return true;
  }
  for (std::uint32_t i = 0; i < ticket_count(ledger); i++) {
    if (load_relaxed(ledger.tickets[i].tenant) == tenant) return true;
  }
  return false;
}

[[nodiscard]] std::uint32_t find_recyclable(const Ledger& ledger, const Exclusive& lock, std::int64_t now_us) noexcept {
  Header& header = *ledger.header;
  std::uint32_t best = kNil;
  std::uint32_t searches = 0;
  for (std::uint32_t i = 0; i < kMaxRecycleScan && i + 1 < header.sizes.tenants; i++) {
    const std::uint32_t tenant = header.tenant_hand;
    header.tenant_hand = tenant + 1 < header.sizes.tenants ? tenant + 1 : 1;
    if (!looks_idle(ledger, lock, tenant, now_us)) continue;
    if (best != kNil && ledger.tenants[tenant].last_used_us >= ledger.tenants[best].last_used_us) continue;
    if (searches == kMaxRecordSearches) break;
    searches++;
    if (!is_named(ledger, tenant)) best = tenant;
  }
  return best;
}

// The rows are idle: only their limits, statistics and what is known of holds are left of the former tenant.
void reset_rows(const Ledger& ledger, std::uint32_t tenant) noexcept {
  for (std::uint32_t klass = 0; klass < ledger.header->sizes.classes; klass++) {
    Row& row = row_at(ledger, tenant, klass);
    row.granted = row.execution_us = row.would_wait = row.waited = row.refused = row.expired = row.cancelled = 0;
    row.pushed_out = 0;
    row.peak_queued = row.hold_samples = 0;
    row.mean_hold_us = row.max_hold_us = row.idle_since_us = 0;
    row.contention = 0;
  }
}

[[nodiscard]] std::uint32_t free_entry(const Ledger& ledger, const Exclusive& lock, std::int64_t now_us) noexcept {
  Header& header = *ledger.header;
  if (header.tenant_count < header.sizes.tenants) return header.tenant_count++;
  const std::uint32_t tenant = find_recyclable(ledger, lock, now_us);
  if (tenant == kNil) return kNil;
  unchain(ledger, tenant);
  if (ledger.tenants[tenant].guaranteed > 0) header.guaranteed_tenants[ledger.tenants[tenant].rule]--;
  reset_rows(ledger, tenant);
  return tenant;
}

[[nodiscard]] std::uint32_t overflow(const Ledger& ledger, const Exclusive& lock, Status status,
                                     std::int64_t now_us) noexcept {
  ledger.header->tenant_overflows++;
  record_event(ledger, lock,
               {EventKind::tenant_overflow, policy::outcome(status), kOverflowTenant, kNil, nullptr, false}, now_us);
  return kOverflowTenant;
}

[[nodiscard]] bool is_wildcard(const policy::TenantRule& rule) noexcept {
  for (const char* at = rule.pattern; *at != '\0'; at++) {
    if (*at == '*') return true;
  }
  return false;
}

[[nodiscard]] std::uint32_t guaranteed_places(const policy::TenantRule& rule) noexcept {
  if (rule.guaranteed_sessions == 0) return 0;
  return is_wildcard(rule) ? rule.max_tenants : 1;
}

}  // namespace

std::uint32_t find_tenant(const Ledger& ledger, const Shared&, const char* name) noexcept {
  std::uint32_t tenant = ledger.tenant_buckets[bucket_of(ledger, name)];
  for (std::uint32_t steps = 0; tenant != kNil && steps < ledger.header->sizes.tenants; steps++) {
    if (std::strncmp(ledger.tenants[tenant].name, name, policy::kTenantBytes) == 0) return tenant;
    tenant = ledger.tenants[tenant].hash_next;
  }
  return kNil;
}

std::uint32_t tenant_for(const Ledger& ledger, const Exclusive& lock, const char* name, std::int64_t now_us) noexcept {
  const std::size_t length = strnlen(name, policy::kTenantBytes);
  if (length == policy::kTenantBytes) return overflow(ledger, lock, fault(ledger, Status::corrupt), now_us);
  std::uint32_t tenant = find_tenant(ledger, lock, name);
  if (tenant == kNil) {
    tenant = free_entry(ledger, lock, now_us);
    if (tenant == kNil) return overflow(ledger, lock, Status::table_full, now_us);
    Tenant& entry = ledger.tenants[tenant];
    std::memset(&entry, 0, sizeof(entry));
    std::memcpy(entry.name, name, length);
    entry.used = true;
    std::uint32_t& bucket = ledger.tenant_buckets[bucket_of(ledger, name)];
    entry.hash_next = bucket;
    bucket = tenant;
    adopt_rule(ledger, lock, tenant, now_us);
  }
  ledger.tenants[tenant].last_used_us = now_us;
  return tenant;
}

void adopt_rule(const Ledger& ledger, const Exclusive& lock, std::uint32_t tenant, std::int64_t now_us) noexcept {
  Header& header = *ledger.header;
  Tenant& entry = ledger.tenants[tenant];
  entry.rule = policy::tenant_rule(header.policy, entry.name);
  entry.guaranteed = 0;
  entry.max_sessions = policy::kNoLimit;
  std::uint32_t weight = 1;
  std::uint32_t limit = policy::kNoLimit;
  if (entry.rule < header.policy.tenant_rule_count) {
    const policy::TenantRule& rule = header.policy.tenant_rules[entry.rule];
    entry.max_sessions = rule.max_sessions;
    weight = rule.weight;
    limit = rule.max_inflight;
    // The first tenants of a wildcard get its guarantee, as many as the policy's arithmetic counted.
    if (tenant != kOverflowTenant && header.guaranteed_tenants[entry.rule] < guaranteed_places(rule)) {
      entry.guaranteed = rule.guaranteed_sessions;
      header.guaranteed_tenants[entry.rule]++;
    }
  }
  for (std::uint32_t klass = 0; klass < header.sizes.classes; klass++) {
    // A class that is no longer in the policy drains without limits.
    const std::uint32_t row_limit = ledger.classes[klass].policy_index == kNil ? policy::kNoLimit : limit;
    Row& row = row_at(ledger, tenant, klass);
    reweigh(ledger, lock, tenant * header.sizes.classes + klass, weight, now_us);
    change_row(row, [row_limit](RowWord& word) noexcept {
      const bool changed = word.limit != row_limit;
      word.limit = row_limit;
      return changed;
    });
  }
}

std::uint32_t guarantee_total(const policy::Policy& policy) noexcept {
  std::uint32_t total = 0;
  for (std::uint32_t i = 0; i < policy.tenant_rule_count; i++) {
    total += guaranteed_places(policy.tenant_rules[i]) * policy.tenant_rules[i].guaranteed_sessions;
  }
  return total;
}

}  // namespace sluice::ledger
