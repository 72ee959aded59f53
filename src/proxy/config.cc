#include "proxy/config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "proxy/config_checks.h"
#include "proxy/setting_table.h"

namespace sluice::proxy {
namespace {

// Reads one text into one LoadedConfig.
class Reader {
 public:
  Reader(LoadedConfig& loaded, std::string name) : loaded_(loaded), name_(std::move(name)) {}

  // In this order: exceptions begin with what [pool] and the environment say.
  [[nodiscard]] bool read_toml(std::string_view text);
  void read_environment(Environment environment);
  void read_exceptions();
  [[nodiscard]] SettingOrigins& origins() noexcept { return origins_; }

 private:
  ConfigFinding& add(const toml::node& node, std::string path, std::string message, std::string fix = "");
  void read_section(const SettingSection& section, const toml::node& node);
  void read_exception(const toml::node& node, const std::string& path);
  void read_value(const SettingRow& row, const toml::node& node, const std::string& path, PoolConfig& pool);
  void unknown_key(const toml::key& key, const std::string& path, std::vector<std::string_view> names);
  void read_variable(std::string_view name, std::string_view value);

  LoadedConfig& loaded_;
  std::string name_;
  toml::table root_;
  SettingOrigins origins_;
};

ConfigFinding at(const std::string& where, const toml::source_position& position, std::string path, std::string message,
                 std::string fix) {
  return {where, position.line, position.column, std::move(path), std::move(message), std::move(fix), false};
}

// What a value is, for "found …".
std::string shown(const toml::node& node) {
  if (node.is_table()) return "a table";
  if (node.is_array()) return "a list";
  std::string text;
  if (node.is_string()) {
    text = '"' + node.as_string()->get() + '"';
  } else {
    std::ostringstream out;
    out << toml::node_view(node);
    text = out.str();
  }
  constexpr std::size_t kMost = 60;
  if (text.size() > kMost) text = text.substr(0, kMost) + "…";
  return text;
}

// Whether the node is of the row's kind; its value where it is.
bool take(const SettingRow& row, const toml::node& node, SettingValue& value) {
  switch (row.kind) {
    case SettingKind::boolean:
      if (!node.is_boolean()) return false;
      value.number = node.as_boolean()->get() ? 1 : 0;
      return true;
    case SettingKind::integer:
      if (!node.is_integer()) return false;
      value.number = node.as_integer()->get();
      return in_range(row, value.number);
    case SettingKind::list:
      if (!node.is_array()) return false;
      for (const toml::node& each : *node.as_array()) {
        if (!each.is_string()) return false;
        value.list.push_back(each.as_string()->get());
      }
      return true;
    case SettingKind::text:
    case SettingKind::choice:
      break;
  }
  return node.is_string() && parse_value(row, node.as_string()->get(), value);
}

ConfigFinding& Reader::add(const toml::node& node, std::string path, std::string message, std::string fix) {
  loaded_.findings.push_back(at(name_, node.source().begin, std::move(path), std::move(message), std::move(fix)));
  return loaded_.findings.back();
}

void Reader::unknown_key(const toml::key& key, const std::string& path, std::vector<std::string_view> names) {
  std::string_view meant = nearest(key.str(), names);
  std::string fix = meant.empty() ? "remove it; config/sluice.example.toml lists every setting"
                                  : "write " + std::string(meant) + ", or remove it";
  std::string message = "unknown setting";
  if (!meant.empty()) message += " (did you mean " + std::string(meant) + "?)";
  loaded_.findings.push_back(at(name_, key.source().begin, path, message, fix));
}

void Reader::read_value(const SettingRow& row, const toml::node& node, const std::string& path, PoolConfig& pool) {
  SettingValue value;
  if (!take(row, node, value)) {
    std::string found = row.traits.secret ? "something else" : shown(node);
    add(node, path, "must be " + expected_text(row) + ", found " + found);
    return;
  }
  row.write(loaded_.config, pool, value);
  const toml::source_position& begin = node.source().begin;
  origins_[path] = {name_, begin.line, begin.column};
}

void Reader::read_section(const SettingSection& section, const toml::node& node) {
  std::string name(section.name);
  if (!node.is_table()) {
    add(node, name, "is a section, not a value", "write [" + name + "] and its settings below it");
    return;
  }
  for (const auto& [key, value] : *node.as_table()) {
    std::string path = name + "." + std::string(key.str());
    const SettingRow* row = find_setting(section, key.str());
    if (row != nullptr) {
      read_value(*row, value, path, loaded_.config.pool);
      continue;
    }
    std::vector<std::string_view> names;
    for (const SettingRow& each : section.rows) names.push_back(each.key);
    unknown_key(key, path, names);
  }
}

void Reader::read_exception(const toml::node& node, const std::string& path) {
  PoolException exception;
  exception.pool = loaded_.config.pool;
  const SettingSection& section = *find_section("pool");
  bool good = true;
  for (const auto& [key, value] : *node.as_table()) {
    std::string inner = path + "." + std::string(key.str());
    if (key == "database" || key == "user") {
      if (!value.is_string() || value.as_string()->get().empty()) {
        add(value, inner, "must be a name, found " + shown(value), "write a name, or \"*\" for any");
        good = false;
      } else {
        (key == "database" ? exception.database : exception.user) = value.as_string()->get();
      }
      continue;
    }
    const SettingRow* row = find_setting(section, key.str());
    if (row != nullptr && row->traits.all_pools) {
      add(value, inner, "bounds all pools together", "set it in [pool]");
    } else if (row != nullptr) {
      read_value(*row, value, inner, exception.pool);
    } else {
      std::vector<std::string_view> names{"database", "user"};
      for (const SettingRow& each : section.rows) names.push_back(each.key);
      unknown_key(key, inner, names);
    }
  }
  if (!good) return;
  if (exception.database == "*" && exception.user == "*") {
    add(node, path, "names neither a database nor a user", "name one of them, or set its values in [pool]");
    return;
  }
  for (std::size_t i = 0; i < loaded_.config.pools.size(); i++) {
    const PoolException& other = loaded_.config.pools[i];
    if (other.database != exception.database || other.user != exception.user) continue;
    add(node, path, "is for the same database and user as pools[" + std::to_string(i) + "]", "keep one of the two");
    return;
  }
  loaded_.config.pools.push_back(std::move(exception));
}

void Reader::read_exceptions() {
  const toml::node* found = root_.get("pools");
  if (found == nullptr || (found->is_array() && found->as_array()->empty())) return;
  const toml::node& node = *found;
  if (!node.is_array_of_tables()) {
    add(node, "pools", "is a list of tables", "write [[pools]] and the settings of one exception below it");
    return;
  }
  const toml::array& exceptions = *node.as_array();
  if (exceptions.size() > kMaxPoolExceptions) {
    add(node, "pools",
        "has " + std::to_string(exceptions.size()) + " entries, at most " + std::to_string(kMaxPoolExceptions) +
            " are allowed");
    return;
  }
  for (std::size_t i = 0; i < exceptions.size(); i++) {
    read_exception(exceptions[i], "pools[" + std::to_string(i) + "]");
  }
}

bool Reader::read_toml(std::string_view text) {
  try {
    root_ = toml::parse(text, name_);
  } catch (const toml::parse_error& error) {
    loaded_.findings.push_back(at(name_, error.source().begin, "", std::string(error.description()), ""));
    return false;
  }
  for (const auto& [key, node] : root_) {
    const SettingSection* section = find_section(key.str());
    if (section != nullptr) {
      read_section(*section, node);
    } else if (key != "pools") {
      std::vector<std::string_view> names{"pools"};
      for (const SettingSection& each : setting_sections()) names.push_back(each.name);
      unknown_key(key, std::string(key.str()), names);
    }
  }
  return true;
}

// A variable for a setting that nobody knows is an error only if it begins like one of a section: Kubernetes puts
// SLUICE_PROXY_SERVICE_HOST and the like into the environment wherever a service is called sluice-proxy.
void Reader::read_variable(std::string_view name, std::string_view value) {
  std::vector<std::string> names;
  bool of_section = false;
  for (const SettingSection& section : setting_sections()) {
    std::string beginning = environment_name(section, section.rows.front());
    beginning.resize(beginning.size() - section.rows.front().key.size());
    of_section = of_section || name.starts_with(beginning);
    for (const SettingRow& row : section.rows) {
      names.push_back(environment_name(section, row));
      if (names.back() != name) continue;
      std::string path = std::string(section.name) + "." + std::string(row.key);
      SettingValue parsed;
      if (parse_value(row, value, parsed)) {
        row.write(loaded_.config, loaded_.config.pool, parsed);
        origins_[path] = {std::string(name), 0, 0};
      } else {
        std::string found = row.traits.secret ? "" : ", found \"" + std::string(value) + "\"";
        loaded_.findings.push_back({std::string(name), 0, 0, path, "must be " + expected_text(row) + found, "", false});
      }
      return;
    }
  }
  if (!of_section) return;
  std::vector<std::string_view> views(names.begin(), names.end());
  std::string_view meant = nearest(name, views);
  loaded_.findings.push_back({std::string(name), 0, 0, "", "no such setting",
                              meant.empty() ? "unset it" : "did you mean " + std::string(meant) + "?", false});
}

void Reader::read_environment(Environment environment) {
  if (environment == nullptr) return;
  for (; *environment != nullptr; environment++) {
    std::string_view entry(*environment);
    std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos || !entry.starts_with(kEnvironmentPrefix)) continue;
    read_variable(entry.substr(0, equals), entry.substr(equals + 1));
  }
}

LoadedConfig read(std::string_view text, const std::string& name, Environment environment, bool look_at_files) {
  LoadedConfig loaded;
  Reader reader(loaded, name);
  // Of a text that is no TOML nothing else is worth saying.
  if (!reader.read_toml(text)) return loaded;
  reader.read_environment(environment);
  reader.read_exceptions();
  check_config(loaded.config, reader.origins(), name, loaded.findings);
  if (look_at_files && loaded.ok()) check_files(loaded.config, reader.origins(), name, loaded.findings);
  std::ranges::stable_sort(loaded.findings, {}, &ConfigFinding::line);
  return loaded;
}

LoadedConfig unreadable(const std::string& file, const std::string& reason) {
  LoadedConfig loaded;
  loaded.findings.push_back({file, 0, 0, "", reason, "", false});
  return loaded;
}

}  // namespace

