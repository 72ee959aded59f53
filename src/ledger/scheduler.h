// weighted-deficit-v2: which row of a class is served next. Virtual-time fair queueing on attained service with a
// look-ahead, of the family of SFQ(D) (Jin, Chase, Kaur, "Interposed Proportional Sharing for a Storage Service
// Utility", SIGMETRICS 2004): a row's key is (service + L * permits held) / weight, smallest first. Service is counted
// in permit-microseconds and charged as time passes, so no estimate of how long anything takes enters fairness; what is
// held already counts L ahead, which is what it will have cost at the least. Everything here needs the lock. Rows are
// named by their index in the dense row table.
//
// With H the longest hold, P the permits, m the smaller of P and the row's limit, X = max(H, L), W the weights of the
// active rows and f what was forgiven (all in one contention):
//  1. while two rows both have eligible tickets, their services per weight differ by at most the sum over both of
//     (H + L + m * X + f) / weight;
//  2. a row that holds nothing waits at most aging + tick + 2 (W / P) (H + L) / weight + rows * L * (2 + 1 / P) +
//     (the sum of m * X over the other rows) / P + H. (With few permits the last long holds of several rows follow one
//     another, which 2 H does not cover.)
// The lock-free path charges nothing: it runs only while nobody waits, and contention starts with a clean slate.
#pragma once

#include <cstdint>

#include "ledger/region.h"

namespace sluice::ledger {

inline constexpr std::int64_t kTickUs = 100'000;

// Call it after every change, under the lock, of the row's word, its lists or its queue: charges what the row has held
// since the last call, takes over what it holds now, and lets it join, leave or move in the class's orders.
void account(const Ledger& ledger, const Exclusive& lock, std::uint32_t row, std::int64_t now_us) noexcept;

// The row whose first eligible ticket is next, or kNil.
[[nodiscard]] std::uint32_t pick(const Ledger& ledger, const Exclusive& lock, std::uint32_t klass,
                                 std::int64_t now_us) noexcept;

// A permit goes to the row that pick() named: call it before its ticket leaves the list.
void note_grant(const Ledger& ledger, const Exclusive& lock, std::uint32_t row, std::int64_t now_us) noexcept;

// A ticket of the row gave a permit back: what estimates and forgiveness know of its holds.
void note_hold(const Ledger& ledger, const Exclusive& lock, std::uint32_t row, std::int64_t held_us) noexcept;

// Every 100 ms: a row that has had nothing for agingMs is forgiven its debt down to one of its own longest
// holds. This is the aging that keeps a tenant with a past from starving.
void forgive(const Ledger& ledger, const Exclusive& lock, std::uint32_t klass, std::int64_t now_us) noexcept;

// Changes the row's weight without moving it in the order.
void reweigh(const Ledger& ledger, const Exclusive& lock, std::uint32_t row, std::uint32_t weight,
             std::int64_t now_us) noexcept;

// Changes the class's aging, and with it the look-ahead of every key.
void set_aging(const Ledger& ledger, const Exclusive& lock, std::uint32_t klass, std::int64_t aging_us,
               std::int64_t now_us) noexcept;

// The row with the most queued tickets per weight, or kNil: who gives way when the queue is full.
[[nodiscard]] std::uint32_t largest_queue(const Ledger& ledger, const Exclusive& lock, std::uint32_t klass) noexcept;

// The row's key at this moment, and whether that is a debt: such a row is not to be forgotten.
[[nodiscard]] std::int64_t key_at(const Ledger& ledger, const Shared& lock, std::uint32_t row,
                                  std::int64_t now_us) noexcept;
[[nodiscard]] bool has_debt(const Ledger& ledger, const Shared& lock, std::uint32_t row, std::int64_t now_us) noexcept;

// L: a tenth of the aging, at least 1 ms and at most 1 s (the range it was simulated in).
[[nodiscard]] std::int64_t look_ahead_us(const ClassState& state) noexcept;

// The weights of the rows with eligible tickets, smoothed over a second, times kWeightScale.
inline constexpr std::int64_t kWeightScale = 1024;
[[nodiscard]] std::int64_t smoothed_weight(const ClassState& state, std::int64_t now_us) noexcept;

// Do the heaps hold exactly the rows they should, in order? For audit().
struct OrderSums {
  std::uint32_t by_key, by_queue;  // rows found where they say they are, none before its parent
  std::uint32_t weight;            // of those in the heap by key
};
[[nodiscard]] OrderSums check_orders(const Ledger& ledger, const Exclusive& lock, std::uint32_t klass) noexcept;

}  // namespace sluice::ledger
