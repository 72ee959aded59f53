// sluice.activate(): a published generation is enforced, or goes back to shadow; what that means for who is connected
// now.
#include <cstring>

#include "extension/change_log.h"
#include "extension/shared.h"
#include "extension/sql_policy.h"
#include "extension/sql_support.h"
#include "ledger/policy_change.h"

namespace sluice::extension {
namespace {

using ledger::OverLimit;
using policy::RuleField;

// Rules of a policy: sessions, overdraft, and every class, tenant, database, role and admin role.
constexpr std::uint32_t kMaxEntries = 4096;

constexpr char kFind[] = "SELECT state, document FROM sluice.policies WHERE generation = $1";
// Rows of the same role, all older ones: what a newly enforced generation replaces.
constexpr char kRetire[] =
    "UPDATE sluice.policies SET state = 'retired' WHERE generation <> $1"
    " AND (state = 'active' OR (state = 'shadow' AND generation < $1))"
    " AND coalesce(document->>'database', '') LIKE '%/read' ="
    " (SELECT coalesce(p.document->>'database', '') LIKE '%/read' FROM sluice.policies p WHERE p.generation = $1)";
constexpr char kSetState[] =
    "UPDATE sluice.policies SET state = $2, activated_at = clock_timestamp(), activated_by = $3 WHERE generation = $1";

struct Request {
  std::int64_t generation;
  bool enforce;
  bool drain;
};

void refuse_value(const char* argument, const char* value, const char* allowed) {
  ereport(ERROR,
          (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s must be %s, not \"%s\"", argument, allowed, value)));
}

Request read_request(FunctionCallInfo fcinfo) {
  require_argument(fcinfo, 0, "generation");
  require_argument(fcinfo, 2, "percent");
  const char* mode = text_argument(fcinfo, 1, "mode");
  const char* scope = text_argument(fcinfo, 3, "scope");
  const char* over_limit = text_argument(fcinfo, 4, "over_limit");
  const std::int32_t percent = PG_GETARG_INT32(2);
  const bool enforce = std::strcmp(mode, "enforce") == 0;
  if (!enforce && std::strcmp(mode, "shadow") != 0) refuse_value("mode", mode, "\"enforce\" or \"shadow\"");
  const bool drain = std::strcmp(over_limit, "drain") == 0;
  if (!drain && std::strcmp(over_limit, "refuse") != 0)
    refuse_value("over_limit", over_limit, "\"refuse\" or \"drain\"");
  if (percent < 0 || percent > 100) refuse_value("percent", psprintf("%d", percent), "between 0 and 100");
  if (percent != 100 || std::strcmp(scope, "all") != 0) {
    ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                    errmsg("enforcing a policy for a part of the traffic is not supported yet"),
                    errdetail("percent is %d and scope is \"%s\"; this release knows 100 and \"all\".", percent, scope),
                    errhint("Canary generations (percent, scope) come with release 1.1.")));
  }
  return {PG_GETARG_INT64(0), enforce, drain};
}

// Reads the row and compiles it under what the server is now. Raises when it cannot be activated.
void load_generation(const Request& request, StoredPolicy& stored, char* note, std::size_t note_bytes) {
  Oid types[1] = {INT8OID};
  Datum values[1] = {Int64GetDatum(request.generation)};
  if (SPI_execute_with_args(kFind, 1, types, values, nullptr, false, 1) != SPI_OK_SELECT) {
    elog(ERROR, "cannot read sluice.policies");
  }
  if (SPI_processed == 0) {
    ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
                    errmsg("generation %lld was not published", static_cast<long long>(request.generation)),
                    errhint("Published generations are listed in sluice.policies.")));
  }
  HeapTuple tuple = SPI_tuptable->vals[0];
  const char* state = SPI_getvalue(tuple, SPI_tuptable->tupdesc, 1);
  if (std::strcmp(state, "retired") == 0) {
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                    errmsg("generation %lld is retired", static_cast<long long>(request.generation)),
                    errdetail("A newer generation has been enforced since."),
                    errhint("Publish its document again; it then gets a new generation.")));
  }
  if (!request.enforce && std::strcmp(state, "active") != 0) {
    ereport(NOTICE, (errmsg("generation %lld is in shadow already", static_cast<long long>(request.generation))));
  }
  bool is_null = false;
  Datum document = SPI_getbinval(tuple, SPI_tuptable->tupdesc, 2, &is_null);
  stored.mode = ledger::Mode::enforce;
  const bool usable = compile_stored(request.generation, DatumGetJsonbP(document), stored, note, note_bytes);
  if (!usable || stored.mode != ledger::Mode::enforce) {
    ereport(
        ERROR,
        (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("policy refused: %s", note),
         errhint("The server has changed since it was published, or the row was edited. Publish a new generation.")));
  }
}

const char* kind_name(RuleField field) {
  switch (field) {
    case RuleField::class_permits:
    case RuleField::class_max_queue:
    case RuleField::class_queue_deadline:
    case RuleField::class_time_limit:
    case RuleField::class_borrow_ttl:
      return "class";
    case RuleField::tenant_max_inflight:
    case RuleField::tenant_max_sessions:
      return "tenant";
    case RuleField::database_max_sessions:
      return "database";
    case RuleField::role_max_sessions:
    case RuleField::role_connects:
      return "role";
    case RuleField::admin_guarantee:
      return "admin role";
    case RuleField::none:
    case RuleField::server_session_permits:
    case RuleField::admin_reserve:
    case RuleField::login_headroom:
    case RuleField::overdraft_max:
      return "server";
  }
  return "server";
}