const PoolConfig& Config::pool_for(std::string_view database, std::string_view user) const noexcept {
  const PoolException* best = nullptr;
  int best_rank = 0;
  for (const PoolException& each : pools) {
    bool any_database = each.database == "*";
    bool any_user = each.user == "*";
    if ((!any_database && each.database != database) || (!any_user && each.user != user)) continue;
    int rank = (any_user ? 0 : 2) + (any_database ? 0 : 1);
    if (rank <= best_rank) continue;
    best = &each;
    best_rank = rank;
  }
  return best == nullptr ? pool : best->pool;
}

std::string ConfigFinding::text() const {
  std::string result = where.empty() ? "(defaults)" : where;
  if (line > 0) result += ":" + std::to_string(line) + ":" + std::to_string(column);
  result += warning ? ": warning: " : ": error: ";
  if (!path.empty()) result += path + ": ";
  result += message;
  // A file's text is quoted here: a terminal must not obey it.
  std::ranges::replace_if(
      result, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, '?');
  if (!fix.empty()) result += "\n    fix: " + fix;
  return result;
}

bool LoadedConfig::ok() const noexcept {
  return std::ranges::all_of(findings, [](const ConfigFinding& each) { return each.warning; });
}

LoadedConfig read_config(std::string_view text, const std::string& name, Environment environment) {
  return read(text, name, environment, false);
}

LoadedConfig load_config(const std::string& file, Environment environment) {
  if (file.empty()) return read("", "", environment, true);
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  std::string text(kMaxConfigBytes + 1, '\0');
  if (!in.read(text.data(), static_cast<std::streamsize>(text.size())) && in.gcount() == 0 && !in.eof()) {
    return unreadable(file, errno != 0 ? std::strerror(errno) : "cannot be read");
  }
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > kMaxConfigBytes) {
    return unreadable(file,
                      "is larger than " + std::to_string(kMaxConfigBytes) + " bytes, which no configuration needs");
  }
  return read(text, file, environment, true);
}

std::vector<std::string> needs_restart(const Config& running, const Config& loaded) {
  std::vector<std::string> result;
  for (const SettingSection& section : setting_sections()) {
    for (const SettingRow& row : section.rows) {
      if (!row.traits.restart || row.read(running, running.pool) == row.read(loaded, loaded.pool)) continue;
      result.push_back(std::string(section.name) + "." + std::string(row.key));
    }
  }
  return result;
}

}  // namespace sluice::proxy
