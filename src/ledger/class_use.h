// How much of a class is in use, and the most that was at one time. Lock-free reads unless it says otherwise.
#pragma once

#include <cstdint>

#include "ledger/records.h"

namespace sluice::ledger {

// Of a capacity (ClassState::capacity) with this many permits free. Below zero only where the two were read apart.
[[nodiscard]] constexpr std::int32_t permits_in_use(std::int32_t capacity, std::int32_t free) noexcept {
  return capacity - free;
}

// At this moment, never below zero.
[[nodiscard]] std::uint32_t permits_in_use(const ClassState& state) noexcept;

// How many permits the class owes to others. Changes only under the lock.
[[nodiscard]] std::uint32_t permits_owed(const ClassState& state) noexcept;

// Raises the peak since the last tick to what a grant has left in use: `before` is the capacity that was read before
// the permit was taken, `free` what the word said afterwards. Capacity moves after the word when it rises and before it
// when it falls, so the smaller of two looks never overstates what was in use.
void raise_peak(ClassState& state, std::int32_t before, std::int32_t free) noexcept;

// Ends the tick: the peak since the last one, which now begins anew with what is in use. Needs the lock.
[[nodiscard]] std::uint32_t end_peak(ClassState& state) noexcept;

// The most permits that were in use at one time since reset.
[[nodiscard]] std::uint32_t peak_in_use(const ClassState& state) noexcept;

}  // namespace sluice::ledger
