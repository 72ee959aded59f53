// Settings as text: their values, what is expected of them, their names in the environment, and the two documents that
// are made from the table.
#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <numeric>
#include <utility>

#include "proxy/setting_table.h"

namespace sluice::proxy {
namespace {

std::string upper(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return result;
}

// A TOML string. Values are the operator's own text, so escaping is for quotes, backslashes and control characters
// only.
std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      result += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      constexpr std::string_view kHex = "0123456789abcdef";
      auto byte = static_cast<unsigned char>(c);
      result += "\\u00";
      result += {kHex[byte >> 4U], kHex[byte & 15U]};
    } else {
      result += c;
    }
  }
  return result + '"';
}

std::string_view unit_of(std::string_view key) {
  if (key.ends_with("_ms")) return "milliseconds";
  if (key.ends_with("_s")) return "seconds";
  if (key.ends_with("_bytes")) return "bytes";
  return "";
}

// Distance of two names: how many letters to insert, drop or change.
std::size_t distance(std::string_view left, std::string_view right) {
  std::vector<std::size_t> row(right.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < left.size(); i++) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < right.size(); j++) {
      std::size_t changed = diagonal + (left[i] == right[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

std::string range_text(const SettingRow& row) {
  return std::to_string(row.minimum) + " to " + std::to_string(row.maximum);
}

// A comment, broken at blanks so that no line is longer than the tree's.
std::string comment(std::string text) {
  constexpr std::size_t kWidth = 118;
  std::string result;
  while (!text.empty()) {
    std::size_t end = text.size();
    if (end > kWidth) {
      end = text.rfind(' ', kWidth);
      if (end == std::string::npos || end == 0) end = std::min(kWidth, text.size());
    }
    result += "# " + text.substr(0, end) + "\n";
    text.erase(0, end);
    text.erase(0, text.find_first_not_of(' '));
  }
  return result;
}

}  // namespace

std::string environment_name(const SettingSection& section, const SettingRow& row) {
  return kEnvironmentPrefix + upper(section.name) + "_" + upper(row.key);
}

std::string value_text(const SettingRow& row, const SettingValue& value) {
  switch (row.kind) {
    case SettingKind::text:
      return row.traits.secret && !value.text.empty() ? "(secret)" : quoted(value.text);
    case SettingKind::list: {
      std::string result = "[";
      for (const std::string& each : value.list) result += (result.size() > 1 ? ", " : "") + quoted(each);
      return result + "]";
    }
    case SettingKind::boolean:
      return value.number != 0 ? "true" : "false";
    case SettingKind::integer:
      break;
    case SettingKind::choice:
      for (const SettingChoice& each : row.choices) {
        if (each.value == value.number) return quoted(each.name);
      }
      break;
  }
  if (row.key == "unix_mode") {
    std::string digits;
    for (std::int64_t left = value.number; left > 0; left /= 8) digits.insert(0, 1, static_cast<char>('0' + left % 8));
    return "0o" + (digits.empty() ? "0" : digits);
  }
  return std::to_string(value.number);
}

std::string expected_text(const SettingRow& row) {
  switch (row.kind) {
    case SettingKind::text:
      return "a text";
    case SettingKind::list:
      return "a list of texts";
    case SettingKind::boolean:
      return "true or false";
    case SettingKind::integer: {
      std::string_view unit = unit_of(row.key);
      return "a whole number from " + range_text(row) + (unit.empty() ? "" : " (" + std::string(unit) + ")");
    }
    case SettingKind::choice:
      break;
  }
  std::string result = "one of";
  for (const SettingChoice& each : row.choices)
    result += (&each == row.choices.data() ? " " : ", ") + quoted(each.name);
  return result;
}

bool in_range(const SettingRow& row, std::int64_t number) noexcept {
  return number >= row.minimum && number <= row.maximum;
}

bool parse_value(const SettingRow& row, std::string_view text, SettingValue& value) {
  switch (row.kind) {
    case SettingKind::text:
      value.text = text;
      return true;
    case SettingKind::list:
      value.list.clear();
      while (!text.empty()) {
        std::string_view item = text.substr(0, text.find(','));
        text.remove_prefix(std::min(item.size() + 1, text.size()));
        item.remove_prefix(std::min(item.find_first_not_of(' '), item.size()));
        item = item.substr(0, item.find_last_not_of(' ') + 1);
        if (item.empty()) return false;
        value.list.emplace_back(item);
      }
      return true;
    case SettingKind::boolean:
      value.number = text == "true" ? 1 : 0;
      return text == "true" || text == "false";
    case SettingKind::integer: {
      int base = text.starts_with("0o") ? 8 : 10;
      if (base == 8) text.remove_prefix(2);
      auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value.number, base);
      return error == std::errc() && end == text.data() + text.size() && in_range(row, value.number);
    }
    case SettingKind::choice:
      break;
  }
  for (const SettingChoice& each : row.choices) {
    if (each.name != text) continue;
    value.number = each.value;
    return true;
  }
  return false;
}

std::string_view nearest(std::string_view written, std::span<const std::string_view> names) {
  std::string_view best;
  std::size_t least = std::max<std::size_t>(written.size() / 3, 1) + 1;
  for (std::string_view name : names) {
    std::size_t found = distance(written, name);
    if (found < least) {
      least = found;
      best = name;
    }
  }
  return best;
}

std::string example_file() {
  const Config fresh;
  std::string result =
      comment("Every setting of `sluice proxy --config FILE` with its default. A file needs only what differs.");
  result += comment(
      "Each can be given in the environment as well, which wins over the file: SLUICE_PROXY_SECTION_KEY, as in " +
      environment_name(*find_section("pool"), *find_setting(*find_section("pool"), "max_size")) +
      "=20; lists with commas.");
  result +=
      comment("Times end in _ms or _s, sizes in _bytes. SIGHUP reads the file again, except for what says (restart).");
  for (const SettingSection& section : setting_sections()) {
    result += "\n" + comment(std::string(section.meaning)) + "[" + std::string(section.name) + "]\n";
    for (const SettingRow& row : section.rows) {
      std::string text(row.meaning);
      if (row.kind == SettingKind::integer) text += "; " + range_text(row);
      if (row.kind == SettingKind::choice) text += "; " + expected_text(row);
      if (row.traits.restart) text += " (restart)";
      if (row.traits.all_pools) text += " (all pools together)";
      result += comment(text) + std::string(row.key) + " = " + value_text(row, row.read(fresh, fresh.pool)) + "\n";
    }
  }
  result += "\n" + comment(
                       "Exceptions: any key of [pool] but those for all pools together. What is not given is as in "
                       "[pool]. One for both "
                       "a database and a user wins over one for the user, that over one for the database.");
  return result + "# [[pools]]\n# database = \"reports\"\n# user = \"batch\"\n# max_size = 5\n";
}

std::string settings_page() {
  const Config fresh;
  std::string result =
      "# Settings of the proxy\n\nWhat `sluice proxy --config FILE` reads, in TOML. The same as "
      "`config/sluice.example.toml`, "
      "for reading. Both are made from one table in the code, and a test holds them to it.\n\nAn environment variable "
      "`SLUICE_PROXY_SECTION_KEY` wins over the file. *restart* marks what SIGHUP cannot change; *all pools* what "
      "`[[pools]]` cannot override.\n";
  for (const SettingSection& section : setting_sections()) {
    result += "\n## [" + std::string(section.name) + "]\n\n" + std::string(section.meaning) +
              "\n\n| key | default | allowed | meaning |\n|---|---|---|---|\n";
    for (const SettingRow& row : section.rows) {
      std::string allowed = row.kind == SettingKind::integer ? range_text(row) : expected_text(row);
      std::string notes = row.traits.restart ? " *restart*" : row.traits.all_pools ? " *all pools*" : "";
      result += "| `" + std::string(row.key) + "` | `" + value_text(row, row.read(fresh, fresh.pool)) + "` | " +
                allowed + " | " + std::string(row.meaning) + notes + " |\n";
    }
  }
  return result;
}

}  // namespace sluice::proxy
