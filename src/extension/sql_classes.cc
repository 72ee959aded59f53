// sluice._classes(), sluice._tenants(): the execution classes and every tenant's share of them. Statistics that still
// lie in the backends' own slots are added to those that have been folded into the rows.
#include <atomic>
#include <cstring>

#include "extension/shared.h"
#include "extension/sql_support.h"
#include "ledger/class_use.h"
#include "ledger/estimate.h"
#include "ledger/words.h"

namespace sluice::extension {
namespace {

using ledger::ClassState;
using ledger::Row;
using ledger::Tenant;
using ledger::Ticket;

// How many tenants are copied in one round of the lock: nobody waits for a reader longer than such a copy takes.
constexpr std::uint32_t kTenantsPerRound = 64;

// One row of the result: a tenant's share of one class, with its statistics complete.
struct Share {
  std::uint32_t tenant, klass;
  ledger::RowWord word;
  std::uint32_t weight, eligible, peak_queued;
  std::uint64_t granted, execution_us, would_wait, waited, refused, expired, cancelled, pushed_out;
  std::int64_t expected_wait_us;  // of one more; -1: unknown
  std::int64_t mean_hold_us;      // 0: unknown
};

struct Shares {
  std::uint32_t tenant_count, class_count;
  Tenant* tenants;  // copies, by index
  Share* shares;    // tenant * class_count + class
};

std::uint64_t load(const std::uint64_t& word) {
  return std::atomic_ref<std::uint64_t>(const_cast<std::uint64_t&>(word)).load(std::memory_order_relaxed);
}

void copy_row(const ledger::Shared& lock, std::uint32_t tenant, std::uint32_t klass, std::int64_t now, Share& share) {
  const Row& row = ledger::row_at(the_ledger, tenant, klass);
  share.word = ledger::unpack_row(load(row.word));
  share.weight = row.weight;
  share.eligible = row.eligible_count;
  share.peak_queued = row.peak_queued;
  share.granted = row.granted;
  share.execution_us = row.execution_us;
  share.would_wait = row.would_wait;
  share.waited = row.waited;
  share.refused = row.refused;
  share.expired = row.expired;
  share.cancelled = row.cancelled;
  share.pushed_out = row.pushed_out;
  share.expected_wait_us = ledger::expected_wait_us(the_ledger, lock, tenant, klass, now);
  share.mean_hold_us = row.hold_samples == 0 ? 0 : row.mean_hold_us;
}

// Adds what the slots' owners have counted since they were last folded, and the time that permits are held up to now.
void add_slots(Shares& shares) {
  const Slots slots = copy_slots();
  const std::int64_t now = now_us();
  for (std::uint32_t i = 0; i < slots.count; i++) {
    const Ticket& ticket = slots.tickets[i];
    if (ticket.tenant >= shares.tenant_count || ticket.klass >= shares.class_count) continue;
    Share& share = shares.shares[static_cast<std::size_t>(ticket.tenant) * shares.class_count + ticket.klass];
    share.granted += ticket.stat_granted;
    share.execution_us += ticket.stat_execution_us;
    share.would_wait += ticket.stat_would_wait;
    if (ledger::holds_permit(ledger::phase_state(ticket.phase)) && ticket.granted_us > 0 && now > ticket.granted_us) {
      share.execution_us += static_cast<std::uint64_t>(now - ticket.granted_us);
    }
  }
}

Shares copy_shares() {
  Shares shares{};
  shares.tenant_count = the_ledger.header->sizes.tenants;
  shares.class_count = the_ledger.header->sizes.classes;
  const std::size_t share_bytes = sizeof(Share) * shares.tenant_count * shares.class_count;
  shares.tenants = static_cast<Tenant*>(allocate_records(sizeof(Tenant) * shares.tenant_count));
  shares.shares = static_cast<Share*>(allocate_records(share_bytes));
  std::memset(static_cast<void*>(shares.shares), 0, share_bytes);
  const std::int64_t now = now_us();
  for (std::uint32_t first = 0; first < shares.tenant_count; first += kTenantsPerRound) {
    const std::uint32_t end = Min(first + kTenantsPerRound, shares.tenant_count);
    SharedLedger lock;
    std::memcpy(static_cast<void*>(shares.tenants + first), the_ledger.tenants + first, sizeof(Tenant) * (end - first));
    for (std::uint32_t tenant = first; tenant < end; tenant++) {
      if (!shares.tenants[tenant].used) continue;
      for (std::uint32_t klass = 0; klass < shares.class_count; klass++) {
        Share& share = shares.shares[static_cast<std::size_t>(tenant) * shares.class_count + klass];
        copy_row(lock.token(), tenant, klass, now, share);
      }
    }
  }
  add_slots(shares);
  return shares;
}

ClassState* copy_classes(std::uint32_t count) {
  auto* classes = static_cast<ClassState*>(allocate_records(sizeof(ClassState) * count));
  SharedLedger lock;
  std::memcpy(static_cast<void*>(classes), the_ledger.classes, sizeof(ClassState) * count);
  return classes;
}

// The time in ms below which `quantile` of the waits stayed, from the histogram: an upper bound, at most twice the true
// value. -1: nobody has waited.
std::int64_t wait_quantile_ms(const ClassState& state, double quantile) {
  std::uint64_t total = 0;
  for (std::uint64_t bucket : state.wait_histogram) total += bucket;
  if (total == 0) return -1;
  std::uint64_t seen = 0;
  for (std::uint32_t i = 0; i < ledger::kHistogramBuckets; i++) {
    seen += state.wait_histogram[i];
    if (static_cast<double>(seen) >= quantile * static_cast<double>(total)) return std::int64_t{1} << i;
  }
  return std::int64_t{1} << (ledger::kHistogramBuckets - 1);
}

Rows& write_quantile(Rows& rows, const ClassState& state, double quantile) {
  const std::int64_t value = wait_quantile_ms(state, quantile);
  return value < 0 ? rows.null() : rows.number(value);
}

Share sum_of_class(const Shares& shares, std::uint32_t klass) {
  Share sum{};
  for (std::uint32_t tenant = 0; tenant < shares.tenant_count; tenant++) {
    const Share& share = shares.shares[static_cast<std::size_t>(tenant) * shares.class_count + klass];
    sum.granted += share.granted;
    sum.execution_us += share.execution_us;
    sum.would_wait += share.would_wait;
    sum.waited += share.waited;
    sum.refused += share.refused;
    sum.expired += share.expired;
    sum.cancelled += share.cancelled;
    sum.pushed_out += share.pushed_out;
  }
  return sum;
}

// A class that is no longer in the policy is shown until its last permit is back.
bool is_shown(const policy::Policy& policy, const ClassState& state) {
  if (state.name[0] == '\0') return false;
  const ledger::ClassWord word = ledger::unpack_class(load(state.word));
  const bool idle = ledger::permits_in_use(state.capacity, word.free) == 0 && state.queued == 0;
  return state.policy_index < policy.class_count || !idle;
}

std::uint64_t reason_count(const std::uint64_t* refusals, policy::Status reason) {
  return refusals[static_cast<std::uint32_t>(reason)];
}

// What it owes and is owed; from whom, as "class=permits" pairs.
void write_lending(Rows& rows, const Names& names, const ClassState& state) {
  rows.number(ledger::permits_owed(state)).number(state.lent);
  const char* lenders[policy::kMaxClasses];
  int count = 0;
  for (std::uint32_t i = 0; i < names.class_count && i < policy::kMaxClasses; i++) {
    if (state.borrowed_from[i] == 0) continue;
    const char* lender = class_name(names, i);
    lenders[count++] = psprintf("%s=%u", lender == nullptr ? "?" : lender, state.borrowed_from[i]);
  }
  rows.texts(lenders, count).count(state.borrows).count(state.recalls);
}

void write_class(Rows& rows, const Names& names, const ClassState& state, const Share& sum) {
  const policy::Policy& policy = names.policy;
  const ledger::ClassWord word = ledger::unpack_class(load(state.word));
  const bool active = state.policy_index < policy.class_count;
  rows.text(state.name).text(active ? "active" : "draining");
  // Without a limit "free" is counted from a number that stands for none; the difference is right all the same.
  rows.limit(state.permits).number(ledger::permits_in_use(state.capacity, word.free));
  if (state.permits == policy::kNoLimit) {
    rows.null();
  } else {
    rows.number(word.free);
  }
  rows.number(state.queued).limit(state.max_queue).number(ledger::peak_in_use(state)).number(state.peak_queued);
  if (active) {
    const policy::ExecutionClass& limits = policy.classes[state.policy_index];
    rows.number(limits.queue_deadline_ms);
    if (limits.transaction_time_limit_ms == policy::kNoTimeLimit) {
      rows.null();
    } else {
      rows.number(limits.transaction_time_limit_ms);
    }
  } else {
    rows.null().null();
  }
  rows.count(sum.granted)
      .count(state.handed_over)
      .count(sum.waited)
      .count(sum.refused)
      .count(sum.expired)
      .count(sum.cancelled);
  rows.count(sum.would_wait).count(state.would_refuse).real(static_cast<double>(sum.execution_us) / 1e6);
  rows.real(static_cast<double>(state.wait_us_total) / 1e3);
  write_quantile(rows, state, 0.5);
  write_quantile(rows, state, 0.99);
  rows.numbers(state.wait_histogram, ledger::kHistogramBuckets);
  write_lending(rows, names, state);
  rows.count(sum.pushed_out).count(reason_count(state.refusals, policy::Status::deadline_unreachable));
  if (active) {
    rows.number(policy.classes[state.policy_index].aging_ms);
  } else {
    rows.null();
  }
  rows.end();
}

void write_share(Rows& rows, const Names& names, const Tenant& tenant, const Share& share) {
  const bool has_rule = tenant.rule < names.policy.tenant_rule_count;
  rows.text(share.tenant == ledger::kOverflowTenant && tenant.name[0] == '\0' ? "*" : tenant.name);
  rows.text(class_name(names, share.klass));
  rows.text(has_rule ? names.policy.tenant_rules[tenant.rule].pattern : nullptr);
  rows.number(share.weight).number(share.word.in_use - Min(share.word.in_use, share.eligible)).limit(share.word.limit);
  rows.number(share.eligible + share.word.parked).number(share.peak_queued);
  rows.number(tenant.sessions).limit(tenant.max_sessions).number(tenant.guaranteed).number(tenant.peak_sessions);
  rows.count(share.granted).real(static_cast<double>(share.execution_us) / 1e6);
  rows.count(share.waited).count(share.refused).count(share.expired).count(share.cancelled).count(share.would_wait);
  rows.count(tenant.session_refusals).count(tenant.would_refuse_sessions).time(tenant.last_used_us);
  rows.count(share.pushed_out);
  if (share.mean_hold_us == 0) {
    rows.null();
  } else {
    rows.real(static_cast<double>(share.mean_hold_us) / 1e3);
  }
  write_expected_wait(rows, share.expected_wait_us);
  rows.end();
}

}  // namespace
}  // namespace sluice::extension

