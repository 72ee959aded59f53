#include "ledger/queue.h"

#include "ledger/atomics.h"
#include "ledger/scheduler.h"
#include "ledger/ticket_list.h"

namespace sluice::ledger {

namespace {

// How many blockers a new one looks past for its place; beyond that it goes in front of them.
constexpr std::uint32_t kMaxBlockersPassed = 32;

void link_eligible(const Ledger& ledger, Row& row, std::uint32_t ticket, std::uint32_t successor) noexcept {
  link_before(ledger, row.eligible_head, row.eligible_tail, ticket, successor);
  row.eligible_count++;
}

void unlink_eligible(const Ledger& ledger, Row& row, std::uint32_t ticket) noexcept {
  unlink_from(ledger, row.eligible_head, row.eligible_tail, ticket);
  row.eligible_count--;
}

// The first ticket of the list that is younger, or kNil. Looked for from both ends at once: newcomers belong to the end
// and retries near the head. Tickets that block a holder stay in front whatever their age.
[[nodiscard]] std::uint32_t first_younger(const Ledger& ledger, std::uint32_t head, std::uint32_t tail,
                                          std::int64_t queued_us) noexcept {
  std::uint32_t successor = kNil;
  while (tail != kNil && head != kNil) {
    const Ticket& last = ledger.tickets[tail];
    if (last.queued_us <= queued_us || last.blocks_holder) return successor;
    const Ticket& first = ledger.tickets[head];
    if (first.queued_us > queued_us && !first.blocks_holder) return head;
    successor = tail;
    tail = last.previous;
    head = first.next;
  }
  return successor;
}

// The oldest parked ticket has been given a slot: it waits for the class now.
void promote_head(const Ledger& ledger, Row& row) noexcept {
  const std::uint32_t ticket = row.parked_head;
  if (ticket == kNil) {
    (void)fault(ledger, Status::corrupt);
    return;
  }
  Ticket& entry = ledger.tickets[ticket];
  unlink_from(ledger, row.parked_head, row.parked_tail, ticket);
  entry.parked = false;
  link_eligible(ledger, row, ticket, entry.blocks_holder ? row.eligible_head : kNil);
  change_class(ledger.classes[entry.klass], [](ClassWord& word) noexcept {
    word.waiters++;
    return true;
  });
}

// Parks a ticket by its age. One that is older than a ticket of its row which has a slot already takes that one's
// place, so that the row is served in order; the words are the same either way.
void link_parked(const Ledger& ledger, Row& row, std::uint32_t ticket) noexcept {
  Ticket& entry = ledger.tickets[ticket];
  const std::uint32_t last = row.eligible_tail;
  if (last == kNil || ledger.tickets[last].queued_us <= entry.queued_us || ledger.tickets[last].blocks_holder) {
    link_before(ledger, row.parked_head, row.parked_tail, ticket,
                first_younger(ledger, row.parked_head, row.parked_tail, entry.queued_us));
    return;
  }
  unlink_eligible(ledger, row, last);
  ledger.tickets[last].parked = true;
  link_before(ledger, row.parked_head, row.parked_tail, last, row.parked_head);
  entry.parked = false;
  link_eligible(ledger, row, ticket, first_younger(ledger, row.eligible_head, row.eligible_tail, entry.queued_us));
}

}  // namespace

void enqueue(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, bool parked,
             std::int64_t now_us) noexcept {
  Ticket& entry = ledger.tickets[ticket];
  const std::uint32_t index = row_index(ledger, entry);
  Row& row = ledger.rows[index];
  ClassState& state = ledger.classes[entry.klass];
  entry.parked = parked;
  entry.blocks_holder = false;
  if (parked) {
    link_parked(ledger, row, ticket);
  } else {
    link_eligible(ledger, row, ticket, first_younger(ledger, row.eligible_head, row.eligible_tail, entry.queued_us));
  }
  row.queued++;
  state.queued++;
  ledger.header->queued_total++;
  entry.waits++;
  row.waited++;
  if (state.queued > state.peak_queued) state.peak_queued = state.queued;
  if (row.queued > row.peak_queued) row.peak_queued = row.queued;
  account(ledger, lock, index, now_us);
}

void dequeue(const Ledger& ledger, const Exclusive&, std::uint32_t ticket) noexcept {
  Ticket& entry = ledger.tickets[ticket];
  Row& row = ledger.rows[row_index(ledger, entry)];
  if (entry.parked) {
    unlink_from(ledger, row.parked_head, row.parked_tail, ticket);
    entry.parked = false;
  } else {
    unlink_eligible(ledger, row, ticket);
  }
  if (entry.blocks_holder) {
    entry.blocks_holder = false;
    ledger.header->overdraft_waiters--;
  }
  row.queued--;
  ledger.classes[entry.klass].queued--;
  ledger.header->queued_total--;
}

void promote_parked(const Ledger& ledger, const Exclusive& lock, std::uint32_t index, std::int64_t now_us) noexcept {
  Row& row = ledger.rows[index];
  for (;;) {
    bool promoted = false;
    change_row(row, [&promoted](RowWord& word) noexcept {
      promoted = word.parked > 0 && word.in_use < word.limit;
      if (!promoted) return false;
      word.in_use++;
      word.parked--;
      return true;
    });
    if (!promoted || row.parked_head == kNil) break;
    promote_head(ledger, row);
  }
  account(ledger, lock, index, now_us);
}

Status return_slot(const Ledger& ledger, const Exclusive& lock, std::uint32_t index, std::int64_t now_us) noexcept {
  Row& row = ledger.rows[index];
  bool passed_on = false;
  bool held = true;
  change_row(row, [&](RowWord& word) noexcept {
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
  if (passed_on) promote_head(ledger, row);
  account(ledger, lock, index, now_us);
  return Status::ok;
}

void park_excess(const Ledger& ledger, const Exclusive& lock, std::uint32_t index, std::int64_t now_us) noexcept {
  Row& row = ledger.rows[index];
  while (row.eligible_count > 0) {
    bool parked = false;
    change_row(row, [&parked](RowWord& word) noexcept {
      parked = word.in_use > word.limit;
      if (!parked) return false;
      word.in_use--;
      word.parked++;
      return true;
    });
    if (!parked) break;
    const std::uint32_t ticket = row.eligible_tail;
    unlink_eligible(ledger, row, ticket);
    change_class(ledger.classes[ledger.tickets[ticket].klass], [](ClassWord& word) noexcept {
      word.waiters--;
      return true;
    });
    ledger.tickets[ticket].parked = true;
    link_before(ledger, row.parked_head, row.parked_tail, ticket, row.parked_head);
  }
  account(ledger, lock, index, now_us);
}

void move_to_head(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, std::int64_t now_us) noexcept {
  Ticket& entry = ledger.tickets[ticket];
  const std::uint32_t index = row_index(ledger, entry);
  Row& row = ledger.rows[index];
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
  account(ledger, lock, index, now_us);
}

std::uint32_t youngest(const Ledger& ledger, const Exclusive&, std::uint32_t index) noexcept {
  const Row& row = ledger.rows[index];
  return row.parked_tail != kNil ? row.parked_tail : row.eligible_tail;
}

}  // namespace sluice::ledger
