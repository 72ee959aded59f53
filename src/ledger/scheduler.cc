#include "ledger/scheduler.h"

#include "ledger/atomics.h"
#include "ledger/heap.h"

namespace sluice::ledger {

namespace {

constexpr std::int64_t kMinLookAheadUs = 1'000;
constexpr std::int64_t kMaxLookAheadUs = 1'000'000;
constexpr std::int64_t kSmoothingUs = 1'000'000;

// Keys are rebased before they could outgrow 64 bits times the largest weight: months of contention without a pause.
constexpr std::int64_t kRebaseAt = std::int64_t{1} << 52;

// Among equals, as all are where contention begins, who has waited longest.
struct ByKey {
  bool operator()(const Row& a, std::uint32_t a_index, const Row& b, std::uint32_t b_index) const noexcept {
    if (a.key != b.key) return a.key < b.key;
    return a.head_us != b.head_us ? a.head_us < b.head_us : a_index < b_index;
  }
};

struct ByQueue {
  bool operator()(const Row& a, std::uint32_t a_index, const Row& b, std::uint32_t b_index) const noexcept {
    const std::uint64_t left = std::uint64_t{a.queued} * b.weight;
    const std::uint64_t right = std::uint64_t{b.queued} * a.weight;
    return left != right ? left > right : a_index < b_index;
  }
};

using KeyHeap = RowHeap<&Row::key_at, ByKey>;
using QueueHeap = RowHeap<&Row::flood_at, ByQueue>;

[[nodiscard]] std::uint32_t class_of(const Ledger& ledger, std::uint32_t row) noexcept {
  return row % ledger.header->sizes.classes;
}

[[nodiscard]] KeyHeap keys_of(const Ledger& ledger, std::uint32_t klass) noexcept {
  return {ledger.rows, ledger.by_key + std::size_t{klass} * ledger.header->sizes.tenants,
          ledger.classes[klass].key_count};
}

[[nodiscard]] QueueHeap queues_of(const Ledger& ledger, std::uint32_t klass) noexcept {
  return {ledger.rows, ledger.by_queue + std::size_t{klass} * ledger.header->sizes.tenants,
          ledger.classes[klass].flood_count};
}

// What the row has attained by now: what it has held so far costs what it has held it for.
[[nodiscard]] std::int64_t service_at(const ClassState& state, const Row& row, std::int64_t now_us) noexcept {
  if (row.contention != state.contention) return state.virtual_time * row.weight;
  // Two backends may have read the clock before they got the lock, in the other order.
  return now_us > row.charged_us ? row.service + std::int64_t{row.held} * (now_us - row.charged_us) : row.service;
}

[[nodiscard]] std::int64_t key_of(const ClassState& state, const Row& row, std::int64_t service) noexcept {
  return (service + look_ahead_us(state) * row.held) / row.weight;
}

[[nodiscard]] std::int64_t key_of(const ClassState& state, const Row& row) noexcept {
  return key_of(state, row, row.service);
}

void charge(const ClassState& state, Row& row, std::int64_t now_us) noexcept {
  row.service = service_at(state, row, now_us);
  if (row.contention != state.contention) {
    row.contention = state.contention;
    row.forgiven = 0;
    row.charged_us = now_us;
  } else if (now_us > row.charged_us) {
    row.charged_us = now_us;
  }
}

void set_active_weight(ClassState& state, std::uint32_t weight, std::int64_t now_us) noexcept {
  state.smoothed_weight = smoothed_weight(state, now_us);
  if (now_us > state.weight_us) state.weight_us = now_us;
  state.active_weight = weight;
}

// The row gets its first eligible ticket. Having been away earns it at most L of credit.
void activate(ClassState& state, KeyHeap& keys, Row& row, std::uint32_t index, std::int64_t now_us) noexcept {
  if (state.key_count == 0) {
    // Contention begins. Only what is held now counts, through the look-ahead.
    state.contention++;
    state.virtual_time = 0;
  }
  charge(state, row, now_us);
  const std::int64_t floor = state.virtual_time - look_ahead_us(state) / row.weight;
  row.key = key_of(state, row);
  if (row.key < floor) {
    row.service += (floor - row.key) * row.weight;
    row.key = floor;
  }
  keys.push(index);
  set_active_weight(state, state.active_weight + row.weight, now_us);
}

void deactivate(ClassState& state, KeyHeap& keys, const Row& row, std::uint32_t index, std::int64_t now_us) noexcept {
  keys.remove(index);
  set_active_weight(state, state.active_weight - row.weight, now_us);
}

void order_by_queue(QueueHeap& queues, const Row& row, std::uint32_t index) noexcept {
  if (queues.has(index)) {
    if (row.queued > 0) {
      queues.moved(index);
    } else {
      queues.remove(index);
    }
  } else if (row.queued > 0) {
    queues.push(index);
  }
}

// Re-keys the top until the least key is current. Stored keys are lower bounds: a key only falls where it is stored.
[[nodiscard]] std::uint32_t current_top(const Ledger& ledger, std::uint32_t klass, std::int64_t now_us) noexcept {
  const ClassState& state = ledger.classes[klass];
  KeyHeap keys = keys_of(ledger, klass);
  for (;;) {
    const std::uint32_t top = keys.top();
    if (top == kNil) return kNil;
    Row& row = ledger.rows[top];
    charge(state, row, now_us);
    const std::int64_t key = key_of(state, row);
    if (key == row.key) return top;
    row.key = key;
    keys.moved(top);
  }
}

// Moves the origin of every key of this contention to the virtual time.
void rebase(const Ledger& ledger, std::uint32_t klass, std::int64_t now_us) noexcept {
  ClassState& state = ledger.classes[klass];
  const std::int64_t origin = state.virtual_time;
  for (std::uint32_t tenant = 0; tenant < ledger.header->tenant_count; tenant++) {
    Row& row = row_at(ledger, tenant, klass);
    if (row.contention != state.contention) continue;
    charge(state, row, now_us);
    row.service -= origin * row.weight;
    row.key -= origin;
  }
  state.virtual_time = 0;
}

}  // namespace

std::int64_t look_ahead_us(const ClassState& state) noexcept {
  const std::int64_t ahead = state.aging_us / 10;
  if (ahead < kMinLookAheadUs) return kMinLookAheadUs;
  return ahead > kMaxLookAheadUs ? kMaxLookAheadUs : ahead;
}

std::int64_t smoothed_weight(const ClassState& state, std::int64_t now_us) noexcept {
  const std::int64_t target = std::int64_t{state.active_weight} * kWeightScale;
  const std::int64_t passed = now_us - state.weight_us;
  if (passed <= 0) return state.smoothed_weight;
  if (passed >= kSmoothingUs) return target;
  return state.smoothed_weight + (target - state.smoothed_weight) * passed / kSmoothingUs;
}

void account(const Ledger& ledger, const Exclusive&, std::uint32_t index, std::int64_t now_us) noexcept {
  const std::uint32_t klass = class_of(ledger, index);
  ClassState& state = ledger.classes[klass];
  Row& row = ledger.rows[index];
  KeyHeap keys = keys_of(ledger, klass);
  QueueHeap queues = queues_of(ledger, klass);

  charge(state, row, now_us);
  const std::uint32_t held = unpack_row(load(row.word)).in_use - row.eligible_count;
  if (row.held > 0 && held == 0) row.idle_since_us = now_us;
  row.held = held;
  if (row.eligible_count > 0) row.head_us = ledger.tickets[row.eligible_head].queued_us;
  if (row.eligible_count == 0) {
    if (keys.has(index)) deactivate(state, keys, row, index, now_us);
  } else if (keys.has(index)) {
    row.key = key_of(state, row);
    keys.moved(index);
  } else {
    const std::uint32_t top = current_top(ledger, klass, now_us);
    if (top != kNil && ledger.rows[top].key > state.virtual_time) state.virtual_time = ledger.rows[top].key;
    activate(state, keys, row, index, now_us);
  }
  order_by_queue(queues, row, index);
}

std::uint32_t pick(const Ledger& ledger, const Exclusive&, std::uint32_t klass, std::int64_t now_us) noexcept {
  return current_top(ledger, klass, now_us);
}

void note_grant(const Ledger& ledger, const Exclusive&, std::uint32_t index, std::int64_t now_us) noexcept {
  ClassState& state = ledger.classes[class_of(ledger, index)];
  Row& row = ledger.rows[index];
  charge(state, row, now_us);
  const std::int64_t key = key_of(state, row);
  if (key > state.virtual_time) state.virtual_time = key;
}

void note_hold(const Ledger& ledger, const Exclusive&, std::uint32_t index, std::int64_t held_us) noexcept {
  Row& row = ledger.rows[index];
  const std::int64_t hold = held_us > 0 ? held_us : 0;
  row.mean_hold_us = row.hold_samples == 0 ? hold : row.mean_hold_us + (hold - row.mean_hold_us) / 8;
  row.max_hold_us -= row.max_hold_us / 64;
  if (hold > row.max_hold_us) row.max_hold_us = hold;
  if (row.hold_samples < kNil) row.hold_samples++;
}

void forgive(const Ledger& ledger, const Exclusive&, std::uint32_t klass, std::int64_t now_us) noexcept {
  ClassState& state = ledger.classes[klass];
  if (state.virtual_time > kRebaseAt) rebase(ledger, klass, now_us);
  KeyHeap keys = keys_of(ledger, klass);
  const std::uint32_t* slots = ledger.by_key + std::size_t{klass} * ledger.header->sizes.tenants;
  // A row that is forgiven moves towards the top only: those it passes come later in the array and are seen then.
  for (std::uint32_t at = 0; at < state.key_count; at++) {
    const std::uint32_t index = slots[at];
    Row& row = ledger.rows[index];
    if (row.held > 0) continue;
    // Not since the head of its queue came: heads that give up early would keep their row in debt for ever.
    if (now_us - row.idle_since_us < state.aging_us) continue;
    charge(state, row, now_us);
    const std::int64_t key = key_of(state, row);
    const std::int64_t limit = state.virtual_time + (look_ahead_us(state) + row.max_hold_us) / row.weight;
    if (key <= limit) continue;
    row.service -= (key - limit) * row.weight;
    row.forgiven += key - limit;
    row.key = limit;
    keys.moved(index);
  }
}

void reweigh(const Ledger& ledger, const Exclusive&, std::uint32_t index, std::uint32_t weight,
             std::int64_t now_us) noexcept {
  const std::uint32_t klass = class_of(ledger, index);
  ClassState& state = ledger.classes[klass];
  Row& row = ledger.rows[index];
  if (row.weight == weight || weight == 0) return;
  KeyHeap keys = keys_of(ledger, klass);
  QueueHeap queues = queues_of(ledger, klass);
  charge(state, row, now_us);
  const std::int64_t key = key_of(state, row);
  if (keys.has(index)) set_active_weight(state, state.active_weight - row.weight + weight, now_us);
  row.weight = weight;
  row.service = key * weight - look_ahead_us(state) * row.held;
  row.key = key_of(state, row);
  if (keys.has(index)) keys.moved(index);
  order_by_queue(queues, row, index);
}

void set_aging(const Ledger& ledger, const Exclusive&, std::uint32_t klass, std::int64_t aging_us,
               std::int64_t now_us) noexcept {
  ClassState& state = ledger.classes[klass];
  if (state.aging_us == aging_us) return;
  std::uint32_t* slots = ledger.by_key + std::size_t{klass} * ledger.header->sizes.tenants;
  for (std::uint32_t at = 0; at < state.key_count; at++) charge(state, ledger.rows[slots[at]], now_us);
  state.aging_us = aging_us;
  KeyHeap keys = keys_of(ledger, klass);
  const std::uint32_t count = state.key_count;
  state.key_count = 0;
  // Pushing one behind the other reads each slot before it is written.
  for (std::uint32_t at = 0; at < count; at++) {
    const std::uint32_t index = slots[at];
    ledger.rows[index].key = key_of(state, ledger.rows[index]);
    keys.push(index);
  }
}

std::uint32_t largest_queue(const Ledger& ledger, const Exclusive&, std::uint32_t klass) noexcept {
  return queues_of(ledger, klass).top();
}

std::int64_t key_at(const Ledger& ledger, const Shared&, std::uint32_t index, std::int64_t now_us) noexcept {
  const ClassState& state = ledger.classes[class_of(ledger, index)];
  const Row& row = ledger.rows[index];
  // While nobody waits nothing is charged: what the row held when somebody last did says nothing of now.
  return state.key_count == 0 ? state.virtual_time : key_of(state, row, service_at(state, row, now_us));
}

bool has_debt(const Ledger& ledger, const Shared& lock, std::uint32_t index, std::int64_t now_us) noexcept {
  const ClassState& state = ledger.classes[class_of(ledger, index)];
  return state.key_count > 0 && ledger.rows[index].contention == state.contention &&
         key_at(ledger, lock, index, now_us) > state.virtual_time;
}

OrderSums check_orders(const Ledger& ledger, const Exclusive&, std::uint32_t klass) noexcept {
  const ClassState& state = ledger.classes[klass];
  const std::uint32_t tenants = ledger.header->sizes.tenants;
  const std::uint32_t* keys = ledger.by_key + std::size_t{klass} * tenants;
  const std::uint32_t* queues = ledger.by_queue + std::size_t{klass} * tenants;
  OrderSums sums = {0, 0, 0};
  for (std::uint32_t at = 0; at < state.key_count && at < tenants; at++) {
    if (keys[at] >= tenants * ledger.header->sizes.classes) break;
    const Row& row = ledger.rows[keys[at]];
    if (row.key_at != at || class_of(ledger, keys[at]) != klass) continue;
    const std::uint32_t parent = at == 0 ? keys[0] : keys[(at - 1) / 4];
    if (ByKey{}(row, keys[at], ledger.rows[parent], parent)) continue;
    sums.by_key++;
    sums.weight += row.weight;
  }
  for (std::uint32_t at = 0; at < state.flood_count && at < tenants; at++) {
    if (queues[at] >= tenants * ledger.header->sizes.classes) break;
    const Row& row = ledger.rows[queues[at]];
    if (row.flood_at != at || class_of(ledger, queues[at]) != klass) continue;
    const std::uint32_t parent = at == 0 ? queues[0] : queues[(at - 1) / 4];
    if (ByQueue{}(row, queues[at], ledger.rows[parent], parent)) continue;
    sums.by_queue++;
  }
  return sums;
}

}  // namespace sluice::ledger
