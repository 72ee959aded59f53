#include "proxy/startup_parameters.h"

#include <algorithm>
#include <cstdint>

#include "wire/startup_options.h"

namespace sluice::proxy {
namespace {

constexpr std::string_view kProtocolOptionPrefix = "_pq_.";
constexpr std::uint32_t kMaxMilliseconds = 2147483647;  // the server's int

// What the strict profile takes besides user and database.
constexpr std::string_view kTimeLimits[] = {"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"};

// What the compatible profile cannot give each client of a shared connection.
constexpr std::string_view kOfProcessStart[] = {
    "ignore_system_indexes", "jit_debugging_support", "jit_profiling_support", "local_preload_libraries",
    "log_connections",       "log_disconnections",    "post_auth_delay",       "session_preload_libraries",
};
constexpr std::string_view kOfTransaction[] = {"transaction_isolation", "transaction_read_only",
                                               "transaction_deferrable", "pg_sluice.ticket", "seed"};
constexpr std::string_view kOfSession[] = {"session_authorization"};

char lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

template <std::size_t size>
bool is_among(std::string_view name, const std::string_view (&names)[size]) noexcept {
  return std::any_of(names, names + size, [&](std::string_view known) { return same_setting(name, known); });
}

bool is_name_start(char c) noexcept { return (lower(c) >= 'a' && lower(c) <= 'z') || c == '_' || (c & 0x80) != 0; }
bool is_name_part(char c) noexcept { return is_name_start(c) || (c >= '0' && c <= '9') || c == '$'; }

// Identifiers with dots between them. Nothing else can be the name of a setting.
bool is_setting_name(std::string_view name) noexcept {
  bool begins = true;
  for (char c : name) {
    if (begins ? !is_name_start(c) : !is_name_part(c) && c != '.') return false;
    begins = c == '.';
  }
  return !begins;
}

std::string quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

StartupRefusal unsupported(std::string_view name, std::string_view hint) {
  return {"0A000", "unsupported startup parameter: " + std::string(name), std::string(hint)};
}

// As the server compares encodings: letters and digits only, without case.
bool is_utf8(std::string_view encoding) {
  std::string plain;
  for (char c : encoding) {
    if ((lower(c) >= 'a' && lower(c) <= 'z') || (c >= '0' && c <= '9')) plain += lower(c);
  }
  return plain == "utf8" || plain == "unicode";
}

// Digits only; without leading zeros afterwards, so that equal limits are equal texts.
bool read_milliseconds(std::string_view value, std::string& canonical) {
  if (value.empty() || value.size() > 10) return false;
  std::uint64_t number = 0;
  for (char c : value) {
    if (c < '0' || c > '9') return false;
    number = number * 10 + static_cast<std::uint64_t>(c - '0');
  }
  canonical = std::to_string(number);
  return number <= kMaxMilliseconds;
}

StartupRefusal add_setting(std::vector<Setting>& settings, std::string_view name, std::string_view value) {
  for (Setting& known : settings) {
    if (!same_setting(known.name, name)) continue;
    known = {std::string(name), std::string(value)};
    return {};
  }
  if (settings.size() == kMaxStartupSettings) {
    return {"54000", "more than " + std::to_string(kMaxStartupSettings) + " settings at startup", ""};
  }
  settings.push_back({std::string(name), std::string(value)});
  return {};
}

StartupRefusal strict_setting(std::vector<Setting>& settings, std::string_view name, std::string_view value) {
  if (same_setting(name, "application_name")) return add_setting(settings, name, value);
  if (same_setting(name, "client_encoding")) {
    if (!is_utf8(value)) return {"0A000", "unsupported client_encoding: " + std::string(value), "Use UTF8."};
    return add_setting(settings, name, "UTF8");
  }
  if (!is_among(name, kTimeLimits)) return unsupported(name, "This pool accepts few startup parameters.");
  std::string canonical;
  if (!read_milliseconds(value, canonical)) {
    return {"22023", "invalid value for parameter " + quoted(name) + ": " + quoted(value),
            "Write it in whole milliseconds, without a unit."};
  }
  return add_setting(settings, name, canonical);
}

StartupRefusal compatible_setting(std::vector<Setting>& settings, std::string_view name, std::string_view value) {
  if (is_among(name, kOfProcessStart)) {
    return unsupported(name, "It is fixed when a server process starts, and those are shared here.");
  }
  if (is_among(name, kOfTransaction)) return unsupported(name, "It belongs to a transaction: set it there.");
  if (is_among(name, kOfSession)) return unsupported(name, "Log in as that role instead.");
  if (!is_setting_name(name)) return {"42704", "unrecognized configuration parameter " + quoted(name), ""};
  return add_setting(settings, name, value);
}

StartupRefusal read_options(std::string_view options, std::vector<Setting>& settings) {
  std::string scratch(options.size(), '\0');
  wire::OptionsReader reader(options, scratch);
  std::string_view name;
  std::string_view value;
  for (;;) {
    switch (reader.next(name, value)) {
      case wire::OptionStep::setting: {
        StartupRefusal refusal = compatible_setting(settings, name, value);
        if (!refusal.sqlstate.empty()) return refusal;
        break;
      }
      case wire::OptionStep::end:
        return {};
      case wire::OptionStep::missing_value:
        return {"42601", "-c " + std::string(name) + " requires a value", ""};
      case wire::OptionStep::unknown_form:
        return {"42601", "invalid command-line argument for server process: " + std::string(name),
                "Only -c name=value and --name=value are accepted here."};
      case wire::OptionStep::no_room:
        return {"54000", "options are too long", ""};
    }
  }
}

std::string_view last_value(wire::Bytes parameters, std::string_view wanted) {
  wire::ParameterReader reader(parameters);
  std::string_view name;
  std::string_view value;
  std::string_view last;
  while (reader.next(name, value)) {
    if (name == wanted) last = value;
  }
  return last;
}

StartupRefusal problem_of(const wire::StartupSummary& summary, wire::Bytes parameters) {
  switch (summary.problem) {
    case wire::StartupProblem::none:
      return {};
    case wire::StartupProblem::no_user:
      return {"28000", "no PostgreSQL user name specified in startup packet", ""};
    case wire::StartupProblem::name_too_long:
      return {"42622", "user or database name is longer than 63 bytes", ""};
    case wire::StartupProblem::invalid_replication:
      return {"22023", "invalid value for parameter \"replication\": " + quoted(last_value(parameters, "replication")),
              "Valid values are: \"false\", 0, \"true\", 1, \"database\"."};
  }
  return {"08P01", "invalid startup packet", ""};
}

}  // namespace

bool same_setting(std::string_view left, std::string_view right) noexcept {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                    [](char a, char b) { return lower(a) == lower(b); });
}

