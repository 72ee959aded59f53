// How a backend waits for its permit: it holds no snapshot where that is safe, notices cancel, timeouts, a vanished
// client and the postmaster's death, and ends its own deadline itself.
#pragma once

#include "extension/pg.h"
#include "ledger/admission.h"

namespace sluice::extension {

// Where the wait happens, which decides how the snapshot is given back for its time.
struct WaitPlace {
  enum class Kind : std::uint8_t { keep_snapshot, executor, utility, function_call };
  Kind kind;
  QueryDesc* query;  // executor only
};

// The queued ticket of this backend -> ok (granted), or why not. An ERROR raised inside leaves nothing queued and
// nothing held.
policy::Outcome wait_for_permit(const ledger::TicketRequest& request, WaitPlace& place);

// The queue deadline from now: the class's, or a shorter one of pg_sluice.queue_deadline, cut to the statement's own
// timeout less a margin so that the caller gets our answer.
std::int64_t queue_deadline(std::int64_t now, std::int64_t class_deadline_us);

}  // namespace sluice::extension
