// What the locked halves of admission share. Internal to the ledger; everything here needs the lock.
#pragma once

#include <cstdint>

#include "ledger/admission.h"
#include "ledger/region.h"

namespace sluice::ledger {

// Counts and journals a broken invariant.
[[nodiscard]] Status fault_locked(const Ledger& ledger, const Exclusive& lock, Status status, std::uint32_t ticket,
                                  std::int64_t now_us) noexcept;

[[nodiscard]] policy::Rule class_rule(const Ledger& ledger, std::uint32_t klass, policy::RuleField field) noexcept;

void add_wake(Wakes& wakes, std::uint32_t ticket) noexcept;

// The caller decided before it had the lock. Whoever left enforcement since has admitted all waiters and looks for no
// more.
[[nodiscard]] bool is_enforcing(const Ledger& ledger) noexcept;

// Takes a queued ticket out of its list and gives back what it holds as a waiter: its place in the class word, its
// slot. The caller sets its next state and dispatches the class.
void leave_queue(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, std::int64_t now_us) noexcept;

// A dequeued ticket whose permit the words already show becomes EXECUTION_GRANTED and is woken.
void become_granted(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, PermitSource source,
                    std::int64_t now_us, Wakes& wakes) noexcept;

// A ticket that leaves without having been granted: state, receipt, counters, event.
void become_ended(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, TicketState state,
                  const Outcome& why, std::int64_t now_us) noexcept;

// Statistics, receipt and REQUEST_RELEASED for a ticket whose permit has been returned or passed on.
void become_released(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, std::int64_t now_us,
                     bool executed) noexcept;

}  // namespace sluice::ledger
