#include "proxy/statements.h"

#include <gtest/gtest.h>

namespace sluice::proxy {
namespace {

StatementKey key_of(std::string_view text) { return {text_digest(text, {}), {}}; }

TEST(ClientStatements, ANameIsFreeFromCloseOnAndTakenAgainWhenTheCloseIsSkipped) {
  ClientStatements statements;
  std::uint32_t slot = statements.add("s", "select 1", {});
  statements.hide(slot);
  EXPECT_EQ(statements.find("s"), ClientStatements::kNone);
  EXPECT_EQ(statements.closing(), 1U);
  statements.unhide(slot);
  EXPECT_EQ(statements.find("s"), slot);
  EXPECT_EQ(statements.closing(), 0U);
  statements.hide(slot);
  statements.forget(slot);
  statements.forget(slot);
  EXPECT_EQ(statements.closing(), 0U);
  EXPECT_EQ(statements.bytes(), 0U);
  EXPECT_EQ(statements.size(), 0U);
  EXPECT_EQ(statements.add("t", "select 2", {}), slot) << "slots are used again";
}

TEST(ClientStatements, NamesAreComparedAsFarAsTheServerDoes) {
  ClientStatements statements;
  std::string name(kStatementNameBytes, 'n');
  std::uint32_t slot = statements.add(name + "1", "select 1", {});
  EXPECT_EQ(statements.find(name + "2"), slot);
  EXPECT_EQ(statements.find(name.substr(1)), ClientStatements::kNone);
}

TEST(ClientStatements, WhatIsNotConfirmedOutlivesAClear) {
  ClientStatements statements;
  std::uint32_t parsed = statements.add("a", "select 1", {});
  statements.at(parsed).parsed = true;
  std::uint32_t pending = statements.add("b", "select 2", {});
  statements.forget_parsed();
  EXPECT_EQ(statements.find("a"), ClientStatements::kNone);
  EXPECT_EQ(statements.find("b"), pending);
}

TEST(ServerStatements, TheLeastRecentlyUsedGoesFirstAndNeverOneInTheMaking) {
  ServerStatements statements;
  std::uint64_t first = statements.add(key_of("1"), 10, 1).number;
  std::uint64_t second = statements.add(key_of("2"), 10, 1).number;
  std::uint64_t third = statements.add(key_of("3"), 10, 1).number;
  statements.parsed(second);
  statements.parsed(third);
  EXPECT_EQ(statements.evict(3, 100), 0U);
  ASSERT_NE(statements.find(key_of("2")), nullptr);
  EXPECT_EQ(statements.evict(2, 100), third);
  EXPECT_EQ(statements.evict(3, 19), second);
  EXPECT_EQ(statements.evict(0, 0), 0U) << "the first is not parsed yet";
  statements.erase(first);
  statements.erase(first);
  EXPECT_EQ(statements.bytes(), 0U);
  EXPECT_EQ(statements.size(), 0U);
}

TEST(ServerStatements, ANumberIsNotUsedTwice) {
  ServerStatements statements;
  std::uint64_t number = statements.add(key_of("1"), 10, 1).number;
  statements.parsed(number);
  statements.forget_parsed();
  EXPECT_EQ(statements.find(key_of("1")), nullptr);
  EXPECT_GT(statements.add(key_of("1"), 10, 1).number, number);
  EXPECT_EQ(ServerStatementName(18446744073709551615U).view(), "sluice_18446744073709551615");
}

TEST(StatementKeys, TextAndTypesAreBothPartOfThem) {
  std::uint8_t types[4] = {0, 0, 0, 23};
  EXPECT_NE(text_digest("select $1", {}), text_digest("select $1", types));
  StatementKey other = key_of("select 1");
  other.settings[0] = 1;
  EXPECT_FALSE(other == key_of("select 1"));
}

}  // namespace
}  // namespace sluice::proxy
