#include "ledger/queue.h"

#include "ledger/atomics.h"
#include "ledger/scheduler.h"

namespace sluice::ledger {

namespace {

// How many blockers a new one looks past for its place; beyond that it goes in front of them.
constexpr std::uint32_t kMaxBlockersPassed = 32;

void link_before(const Ledger& ledger, std::uint32_t& head, std::uint32_t& tail, std::uint32_t ticket,
                 std::uint32_t successor) noexcept {
  Ticket& entry = ledger.tickets[ticket];
  entry.next = successor;
  entry.previous = successor == kNil ? tail : ledger.tickets[successor].previous;
  (entry.previous == kNil ? head : ledger.tickets[entry.previous].next) = ticket;
  (successor == kNil ? tail : ledger.tickets[successor].previous) = ticket;
}

void unlink_from(const Ledger& ledger, std::uint32_t& head, std::uint32_t& tail, std::uint32_t ticket) noexcept {
  Ticket& entry = ledger.tickets[ticket];
  (entry.previous == kNil ? head : ledger.tickets[entry.previous].next) = entry.next;
  (entry.next == kNil ? tail : ledger.tickets[entry.next].previous) = entry.previous;
  entry.next = entry.previous = kNil;
}

void link_eligible(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket,
                   std::uint32_t successor) noexcept {
  const Ticket& entry = ledger.tickets[ticket];
  const std::uint32_t index = row_index(ledger, entry);
  Row& row = ledger.rows[index];
  link_before(ledger, row.eligible_head, row.eligible_tail, ticket, successor);
  if (row.eligible_count++ == 0) scheduler_enter(ledger, lock, entry.klass, index);
}

void unlink_eligible(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket) noexcept {
  const Ticket& entry = ledger.tickets[ticket];
  const std::uint32_t index = row_index(ledger, entry);
  Row& row = ledger.rows[index];
  unlink_from(ledger, row.eligible_head, row.eligible_tail, ticket);
  if (--row.eligible_count == 0) scheduler_leave(ledger, lock, entry.klass, index);
}

// The oldest parked ticket has been given a slot: it waits for the class now.
void promote_head(const Ledger& ledger, const Exclusive& lock, Row& row) noexcept {
  const std::uint32_t ticket = row.parked_head;
  if (ticket == kNil) {
    (void)fault(ledger, Status::corrupt);
    return;
  }
  Ticket& entry = ledger.tickets[ticket];
  unlink_from(ledger, row.parked_head, row.parked_tail, ticket);
  entry.parked = false;
  link_eligible(ledger, lock, ticket, entry.blocks_holder ? row.eligible_head : kNil);
  change_class(ledger.classes[entry.klass], [](ClassWord& word) noexcept {
    word.waiters++;
    return true;
  });
}

}  // namespace

void enqueue(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, bool parked) noexcept {
  Ticket& entry = ledger.tickets[ticket];
  Row& row = ledger.rows[row_index(ledger, entry)];
  ClassState& state = ledger.classes[entry.klass];
  entry.parked = parked;
  entry.blocks_holder = false;
  if (parked) {
    link_before(ledger, row.parked_head, row.parked_tail, ticket, kNil);
  } else {
    link_eligible(ledger, lock, ticket, kNil);
  }
  state.queued++;
  ledger.header->queued_total++;
  entry.waits++;
  row.waited++;
  if (state.queued > state.peak_queued) state.peak_queued = state.queued;
  const std::uint32_t row_queued = row.eligible_count + unpack_row(load(row.word)).parked;
  if (row_queued > row.peak_queued) row.peak_queued = row_queued;
}

void dequeue(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket) noexcept {
  Ticket& entry = ledger.tickets[ticket];
  Row& row = ledger.rows[row_index(ledger, entry)];
  if (entry.parked) {
    unlink_from(ledger, row.parked_head, row.parked_tail, ticket);
    entry.parked = false;
  } else {
    unlink_eligible(ledger, lock, ticket);
  }
  if (entry.blocks_holder) {
    entry.blocks_holder = false;
    ledger.header->overdraft_waiters--;
  }
  ledger.classes[entry.klass].queued--;
  ledger.header->queued_total--;
}

void promote_parked(const Ledger& ledger, const Exclusive& lock, std::uint32_t row) noexcept {
  Row& entry = ledger.rows[row];
  for (;;) {
    bool promoted = false;
    change_row(entry, [&promoted](RowWord& word) noexcept {
      promoted = word.parked > 0 && word.in_use < word.limit;
      if (!promoted) return false;
      word.in_use++;
      word.parked--;
      return true;
    });
    if (!promoted || entry.parked_head == kNil) return;
    promote_head(ledger, lock, entry);
  }
}

Status return_slot(const Ledger& ledger, const Exclusive& lock, std::uint32_t row) noexcept {
  Row& entry = ledger.rows[row];
  bool passed_on = false;
  bool held = true;
  change_row(entry, [&](RowWord& word) noexcept {
    held = word.in_use > 0;
    if (!held) return false;
    passed_on = word.parked > 0 && word.in_use <= word.limit;
    if (passed_on) {
      word.parked--;
    } else {
      word.in_use--;
    }
    return true;
  });
  if (!held) return fault(ledger, Status::corrupt);
  if (passed_on) promote_head(ledger, lock, entry);
  return Status::ok;
}

void park_excess(const Ledger& ledger, const Exclusive& lock, std::uint32_t row) noexcept {
  Row& entry = ledger.rows[row];
  while (entry.eligible_count > 0) {
    bool parked = false;
    change_row(entry, [&parked](RowWord& word) noexcept {
      parked = word.in_use > word.limit;
      if (!parked) return false;
      word.in_use--;
      word.parked++;
      return true;
    });
    if (!parked) return;
    const std::uint32_t ticket = entry.eligible_tail;
    unlink_eligible(ledger, lock, ticket);
    change_class(ledger.classes[ledger.tickets[ticket].klass], [](ClassWord& word) noexcept {
      word.waiters--;
      return true;
    });
    ledger.tickets[ticket].parked = true;
    link_before(ledger, entry.parked_head, entry.parked_tail, ticket, entry.parked_head);
  }
}

void move_to_head(const Ledger& ledger, const Exclusive&, std::uint32_t ticket) noexcept {
  Ticket& entry = ledger.tickets[ticket];
  Row& row = ledger.rows[row_index(ledger, entry)];
  std::uint32_t& head = entry.parked ? row.parked_head : row.eligible_head;
  std::uint32_t& tail = entry.parked ? row.parked_tail : row.eligible_tail;
  unlink_from(ledger, head, tail, ticket);
  std::uint32_t successor = head;
  for (std::uint32_t passed = 0; passed < kMaxBlockersPassed && successor != kNil; passed++) {
    if (!ledger.tickets[successor].blocks_holder) break;
    successor = ledger.tickets[successor].next;
  }
  if (successor != kNil && ledger.tickets[successor].blocks_holder) successor = head;
  link_before(ledger, head, tail, ticket, successor);
}

}  // namespace sluice::ledger