std::string_view StartupParameters::application_name() const noexcept {
  for (const Setting& setting : settings) {
    if (same_setting(setting.name, "application_name")) return setting.value;
  }
  return {};
}

StartupRefusal read_startup_parameters(wire::Bytes parameters, Profile profile, bool allow_replication,
                                       StartupParameters& result) {
  bool strict = profile == Profile::strict;
  wire::StartupSummary summary = wire::summarize_startup(parameters);
  wire::ParameterReader reader(parameters);
  std::string_view name;
  std::string_view value;
  // Unsupported names first: whatever their value is, it does not matter.
  while (strict && reader.next(name, value)) {
    if (name == "options" || name == "replication")
      return unsupported(name, "This pool accepts few startup parameters.");
  }
  StartupRefusal refusal = problem_of(summary, parameters);
  if (!refusal.sqlstate.empty()) return refusal;
  if (summary.replication != wire::Replication::no && !allow_replication) {
    return unsupported("replication", "Connect to the server itself for replication.");
  }
  result.user = summary.user;
  result.database = summary.database;
  result.replication = summary.replication;
  result.settings.clear();
  refusal = read_options(summary.options, result.settings);
  reader = wire::ParameterReader(parameters);
  while (refusal.sqlstate.empty() && reader.next(name, value)) {
    if (name == "user" || name == "database" || name == "options" || name == "replication") continue;
    if (name.starts_with(kProtocolOptionPrefix)) continue;
    refusal = strict ? strict_setting(result.settings, name, value) : compatible_setting(result.settings, name, value);
  }
  return refusal;
}

}  // namespace sluice::proxy