const char* plural_unit(RuleField field) {
  switch (field) {
    case RuleField::class_permits:
    case RuleField::tenant_max_inflight:
      return "running transactions";
    case RuleField::class_max_queue:
      return "queued transactions";
    case RuleField::admin_reserve:
    case RuleField::admin_guarantee:
      return "open administrator sessions";
    default:
      return "open sessions";
  }
}

// What is counted, in words: "400 open sessions", "1 open session".
char* amount(const OverLimit& entry) {
  const char* unit = plural_unit(entry.rule.field);
  const int length = static_cast<int>(std::strlen(unit)) - (entry.now == 1 ? 1 : 0);
  return psprintf("%u %.*s", entry.now, length, unit);
}

[[noreturn]] void raise_over_limit(const policy::Policy& policy, const OverLimit* entries, std::uint32_t count) {
  StringInfoData detail;
  initStringInfo(&detail);
  const OverLimit* first = nullptr;
  for (std::uint32_t i = 0; i < count; i++) {
    const OverLimit& entry = entries[i];
    if (entry.now <= entry.limit) continue;
    if (first == nullptr) first = &entry;
    appendStringInfo(&detail, "%s%s%s%s: %s, limit %u (%s)", detail.len == 0 ? "" : "\n", kind_name(entry.rule.field),
                     entry.name[0] == '\0' ? "" : " ", entry.name, amount(entry), entry.limit,
                     rule_text(policy, entry.rule));
  }
  ereport(
      ERROR,
      (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
       errmsg("generation %llu is not enforced: %s, limit %u", static_cast<unsigned long long>(policy.generation),
              amount(*first), first->limit),
       errdetail_internal("%s", detail.data),
       errhint("Wait or close sessions, raise the limits, or say over_limit => 'drain': sessions that are open stay "
               "and nobody new is admitted until the number is below the limit.")));
}

void set_state(const Request& request, const char* who) {
  Oid types[3] = {INT8OID, TEXTOID, TEXTOID};
  Datum values[3] = {Int64GetDatum(request.generation), CStringGetTextDatum(request.enforce ? "active" : "shadow"),
                     CStringGetTextDatum(who)};
  if (request.enforce && SPI_execute_with_args(kRetire, 1, types, values, nullptr, false, 0) != SPI_OK_UPDATE) {
    elog(ERROR, "cannot write sluice.policies");
  }
  if (SPI_execute_with_args(kSetState, 3, types, values, nullptr, false, 0) != SPI_OK_UPDATE || SPI_processed != 1) {
    elog(ERROR, "cannot write sluice.policies");
  }
}

// Names stay valid for as long as the result is written: they point into the entries.
void write_rows(FunctionCallInfo fcinfo, const policy::Policy& policy, const OverLimit* entries, std::uint32_t count) {
  Rows rows(fcinfo);
  for (std::uint32_t i = 0; i < count; i++) {
    const OverLimit& entry = entries[i];
    rows.text(kind_name(entry.rule.field)).text(entry.name[0] == '\0' ? nullptr : entry.name);
    rows.text(rule_text(policy, entry.rule)).number(entry.now).number(entry.peak).limit(entry.limit);
    rows.count(entry.would_refuse).count(entry.would_wait).boolean(entry.now > entry.limit).end();
  }
}

void change_state(const Request& request) {
  const char* who = session_role();
  set_state(request, who);
  const char* why = request.enforce ? (request.drain ? "enforced; what is over its limit drains" : "enforced")
                                    : "in shadow, nothing is enforced";
  write_change({who, "activate", request.generation,
                psprintf("generation %lld %s", static_cast<long long>(request.generation), why), nullptr});
  apply_stored_at_commit(request.enforce ? request.generation : 0);
}

}  // namespace
}  // namespace sluice::extension

using namespace sluice;             // NOLINT: the function below only translates an SQL call
using namespace sluice::extension;  // NOLINT

extern "C" {

PG_FUNCTION_INFO_V1(sluice_activate);
Datum sluice_activate(PG_FUNCTION_ARGS) {
  require_policy_database("sluice.activate()");
  const Request request = read_request(fcinfo);
  auto* stored = static_cast<StoredPolicy*>(palloc0(sizeof(StoredPolicy)));
  auto* entries = static_cast<OverLimit*>(palloc0(sizeof(OverLimit) * kMaxEntries));
  char note[512] = "";
  SPI_connect();
  lock_policies();
  load_generation(request, *stored, note, sizeof(note));
  std::uint32_t count;
  {
    SharedLedger lock;
    count = ledger::compare_policy(the_ledger, lock.token(), stored->policy, entries, kMaxEntries);
  }
  bool over = false;
  for (std::uint32_t i = 0; i < count; i++) over = over || entries[i].now > entries[i].limit;
  if (request.enforce && over && !request.drain) raise_over_limit(stored->policy, entries, count);
  change_state(request);
  SPI_finish();
  write_rows(fcinfo, stored->policy, entries, count);
  return static_cast<Datum>(0);
}
}
