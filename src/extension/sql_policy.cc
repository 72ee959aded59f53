// sluice.validate(), sluice.publish(): a document and what this server makes of it.
#include "extension/sql_policy.h"

#include <cstring>

#include "extension/change_log.h"
#include "extension/errors.h"
#include "extension/settings.h"
#include "extension/shared.h"
#include "extension/sql_support.h"

namespace sluice::extension {
namespace {

using policy::Document;
using policy::Finding;
using policy::Findings;
using policy::Policy;
using policy::Severity;

constexpr char kNewest[] = "SELECT coalesce(max(generation), 0) FROM sluice.policies";
constexpr char kInsert[] =
    "INSERT INTO sluice.policies (generation, document, state, published_by) VALUES ($1, $2, 'shadow', $3)";
// What the new document changes against the one it follows: that of the same role, newest before it.
constexpr char kDiff[] =
    "SELECT sluice._diff((SELECT p.document FROM sluice.policies p WHERE p.generation < $1"
    " AND coalesce(p.document->>'database', '') LIKE '%/read' = coalesce($2->>'database', '') LIKE '%/read'"
    " ORDER BY p.generation DESC LIMIT 1), $2)";

const char* severity_name(Severity severity) { return severity == Severity::error ? "error" : "warning"; }

// "path: message", or the message alone where the whole document is meant.
char* finding_text(const Finding& finding) {
  return finding.path[0] == '\0' ? pstrdup(finding.message) : psprintf("%s: %s", finding.path, finding.message);
}

// The one thing that the document cannot know and the ledger does: how many classes it has room for.
bool fits_ledger(const Policy& policy, Findings& findings) {
  const std::uint32_t room = the_ledger.header->sizes.classes;
  if (policy.class_count <= room) return true;
  findings.errors++;
  if (findings.count == policy::kMaxFindings) findings.count--;
  Finding& finding = findings.entries[findings.count++];
  finding.severity = Severity::error;
  finding.line = 0;
  const unsigned classes = policy.class_count;
  snprintf(finding.path, sizeof(finding.path), "executionClasses");
  snprintf(finding.message, sizeof(finding.message), "%u classes are %u more than pg_sluice.max_classes %u", classes,
           classes - room, room);
  snprintf(finding.fix, sizeof(finding.fix), "declare fewer classes, or set pg_sluice.max_classes to %u and restart",
           classes);
  return false;
}

// Validates under this server's facts. `newest` is the newest generation that was published.
bool check_document(Jsonb* json, std::uint64_t newest, Policy& policy, Findings& findings) {
  auto* document = static_cast<Document*>(palloc(sizeof(Document)));
  read_document(json, *document);
  policy::ServerFacts facts = server_facts();
  facts.newest_generation = newest;
  facts.in_recovery = is_for_standby(*document);
  std::memset(static_cast<void*>(&policy), 0, sizeof(policy));
  std::memset(static_cast<void*>(&findings), 0, sizeof(findings));
  const bool valid = policy::validate(*document, facts, policy, findings) && fits_ledger(policy, findings);
  pfree(document);
  return valid;
}

[[noreturn]] void raise_findings(const Findings& findings) {
  StringInfoData detail;
  initStringInfo(&detail);
  const Finding* first = nullptr;
  for (std::uint32_t i = 0; i < findings.count; i++) {
    const Finding& finding = findings.entries[i];
    if (first == nullptr && finding.severity == Severity::error) first = &finding;
    appendStringInfo(&detail, "%s%s: %s", i == 0 ? "" : "\n", severity_name(finding.severity), finding_text(finding));
  }
  if (findings.dropped > 0) appendStringInfo(&detail, "\n%u more are not listed", findings.dropped);
  if (first == nullptr) elog(ERROR, "the policy was refused without a reason");
  ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("policy refused: %s", finding_text(*first)),
                  errdetail_internal("%s", detail.data), errhint("%s", first->fix)));
}

Jsonb* compute_diff(std::int64_t generation, Jsonb* document) {
  Oid types[2] = {INT8OID, JSONBOID};
  Datum values[2] = {Int64GetDatum(generation), JsonbPGetDatum(document)};
  if (SPI_execute_with_args(kDiff, 2, types, values, nullptr, false, 1) != SPI_OK_SELECT || SPI_processed != 1)
    return nullptr;
  bool is_null = true;
  Datum value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &is_null);
  return is_null ? nullptr : DatumGetJsonbP(value);
}

void insert_policy(std::int64_t generation, Jsonb* document, const char* who) {
  Oid types[3] = {INT8OID, JSONBOID, TEXTOID};
  Datum values[3] = {Int64GetDatum(generation), JsonbPGetDatum(document), CStringGetTextDatum(who)};
  if (SPI_execute_with_args(kInsert, 3, types, values, nullptr, false, 0) != SPI_OK_INSERT) {
    elog(ERROR, "cannot write sluice.policies");
  }
}

