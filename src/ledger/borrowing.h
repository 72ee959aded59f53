// Permits that a class lends while it does not use them. The lender's word shows one free permit less, the borrower's
// one more; how many whom owes whom is kept by pairs of classes. Borrowed permits are fungible: whatever permit comes
// back to a class that owes, it repays first. Everything here needs the lock.
//
// A class may borrow where its rule allows it, it has a waiter and no permit of its own, and it owes less than its
// maximum; a class lends only what it has not used lately: nobody eligible waits in it, it owes nothing itself, and
// permits - lent - lending_peak >= 1, where lending_peak is the decaying maximum of its use and its demand. So the debt
// to a class never grows while it queues, and every release repays it.
//
// As long as a class owes, its word says so (ClassWord::owed) and its takes and releases go through the lock. A
// lender's do not: what it does not need turns into what it has not used lately by time alone, so the borrowers look
// again at every tick, and whenever something of their own moves.
#pragma once

#include <cstdint>

#include "ledger/region.h"

namespace sluice::ledger {

// Moves one permit from a class that may lend it to `klass`. The lender, or kNil.
[[nodiscard]] std::uint32_t borrow(const Ledger& ledger, const Exclusive& lock, std::uint32_t klass,
                                   std::int64_t now_us) noexcept;

// A permit of `klass` is being given up by the ticket (kNil: by none, the class has one to spare). Where the class owes
// it is repaid, and the lender that has one more free now is the answer; kNil: nothing is owed.
[[nodiscard]] std::uint32_t repay(const Ledger& ledger, const Exclusive& lock, std::uint32_t klass,
                                  std::uint32_t ticket) noexcept;

// The ticket that has just been granted holds the permit that was borrowed from `lender`.
void mark_borrowed(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, std::uint32_t lender) noexcept;

// Remembers how much the class has used and wanted lately. Every tick, and before it lends.
void note_demand(const Ledger& ledger, const Exclusive& lock, std::uint32_t klass, std::int64_t now_us) noexcept;

// Takes over the borrowing rules of the deciding policy.
void adopt_borrowing(const Ledger& ledger, const Exclusive& lock) noexcept;

// Does the ticket's borrowed permit have to go back: older than its ttl, and its lender queues?
[[nodiscard]] bool is_overdue(const Ledger& ledger, const Shared& lock, std::uint32_t ticket,
                              std::int64_t now_us) noexcept;

}  // namespace sluice::ledger