using namespace sluice;             // NOLINT: the functions below only translate SQL calls
using namespace sluice::extension;  // NOLINT

extern "C" {

PG_FUNCTION_INFO_V1(sluice_classes);
Datum sluice_classes(PG_FUNCTION_ARGS) {
  require_ledger();
  const Names& names = copy_names();
  const Shares shares = copy_shares();
  const ledger::ClassState* classes = copy_classes(shares.class_count);
  Rows rows(fcinfo);
  for (std::uint32_t i = 0; i < shares.class_count; i++) {
    if (is_shown(names.policy, classes[i])) write_class(rows, names, classes[i], sum_of_class(shares, i));
  }
  return static_cast<Datum>(0);
}

PG_FUNCTION_INFO_V1(sluice_tenants);
Datum sluice_tenants(PG_FUNCTION_ARGS) {
  require_ledger();
  const Names& names = copy_names();
  const Shares shares = copy_shares();
  Rows rows(fcinfo);
  for (std::uint32_t tenant = 0; tenant < shares.tenant_count; tenant++) {
    const ledger::Tenant& record = shares.tenants[tenant];
    if (!record.used || (tenant == ledger::kOverflowTenant && record.last_used_us == 0)) continue;
    for (std::uint32_t klass = 0; klass < shares.class_count; klass++) {
      if (class_name(names, klass) == nullptr) continue;
      Share& share = shares.shares[static_cast<std::size_t>(tenant) * shares.class_count + klass];
      share.tenant = tenant;
      share.klass = klass;
      write_share(rows, names, record, share);
    }
  }
  return static_cast<Datum>(0);
}
}
