// Transaction callbacks: the permit goes back when the transaction is over, and a transaction whose time limit passed
// does not get as far as its commit. Nothing here may raise but PRE_COMMIT and PRE_PREPARE: an error in a COMMIT
// callback is a PANIC.
#include "extension/pg.h"

#include "extension/backend.h"
#include "extension/errors.h"
#include "extension/execution.h"
#include "extension/hooks.h"
#include "extension/policy_store.h"
#include "extension/shared.h"
#include "ledger/sessions.h"

namespace sluice::extension {

namespace {

// From here on nobody may signal this transaction: a cancel while a commit waits for a synchronous standby would make
// PostgreSQL acknowledge what no standby has. Only transactions with a time limit are ever signalled.
void before_commit() {
  if (!backend.holds_permit || !backend.time_limited) return;
  const policy::Status status = ledger::begin_commit(the_ledger, backend.slot);
  if (status == policy::Status::time_limit) raise_time_limit(why_expiring());
  if (status != policy::Status::ok) report_fault(status, "beginning a commit");
}

void transaction_over(bool committed) {
  // InitPostgres runs the whole login in one transaction; its commit is the end of connecting.
  if (backend.connecting && committed && backend.governed) [[unlikely]] {
    backend.connecting = false;
    (void)ledger::session_ready(the_ledger, backend.slot);
  }
  if (backend.keeps_permit && backend.holds_permit) [[unlikely]] {
    // A utility commits or rolls back inside: the rest of it runs on the same permit.
    const policy::Status status = ledger::continue_transaction(the_ledger, backend.slot);
    if (status != policy::Status::ok) report_fault(status, "going on after an inner commit", false);
  } else {
    release_permit();
  }
  policy_store_transaction_end(committed);
}

void transaction_event(XactEvent event, void*) {
  switch (event) {
    case XACT_EVENT_PRE_COMMIT:
    case XACT_EVENT_PRE_PREPARE:
      before_commit();
      break;
    case XACT_EVENT_COMMIT:
    case XACT_EVENT_PREPARE:
      transaction_over(true);
      break;
    case XACT_EVENT_ABORT:
      transaction_over(false);
      break;
    case XACT_EVENT_PARALLEL_PRE_COMMIT:
    case XACT_EVENT_PARALLEL_COMMIT:
    case XACT_EVENT_PARALLEL_ABORT:
      break;
  }
}

}  // namespace

void watch_transactions() { RegisterXactCallback(transaction_event, nullptr); }

}  // namespace sluice::extension
