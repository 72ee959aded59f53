#include "ledger/scheduler.h"

namespace sluice::ledger {

namespace {

// A visit to a row grants as many tickets as the row weighs; what it cannot use it loses, so no deficit piles up.
void begin_visit(const Ledger& ledger, ClassState& state, std::uint32_t row) noexcept {
  state.ring_cursor = row;
  if (row == kNil) return;
  const std::uint32_t weight = ledger.rows[row].weight;
  ledger.rows[row].credit = weight == 0 ? 1 : weight;
}

}  // namespace

void scheduler_enter(const Ledger& ledger, const Exclusive&, std::uint32_t klass, std::uint32_t row) noexcept {
  ClassState& state = ledger.classes[klass];
  Row& entry = ledger.rows[row];
  if (entry.in_ring) return;
  entry.in_ring = true;
  state.ring_size++;
  if (state.ring_cursor == kNil) {
    entry.ring_next = entry.ring_previous = row;
    begin_visit(ledger, state, row);
    return;
  }
  Row& cursor = ledger.rows[state.ring_cursor];
  entry.ring_next = state.ring_cursor;
  entry.ring_previous = cursor.ring_previous;
  ledger.rows[cursor.ring_previous].ring_next = row;
  cursor.ring_previous = row;
}

void scheduler_leave(const Ledger& ledger, const Exclusive&, std::uint32_t klass, std::uint32_t row) noexcept {
  ClassState& state = ledger.classes[klass];
  Row& entry = ledger.rows[row];
  if (!entry.in_ring) return;
  entry.in_ring = false;
  state.ring_size--;
  const std::uint32_t next = entry.ring_next == row ? kNil : entry.ring_next;
  if (next != kNil) {
    ledger.rows[entry.ring_previous].ring_next = next;
    ledger.rows[next].ring_previous = entry.ring_previous;
  }
  entry.ring_next = entry.ring_previous = kNil;
  if (state.ring_cursor == row) begin_visit(ledger, state, next);
}

std::uint32_t scheduler_pick(const Ledger& ledger, const Exclusive&, std::uint32_t klass) noexcept {
  return ledger.classes[klass].ring_cursor;
}

void scheduler_served(const Ledger& ledger, const Exclusive&, std::uint32_t klass, std::uint32_t row) noexcept {
  ClassState& state = ledger.classes[klass];
  Row& entry = ledger.rows[row];
  if (state.ring_cursor != row) return;
  if (entry.credit > 1) {
    entry.credit--;
  } else {
    begin_visit(ledger, state, entry.ring_next);
  }
}

}  // namespace sluice::ledger
