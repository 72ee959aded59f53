// How permits pass from those who return them to those who wait, under the lock.
#include <cstdint>

#include "ledger/admission_locked.h"
#include "ledger/atomics.h"
#include "ledger/journal.h"
#include "ledger/queue.h"
#include "ledger/scheduler.h"

namespace sluice::ledger {

namespace {

// The waiter that is served next, or kNil. Rows whose limit fell below their use park their excess on the way.
[[nodiscard]] std::uint32_t next_waiter(const Ledger& ledger, const Exclusive& lock, std::uint32_t klass) noexcept {
  for (std::uint32_t row = scheduler_pick(ledger, lock, klass); row != kNil;
       row = scheduler_pick(ledger, lock, klass)) {
    park_excess(ledger, lock, row);
    if (ledger.rows[row].eligible_count > 0) return ledger.rows[row].eligible_head;
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
  scheduler_served(ledger, lock, entry.klass, row);
  dequeue(ledger, lock, ticket);
  become_granted(ledger, lock, ticket, PermitSource::own_class, now_us, wakes);
  ledger.classes[entry.klass].handed_over++;
}

// Returns one permit: to the next waiter in the same step, else to the class.
void return_permit(const Ledger& ledger, const Exclusive& lock, std::uint32_t klass, std::int64_t now_us,
                   Wakes& wakes) noexcept {
  const std::uint32_t waiter = wakes.count < kMaxWakes ? next_waiter(ledger, lock, klass) : kNil;
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
  ClassState& state = ledger.classes[klass];
  for (;;) {
    const ClassWord seen = unpack_class(load(state.word));
    if (seen.free <= 0 || seen.waiters == 0) return;
    if (wakes.count == kMaxWakes) {
      wakes.more = true;
      return;
    }
    const std::uint32_t waiter = next_waiter(ledger, lock, klass);
    bool granted = false;
    const ClassWord word = change_class(state, [&](ClassWord& w) noexcept {
      granted = waiter != kNil && w.free > 0 && w.waiters > 0;
      if (!granted) return false;
      w.free--;
      w.waiters--;
      return true;
    });
    if (!granted) {
      if (waiter == kNil && word.waiters > 0) (void)fault_locked(ledger, lock, Status::corrupt, kNil, now_us);
      return;
    }
    grant_waiter(ledger, lock, waiter, word.free, now_us, wakes);
  }
}

Status release_locked(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, std::int64_t now_us,
                      Wakes& wakes) noexcept {
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
    const Status status = return_slot(ledger, lock, row_index(ledger, entry));
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
      const Status status = return_slot(ledger, lock, row_index(ledger, entry));
      if (status != Status::ok) return status;
    }
    return_permit(ledger, lock, entry.klass, now_us, wakes);
  }
  become_released(ledger, lock, ticket, now_us);
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
  become_released(ledger, lock, from, now_us);
  ledger.classes[taker.klass].handed_over++;
  return was_parked ? Status::ok : return_slot(ledger, lock, from_row);
}

Status expire(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, std::int64_t now_us) noexcept {
  if (ticket >= ticket_count(ledger)) return fault_locked(ledger, lock, Status::not_found, ticket, now_us);
  Ticket& entry = ledger.tickets[ticket];
  std::uint32_t phase = load(entry.phase);
  if (phase_state(phase) == TicketState::expiring) return Status::ok;
  if (phase_state(phase) != TicketState::in_transaction || phase_mark(phase) != Mark::none) {
    return Status::illegal_transition;
  }
  const std::int64_t limit_us = load_relaxed(entry.time_limit_us);
  if (limit_us <= 0 || now_us - load_relaxed(entry.granted_us) < limit_us) return Status::illegal_transition;
  // The phase counts the uses of the record: this fails when the owner has gone on to another transaction.
  if (!compare_and_set(entry.phase, phase, next_phase(phase, TicketState::expiring))) return Status::illegal_transition;
  const policy::Rule rule = class_rule(ledger, entry.klass, policy::RuleField::class_time_limit);
  const Outcome why = {Status::time_limit, rule, static_cast<std::uint32_t>((now_us - entry.granted_us) / 1000),
                       static_cast<std::uint32_t>(limit_us / 1000)};
  ledger.header->time_limit_cancels++;
  record_event(ledger, lock, {EventKind::time_limit_cancel, why, entry.tenant, entry.klass, nullptr, false}, now_us);
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
