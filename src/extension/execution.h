// Execution permits of this backend: taken at the first real statement of a transaction, returned at its end.
#pragma once

#include "extension/backend.h"
#include "extension/errors.h"
#include "extension/pg.h"
#include "extension/waiting.h"

namespace sluice::extension {

// Is there anything to do for a statement that could need a permit? The first question of every hook, so it is a few
// loads.
inline bool wants_permit() {
  return backend.governed && !backend.holds_permit && !backend.exempt && !proc_exit_inprogress;
}

// Takes the permit of the current transaction, waiting if need be. Raises when it is refused or cancelled.
void admit_transaction(WaitPlace place);

// Returns the permit and marks the session idle. Never raises; idempotent.
void release_permit() noexcept;

// Whatever the ticket is in the middle of, afterwards nothing is queued and nothing held: a grant is handed on. For
// errors raised while waiting and for the process's end. Shared memory only; never raises.
void abandon_ticket() noexcept;

// Why the guard ends this backend's transaction, while its ticket is EXPIRING.
Expired why_expiring() noexcept;

// The state of this backend's ticket at this moment.
ledger::TicketState ticket_state() noexcept;

// The held permit's CONTEXT line for errors raised while a statement runs; push and pop around it.
struct TimeLimitContext {
  ErrorContextCallback callback;
};
void push_time_limit_context(TimeLimitContext& context);
void pop_time_limit_context(TimeLimitContext& context);

}  // namespace sluice::extension
