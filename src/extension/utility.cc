// Utility statements: which take a permit, and which never wait. docs/statements.md has the same table for readers.
#include "extension/pg.h"

#include "extension/backend.h"
#include "extension/execution.h"
#include "extension/hooks.h"

namespace sluice::extension {

namespace {

ProcessUtility_hook_type previous_utility = nullptr;

enum class Admission {
  takes_permit,  // before it does anything; kept to its end also when it commits inside
  by_its_query,  // the statement it runs takes the permit in ExecutorStart or in a nested utility
  never_waits,   // needed to end or steer a transaction, or touches nothing
};

bool is_analyze(const ExplainStmt* explain) {
  bool analyze = false;
  ListCell* cell = nullptr;
  foreach (cell, explain->options) {
    auto* option = static_cast<DefElem*>(lfirst(cell));
    if (strcmp(option->defname, "analyze") == 0) analyze = defGetBoolean(option);
  }
  return analyze;
}

Admission admission_of(const Node* statement) {
  switch (nodeTag(statement)) {
    case T_TransactionStmt:
    case T_ConstraintsSetStmt:
    case T_VariableSetStmt:
    case T_VariableShowStmt:
    case T_DiscardStmt:
    case T_PrepareStmt:
    case T_DeallocateStmt:
    case T_ClosePortalStmt:
    case T_FetchStmt:
    case T_ListenStmt:
    case T_UnlistenStmt:
    case T_NotifyStmt:
    case T_CheckPointStmt:
    case T_AlterSystemStmt:
      return Admission::never_waits;
    case T_ExplainStmt:
      return is_analyze(reinterpret_cast<const ExplainStmt*>(statement)) ? Admission::by_its_query
                                                                         : Admission::never_waits;
    case T_ExecuteStmt:
    case T_DeclareCursorStmt:
      return Admission::by_its_query;
    default:
      return Admission::takes_permit;
  }
}

struct Call {
  PlannedStmt* statement;
  const char* query_string;
  bool read_only_tree;
  ProcessUtilityContext context;
  ParamListInfo parameters;
  QueryEnvironment* environment;
  DestReceiver* receiver;
  QueryCompletion* completion;
};

void chain(const Call& call) {
  const ProcessUtility_hook_type next = previous_utility != nullptr ? previous_utility : standard_ProcessUtility;
  next(call.statement, call.query_string, call.read_only_tree, call.context, call.parameters, call.environment,
       call.receiver, call.completion);
}

// Nesting lives on the stack and is put back whatever happens: DO … ROLLBACK fires the abort callback while the utility
// is still on the stack, so callbacks must not touch it.
void run_nested(const Call& call, bool exempt, bool keeps_permit) {
  const bool was_exempt = backend.exempt;
  const bool kept_permit = backend.keeps_permit;
  const int depth = backend.utility_depth;
  TimeLimitContext context = {};
  push_time_limit_context(context);
  PG_TRY();
  {
    backend.exempt = was_exempt || exempt;
    backend.keeps_permit = kept_permit || keeps_permit;
    backend.utility_depth = depth + 1;
    chain(call);
  }
  PG_FINALLY();
  {
    backend.exempt = was_exempt;
    backend.keeps_permit = kept_permit;
    backend.utility_depth = depth;
  }
  PG_END_TRY();
  pop_time_limit_context(context);
}

void process_utility(PlannedStmt* statement, const char* query_string, bool read_only_tree,
                     ProcessUtilityContext context, ParamListInfo parameters, QueryEnvironment* environment,
                     DestReceiver* receiver, QueryCompletion* completion) {
  const Call call = {statement, query_string, read_only_tree, context, parameters, environment, receiver, completion};
  if (!backend.governed || IsParallelWorker()) return chain(call);
  const Admission admission = admission_of(statement->utilityStmt);
  if (admission == Admission::takes_permit && wants_permit()) {
    WaitPlace place = {WaitPlace::Kind::utility, nullptr};
    // Nesting is counted from this statement on: the wait happens at its own level.
    admit_transaction(place);
  }
  run_nested(call, admission == Admission::never_waits, admission == Admission::takes_permit && backend.holds_permit);
}

}  // namespace

void install_utility_hook() {
  previous_utility = ProcessUtility_hook;
  ProcessUtility_hook = process_utility;
}

}  // namespace sluice::extension
