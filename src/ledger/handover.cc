// How permits pass from those who return them to those who wait, under the lock.
#include <cstdint>

#include "ledger/admission_locked.h"
#include "ledger/atomics.h"
#include "ledger/borrowing.h"
#include "ledger/journal.h"
#include "ledger/queue.h"
#include "ledger/scheduler.h"

namespace sluice::ledger {

namespace {

[[nodiscard]] bool is_over_limit(const Row& row) noexcept {
  const RowWord word = unpack_row(load(row.word));
  return word.in_use > word.limit;
}

// Forgiveness, when a tick has passed since the last.
void age(const Ledger& ledger, const Exclusive& lock, std::uint32_t klass, std::int64_t now_us) noexcept {
  ClassState& state = ledger.classes[klass];
  if (now_us - state.ticked_us < kTickUs) return;
  state.ticked_us = now_us;
  forgive(ledger, lock, klass, now_us);
}

// The waiter that is served next, or kNil. Rows whose limit fell below their use park their excess on the way.
[[nodiscard]] std::uint32_t next_waiter(const Ledger& ledger, const Exclusive& lock, std::uint32_t klass,
                                        std::int64_t now_us) noexcept {
  for (std::uint32_t row = pick(ledger, lock, klass, now_us); row != kNil; row = pick(ledger, lock, klass, now_us)) {
    if (!is_over_limit(ledger.rows[row])) return ledger.rows[row].eligible_head;
    park_excess(ledger, lock, row, now_us);
  }
  return kNil;
}

// Gives the permit that the class word already shows as taken to a waiter that it no longer shows.
void grant_waiter(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, std::int32_t free,
                  std::int64_t now_us, Wakes& wakes) noexcept {
  const Ticket& entry = ledger.tickets[ticket];
  const std::uint32_t row = row_index(ledger, entry);
  const RowWord word = unpack_row(load(ledger.rows[row].word));
  if (free < 0 || word.in_use > word.limit) add_relaxed(ledger.header->over_limit_grants, 1);
  note_grant(ledger, lock, row, now_us);
  dequeue(ledger, lock, ticket);
  account(ledger, lock, row, now_us);
  become_granted(ledger, lock, ticket, PermitSource::own_class, now_us, wakes);
  ledger.classes[entry.klass].handed_over++;
}

// Grants what the class has free, and what it may borrow, to its waiters.
void grant_waiters(const Ledger& ledger, const Exclusive& lock, std::uint32_t klass, std::int64_t now_us,
                   Wakes& wakes) noexcept {
  ClassState& state = ledger.classes[klass];
  for (;;) {
    ClassWord seen = unpack_class(load(state.word));
    if (seen.waiters == 0 || (seen.free <= 0 && state.borrow_from == 0)) return;
    if (wakes.count == kMaxWakes) {
      wakes.more = true;
      return;
    }
    const std::uint32_t waiter = next_waiter(ledger, lock, klass, now_us);
    if (waiter == kNil) {
      if (unpack_class(load(state.word)).waiters > 0) (void)fault_locked(ledger, lock, Status::corrupt, kNil, now_us);
      return;
    }
    std::uint32_t lender = kNil;
    if (seen.free == 0 && is_enforcing(ledger)) lender = borrow(ledger, lock, klass, now_us);
    bool granted = false;
    const ClassWord word = change_class(state, [&granted](ClassWord& w) noexcept {
      granted = w.free > 0 && w.waiters > 0;
      if (!granted) return false;
      w.free--;
      w.waiters--;
      return true;
    });
    if (!granted) return;
    grant_waiter(ledger, lock, waiter, word.free, now_us, wakes);
    if (lender != kNil) mark_borrowed(ledger, lock, waiter, lender);
  }
}

// Returns the permit of a ticket: to a class that has lent one, to the next waiter in the same step, else to the class.
void return_permit(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, std::int64_t now_us,
                   Wakes& wakes) noexcept {
  const std::uint32_t klass = ledger.tickets[ticket].klass;
  const std::uint32_t lender = repay(ledger, lock, klass, ticket);
  if (lender != kNil) {
    dispatch(ledger, lock, lender, now_us, wakes);
    return;
  }
  const std::uint32_t waiter = wakes.count < kMaxWakes ? next_waiter(ledger, lock, klass, now_us) : kNil;
  bool handed_over = false;
  const ClassWord word = change_class(ledger.classes[klass], [&](ClassWord& w) noexcept {
    handed_over = waiter != kNil && w.waiters > 0 && w.free >= 0;
    if (handed_over) {
      w.waiters--;
    } else {
      w.free++;
    }
    return true;
  });
  if (handed_over) grant_waiter(ledger, lock, waiter, word.free, now_us, wakes);
}

void admit_waiter(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, std::int64_t now_us,
                  Wakes& wakes) noexcept {
  Ticket& entry = ledger.tickets[ticket];
  const bool parked = entry.parked;
  if (parked) {
    change_row(ledger.rows[row_index(ledger, entry)], [](RowWord& word) noexcept {
      word.parked--;
      word.in_use++;
      return true;
    });
  }
  dequeue(ledger, lock, ticket);
  account(ledger, lock, row_index(ledger, entry), now_us);
  change_class(ledger.classes[entry.klass], [parked](ClassWord& word) noexcept {
    word.free--;
    if (!parked) word.waiters--;
    return true;
  });
  entry.admitted_by_switch = true;
  ledger.header->admitted_by_switch++;
  become_granted(ledger, lock, ticket, PermitSource::own_class, now_us, wakes);
}

}  // namespace

void dispatch(const Ledger& ledger, const Exclusive& lock, std::uint32_t klass, std::int64_t now_us,
              Wakes& wakes) noexcept {
  if (klass >= ledger.header->sizes.classes) return;
  age(ledger, lock, klass, now_us);
  grant_waiters(ledger, lock, klass, now_us, wakes);
}

void tick(const Ledger& ledger, const Exclusive& lock, std::int64_t now_us, Wakes& wakes) noexcept {
  for (std::uint32_t klass = 0; klass < ledger.header->sizes.classes; klass++) {
    note_demand(ledger, lock, klass, now_us);
    dispatch(ledger, lock, klass, now_us, wakes);
  }
}

Status release_locked(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, std::int64_t now_us,
                      Wakes& wakes, bool executed) noexcept {
  if (ticket >= ticket_count(ledger)) return fault_locked(ledger, lock, Status::not_found, ticket, now_us);
  Ticket& entry = ledger.tickets[ticket];
  const std::uint32_t phase = load(entry.phase);
  const TicketState state = phase_state(phase);
  const Mark mark = phase_mark(phase);
  if (mark == Mark::taking || mark == Mark::releasing)
    return fault_locked(ledger, lock, Status::corrupt, ticket, now_us);
  if (mark == Mark::row_held) {
    // A take that was given up between its two steps.
    set_phase(entry, TicketState::none);
    const Status status = return_slot(ledger, lock, row_index(ledger, entry), now_us);
    dispatch(ledger, lock, entry.klass, now_us, wakes);
    return status;
  }
  if (state == TicketState::none || is_ended(state)) return Status::ok;
  if (state == TicketState::queued) return fault_locked(ledger, lock, Status::illegal_transition, ticket, now_us);
  if (entry.source == PermitSource::overdraft) {
    ledger.header->overdraft_in_use--;
    ledger.header->overdraft_released_us = now_us;
  } else {
    if (mark != Mark::row_released) {
      const Status status = return_slot(ledger, lock, row_index(ledger, entry), now_us);
      if (status != Status::ok) return status;
    }
    return_permit(ledger, lock, ticket, now_us, wakes);
  }
  become_released(ledger, lock, ticket, now_us, executed);
  dispatch(ledger, lock, entry.klass, now_us, wakes);
  return Status::ok;
}

Status hand_over(const Ledger& ledger, const Exclusive& lock, std::uint32_t from, std::uint32_t to,
                 std::int64_t now_us) noexcept {
  if (from >= ticket_count(ledger) || to >= ticket_count(ledger)) {
    return fault_locked(ledger, lock, Status::not_found, kNil, now_us);
  }
  Ticket& giver = ledger.tickets[from];
  Ticket& taker = ledger.tickets[to];
  const std::uint32_t phase = load(giver.phase);
  if (!holds_permit(phase_state(phase)) || phase_state(phase) == TicketState::expiring ||
      phase_mark(phase) != Mark::none || giver.source != PermitSource::own_class ||
      phase_state(load(taker.phase)) != TicketState::queued || giver.klass != taker.klass) {
    return fault_locked(ledger, lock, Status::illegal_transition, from, now_us);
  }
  const std::uint32_t from_row = row_index(ledger, giver);
  const std::uint32_t to_row = row_index(ledger, taker);
  // A parked ticket can take over only together with a slot of its own row.
  const bool was_parked = taker.parked;
  if (was_parked && from_row != to_row) return Status::contended;
  dequeue(ledger, lock, to);
  if (was_parked) {
    change_row(ledger.rows[to_row], [](RowWord& word) noexcept {
      word.parked--;
      return true;
    });
  } else {
    change_class(ledger.classes[taker.klass], [](ClassWord& word) noexcept {
      word.waiters--;
      return true;
    });
  }
  Wakes named = {};
  become_granted(ledger, lock, to, PermitSource::own_class, now_us, named);
  become_released(ledger, lock, from, now_us, true);
  ledger.classes[taker.klass].handed_over++;
  account(ledger, lock, to_row, now_us);
  return was_parked ? Status::ok : return_slot(ledger, lock, from_row, now_us);
}

namespace {

// The step that no commit can have passed and that none can pass afterwards.
[[nodiscard]] bool begin_expiry(Ticket& entry) noexcept {
  std::uint32_t phase = load(entry.phase);
  // The phase counts the uses of the record: this fails when the owner has gone on to another transaction.
  return phase_state(phase) == TicketState::in_transaction && phase_mark(phase) == Mark::none &&
         compare_and_set(entry.phase, phase, next_phase(phase, TicketState::expiring));
}

[[nodiscard]] Outcome held_too_long(const Ledger& ledger, const Ticket& entry, policy::RuleField field,
                                    std::int64_t limit_us, std::int64_t now_us) noexcept {
  return {Status::time_limit, class_rule(ledger, entry.klass, field),
          static_cast<std::uint32_t>((now_us - entry.granted_us) / 1000), static_cast<std::uint32_t>(limit_us / 1000)};
}

}  // namespace

Status expire(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, std::int64_t now_us) noexcept {
  if (ticket >= ticket_count(ledger)) return fault_locked(ledger, lock, Status::not_found, ticket, now_us);
  Ticket& entry = ledger.tickets[ticket];
  if (phase_state(load(entry.phase)) == TicketState::expiring) return Status::ok;
  const std::int64_t limit_us = load_relaxed(entry.time_limit_us);
  if (limit_us <= 0 || now_us - load_relaxed(entry.granted_us) < limit_us || !begin_expiry(entry))
    return Status::illegal_transition;
  const Outcome why = held_too_long(ledger, entry, policy::RuleField::class_time_limit, limit_us, now_us);
  ledger.header->time_limit_cancels++;
  record_event(ledger, lock, {EventKind::time_limit_cancel, why, entry.tenant, entry.klass, nullptr, false, &entry.id},
               now_us);
  return Status::ok;
}

Status expire_borrowed(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket,
                       std::int64_t now_us) noexcept {
  if (ticket >= ticket_count(ledger)) return fault_locked(ledger, lock, Status::not_found, ticket, now_us);
  Ticket& entry = ledger.tickets[ticket];
  if (entry.source == PermitSource::borrowed && phase_state(load(entry.phase)) == TicketState::expiring)
    return Status::ok;
  if (!is_overdue(ledger, lock, ticket, now_us) || !ledger.classes[entry.klass].cancels_borrowed ||
      !begin_expiry(entry)) {
    return Status::illegal_transition;
  }
  const Outcome why = held_too_long(ledger, entry, policy::RuleField::class_borrow_ttl,
                                    ledger.classes[entry.klass].borrow_ttl_us, now_us);
  ledger.header->borrow_cancels++;
  record_event(ledger, lock, {EventKind::borrow_expired, why, entry.tenant, entry.klass, nullptr, false, &entry.id},
               now_us);
  return Status::ok;
}

std::uint32_t admit_waiters(const Ledger& ledger, const Exclusive& lock, std::int64_t now_us, Wakes& wakes) noexcept {
  std::uint32_t admitted = 0;
  for (std::uint32_t i = 0; i < ticket_count(ledger) && ledger.header->queued_total > 0; i++) {
    if (phase_state(load(ledger.tickets[i].phase)) != TicketState::queued) continue;
    if (wakes.count == kMaxWakes) {
      wakes.more = true;
      break;
    }
    admit_waiter(ledger, lock, i, now_us, wakes);
    admitted++;
  }
  if (admitted > 0) {
    record_event(ledger, lock, {EventKind::switched, policy::outcome(Status::ok), kNil, kNil, nullptr, false}, now_us);
  }
  return admitted;
}

}  // namespace sluice::ledger
