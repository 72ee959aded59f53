// The two words on which a permit is taken and returned without a lock, and their packing. Pure arithmetic.
//
// Row word:   in use (22) | parked (20) | limit (22). "in use" counts tickets that hold one of the row's slots: granted
//             ones and those eligible in the class's queue. A ticket that finds the row at its limit parks: it waits
//             for a slot of its own row and does not count in the class word. The limit is part of the word, so a
//             change of limit and a take can never disagree.
// Class word: free (signed 24) | eligible waiters (20) | owed (19) | gate (1). free = permits + owed - lent - in use,
// and
//             is negative after a limit was lowered and in shadow. While anyone waits, permits are owed to other
//             classes or the gate is set, takes and releases go through the lock.
#pragma once

#include <cstdint>

#include "policy/policy.h"

namespace sluice::ledger {

using policy::kNoLimit;

struct RowWord {
  std::uint32_t in_use;
  std::uint32_t parked;
  std::uint32_t limit;
};

struct ClassWord {
  std::int32_t free;
  std::uint32_t waiters;
  std::uint32_t owed;
  bool gate;
};

[[nodiscard]] constexpr std::uint64_t pack(const RowWord& row) noexcept {
  return (std::uint64_t{row.in_use} << 42) | (std::uint64_t{row.parked} << 22) | row.limit;
}

[[nodiscard]] constexpr RowWord unpack_row(std::uint64_t word) noexcept {
  return {static_cast<std::uint32_t>(word >> 42), static_cast<std::uint32_t>(word >> 22) & 0xFFFFFU,
          static_cast<std::uint32_t>(word) & 0x3FFFFFU};
}

[[nodiscard]] constexpr std::uint64_t pack(const ClassWord& word) noexcept {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(word.free) & 0xFFFFFFU) << 40) |
         (std::uint64_t{word.waiters} << 20) | (std::uint64_t{word.owed} << 1) | (word.gate ? 1U : 0U);
}

[[nodiscard]] constexpr ClassWord unpack_class(std::uint64_t word) noexcept {
  return {static_cast<std::int32_t>(static_cast<std::int64_t>(word) >> 40),
          static_cast<std::uint32_t>(word >> 20) & 0xFFFFFU, static_cast<std::uint32_t>(word >> 1) & 0x7FFFFU,
          (word & 1U) != 0};
}

// The same steps on the packed words, for the lock-free path: a permit more or less is one addition, and what blocks a
// step is a mask.
inline constexpr std::uint64_t kRowSlot = std::uint64_t{1} << 42;
inline constexpr std::uint64_t kRowParked = std::uint64_t{0xFFFFF} << 22;
inline constexpr std::uint64_t kClassPermit = std::uint64_t{1} << 40;
inline constexpr std::uint64_t kClassGate = 1;
inline constexpr std::uint64_t kClassBlocked = kClassPermit - 1;  // anyone waits, permits are owed, or the gate is set

[[nodiscard]] constexpr std::uint32_t row_in_use(std::uint64_t word) noexcept {
  return static_cast<std::uint32_t>(word >> 42);
}
[[nodiscard]] constexpr std::uint32_t row_limit(std::uint64_t word) noexcept {
  return static_cast<std::uint32_t>(word) & 0x3FFFFFU;
}
[[nodiscard]] constexpr std::int32_t class_free(std::uint64_t word) noexcept {
  return static_cast<std::int32_t>(static_cast<std::int64_t>(word) >> 40);
}

static_assert(pack(RowWord{1, 0, 0}) == kRowSlot && pack(RowWord{0, 0xFFFFF, 0}) == kRowParked);
static_assert(pack(ClassWord{1, 0, 0, false}) == kClassPermit && pack(ClassWord{0, 0, 0, true}) == kClassGate);
static_assert(pack(ClassWord{0, 0xFFFFF, 0x7FFFF, true}) == kClassBlocked);
static_assert(pack(ClassWord{0, 3, 2, true}) - kClassPermit == pack(ClassWord{-1, 3, 2, true}));

}  // namespace sluice::ledger
