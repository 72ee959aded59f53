// The lock-free half of admission. See atomics.h for the memory orders.
#include "ledger/admission.h"

#include "ledger/atomics.h"

namespace sluice::ledger {

namespace {

enum class Step : std::uint8_t { done, blocked, corrupt };

struct Taken {
  Step step;
  bool over;      // shadow: beyond a limit
  bool over_row;  // the step left the row above its limit
};

[[nodiscard]] inline Taken take_slot(Row& row, bool enforce) noexcept {
  std::uint64_t seen = load_relaxed(row.word);
  for (std::uint32_t attempt = 0; attempt < kMaxAttempts; attempt++) {
    RowWord word = unpack_row(seen);
    const bool over = word.in_use >= word.limit;
    // A tenant's newcomer does not pass its own parked tickets.
    if (enforce && (over || word.parked > 0)) return {Step::blocked, false, false};
    word.in_use++;
    if (compare_and_set(row.word, seen, pack(word))) return {Step::done, over, word.in_use > word.limit};
  }
  return {Step::blocked, false, false};
}

struct Permit {
  Step step;
  std::int32_t free;  // after the step
};

[[nodiscard]] inline Permit take_permit(ClassState& state, bool enforce) noexcept {
  std::uint64_t seen = load_relaxed(state.word);
  for (std::uint32_t attempt = 0; attempt < kMaxAttempts; attempt++) {
    ClassWord word = unpack_class(seen);
    if (word.gate || (enforce && (word.free <= 0 || word.waiters > 0 || word.borrowers > 0))) return {Step::blocked, 0};
    word.free--;
    if (compare_and_set(state.word, seen, pack(word))) return {Step::done, word.free};
  }
  return {Step::blocked, 0};
}

[[nodiscard]] inline Step return_row_slot(Row& row) noexcept {
  std::uint64_t seen = load_relaxed(row.word);
  for (std::uint32_t attempt = 0; attempt < kMaxAttempts; attempt++) {
    RowWord word = unpack_row(seen);
    if (word.in_use == 0) return Step::corrupt;
    if (word.parked > 0) return Step::blocked;
    word.in_use--;
    if (compare_and_set(row.word, seen, pack(word))) return Step::done;
  }
  return Step::blocked;
}

[[nodiscard]] inline bool return_permit(ClassState& state) noexcept {
  std::uint64_t seen = load_relaxed(state.word);
  for (std::uint32_t attempt = 0; attempt < kMaxAttempts; attempt++) {
    ClassWord word = unpack_class(seen);
    if (word.gate || word.waiters > 0 || word.borrowers > 0) return false;
    word.free++;
    if (compare_and_set(state.word, seen, pack(word))) return true;
  }
  return false;
}

[[nodiscard]] inline bool is_gated(const ClassState& state) noexcept {
  return (load(state.word, std::memory_order_seq_cst) & 1U) != 0;
}

// `permits` were read before the permit was taken. They move after the word when they rise and before it when they
// fall, so the smaller of two looks never overstates what was in use.
inline void note_peak(ClassState& state, std::uint32_t permits_before, std::int32_t free) noexcept {
  const std::uint32_t after = load(state.permits);
  const std::uint32_t permits = after < permits_before ? after : permits_before;
  const std::int64_t in_use = std::int64_t{permits} - free;
  if (in_use > load_relaxed(state.peak_in_use)) raise_to(state.peak_in_use, static_cast<std::uint32_t>(in_use));
}

// What enforcing would have done to a take in shadow.
inline void count_shadow(ClassState& state, Ticket& ticket, bool over_row, std::int32_t free) noexcept {
  if (over_row || free < 0) add_own(ticket.stat_would_wait, 1);
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
  // A change of row or class is made under the lock, which checks the indexes and folds the statistics.
  if (entry.tenant != request.tenant || entry.klass != request.klass) return Status::contended;
  ClassState& state = ledger.classes[request.klass];
  Row& row = row_at(ledger, request.tenant, request.klass);

  const std::uint32_t base = phase + kPhaseUse;
  store(entry.phase, next_phase(base, TicketState::none, Mark::taking), std::memory_order_seq_cst);
  if (is_gated(state)) {
    store(entry.phase, next_phase(base, TicketState::none));
    return Status::contended;
  }
  const Taken taken = take_slot(row, request.enforce);
  if (taken.step != Step::done) {
    store(entry.phase, next_phase(base, TicketState::none));
    return Status::contended;
  }
  const std::uint32_t permits = load(state.permits);
  const Permit permit = take_permit(state, request.enforce);
  if (permit.step != Step::done) {
    store(entry.phase, next_phase(base, TicketState::none, Mark::row_held));
    return Status::contended;
  }
  store_relaxed(entry.granted_us, request.now_us);
  store_relaxed(entry.time_limit_us, request.time_limit_us);
  store_relaxed(entry.queued_us, std::int64_t{0});
  store_relaxed(entry.generation, load_relaxed(ledger.header->generation));
  store(entry.phase, next_phase(base, TicketState::in_transaction));
  note_peak(state, permits, permit.free);
  if (!request.enforce) {
    count_shadow(state, entry, taken.over, permit.free);
  } else if (permit.free < 0 || taken.over_row) {
    add_relaxed(ledger.header->over_limit_grants, 1);
  }
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
  const ClassWord seen = unpack_class(load(klass.word, std::memory_order_seq_cst));
  Step slot = Step::blocked;
  if (!seen.gate && seen.waiters == 0 && seen.borrowers == 0) {
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
