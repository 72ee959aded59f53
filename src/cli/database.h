// One connection to PostgreSQL and the answers it gives; libpq is seen here and in database.cc only.
#pragma once

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

struct pg_conn;

namespace sluice::cli {

// What the server (or libpq) said; an empty part was not given. sqlstate is empty when no server answered.
class DatabaseError : public std::runtime_error {
 public:
  DatabaseError(const std::string& message, const std::string& sqlstate = "", const std::string& detail = "",
                const std::string& hint = "", const std::string& context = "")
      : std::runtime_error(message), sqlstate(sqlstate), detail(detail), hint(hint), context(context) {}

  std::string sqlstate;
  std::string detail;
  std::string hint;
  std::string context;
};

struct Rows {
  std::vector<std::string> columns;
  std::vector<std::vector<std::optional<std::string>>> values;  // a row each; nothing is NULL
};

class Database {
 public:
  // A connection string, URI or database name as libpq takes it; empty: what the environment says. Throws
  // DatabaseError.
  explicit Database(const std::string& conninfo);

  // Runs one statement with text parameters, in a transaction of its own. Throws DatabaseError.
  [[nodiscard]] Rows query(const std::string& sql, const std::vector<std::string>& parameters);

 private:
  struct Finish {
    void operator()(pg_conn* connection) const;
  };

  std::unique_ptr<pg_conn, Finish> connection_;
};

}  // namespace sluice::cli
