#include "cli/json.h"

#include <gtest/gtest.h>

#include <memory>

#include "unit/policy_fixture.h"

namespace sluice::cli {
namespace {

std::string round_trip(const std::string& json) {
  auto document = std::make_unique<policy::Document>();
  EXPECT_TRUE(policy::test::JsonReader(*document, json).read());
  return to_json(*document);
}

TEST(CliJson, WritesEveryKindOfValue) {
  const char* text = R"({"a": [1, -2.50, 1e3, true, false, null, "x"], "b": {}, "c": []})";
  EXPECT_EQ(round_trip(text), text);
}

TEST(CliJson, NumbersKeepTheirSourceText) {
  EXPECT_EQ(round_trip("123456789012345678901234567890"), "123456789012345678901234567890");
}

TEST(CliJson, EscapesQuotesBackslashesAndControlCharacters) {
  EXPECT_EQ(round_trip(R"({"a\"b": "c\\d\ne"})"), R"({"a\"b": "c\\d\u000ae"})");
}

TEST(CliJson, AnEmptyDocumentIsEmptyText) {
  auto document = std::make_unique<policy::Document>();
  document->clear();
  EXPECT_EQ(to_json(*document), "");
}

}  // namespace
}  // namespace sluice::cli
