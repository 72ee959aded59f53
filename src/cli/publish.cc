#include "cli/publish.h"

#include <ostream>

#include "cli/database.h"
#include "cli/json.h"
#include "cli/lint.h"
#include "cli/table.h"
#include "cli/text_file.h"

namespace sluice::cli {
namespace {

constexpr char kPublish[] =
    "select p.generation, p.mode, w.warning"
    " from sluice.publish($1::pg_catalog.jsonb) p"
    " left join lateral pg_catalog.unnest(p.warnings) as w(warning) on true";

constexpr char kActivate[] = "select * from sluice.activate($1::pg_catalog.int8, 'enforce', over_limit => $2::text)";

// Prints what publish() answered and returns the generation.
std::string print_published(std::ostream& out, const Rows& rows) {
  if (rows.values.empty()) throw DatabaseError("sluice.publish() answered no row");
  std::string generation = rows.values[0][0].value_or("");
  out << "published generation " << generation << ", mode " << rows.values[0][1].value_or("?") << '\n';
  for (const auto& row : rows.values) {
    if (row[2].has_value()) out << "warning: " << *row[2] << '\n';
  }
  return generation;
}

}  // namespace

int publish(const PublishOptions& options, std::ostream& out) {
  LintOptions lint_options;
  lint_options.file = options.file;
  // Warnings are left to the server, which knows its own numbers; here only what it would refuse anyway is found, with
  // the line in the file.
  std::string text = read_text_file(options.file);
  CheckedPolicy checked = check_policy(lint_options, text, out, Shown::errors);
  if (!checked.valid) {
    out << options.file << ": refused, nothing was published\n";
    return 1;
  }
  Database database(options.dsn);
  std::string generation = print_published(out, database.query(kPublish, {to_json(*checked.document)}));
  if (!options.activate) {
    out << "it counts and touches nothing until it is activated: select * from sluice.activate(" << generation << ")\n";
    return 0;
  }
  try {
    Rows rows = database.query(kActivate, {generation, options.drain ? "drain" : "refuse"});
    out << "generation " << generation << " is enforced\n";
    print_table(out, rows);
  } catch (const DatabaseError&) {
    out << "generation " << generation << " is published but not enforced\n";
    throw;
  }
  return 0;
}

}  // namespace sluice::cli
