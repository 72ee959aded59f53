#include "cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <ostream>

#include "cli/database.h"
#include "cli/help.h"
#include "cli/lint.h"
#include "cli/proxy_command.h"
#include "cli/publish.h"
#include "cli/text_file.h"
#include "cli/version.h"

namespace sluice::cli {
namespace {

struct Options {
  LintOptions lint;
  PublishOptions publish;
  ProxyOptions proxy;
  std::uint32_t max_connections = 0;
};

// Options are told apart from values by "--" as usual; every page of help is written by hand in help.cc.
void set_help(CLI::App& app, const char* text) {
  app.set_help_flag("-h,--help");
  app.formatter_fn([text](const CLI::App*, const std::string&, CLI::AppFormatMode) { return std::string(text); });
}

void add_lint(CLI::App& policy, Options& options) {
  CLI::App* lint = policy.add_subcommand("lint");
  set_help(*lint, kLintHelp);
  constexpr std::uint32_t kMost = 262143;
  lint->add_option("FILE", options.lint.file)->required();
  CLI::Option* server =
      lint->add_option("--max-connections", options.max_connections)->check(CLI::Range(std::uint32_t{1}, kMost));
  CLI::Range slots(std::uint32_t{0}, kMost);
  lint->add_option("--superuser-reserved-connections", options.lint.superuser_reserved_connections)
      ->check(slots)
      ->needs(server);
  lint->add_option("--reserved-connections", options.lint.reserved_connections)->check(slots)->needs(server);
  lint->add_option("--max-wal-senders", options.lint.max_wal_senders)->check(slots)->needs(server);
  lint->add_option("--label", options.lint.label)->needs(server);
  lint->add_option("--newest-generation", options.lint.newest_generation)->needs(server);
}

void add_publish(CLI::App& policy, PublishOptions& options) {
  CLI::App* publish = policy.add_subcommand("publish");
  set_help(*publish, kPublishHelp);
  publish->add_option("FILE", options.file)->required();
  publish->add_option("--dsn", options.dsn);
  CLI::Option* activate = publish->add_flag("--activate", options.activate);
  publish->add_flag("--drain", options.drain)->needs(activate);
}

void add_proxy(CLI::App& app, ProxyOptions& options) {
  CLI::App* proxy = app.add_subcommand("proxy");
  set_help(*proxy, kProxyHelp);
  proxy->add_option("--config", options.file);
  CLI::Option* check = proxy->add_flag("--check-config", options.check_config);
  CLI::Option* example = proxy->add_flag("--print-example", options.print_example)->excludes(check);
  proxy->add_flag("--print-settings", options.print_settings)->excludes(check)->excludes(example);
}

void print_error(std::ostream& err, const DatabaseError& error) {
  err << "sluice: " << error.what();
  if (!error.sqlstate.empty()) err << " (SQLSTATE " << error.sqlstate << ")";
  err << '\n';
  if (!error.detail.empty()) err << "DETAIL: " << error.detail << '\n';
  if (!error.hint.empty()) err << "HINT: " << error.hint << '\n';
  if (error.sqlstate == "42883" || error.sqlstate == "3F000") {
    err << "HINT: connect to the database that pg_sluice.database names; the extension lives there only.\n";
  }
}

int run_policy(const CLI::App& policy, Options& options, std::ostream& out, std::ostream& err) {
  try {
    if (policy.got_subcommand("lint")) {
      if (options.max_connections > 0) options.lint.max_connections = options.max_connections;
      return lint(options.lint, out);
    }
    return publish(options.publish, out);
  } catch (const FileError& error) {
    err << "sluice: " << error.what() << '\n';
    return kExitUsage;
  } catch (const DatabaseError& error) {
    out.flush();
    print_error(err, error);
    return kExitRefused;
  }
}

}  // namespace

int run_command(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  Options options;
  CLI::App app("", "sluice");
  set_help(app, kSluiceHelp);
  app.set_version_flag("--version", std::string("sluice ") + kVersion);
  app.require_subcommand(1);
  CLI::App* policy = app.add_subcommand("policy");
  set_help(*policy, kPolicyHelp);
  policy->require_subcommand(1);
  add_lint(*policy, options);
  add_publish(*policy, options.publish);
  add_proxy(app, options.proxy);
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 wants them
    app.parse(reversed);
  } catch (const CLI::Success& success) {
    (void)app.exit(success, out, err);
    return kExitDone;
  } catch (const CLI::ParseError& error) {
    // A word that is no command shows up as "a command is missing", which does not name the word.
    std::vector<std::string> unknown = app.remaining(true);
    bool misspelt = error.get_name() == "RequiredError" && !unknown.empty();
    err << "sluice: " << (misspelt ? "not understood: " + unknown.front() : std::string(error.what())) << '\n';
    err << "Try: sluice --help\n";
    return kExitUsage;
  }
  if (app.got_subcommand("proxy")) return proxy(options.proxy, out, err);
  return run_policy(*policy, options, out, err);
}

}  // namespace sluice::cli
