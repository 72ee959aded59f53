#include "proxy/settings.h"

#include <gtest/gtest.h>

namespace sluice::proxy {
namespace {

TEST(Settings, AreTheSameWhateverTheOrderTheyWereSetIn) {
  Settings one;
  one.set("a", "1");
  one.set("b", "2");
  Settings other;
  other.set("b", "x");
  other.set("c", "3");
  other.set("a", "1");
  EXPECT_FALSE(one.same_as(other));
  other.erase("c");
  other.set("b", "2");
  EXPECT_TRUE(one.same_as(other));
  EXPECT_EQ(one.digest(), other.digest());
  other.erase("unknown");
  EXPECT_TRUE(one.same_as(other));
  other.clear();
  EXPECT_EQ(other.fingerprint(), Settings().fingerprint());
}

TEST(Settings, NameAndValueDoNotRunIntoEachOther) {
  Settings one;
  one.set("ab", "c");
  Settings other;
  other.set("a", "bc");
  EXPECT_FALSE(one.same_as(other));
  EXPECT_NE(one.digest(), other.digest());
}

TEST(Settings, LiteralsMeanTheSameWithAnyStandardConformingStrings) {
  std::string sql;
  append_literal(sql, "it's");
  append_literal(sql, "a\\'b");
  EXPECT_EQ(sql, "'it''s'E'a\\\\''b'");
  sql.clear();
  append_identifier(sql, "a\"b");
  EXPECT_EQ(sql, "\"a\"\"b\"");
}

TEST(Settings, TheRoleComesOffFirstAndOnLast) {
  Settings have;
  have.set("role", "bob");
  have.set("zeta", "1");
  Settings want;
  want.set("role", "eve");
  want.set("zeta", "2");
  std::vector<std::string> asked;
  EXPECT_EQ(setup_query(have, want, asked),
            "RESET role;RESET \"zeta\";SELECT pg_catalog.set_config('zeta','2',false),"
            "pg_catalog.set_config('role','eve',false)");
  EXPECT_EQ(asked, (std::vector<std::string>{"zeta", "role"}));
  EXPECT_EQ(setup_query(want, want, asked), "");
  EXPECT_TRUE(asked.empty());
}

}  // namespace
}  // namespace sluice::proxy
