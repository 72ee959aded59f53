// The lock-free half of admission. See atomics.h for the memory orders.
#include "ledger/admission.h"

#include "ledger/atomics.h"
#include "ledger/class_use.h"

namespace sluice::ledger {

namespace {

// The loops below try again when somebody else has stepped on the word meanwhile.

enum class Step : std::uint8_t { done, blocked, corrupt };

struct Taken {
  Step step;
  std::uint64_t word;  // as the step left it
};

// IN_TRANSACTION or COMMITTING, with no step half done: the two states differ in one bit.
[[nodiscard]] constexpr bool is_running(std::uint32_t phase) noexcept {
  constexpr std::uint32_t kRunning = pack_phase(TicketState::in_transaction);
  constexpr std::uint32_t kEither = kRunning ^ pack_phase(TicketState::committing);
  static_assert((kEither & (kEither - 1)) == 0);
  return (phase & ~(kPhaseUseMask | kEither)) == (kRunning & ~kEither);
}

template <bool kEnforce>
[[nodiscard]] inline Taken take_slot(Row& row) noexcept {
  std::uint64_t seen = load_relaxed(row.word);
  for (std::uint32_t attempt = 0; attempt < kMaxAttempts; attempt++) {
    // A tenant's newcomer does not pass its own parked tickets.
    if (kEnforce && ((seen & kRowParked) != 0 || row_in_use(seen) >= row_limit(seen))) break;
    if (compare_and_set(row.word, seen, seen + kRowSlot)) [[likely]]
      return {Step::done, seen + kRowSlot};
  }
  return {Step::blocked, seen};
}

template <bool kEnforce>
[[nodiscard]] inline Taken take_permit(ClassState& state, std::uint64_t seen) noexcept {
  constexpr std::uint64_t kBlocked = kEnforce ? kClassBlocked : kClassGate;
  for (std::uint32_t attempt = 0; attempt < kMaxAttempts; attempt++) {
    if ((seen & kBlocked) != 0 || (kEnforce && class_free(seen) <= 0)) break;
    if (compare_and_set(state.word, seen, seen - kClassPermit)) [[likely]]
      return {Step::done, seen - kClassPermit};
  }
  return {Step::blocked, seen};
}

[[nodiscard]] inline Step return_row_slot(Row& row) noexcept {
  std::uint64_t seen = load_relaxed(row.word);
  for (std::uint32_t attempt = 0; attempt < kMaxAttempts; attempt++) {
    if ((seen & kRowParked) != 0) break;
    if (row_in_use(seen) == 0) return Step::corrupt;
    if (compare_and_set(row.word, seen, seen - kRowSlot)) [[likely]]
      return Step::done;
  }
  return Step::blocked;
}

[[nodiscard]] inline bool return_permit(ClassState& state, std::uint64_t seen) noexcept {
  for (std::uint32_t attempt = 0; attempt < kMaxAttempts; attempt++) {
    if ((seen & kClassBlocked) != 0) break;
    if (compare_and_set(state.word, seen, seen + kClassPermit)) [[likely]]
      return true;
  }
  return false;
}

// Over a limit: in shadow what enforcing would have done, otherwise what must never happen.
[[gnu::noinline]] void count_over(const Ledger& ledger, ClassState& state, Ticket& ticket, bool enforce,
                                  std::int32_t free) noexcept {
  if (enforce) {
    add_relaxed(ledger.header->over_limit_grants, 1);
    return;
  }
  add_own(ticket.stat_would_wait, 1);
  if (free < 0 && static_cast<std::uint32_t>(-free) > load_relaxed(state.max_queue)) add_relaxed(state.would_refuse, 1);
}

template <bool kEnforce>
[[nodiscard]] inline Status take_as(const Ledger& ledger, Ticket& entry, std::uint32_t phase,
                                    const TicketRequest& request) noexcept {
  ClassState& state = ledger.classes[request.klass];
  const std::uint32_t base = phase + kPhaseUse;
  store(entry.phase, next_phase(base, TicketState::none, Mark::taking), std::memory_order_seq_cst);
  const std::uint64_t seen = load(state.word, std::memory_order_seq_cst);
  if ((seen & kClassGate) != 0) {
    store(entry.phase, next_phase(base, TicketState::none));
    return Status::contended;
  }
  const Taken taken = take_slot<kEnforce>(row_at(ledger, request.tenant, request.klass));
  if (taken.step != Step::done) {
    store(entry.phase, next_phase(base, TicketState::none));
    return Status::contended;
  }
  const std::int32_t capacity = load(state.capacity);
  const Taken permit = take_permit<kEnforce>(state, seen);
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
  // The second look that raise_peak() takes is only worth it where the first would raise the peak.
  if (permits_in_use(capacity, free) > static_cast<std::int32_t>(load_relaxed(state.recent_peak))) [[unlikely]]
    raise_peak(state, capacity, free);
  // Enforcing, the row's step itself has compared the very word that it replaced.
  if (free < 0 || (!kEnforce && row_in_use(taken.word) > row_limit(taken.word))) [[unlikely]]
    count_over(ledger, state, entry, kEnforce, free);
  return Status::ok;
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
  return request.enforce ? take_as<true>(ledger, entry, phase, request) : take_as<false>(ledger, entry, phase, request);
}

Status release(const Ledger& ledger, std::uint32_t ticket, std::int64_t now_us) noexcept {
  if (ticket >= ticket_count(ledger)) return fault(ledger, Status::not_found);
  Ticket& entry = ledger.tickets[ticket];
  std::uint32_t phase = load(entry.phase);
  const TicketState state = phase_state(phase);
  // A ticket that waited leaves a receipt; an expiring one orders itself behind the guard's signal, which is sent under
  // the lock; one that was granted and never started is rare.
  if (!is_running(phase) || load_relaxed(entry.queued_us) != 0) [[unlikely]] {
    if (phase_mark(phase) != Mark::none) return Status::contended;
    if (state == TicketState::none || is_ended(state)) return Status::ok;
    return state == TicketState::queued ? fault(ledger, Status::illegal_transition) : Status::contended;
  }
  const std::uint32_t unmarked = phase;
  if (!compare_and_set(entry.phase, phase, next_phase(phase, state, Mark::releasing), std::memory_order_seq_cst)) {
    return Status::contended;
  }
  ClassState& klass = ledger.classes[entry.klass];
  Step slot = Step::blocked;
  const std::uint64_t seen = load(klass.word, std::memory_order_seq_cst);
  if ((seen & kClassBlocked) == 0) {
    slot = return_row_slot(row_at(ledger, entry.tenant, entry.klass));
  }
  if (slot != Step::done) {
    store(entry.phase, unmarked);
    return slot == Step::corrupt ? fault(ledger, Status::corrupt) : Status::contended;
  }
  if (!return_permit(klass, seen)) {
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
