#include "proxy/setting_table.h"

#include <gtest/gtest.h>

#include <set>

namespace sluice::proxy {
namespace {

TEST(ProxySettingTable, NamesAreUniqueAlsoInTheEnvironment) {
  std::set<std::string> variables;
  std::set<std::string_view> sections;
  for (const SettingSection& section : setting_sections()) {
    EXPECT_TRUE(sections.insert(section.name).second) << section.name;
    EXPECT_FALSE(section.rows.empty()) << section.name;
    for (const SettingRow& row : section.rows) {
      EXPECT_TRUE(variables.insert(environment_name(section, row)).second) << row.key;
    }
  }
}

TEST(ProxySettingTable, EachDefaultIsAllowedAndCanBeWrittenBack) {
  const Config fresh;
  for (const SettingSection& section : setting_sections()) {
    for (const SettingRow& row : section.rows) {
      SettingValue value = row.read(fresh, fresh.pool);
      if (row.kind == SettingKind::integer) {
        EXPECT_TRUE(in_range(row, value.number)) << row.key << " " << value.number;
      }
      if (row.kind == SettingKind::choice) {
        EXPECT_NE(value_text(row, value).front(), '0') << row.key;
        EXPECT_EQ(value_text(row, value).front(), '"') << row.key;
      }
      Config changed;
      row.write(changed, changed.pool, value);
      EXPECT_EQ(row.read(changed, changed.pool), value) << row.key;
    }
  }
}

TEST(ProxySettingTable, RowsOfPoolsWriteTheExceptionTheyAreGiven) {
  Config config;
  PoolConfig exception;
  const SettingRow& row = *find_setting(*find_section("pool"), "max_size");
  row.write(config, exception, {3, "", {}});
  EXPECT_EQ(exception.pool.max_size, 3U);
  EXPECT_NE(config.pool.pool.max_size, 3U);
}

TEST(ProxySettingTable, EverySettingHasAMeaningAndAUnitWhereItIsATime) {
  for (const SettingSection& section : setting_sections()) {
    for (const SettingRow& row : section.rows) {
      EXPECT_FALSE(row.meaning.empty()) << row.key;
      EXPECT_EQ(row.meaning.find('|'), std::string_view::npos) << "it would break the page's table: " << row.key;
      bool time = row.key.find("timeout") != std::string_view::npos || row.key.find("ttl") != std::string_view::npos;
      if (time) {
        EXPECT_TRUE(row.key.ends_with("_ms")) << row.key;
      }
    }
  }
}

TEST(ProxySettingTable, ListsAreReadWithAndWithoutBlanks) {
  const SettingRow& row = *find_setting(*find_section("listen"), "addresses");
  SettingValue value;
  EXPECT_TRUE(parse_value(row, "a, b,c ", value));
  EXPECT_EQ(value.list, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_TRUE(parse_value(row, "", value));
  EXPECT_TRUE(value.list.empty());
  EXPECT_FALSE(parse_value(row, "a,,b", value));
  EXPECT_FALSE(parse_value(row, ",", value));
}

TEST(ProxySettingTable, NumbersAreReadWholeOrNotAtAll) {
  const SettingRow& row = *find_setting(*find_section("pool"), "max_size");
  SettingValue value;
  for (const char* text : {"", "x", "1x", "1.5", " 1", "1 ", "+1", "0x10", "99999999999999999999", "0o", "0o8"}) {
    EXPECT_FALSE(parse_value(row, text, value)) << text;
  }
  EXPECT_TRUE(parse_value(row, "0o17", value));
  EXPECT_EQ(value.number, 15);
}

TEST(ProxySettingTable, ValuesAreShownAsTomlAndSecretsNotAtAll) {
  const SettingSection& admin = *find_section("admin");
  EXPECT_EQ(value_text(*find_setting(admin, "token"), {0, "hunter2", {}}), "(secret)");
  EXPECT_EQ(value_text(*find_setting(admin, "token"), {}), "\"\"");
  EXPECT_EQ(value_text(*find_setting(admin, "address"), {0, "a\"b\\c\n\x7f", {}}), R"("a\"b\\c\u000a\u007f")");
  const SettingSection& listen = *find_section("listen");
  EXPECT_EQ(value_text(*find_setting(listen, "unix_mode"), {0777, "", {}}), "0o777");
  EXPECT_EQ(value_text(*find_setting(listen, "unix_mode"), {0, "", {}}), "0o0");
  EXPECT_EQ(value_text(*find_setting(listen, "addresses"), {0, "", {"a", "b"}}), R"(["a", "b"])");
}

TEST(ProxySettingTable, TheNearestNameIsFoundOnlyIfItIsNear) {
  const std::string_view names[] = {"max_size", "max_waiters", "mode"};
  EXPECT_EQ(nearest("max_sise", names), "max_size");
  EXPECT_EQ(nearest("maxsize", names), "max_size");
  EXPECT_EQ(nearest("mod", names), "mode");
  EXPECT_EQ(nearest("entirely_different", names), "");
  EXPECT_EQ(nearest("", names), "");
}

}  // namespace
}  // namespace sluice::proxy
