#include "extension/change_log.h"

namespace sluice::extension {
namespace {

constexpr char kInsert[] =
    "INSERT INTO sluice.changes (who, what, generation, why, diff) VALUES ($1, $2, nullif($3, 0), $4, $5)";
constexpr char kTrim[] =
    "DELETE FROM sluice.changes WHERE id <= (SELECT id FROM sluice.changes ORDER BY id DESC OFFSET $1 LIMIT 1)";

Datum text_datum(const char* value) { return value == nullptr ? static_cast<Datum>(0) : CStringGetTextDatum(value); }

}  // namespace

void write_change(const Change& change) {
  constexpr int kArguments = 5;
  Oid types[kArguments] = {TEXTOID, TEXTOID, INT8OID, TEXTOID, JSONBOID};
  Datum values[kArguments] = {text_datum(change.who), text_datum(change.what), Int64GetDatum(change.generation),
                              text_datum(change.why), PointerGetDatum(change.diff)};
  char nulls[kArguments] = {change.who == nullptr ? 'n' : ' ', ' ', ' ', change.why == nullptr ? 'n' : ' ',
                            change.diff == nullptr ? 'n' : ' '};
  if (SPI_execute_with_args(kInsert, kArguments, types, values, nulls, false, 0) != SPI_OK_INSERT) {
    elog(ERROR, "cannot write sluice.changes");
  }
  ereport(LOG, (errmsg("pg_sluice: %s by %s: %s", change.what, change.who == nullptr ? "the server" : change.who,
                       change.why == nullptr ? "" : change.why),
                errhidestmt(true)));
}

void trim_changes() {
  Oid types[1] = {INT8OID};
  Datum values[1] = {Int64GetDatum(kMaxChanges)};
  if (SPI_execute_with_args(kTrim, 1, types, values, nullptr, false, 0) != SPI_OK_DELETE) {
    elog(ERROR, "cannot trim sluice.changes");
  }
}

char* session_role() { return GetUserNameFromId(GetSessionUserId(), false); }

}  // namespace sluice::extension
