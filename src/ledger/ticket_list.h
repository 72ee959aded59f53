// Doubly linked lists of tickets by index, on Ticket::next and Ticket::previous: a ticket is in one at a time.
// Everything here needs the lock.
#pragma once

#include <cstdint>

#include "ledger/region.h"

namespace sluice::ledger {

// `successor`: kNil for the end of the list.
inline void link_before(const Ledger& ledger, std::uint32_t& head, std::uint32_t& tail, std::uint32_t ticket,
                        std::uint32_t successor) noexcept {
  Ticket& entry = ledger.tickets[ticket];
  entry.next = successor;
  entry.previous = successor == kNil ? tail : ledger.tickets[successor].previous;
  (entry.previous == kNil ? head : ledger.tickets[entry.previous].next) = ticket;
  (successor == kNil ? tail : ledger.tickets[successor].previous) = ticket;
}

inline void unlink_from(const Ledger& ledger, std::uint32_t& head, std::uint32_t& tail, std::uint32_t ticket) noexcept {
  Ticket& entry = ledger.tickets[ticket];
  (entry.previous == kNil ? head : ledger.tickets[entry.previous].next) = entry.next;
  (entry.next == kNil ? tail : ledger.tickets[entry.next].previous) = entry.previous;
  entry.next = entry.previous = kNil;
}

}  // namespace sluice::ledger
