// Which row of a class is served next: weighted round robin over the rows that have eligible tickets. Everything here
// needs the lock and costs the same whatever the number of rows. Rows are named by their index in the dense row table.
#pragma once

#include <cstdint>

#include "ledger/region.h"

namespace sluice::ledger {

// The row got its first eligible ticket: it joins at the end of the round.
void scheduler_enter(const Ledger& ledger, const Exclusive& lock, std::uint32_t klass, std::uint32_t row) noexcept;

// The row's last eligible ticket is gone.
void scheduler_leave(const Ledger& ledger, const Exclusive& lock, std::uint32_t klass, std::uint32_t row) noexcept;

// The row whose first eligible ticket is next, or kNil. Changes nothing.
[[nodiscard]] std::uint32_t scheduler_pick(const Ledger& ledger, const Exclusive& lock, std::uint32_t klass) noexcept;

// A permit goes to a ticket of the row that pick() named: call it before the ticket leaves the row's list.
void scheduler_served(const Ledger& ledger, const Exclusive& lock, std::uint32_t klass, std::uint32_t row) noexcept;

}  // namespace sluice::ledger
