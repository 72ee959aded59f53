// The waiting tickets of a row: who waits for the class (eligible, holding a slot of its row), who waits for the row
// (parked), and how slots pass from one to the other. Internal to the ledger; everything here needs the lock. Whoever
// makes a ticket eligible dispatches its class afterwards.
#pragma once

#include <cstdint>

#include "ledger/region.h"

namespace sluice::ledger {

[[nodiscard]] inline std::uint32_t row_index(const Ledger& ledger, const Ticket& ticket) noexcept {
  return ticket.tenant * ledger.header->sizes.classes + ticket.klass;
}

// Queues a ticket that has just been counted, in the class word as a waiter or in the row word as parked. Its place is
// that of its age (Ticket::queued_us): a newcomer goes to the end, a retry to where it would stand by now.
void enqueue(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, bool parked,
             std::int64_t now_us) noexcept;

// Takes the ticket out of its list and out of the queue's count. The words are the caller's, and so is account().
void dequeue(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket) noexcept;

// Makes parked tickets eligible, oldest first, while the row has room.
void promote_parked(const Ledger& ledger, const Exclusive& lock, std::uint32_t row, std::int64_t now_us) noexcept;

// Gives one slot of the row up: to its oldest parked ticket, else back. corrupt when the row had none.
[[nodiscard]] Status return_slot(const Ledger& ledger, const Exclusive& lock, std::uint32_t row,
                                 std::int64_t now_us) noexcept;

// After the row's limit fell below its use: the youngest eligible tickets go back to the head of the parked ones.
void park_excess(const Ledger& ledger, const Exclusive& lock, std::uint32_t row, std::int64_t now_us) noexcept;

// Moves a waiting ticket in front of its list, behind those that block a holder already.
void move_to_head(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, std::int64_t now_us) noexcept;

// The row's last ticket in the order it would be served, or kNil.
[[nodiscard]] std::uint32_t youngest(const Ledger& ledger, const Exclusive& lock, std::uint32_t row) noexcept;

}  // namespace sluice::ledger
