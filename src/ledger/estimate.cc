#include "ledger/estimate.h"

#include "ledger/atomics.h"
#include "ledger/queue.h"
#include "ledger/scheduler.h"

namespace sluice::ledger {

namespace {

constexpr std::uint32_t kMinSamples = 8;
// Beyond this many tickets or rows a position is an estimate from what was seen so far.
constexpr std::uint32_t kMaxPositionScan = 1024;

// Where the row's next ticket would stand, in key units, if `ahead` of its tickets went before.
[[nodiscard]] std::int64_t finish_of(const ClassState& state, const Row& row, std::int64_t key,
                                     std::int64_t ahead) noexcept {
  const std::int64_t hold = row.hold_samples == 0 ? look_ahead_us(state) : row.mean_hold_us;
  return key + ahead * hold / row.weight;
}

// The wait of whoever has `ahead` tickets of the row before it; -1: too few samples.
[[nodiscard]] std::int64_t wait_behind(const Ledger& ledger, const Shared& lock, std::uint32_t index,
                                       const ClassState& state, std::int64_t ahead, std::int64_t now_us) noexcept {
  const Row& row = ledger.rows[index];
  if (row.hold_samples < kMinSamples) return -1;
  const std::int64_t finish = finish_of(state, row, key_at(ledger, lock, index, now_us), ahead);
  const std::int64_t distance = finish > state.virtual_time ? finish - state.virtual_time : 0;
  const std::int64_t own = std::int64_t{row.weight} * kWeightScale;
  const std::int64_t active = smoothed_weight(state, now_us);
  const std::int64_t permits = state.permits == 0 ? 1 : state.permits;
  return distance / permits * (active > own ? active : own) / kWeightScale;
}

// How many tickets of its row stand before a ticket that waits.
[[nodiscard]] std::int64_t tickets_before(const Ledger& ledger, std::uint32_t ticket) noexcept {
  const Ticket& entry = ledger.tickets[ticket];
  std::int64_t ahead = entry.parked ? ledger.rows[row_index(ledger, entry)].eligible_count : 0;
  std::uint32_t at = entry.previous;
  for (std::uint32_t scanned = 0; at != kNil && scanned < kMaxPositionScan; scanned++) {
    ahead++;
    at = ledger.tickets[at].previous;
  }
  return ahead;
}

}  // namespace

std::int64_t expected_wait_us(const Ledger& ledger, const Shared& lock, std::uint32_t tenant, std::uint32_t klass,
                              std::int64_t now_us) noexcept {
  const std::uint32_t index = tenant * ledger.header->sizes.classes + klass;
  return wait_behind(ledger, lock, index, ledger.classes[klass], ledger.rows[index].queued, now_us);
}

std::int64_t expected_wait_of(const Ledger& ledger, const Shared& lock, std::uint32_t ticket,
                              std::int64_t now_us) noexcept {
  if (ticket >= ticket_count(ledger) || phase_state(load(ledger.tickets[ticket].phase)) != TicketState::queued)
    return -1;
  const Ticket& entry = ledger.tickets[ticket];
  return wait_behind(ledger, lock, row_index(ledger, entry), ledger.classes[entry.klass],
                     tickets_before(ledger, ticket), now_us);
}

std::int64_t least_wait_us(const Ledger& ledger, const Shared& lock, std::uint32_t tenant, std::uint32_t klass,
                           bool has_slot, std::int64_t now_us) noexcept {
  const Row& row = row_at(ledger, tenant, klass);
  const std::uint32_t own = has_slot ? 1 : 0;
  if (row.queued == 0 && unpack_row(load(row.word)).in_use <= own) return 0;
  const std::int64_t wait_us = expected_wait_us(ledger, lock, tenant, klass, now_us);
  return wait_us > 0 ? wait_us : 0;
}

std::uint32_t queue_position(const Ledger& ledger, const Shared& lock, std::uint32_t ticket,
                             std::int64_t now_us) noexcept {
  if (ticket >= ticket_count(ledger) || phase_state(load(ledger.tickets[ticket].phase)) != TicketState::queued)
    return 0;
  const Ticket& entry = ledger.tickets[ticket];
  const ClassState& state = ledger.classes[entry.klass];
  const std::uint32_t own = row_index(ledger, entry);
  const std::int64_t ahead = tickets_before(ledger, ticket);
  const std::int64_t turn = finish_of(state, ledger.rows[own], key_at(ledger, lock, own, now_us), ahead);
  std::int64_t position = ahead + 1;
  const std::uint32_t* rows = ledger.by_key + std::size_t{entry.klass} * ledger.header->sizes.tenants;
  for (std::uint32_t i = 0; i < state.key_count && i < kMaxPositionScan; i++) {
    const Row& peer = ledger.rows[rows[i]];
    const std::int64_t key = key_at(ledger, lock, rows[i], now_us);
    if (rows[i] == own || key > turn) continue;
    const std::int64_t step = finish_of(state, peer, key, 1) - key;
    const std::int64_t before = step <= 0 ? peer.eligible_count : (turn - key) / step + 1;
    position += before < peer.eligible_count ? before : peer.eligible_count;
  }
  return position > policy::kNoLimit ? policy::kNoLimit : static_cast<std::uint32_t>(position);
}

}  // namespace sluice::ledger
