// The bounded memory of what happened: events (repeats folded), refusals per minute, receipts of ended tickets.
#pragma once

#include <cstdint>

#include "ledger/region.h"
#include "policy/rule.h"

namespace sluice::ledger {

struct EventFacts {
  EventKind kind;
  policy::Outcome outcome;
  std::uint32_t tenant;          // kNil: none
  std::uint32_t klass;           // kNil: none
  const char* database;          // nullptr: none
  bool would;                    // in shadow
  const Uuid* ticket = nullptr;  // the ticket concerned; the line shows the newest
};

// Writes the event, and for refusals and would-be refusals the minute's cell as well. Refusals are counted for good by
// their class (sessions: in the header) and reason.
void record_event(const Ledger& ledger, const Exclusive& lock, const EventFacts& facts, std::int64_t now_us) noexcept;

// Keeps what became of a ticket. A named ticket that was refused as a duplicate leaves none: what a duplicate reads is
// the receipt of the request that it repeats.
void record_receipt(const Ledger& ledger, const Exclusive& lock, const Ticket& ticket, TicketState outcome,
                    std::int64_t now_us) noexcept;

// The newest receipt with this id, whoever's, or nullptr. Looks at all of them: for tests and views.
[[nodiscard]] const Receipt* find_receipt(const Ledger& ledger, const Shared& lock, const Uuid& id) noexcept;

}  // namespace sluice::ledger
