// Taking, queueing and the end of a wait, under the lock.
#include "ledger/admission_locked.h"

#include <cstring>

#include "ledger/atomics.h"
#include "ledger/class_use.h"
#include "ledger/estimate.h"
#include "ledger/journal.h"
#include "ledger/push_out.h"
#include "ledger/queue.h"
#include "ledger/scheduler.h"
#include "ledger/ticket_identity.h"

namespace sluice::ledger {

namespace {

void note_wait(ClassState& state, std::int64_t waited_us) noexcept {
  const std::uint64_t waited = waited_us > 0 ? static_cast<std::uint64_t>(waited_us) : 0;
  std::uint32_t bucket = 0;
  for (std::uint64_t ms = waited / 1000; ms > 0 && bucket + 1 < kHistogramBuckets; ms /= 2) bucket++;
  state.wait_histogram[bucket]++;
  state.wait_us_total += waited;
}

void hold_now(const Ledger& ledger, Ticket& entry, std::int64_t now_us, std::int64_t queued_us) noexcept {
  store_relaxed(entry.granted_us, now_us);
  store_relaxed(entry.queued_us, queued_us);
  store_relaxed(entry.generation, load_relaxed(ledger.header->generation));
}

// Makes the record the request's: folds what belongs to another row, takes over the age of a retried ticket.
void adopt_request(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, const TicketRequest& request,
                   std::int64_t queued_us) noexcept {
  Ticket& entry = ledger.tickets[ticket];
  if (entry.tenant != request.tenant || entry.klass != request.klass) {
    fold(ledger, lock, ticket);
    store_relaxed(entry.tenant, request.tenant);
    store_relaxed(entry.klass, request.klass);
  }
  store_relaxed(entry.queued_us, queued_us);
  entry.id = request.id;
  entry.owner = request.owner;
  entry.deadline_us = request.deadline_us;
  store_relaxed(entry.time_limit_us, request.time_limit_us);
  entry.source = PermitSource::own_class;
  entry.lender = kNil;
  entry.parked = false;
  entry.blocks_holder = false;
  entry.admitted_by_switch = false;
  entry.blocking_since_us = 0;
  entry.wait_status = Status::ok;
  store(entry.phase, load_relaxed(entry.phase) + kPhaseUse);
}

[[nodiscard]] Outcome take_in_shadow(const Ledger& ledger, std::uint32_t ticket, bool held,
                                     std::int64_t now_us) noexcept {
  Ticket& entry = ledger.tickets[ticket];
  ClassState& state = ledger.classes[entry.klass];
  const RowWord row = change_row(ledger.rows[row_index(ledger, entry)], [held](RowWord& word) noexcept {
    if (!held) word.in_use++;
    return !held;
  });
  const ClassWord word = change_class(state, [](ClassWord& w) noexcept {
    w.free--;
    return true;
  });
  if (row.in_use > row.limit || word.free < 0) add_own(entry.stat_would_wait, 1);
  if (word.free < 0 && static_cast<std::uint32_t>(-word.free) > state.max_queue) add_relaxed(state.would_refuse, 1);
  raise_peak(state, state.capacity, word.free);
  hold_now(ledger, entry, now_us, 0);
  set_phase(entry, TicketState::in_transaction);
  return policy::outcome(Status::ok);
}

// Why a request that cannot be granted at once may not wait either; ok: it may.
[[nodiscard]] Outcome may_wait(const Ledger& ledger, const Exclusive& lock, const TicketRequest& request,
                               bool has_slot) noexcept {
  const ClassState& state = ledger.classes[request.klass];
  if (state.queued >= state.max_queue) {
    return {Status::queue_full, class_rule(ledger, request.klass, policy::RuleField::class_max_queue), state.queued,
            state.max_queue};
  }
  const std::int64_t left_us = request.deadline_us > request.now_us ? request.deadline_us - request.now_us : 0;
  const std::int64_t wait_us = least_wait_us(ledger, lock, request.tenant, request.klass, has_slot, request.now_us);
  if (left_us == 0 || wait_us > left_us) {
    return {Status::deadline_unreachable, class_rule(ledger, request.klass, policy::RuleField::class_queue_deadline),
            static_cast<std::uint32_t>(wait_us / 1000), static_cast<std::uint32_t>(left_us / 1000)};
  }
  return policy::outcome(Status::ok);
}

enum class Slot : std::uint8_t { has, parked, refused };

// The row's step. A slot that was taken without the lock is given up again when the limit has fallen below it since.
[[nodiscard]] Slot reserve_slot(Row& row, bool held, bool may_park) noexcept {
  Slot slot = Slot::refused;
  change_row(row, [&](RowWord& word) noexcept {
    if (held && word.in_use <= word.limit) {
      slot = Slot::has;
      return false;
    }
    if (held) word.in_use--;
    if (!held && word.in_use < word.limit && word.parked == 0) {
      word.in_use++;
      slot = Slot::has;
      return true;
    }
    slot = may_park ? Slot::parked : Slot::refused;
    if (may_park) word.parked++;
    return held || may_park;
  });
  return slot;
}

enum class Place : std::uint8_t { granted, eligible, refused };

[[nodiscard]] Place reserve_permit(ClassState& state, bool may_queue, std::int32_t& free) noexcept {
  Place place = Place::refused;
  const ClassWord word = change_class(state, [&](ClassWord& w) noexcept {
    if (w.free > 0 && w.waiters == 0) {
      w.free--;
      place = Place::granted;
      return true;
    }
    place = may_queue ? Place::eligible : Place::refused;
    if (may_queue) w.waiters++;
    return may_queue;
  });
  free = word.free;
  return place;
}

// What a request has got so far. Its slot, once taken, is kept until it is refused.
struct Progress {
  bool has_slot;
  Place place;
  bool parked;
  std::int32_t free;  // of the class, where granted
};

void advance(const Ledger& ledger, const Ticket& entry, bool may_queue, Progress& progress) noexcept {
  const Slot slot = reserve_slot(ledger.rows[row_index(ledger, entry)], progress.has_slot, may_queue);
  progress.has_slot = slot == Slot::has;
  progress.parked = slot == Slot::parked;
  progress.place = progress.parked ? Place::eligible : Place::refused;
  if (progress.has_slot) progress.place = reserve_permit(ledger.classes[entry.klass], may_queue, progress.free);
}

// 0 stands for none, so a clock that starts at 0 is taken for a microsecond later.
void begin_age(Ticket& entry, std::int64_t now_us) noexcept {
  if (entry.queued_us == 0) store_relaxed(entry.queued_us, now_us == 0 ? std::int64_t{1} : now_us);
}

void start_waiting(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, bool parked,
                   std::int64_t now_us) noexcept {
  Ticket& entry = ledger.tickets[ticket];
  begin_age(entry, now_us);
  set_phase(entry, TicketState::queued);
  enqueue(ledger, lock, ticket, parked, now_us);
}

void start_at_once(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, std::int32_t free,
                   std::int64_t now_us) noexcept {
  Ticket& entry = ledger.tickets[ticket];
  ClassState& state = ledger.classes[entry.klass];
  const std::uint32_t index = row_index(ledger, entry);
  const RowWord word = unpack_row(load(ledger.rows[index].word));
  if (free < 0 || word.in_use > word.limit) add_relaxed(ledger.header->over_limit_grants, 1);
  raise_peak(state, state.capacity, free);
  hold_now(ledger, entry, now_us, entry.queued_us);
  set_phase(entry, TicketState::in_transaction);
  account(ledger, lock, index, now_us);
}

[[nodiscard]] Outcome refuse(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, bool has_slot,
                             const Outcome& why, std::int64_t now_us) noexcept {
  Ticket& entry = ledger.tickets[ticket];
  set_phase(entry, TicketState::none);
  if (has_slot) (void)return_slot(ledger, lock, row_index(ledger, entry), now_us);
  // The age of a refused ticket counts when it comes again.
  begin_age(entry, now_us);
  become_ended(ledger, lock, ticket,
               why.status == Status::deadline_unreachable ? TicketState::queue_expired : TicketState::cancelled, why,
               now_us);
  return why;
}

void remove_wake(Wakes& wakes, std::uint32_t ticket) noexcept {
  for (std::uint32_t i = 0; i < wakes.count; i++) {
    if (wakes.tickets[i] == ticket) wakes.tickets[i] = wakes.tickets[--wakes.count];
  }
}

// Enforced admission of a request that the record has adopted: at once, in the queue, or not at all.
[[nodiscard]] Outcome admit(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, bool held,
                            const TicketRequest& request, Wakes& wakes) noexcept {
  const Ticket& entry = ledger.tickets[ticket];
  Progress progress = {held, Place::refused, false, 0};
  advance(ledger, entry, false, progress);
  Outcome waiting = policy::outcome(Status::ok);
  if (progress.place == Place::refused) {
    waiting = may_wait(ledger, lock, request, progress.has_slot);
    if (waiting.status == Status::queue_full && push_out(ledger, lock, ticket, request.now_us, wakes)) {
      waiting = may_wait(ledger, lock, request, progress.has_slot);
    }
    if (waiting.status == Status::ok) advance(ledger, entry, true, progress);
  }
  Outcome outcome = policy::outcome(Status::ok);
  if (progress.place == Place::granted) {
    start_at_once(ledger, lock, ticket, progress.free, request.now_us);
  } else if (progress.place == Place::eligible) {
    start_waiting(ledger, lock, ticket, progress.parked, request.now_us);
    outcome.status = Status::queued;
  } else {
    outcome = refuse(ledger, lock, ticket, progress.has_slot, waiting, request.now_us);
  }
  dispatch(ledger, lock, request.klass, request.now_us, wakes);
  // Lent to at once: its owner need not wait for its own latch.
  if (outcome.status == Status::queued && phase_state(load(entry.phase)) == TicketState::execution_granted) {
    remove_wake(wakes, ticket);
    return poll_wait(ledger, lock, ticket, request.now_us);
  }
  return outcome;
}

}  // namespace

bool is_enforcing(const Ledger& ledger) noexcept {
  return load_relaxed(ledger.header->mode) == static_cast<std::uint32_t>(Mode::enforce) &&
         load_relaxed(ledger.header->switch_mode) == 0;
}

Status fault_locked(const Ledger& ledger, const Exclusive& lock, Status status, std::uint32_t ticket,
                    std::int64_t now_us) noexcept {
  const bool known = ticket < ticket_count(ledger);
  const std::uint32_t tenant = known ? ledger.tickets[ticket].tenant : kNil;
  const std::uint32_t klass = known ? ledger.tickets[ticket].klass : kNil;
  record_event(ledger, lock, {EventKind::fault, policy::outcome(status), tenant, klass, nullptr, false}, now_us);
  return fault(ledger, status);
}

policy::Rule class_rule(const Ledger& ledger, std::uint32_t klass, policy::RuleField field) noexcept {
  const std::uint32_t index = ledger.classes[klass].policy_index;
  if (index >= ledger.header->policy.class_count) return {policy::RuleField::none, 0};
  return {field, static_cast<std::uint16_t>(index)};
}

void add_wake(Wakes& wakes, std::uint32_t ticket) noexcept {
  if (wakes.count < kMaxWakes) {
    wakes.tickets[wakes.count++] = ticket;
  } else {
    wakes.more = true;
  }
}

void leave_queue(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, std::int64_t now_us) noexcept {
  const Ticket& entry = ledger.tickets[ticket];
  const std::uint32_t row = row_index(ledger, entry);
  const bool parked = entry.parked;
  dequeue(ledger, lock, ticket);
  if (parked) {
    change_row(ledger.rows[row], [](RowWord& word) noexcept {
      word.parked--;
      return true;
    });
    account(ledger, lock, row, now_us);
    return;
  }
  change_class(ledger.classes[entry.klass], [](ClassWord& word) noexcept {
    word.waiters--;
    return true;
  });
  (void)return_slot(ledger, lock, row, now_us);
}

void become_granted(const Ledger& ledger, const Exclusive&, std::uint32_t ticket, PermitSource source,
                    std::int64_t now_us, Wakes& wakes) noexcept {
  Ticket& entry = ledger.tickets[ticket];
  ClassState& state = ledger.classes[entry.klass];
  entry.source = source;
  hold_now(ledger, entry, now_us, entry.queued_us);
  set_phase(entry, TicketState::execution_granted);
  note_wait(state, now_us - entry.queued_us);
  raise_peak(state, state.capacity, class_free(load(state.word)));
  add_wake(wakes, ticket);
}

void become_ended(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, TicketState state,
                  const Outcome& why, std::int64_t now_us) noexcept {
  Ticket& entry = ledger.tickets[ticket];
  Header& header = *ledger.header;
  Row& row = ledger.rows[row_index(ledger, entry)];
  EventKind kind = EventKind::execution_refused;
  if (why.status == Status::cancelled) {
    kind = EventKind::wait_cancelled;
    row.cancelled++;
    header.waits_cancelled++;
  } else if (why.status == Status::queue_deadline) {
    kind = EventKind::wait_expired;
    row.expired++;
    header.waits_expired++;
  } else if (why.status == Status::pushed_out) {
    row.pushed_out++;
    header.pushed_out++;
  } else {
    row.refused++;
    header.tickets_refused++;
  }
  entry.wait_status = why.status;
  set_phase(entry, state);
  forget_id(ledger, lock, ticket);
  record_receipt(ledger, lock, entry, state, now_us);
  record_event(ledger, lock, {kind, why, entry.tenant, entry.klass, nullptr, false, &entry.id}, now_us);
}

void become_released(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, std::int64_t now_us,
                     bool executed) noexcept {
  Ticket& entry = ledger.tickets[ticket];
  // Whoever left before it saw its grant has run nothing either.
  const bool ran = executed && phase_state(load(entry.phase)) != TicketState::execution_granted;
  const std::int64_t held_us = now_us - entry.granted_us;
  add_own(entry.stat_granted, 1);
  add_own(entry.stat_execution_us, held_us > 0 ? static_cast<std::uint64_t>(held_us) : 0);
  note_hold(ledger, lock, row_index(ledger, entry), held_us);
  entry.source = PermitSource::own_class;
  entry.wait_status = ran ? Status::ok : Status::cancelled;
  set_phase(entry, TicketState::request_released);
  forget_id(ledger, lock, ticket);
  if (entry.queued_us == 0) return;
  record_receipt(ledger, lock, entry, ran ? TicketState::request_released : TicketState::cancelled, now_us);
}

void fold(const Ledger& ledger, const Exclusive&, std::uint32_t ticket) noexcept {
  if (ticket >= ticket_count(ledger)) return;
  Ticket& entry = ledger.tickets[ticket];
  if (entry.tenant >= ledger.header->sizes.tenants || entry.klass >= ledger.header->sizes.classes) return;
  Row& row = ledger.rows[row_index(ledger, entry)];
  row.granted += load_relaxed(entry.stat_granted);
  row.execution_us += load_relaxed(entry.stat_execution_us);
  row.would_wait += load_relaxed(entry.stat_would_wait);
  store_relaxed(entry.stat_granted, std::uint64_t{0});
  store_relaxed(entry.stat_execution_us, std::uint64_t{0});
  store_relaxed(entry.stat_would_wait, std::uint64_t{0});
}

Outcome take_or_queue(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, const TicketRequest& request,
                      Wakes& wakes) noexcept {
  const Sizes& sizes = ledger.header->sizes;
  if (ticket >= ticket_count(ledger) || request.tenant >= sizes.tenants || request.klass >= sizes.classes ||
      !ledger.tenants[request.tenant].used) {
    return policy::outcome(fault_locked(ledger, lock, Status::not_found, ticket, request.now_us));
  }
  Ticket& entry = ledger.tickets[ticket];
  const std::uint32_t phase = load_relaxed(entry.phase);
  const bool held = phase_mark(phase) == Mark::row_held;
  if (holds_permit(phase_state(phase)) || phase_state(phase) == TicketState::queued ||
      (!held && phase_mark(phase) != Mark::none)) {
    return policy::outcome(fault_locked(ledger, lock, Status::illegal_transition, ticket, request.now_us));
  }
  if (held && (entry.tenant != request.tenant || entry.klass != request.klass)) {
    return policy::outcome(fault_locked(ledger, lock, Status::illegal_transition, ticket, request.now_us));
  }
  const bool enforce = request.enforce && is_enforcing(ledger);
  Known known = {Status::ok, 0};
  if (enforce && request.owner != 0) {
    known = recognize(ledger, lock, ticket, request);
    if (known.queued_us == 0) known.queued_us = request.now_us;
  }
  adopt_request(ledger, lock, ticket, request, known.queued_us);
  if (!enforce) return take_in_shadow(ledger, ticket, held, request.now_us);
  if (known.status != Status::ok)
    return refuse(ledger, lock, ticket, held, policy::outcome(known.status), request.now_us);
  remember_id(ledger, lock, ticket);
  return admit(ledger, lock, ticket, held, request, wakes);
}

Outcome poll_wait(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, std::int64_t now_us) noexcept {
  if (ticket >= ticket_count(ledger)) {
    return policy::outcome(fault_locked(ledger, lock, Status::not_found, ticket, now_us));
  }
  Ticket& entry = ledger.tickets[ticket];
  const TicketState state = phase_state(load(entry.phase));
  switch (state) {
    case TicketState::queued:
      return policy::outcome(Status::queued);
    case TicketState::execution_granted:
    case TicketState::checking_out:
      set_phase(entry, TicketState::in_transaction);
      return policy::outcome(Status::ok);
    case TicketState::in_transaction:
    case TicketState::expiring:
    case TicketState::committing:
      return policy::outcome(Status::ok);
    case TicketState::queue_expired:
    case TicketState::cancelled:
      if (entry.wait_status == Status::overdraft_exhausted) {
        return {entry.wait_status,
                {policy::RuleField::overdraft_max, 0},
                ledger.header->overdraft_in_use,
                ledger.header->policy.overdraft_max};
      }
      if (entry.wait_status == Status::pushed_out) {
        return {entry.wait_status, class_rule(ledger, entry.klass, policy::RuleField::class_max_queue),
                ledger.classes[entry.klass].queued, ledger.classes[entry.klass].max_queue};
      }
      return policy::outcome(entry.wait_status);
    case TicketState::none:
    case TicketState::request_released:
      break;
  }
  return policy::outcome(fault_locked(ledger, lock, Status::illegal_transition, ticket, now_us));
}

Outcome end_wait(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, Status why, std::int64_t now_us,
                 Wakes& wakes) noexcept {
  if (ticket >= ticket_count(ledger) || phase_state(load(ledger.tickets[ticket].phase)) != TicketState::queued) {
    return poll_wait(ledger, lock, ticket, now_us);
  }
  const Ticket& entry = ledger.tickets[ticket];
  const std::uint32_t klass = entry.klass;
  Outcome ended = policy::outcome(why);
  if (why == Status::queue_deadline) {
    ended.rule = class_rule(ledger, klass, policy::RuleField::class_queue_deadline);
    if (ended.rule.field != policy::RuleField::none) {
      ended.limit = ledger.header->policy.classes[ended.rule.index].queue_deadline_ms;
    }
    const std::int64_t waited_ms = (now_us - entry.queued_us) / 1000;
    ended.used = waited_ms > 0 ? static_cast<std::uint32_t>(waited_ms) : 0;
  }
  leave_queue(ledger, lock, ticket, now_us);
  become_ended(ledger, lock, ticket,
               why == Status::queue_deadline ? TicketState::queue_expired : TicketState::cancelled, ended, now_us);
  dispatch(ledger, lock, klass, now_us, wakes);
  return ended;
}

}  // namespace sluice::ledger
