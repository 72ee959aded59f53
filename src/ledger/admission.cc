// The lock-free half of admission. See atomics.h for the memory orders.
#include "ledger/admission.h"

#include "ledger/atomics.h"

namespace sluice::ledger {

namespace {

// The loops below try again when somebody else has stepped on the word meanwhile.

enum class Step : std::uint8_t { done, blocked, corrupt };

struct Taken {
  Step step;
  std::uint64_t word;  // as the step left it
};

[[nodiscard]] inline Taken take_slot(Row& row, bool enforce) noexcept {
  std::uint64_t seen = load_relaxed(row.word);
  for (std::uint32_t attempt = 0; attempt < kMaxAttempts; attempt++) {
    // A tenant's newcomer does not pass its own parked tickets.
    if (enforce && ((seen & kRowParked) != 0 || row_in_use(seen) >= row_limit(seen))) break;
    if (compare_and_set(row.word, seen, seen + kRowSlot)) return {Step::done, seen + kRowSlot};
  }
  return {Step::blocked, seen};
}

[[nodiscard]] inline Taken take_permit(ClassState& state, bool enforce) noexcept {
  const std::uint64_t blocked = enforce ? kClassBlocked : kClassGate;
  std::uint64_t seen = load_relaxed(state.word);
  for (std::uint32_t attempt = 0; attempt < kMaxAttempts; attempt++) {
    if ((seen & blocked) != 0 || (enforce && class_free(seen) <= 0)) break;
    if (compare_and_set(state.word, seen, seen - kClassPermit)) return {Step::done, seen - kClassPermit};
  }
  return {Step::blocked, seen};
}

[[nodiscard]] inline Step return_row_slot(Row& row) noexcept {
  std::uint64_t seen = load_relaxed(row.word);
  for (std::uint32_t attempt = 0; attempt < kMaxAttempts; attempt++) {
    if ((seen & kRowParked) != 0) break;
    if (row_in_use(seen) == 0) return Step::corrupt;
    if (compare_and_set(row.word, seen, seen - kRowSlot)) return Step::done;
  }
  return Step::blocked;
}

[[nodiscard]] inline bool return_permit(ClassState& state) noexcept {
  std::uint64_t seen = load_relaxed(state.word);
  for (std::uint32_t attempt = 0; attempt < kMaxAttempts; attempt++) {
    if ((seen & kClassBlocked) != 0) break;
    if (compare_and_set(state.word, seen, seen + kClassPermit)) return true;
  }
  return false;
}

// The capacity was read before the permit was taken. It moves after the word when it rises and before it when it falls,
// so the smaller of two looks never overstates what was in use.
inline void note_peak(ClassState& state, std::int32_t capacity_before, std::int32_t free) noexcept {
  const std::int32_t after = load(state.capacity);
  const std::int32_t capacity = after < capacity_before ? after : capacity_before;
  const std::int64_t in_use = std::int64_t{capacity} - free;
  if (in_use > load_relaxed(state.recent_peak)) raise_to(state.recent_peak, static_cast<std::uint32_t>(in_use));
}

// Over a limit: in shadow what enforcing would have done, otherwise what must never happen.
void count_over(const Ledger& ledger, ClassState& state, Ticket& ticket, bool enforce, std::int32_t free) noexcept {
  if (enforce) {
    add_relaxed(ledger.header->over_limit_grants, 1);
    return;
  }
  add_own(ticket.stat_would_wait, 1);
  if (free < 0 && static_cast<std::uint32_t>(-free) > load_relaxed(state.max_queue)) add_relaxed(state.would_refuse, 1);
}

}  // namespace

Status take(const Ledger& ledger, std::uint32_t ticket, const TicketRequest& request) noexcept {
  if (ticket >= ticket_count(ledger)) return fault(ledger, Status::not_found);
  Ticket& entry = ledger.tickets[ticket];
  const std::uint32_t phase = load_relaxed(entry.phase);
  if (holds_permit(phase_state(phase)) || phase_state(phase) == TicketState::queued ||
      phase_mark(phase) != Mark::none) {
    return fault(ledger, Status::illegal_transition);
  }
  // A change of row or class is made under the lock, which checks the indexes and folds the statistics; and only there
  // is known what became of an id that is not new.
  if (entry.tenant != request.tenant || entry.klass != request.klass || request.owner != 0) return Status::contended;
  ClassState& state = ledger.classes[request.klass];
  Row& row = row_at(ledger, request.tenant, request.klass);

  const std::uint32_t base = phase + kPhaseUse;
  store(entry.phase, next_phase(base, TicketState::none, Mark::taking), std::memory_order_seq_cst);
  if ((load(state.word, std::memory_order_seq_cst) & kClassGate) != 0) {
    store(entry.phase, next_phase(base, TicketState::none));
    return Status::contended;
  }
  const Taken taken = take_slot(row, request.enforce);
  if (taken.step != Step::done) {
    store(entry.phase, next_phase(base, TicketState::none));
    return Status::contended;
  }
  const std::int32_t capacity = load(state.capacity);
  const Taken permit = take_permit(state, request.enforce);
  if (permit.step != Step::done) {
    store(entry.phase, next_phase(base, TicketState::none, Mark::row_held));
    return Status::contended;
  }
  store_relaxed(entry.granted_us, request.now_us);
  store_relaxed(entry.time_limit_us, request.time_limit_us);
  store_relaxed(entry.queued_us, std::int64_t{0});
  store_relaxed(entry.generation, load_relaxed(ledger.header->generation));
  store(entry.phase, next_phase(base, TicketState::in_transaction));
  const std::int32_t free = class_free(permit.word);
  note_peak(state, capacity, free);
  if (free < 0 || row_in_use(taken.word) > row_limit(taken.word)) [[unlikely]]
    count_over(ledger, state, entry, request.enforce, free);
  return Status::ok;
}

Status release(const Ledger& ledger, std::uint32_t ticket, std::int64_t now_us) noexcept {
  if (ticket >= ticket_count(ledger)) return fault(ledger, Status::not_found);
  Ticket& entry = ledger.tickets[ticket];
  std::uint32_t phase = load(entry.phase);
  const TicketState state = phase_state(phase);
  if (phase_mark(phase) != Mark::none) return Status::contended;
  if (state == TicketState::none || is_ended(state)) return Status::ok;
  if (state == TicketState::queued) return fault(ledger, Status::illegal_transition);
  // A ticket that waited leaves a receipt; an expiring one orders itself behind the guard's signal, which is sent under
  // the lock; one that was granted and never started is rare.
  if ((state != TicketState::in_transaction && state != TicketState::committing) ||
      load_relaxed(entry.queued_us) != 0) {
    return Status::contended;
  }
  const std::uint32_t unmarked = phase;
  if (!compare_and_set(entry.phase, phase, next_phase(phase, state, Mark::releasing), std::memory_order_seq_cst)) {
    return Status::contended;
  }
  ClassState& klass = ledger.classes[entry.klass];
  Step slot = Step::blocked;
  if ((load(klass.word, std::memory_order_seq_cst) & kClassBlocked) == 0) {
    slot = return_row_slot(row_at(ledger, entry.tenant, entry.klass));
  }
  if (slot != Step::done) {
    store(entry.phase, unmarked);
    return slot == Step::corrupt ? fault(ledger, Status::corrupt) : Status::contended;
  }
  if (!return_permit(klass)) {
    store(entry.phase, next_phase(unmarked, state, Mark::row_released));
    return Status::contended;
  }
  const std::int64_t held_us = now_us - entry.granted_us;
  add_own(entry.stat_granted, 1);
  add_own(entry.stat_execution_us, held_us > 0 ? static_cast<std::uint64_t>(held_us) : 0);
  store(entry.phase, next_phase(unmarked, TicketState::request_released));
  return Status::ok;
}

Status begin_commit(const Ledger& ledger, std::uint32_t ticket) noexcept {
  if (ticket >= ticket_count(ledger)) return fault(ledger, Status::not_found);
  Ticket& entry = ledger.tickets[ticket];
  std::uint32_t phase = load(entry.phase);
  if (phase_state(phase) == TicketState::committing) return Status::ok;
  if (phase_state(phase) == TicketState::in_transaction && phase_mark(phase) == Mark::none &&
      compare_and_set(entry.phase, phase, next_phase(phase, TicketState::committing))) {
    return Status::ok;
  }
  // Only the guard can have come between.
  return phase_state(phase) == TicketState::expiring ? Status::time_limit : fault(ledger, Status::illegal_transition);
}

Status continue_transaction(const Ledger& ledger, std::uint32_t ticket) noexcept {
  if (ticket >= ticket_count(ledger)) return fault(ledger, Status::not_found);
  Ticket& entry = ledger.tickets[ticket];
  std::uint32_t phase = load(entry.phase);
  if (phase_state(phase) == TicketState::in_transaction || phase_state(phase) == TicketState::expiring)
    return Status::ok;
  if (phase_state(phase) == TicketState::committing &&
      compare_and_set(entry.phase, phase, next_phase(phase, TicketState::in_transaction))) {
    return Status::ok;
  }
  return fault(ledger, Status::illegal_transition);
}

}  // namespace sluice::ledger
