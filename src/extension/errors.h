// Every error that the extension raises on its own account: Status -> SQLSTATE, message, DETAIL, HINT (the contract
// with callers).
#pragma once

#include "extension/pg.h"
#include "policy/refusal.h"
#include "policy/rule.h"

namespace sluice::extension {

// The core's answer together with what DETAIL says about it. Strings must outlive the call.
struct RefusalContext {
  policy::Outcome outcome;
  const char* class_name;
  const char* tenant_name;
  const policy::Uuid* ticket;
  policy::FirstRequest first;  // duplicates only
  bool login;                  // raise FATAL (a session), else ERROR (a statement)
};

// Raises. `policy` is a backend-local copy: nothing here touches the ledger.
[[noreturn]] void raise_refusal(const policy::Policy& policy, const RefusalContext& context);

// FATAL 57P01: the session was moved to CLOSING by somebody else; nothing was executed.
[[noreturn]] void raise_evicted();

// What ends a running transaction: transactionTimeLimitMs of its class, or borrow.ttlMs of a borrowed permit whose
// lender queues.
enum class Expired : std::uint8_t { time_limit, borrowed_permit };

// ERROR 57014 with our CONTEXT line, from PRE_COMMIT of a transaction that has expired.
[[noreturn]] void raise_time_limit(Expired why);

// Adds our CONTEXT line to whatever error is being built.
void add_time_limit_context(Expired why);

// ERROR 40001: while the statement was queued a relation it reads got its first child, so its plan reads too little.
[[noreturn]] void raise_plan_outdated();

// A broken invariant: counted, logged (throttled), and answered by pg_sluice.on_fault: returns when the answer is to
// admit, else raises 58000. In a callback that must not raise pass may_raise = false.
void report_fault(policy::Status status, const char* where, bool may_raise = true);

// ERROR 55000 (F19, F20).
[[noreturn]] void raise_not_preloaded();
[[noreturn]] void raise_other_build(const char* running, const char* loaded);
// The same as a WARNING, for session_preload_libraries: an error there would lock everybody out.
void warn_not_preloaded();

// ERROR 55000: publishing from a database other than pg_sluice.database.
[[noreturn]] void raise_wrong_database(const char* here, const char* wanted);

}  // namespace sluice::extension