// Stores the document under its generation and lets it decide from COMMIT on, unless another one goes on deciding.
void store(Jsonb* document, const Policy& policy) {
  const auto generation = static_cast<std::int64_t>(policy.generation);
  const char* who = session_role();
  insert_policy(generation, document, who);
  const char* why = psprintf("generation %llu for %s, in shadow", static_cast<unsigned long long>(policy.generation),
                             policy.database);
  write_change({who, "publish", generation, why, compute_diff(generation, document)});
  apply_stored_at_commit(generation);
}

}  // namespace

void require_policy_database(const char* function) {
  require_ledger();
  const char* here = get_database_name(MyDatabaseId);
  if (here == nullptr || std::strcmp(here, settings.database) != 0) {
    raise_wrong_database(here == nullptr ? "" : here, settings.database);
  }
  PreventCommandDuringRecovery(function);
  PreventCommandIfReadOnly(function);
  if (IsolationUsesXactSnapshot()) {
    ereport(ERROR,
            (errcode(ERRCODE_ACTIVE_SQL_TRANSACTION), errmsg("%s needs isolation level READ COMMITTED", function),
             errdetail("Under an older snapshot it would decide by policies that are no longer the newest.")));
  }
}

void lock_policies() {
  if (SPI_execute("LOCK TABLE sluice.policies IN SHARE ROW EXCLUSIVE MODE", false, 0) != SPI_OK_UTILITY) {
    elog(ERROR, "cannot lock sluice.policies");
  }
}

std::uint64_t newest_generation() {
  if (SPI_execute(kNewest, false, 1) != SPI_OK_SELECT || SPI_processed != 1) elog(ERROR, "cannot read sluice.policies");
  bool is_null = false;
  return static_cast<std::uint64_t>(
      DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &is_null)));
}

void apply_stored_at_commit(std::int64_t changed_generation) {
  auto* stored = static_cast<StoredPolicy*>(palloc0(sizeof(StoredPolicy)));
  char note[256];
  load_policy(*stored, note, sizeof(note));
  if (stored->unreadable) {
    ereport(WARNING, (errmsg("the deciding policy stays as it is: %s", note)));
  } else if (stored->policy.generation == static_cast<std::uint64_t>(changed_generation) || changed_generation == 0) {
    apply_at_commit(stored->policy, stored->mode);
  }
  pfree(stored);
}

}  // namespace sluice::extension

using namespace sluice;             // NOLINT: the functions below only translate SQL calls
using namespace sluice::extension;  // NOLINT

extern "C" {

PG_FUNCTION_INFO_V1(sluice_require);
Datum sluice_require(PG_FUNCTION_ARGS) {
  (void)fcinfo;
  require_ledger();
  PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(sluice_validate);
Datum sluice_validate(PG_FUNCTION_ARGS) {
  require_ledger();
  require_argument(fcinfo, 0, "document");
  auto* compiled = static_cast<policy::Policy*>(palloc(sizeof(policy::Policy)));
  auto* findings = static_cast<policy::Findings*>(palloc(sizeof(policy::Findings)));
  SPI_connect();
  const std::uint64_t newest = newest_generation();
  SPI_finish();
  (void)check_document(PG_GETARG_JSONB_P(0), newest, *compiled, *findings);
  Rows rows(fcinfo);
  for (std::uint32_t i = 0; i < findings->count; i++) {
    const policy::Finding& finding = findings->entries[i];
    rows.text(severity_name(finding.severity)).text(finding.path).text(finding.message).text(finding.fix).end();
  }
  return static_cast<Datum>(0);
}

PG_FUNCTION_INFO_V1(sluice_publish);
Datum sluice_publish(PG_FUNCTION_ARGS) {
  require_policy_database("sluice.publish()");
  require_argument(fcinfo, 0, "document");
  Jsonb* document = PG_GETARG_JSONB_P(0);
  auto* compiled = static_cast<policy::Policy*>(palloc(sizeof(policy::Policy)));
  auto* findings = static_cast<policy::Findings*>(palloc(sizeof(policy::Findings)));
  SPI_connect();
  lock_policies();
  const std::uint64_t newest = newest_generation();
  if (!check_document(document, newest, *compiled, *findings)) raise_findings(*findings);
  if (compiled->generation == 0) compiled->generation = newest + 1;
  if (compiled->generation <= newest || compiled->generation > static_cast<std::uint64_t>(PG_INT64_MAX)) {
    ereport(ERROR,
            (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
             errmsg("policy refused: generation: %llu is not newer than %llu",
                    static_cast<unsigned long long>(compiled->generation), static_cast<unsigned long long>(newest)),
             errhint("Leave the generation out, or make it %llu.", static_cast<unsigned long long>(newest + 1))));
  }
  store(document, *compiled);
  SPI_finish();
  auto* warnings = static_cast<const char**>(palloc(sizeof(char*) * (findings->count + 1)));
  int count = 0;
  for (std::uint32_t i = 0; i < findings->count; i++) warnings[count++] = finding_text(findings->entries[i]);
  Rows rows(fcinfo);
  rows.count(compiled->generation).text("shadow").texts(warnings, count).end();
  return static_cast<Datum>(0);
}
}
