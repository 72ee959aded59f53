// Every error that the extension raises on its own account: Status -> SQLSTATE, message, DETAIL, HINT (the contract with callers).
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
  bool login;  // raise FATAL (a session), else ERROR (a statement)
};

// Raises. `policy` is a backend-local copy: nothing here touches shared memory.
[[noreturn]] void raise_refusal(const policy::Policy& policy, const RefusalContext& context);

// FATAL 57P01: the session was moved to CLOSING by somebody else; nothing was executed.
[[noreturn]] void raise_evicted();

// ERROR 57014 with our CONTEXT line, from PRE_COMMIT of a transaction whose time limit passed.
[[noreturn]] void raise_time_limit(std::int64_t limit_ms);

// A broken invariant: counted, logged (throttled), and answered by pg_sluice.on_fault. Returns when the answer is to admit.
void report_fault(policy::Status status, const char* where);

// ERROR 55000 (F19, F20).
[[noreturn]] void raise_not_preloaded();
[[noreturn]] void raise_other_build(const char* running, const char* loaded);

// ERROR 55000: publishing from a database other than pg_sluice.database.
[[noreturn]] void raise_wrong_database(const char* here, const char* wanted);

}  // namespace sluice::extension
