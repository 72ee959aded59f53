// Atomic access to the plain integers of shared records, and the compare-and-set loops on the two words. Internal to
// the ledger.
//
// Why these memory orders suffice. A permit is a number in one word: "no capacity, so I queue" and "capacity is back,
// is anyone queued?" are compare-and-sets on the same word, so they are totally ordered by that word's modification
// order whatever the memory order is; no wake-up can be lost. The words publish nothing else, so acq_rel is enough for
// them: it makes a mark written before a step visible to whoever reads the stepped word. Only the audit's gate needs
// more: a taker writes its mark and then looks for the gate, the audit writes the gate and then looks for marks. One of
// the two must see the other, which takes sequential consistency on all four accesses. A take and a release go on from
// the class word as that look found it: if anybody has stepped on the word since, the compare-and-set fails and starts
// from what is there, so an old look costs one more attempt and decides nothing.
#pragma once

#include <atomic>
#include <cstdint>

#include "ledger/region.h"
#include "ledger/words.h"

namespace sluice::ledger {

static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free &&
              std::atomic_ref<std::uint32_t>::is_always_lock_free);

// Compare-and-sets a lock-free step tries before it leaves the decision to the lock.
inline constexpr std::uint32_t kMaxAttempts = 64;

template <typename T>
[[nodiscard]] inline T load(const T& value, std::memory_order order = std::memory_order_acquire) noexcept {
  return std::atomic_ref<T>(const_cast<T&>(value)).load(order);
}

template <typename T>
[[nodiscard]] inline T load_relaxed(const T& value) noexcept {
  return load(value, std::memory_order_relaxed);
}

template <typename T>
inline void store(T& target, T value, std::memory_order order = std::memory_order_release) noexcept {
  std::atomic_ref<T>(target).store(value, order);
}

template <typename T>
inline void store_relaxed(T& target, T value) noexcept {
  store(target, value, std::memory_order_relaxed);
}

template <typename T>
[[nodiscard]] inline bool compare_and_set(T& target, T& expected, T desired,
                                          std::memory_order order = std::memory_order_acq_rel) noexcept {
  return std::atomic_ref<T>(target).compare_exchange_strong(
      expected, desired, order, order == std::memory_order_seq_cst ? order : std::memory_order_acquire);
}

inline void add_relaxed(std::uint64_t& target, std::uint64_t value) noexcept {
  std::atomic_ref<std::uint64_t>(target).fetch_add(value, std::memory_order_relaxed);
}

// For counters with one writer: no locked instruction.
inline void add_own(std::uint64_t& target, std::uint64_t value) noexcept {
  store_relaxed(target, load_relaxed(target) + value);
}

inline void raise_to(std::uint32_t& target, std::uint32_t value) noexcept {
  std::uint32_t seen = load_relaxed(target);
  while (value > seen && !compare_and_set(target, seen, value)) {
  }
}

// Under the lock: applies `change` to the row's word and returns the word as it was left. Lock-free peers may
// interfere, so it is repeated; each failure is some other step's success.
template <typename Change>
inline RowWord change_row(Row& row, Change change) noexcept {
  std::uint64_t seen = load(row.word);
  for (;;) {
    RowWord word = unpack_row(seen);
    if (!change(word) || compare_and_set(row.word, seen, pack(word))) return word;
  }
}

template <typename Change>
inline ClassWord change_class(ClassState& state, Change change) noexcept {
  std::uint64_t seen = load(state.word);
  for (;;) {
    ClassWord word = unpack_class(seen);
    if (!change(word) || compare_and_set(state.word, seen, pack(word))) return word;
  }
}

// The phase's upper half counts the uses of the record, so that a compare-and-set by somebody else (the guard) can only
// hit the transaction it looked at.
inline constexpr std::uint32_t kPhaseUse = 1U << 16;
inline constexpr std::uint32_t kPhaseUseMask = ~(kPhaseUse - 1);

[[nodiscard]] constexpr std::uint32_t next_phase(std::uint32_t phase, TicketState state,
                                                 Mark mark = Mark::none) noexcept {
  return (phase & kPhaseUseMask) | pack_phase(state, mark);
}

inline void set_phase(Ticket& ticket, TicketState state, Mark mark = Mark::none) noexcept {
  store(ticket.phase, next_phase(load_relaxed(ticket.phase), state, mark));
}

// Counts a broken invariant; the caller answers with its status.
[[nodiscard]] inline Status fault(const Ledger& ledger, Status status) noexcept {
  add_relaxed(ledger.header->faults, 1);
  return status;
}

}  // namespace sluice::ledger
