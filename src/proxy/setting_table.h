// Every setting of the configuration in one table: section, key, kind, limits, unit, meaning, and where its value
// lives. Owns nothing; a default is whatever a fresh Config has. The parser, the environment, the checks of a reload,
// the example file and the page of documentation all walk this table, so that a setting is written down once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/config.h"

namespace sluice::proxy {

enum class SettingKind : std::uint8_t { text, list, boolean, integer, choice };

struct SettingValue {
  std::int64_t number = 0;        // boolean, integer, and a choice's value
  std::string text;               // text
  std::vector<std::string> list;  // list

  bool operator==(const SettingValue&) const = default;
};

struct SettingChoice {
  std::string_view name;
  std::int64_t value;
};

// What else holds of a setting.
struct SettingTraits {
  bool restart = false;    // a running process cannot change it
  bool all_pools = false;  // of [pool], but not to be overridden in [[pools]]
  bool secret = false;     // its value is never shown
};

struct SettingRow {
  std::string_view key;
  SettingKind kind;
  std::int64_t minimum = 0;  // integers only, in the unit of the key's suffix
  std::int64_t maximum = 0;
  std::string_view meaning;  // for the operator; says what 0 or -1 means where that is special
  std::span<const SettingChoice> choices;
  SettingTraits traits;
  SettingValue (*read)(const Config& config, const PoolConfig& pool);
  void (*write)(Config& config, PoolConfig& pool, const SettingValue& value);
};

struct SettingSection {
  std::string_view name;
  std::string_view meaning;
  std::span<const SettingRow> rows;
};

// In the order of the example file.
[[nodiscard]] std::span<const SettingSection> setting_sections() noexcept;
// Null where there is none.
[[nodiscard]] const SettingSection* find_section(std::string_view name) noexcept;
[[nodiscard]] const SettingRow* find_setting(const SettingSection& section, std::string_view key) noexcept;

// "SLUICE_PROXY_POOL_MAX_SIZE"
[[nodiscard]] std::string environment_name(const SettingSection& section, const SettingRow& row);
// The value as TOML; `(secret)` for one that is not to be shown and not empty.
[[nodiscard]] std::string value_text(const SettingRow& row, const SettingValue& value);
// "a whole number from 1 to 1000 (milliseconds)", "one of strict, compatible"
[[nodiscard]] std::string expected_text(const SettingRow& row);
// Stores what a text says, as the environment has it; lists are separated by commas. False if the text is not what
// expected_text() says.
[[nodiscard]] bool parse_value(const SettingRow& row, std::string_view text, SettingValue& value);
[[nodiscard]] bool in_range(const SettingRow& row, std::int64_t number) noexcept;

// config/sluice.example.toml and docs/proxy-settings.md.
[[nodiscard]] std::string example_file();
[[nodiscard]] std::string settings_page();

// The closest of the names to what was written, or empty where none is close.
[[nodiscard]] std::string_view nearest(std::string_view written, std::span<const std::string_view> names);

}  // namespace sluice::proxy
