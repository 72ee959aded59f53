// Executor hooks: planned statements take their permit at ExecutorStart; ExecutorRun only lends its CONTEXT line to
// transactions that have a time limit.
#include "extension/pg.h"

#include "extension/backend.h"
#include "extension/execution.h"
#include "extension/hooks.h"

namespace sluice::extension {

namespace {

ExecutorStart_hook_type previous_start = nullptr;
ExecutorRun_hook_type previous_run = nullptr;

// Login event triggers (17+) run before the client can send anything; their statements must never wait.
bool runs_before_first_command() { return debug_query_string == nullptr; }

void chain_start(QueryDesc* query, int eflags) {
  if (previous_start != nullptr) {
    previous_start(query, eflags);
  } else {
    standard_ExecutorStart(query, eflags);
  }
}

void executor_start(QueryDesc* query, int eflags) {
  if (!wants_permit() || (eflags & EXEC_FLAG_EXPLAIN_ONLY) != 0 || runs_before_first_command()) {
    return chain_start(query, eflags);
  }
  WaitPlace place = {WaitPlace::Kind::executor, query};
  admit_transaction(place);
  chain_start(query, eflags);
}

void chain_run(SLUICE_RUN_PARAMETERS) {
  if (previous_run != nullptr) {
    previous_run(SLUICE_RUN_ARGUMENTS);
  } else {
    standard_ExecutorRun(SLUICE_RUN_ARGUMENTS);
  }
}

void executor_run(SLUICE_RUN_PARAMETERS) {
  if (!backend.time_limited) return chain_run(SLUICE_RUN_ARGUMENTS);
  TimeLimitContext context = {};
  push_time_limit_context(context);
  chain_run(SLUICE_RUN_ARGUMENTS);
  pop_time_limit_context(context);
}

}  // namespace

void install_executor_hooks() {
  previous_start = ExecutorStart_hook;
  ExecutorStart_hook = executor_start;
  previous_run = ExecutorRun_hook;
  ExecutorRun_hook = executor_run;
}

}  // namespace sluice::extension
