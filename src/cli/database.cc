#include "cli/database.h"

#include <libpq-fe.h>

namespace sluice::cli {
namespace {

struct ClearResult {
  void operator()(PGresult* result) const { PQclear(result); }
};

std::string without_trailing_blanks(const char* text) {
  std::string result = text == nullptr ? "" : text;
  while (!result.empty() && (result.back() == '\n' || result.back() == ' ')) result.pop_back();
  return result;
}

DatabaseError error_of(const PGresult* result, const PGconn* connection) {
  auto field = [&](int code) { return without_trailing_blanks(PQresultErrorField(result, code)); };
  std::string message = field(PG_DIAG_MESSAGE_PRIMARY);
  if (message.empty()) message = without_trailing_blanks(PQerrorMessage(connection));
  return DatabaseError(message, field(PG_DIAG_SQLSTATE), field(PG_DIAG_MESSAGE_DETAIL), field(PG_DIAG_MESSAGE_HINT),
                       field(PG_DIAG_CONTEXT));
}

Rows rows_of(const PGresult* result) {
  Rows rows;
  int columns = PQnfields(result);
  for (int c = 0; c < columns; c++) rows.columns.emplace_back(PQfname(result, c));
  for (int r = 0; r < PQntuples(result); r++) {
    auto& row = rows.values.emplace_back(columns);
    for (int c = 0; c < columns; c++) {
      if (PQgetisnull(result, r, c) == 0) row[c] = PQgetvalue(result, r, c);
    }
  }
  return rows;
}

}  // namespace

void Database::Finish::operator()(pg_conn* connection) const { PQfinish(connection); }

Database::Database(const std::string& conninfo) {
  // An empty dbname leaves the choice to the environment. Everything sent is text in UTF-8, as the file is.
  const char* keywords[] = {"dbname", "fallback_application_name", "client_encoding", nullptr};
  const char* values[] = {conninfo.c_str(), "sluice", "UTF8", nullptr};
  constexpr int kExpandConninfo = 1;
  connection_.reset(PQconnectdbParams(keywords, values, kExpandConninfo));
  if (connection_ == nullptr) throw DatabaseError("out of memory");
  if (PQstatus(connection_.get()) != CONNECTION_OK) {
    throw DatabaseError(without_trailing_blanks(PQerrorMessage(connection_.get())));
  }
  // Nothing of ours may resolve to an object that somebody put into a schema of the search path.
  (void)query("select pg_catalog.set_config('search_path', 'pg_catalog', false)", {});
}

Rows Database::query(const std::string& sql, const std::vector<std::string>& parameters) {
  std::vector<const char*> values;
  values.reserve(parameters.size());
  for (const std::string& parameter : parameters) values.push_back(parameter.c_str());
  std::unique_ptr<PGresult, ClearResult> result(PQexecParams(
      connection_.get(), sql.c_str(), static_cast<int>(values.size()), nullptr, values.data(), nullptr, nullptr, 0));
  ExecStatusType status = PQresultStatus(result.get());
  if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) throw error_of(result.get(), connection_.get());
  return rows_of(result.get());
}

}  // namespace sluice::cli
