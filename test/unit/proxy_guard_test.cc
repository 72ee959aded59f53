#include "proxy/guard.h"

#include <gtest/gtest.h>

namespace sluice::proxy {
namespace {

bool allows(std::string_view text) {
  Guard guard;
  return guard.add(text) && guard.finish();
}

TEST(Guard, FindsARefusedStatementWhereverTheTextIsCut) {
  std::string_view text = "select ';set' /* ; */; $q$ ; $q$; -- x\n SeT a = 1";
  for (std::size_t cut = 0; cut <= text.size(); cut++) {
    Guard guard;
    EXPECT_FALSE(guard.add(text.substr(0, cut)) && guard.add(text.substr(cut)) && guard.finish()) << cut;
    EXPECT_EQ(guard.refused(), "SET");
  }
}

TEST(Guard, IsNotMisledByQuotesAndComments) {
  EXPECT_TRUE(allows("select 'set a=1; reset all'"));
  EXPECT_TRUE(allows("select $x$; listen y $x$"));
  EXPECT_TRUE(allows("select 1 /* ; listen y */ -- ; reset all"));
  EXPECT_TRUE(allows("select \"; set\" from t"));
  EXPECT_FALSE(allows("select '\\'; set a=1 --'"));
}

TEST(Guard, RefusesABodyWhoseEndIsAGuess) {
  EXPECT_FALSE(allows("create function f() returns int begin atomic select 1; end"));
}

TEST(Guard, PreparedTransactionsLeaveNothingOnTheConnection) { EXPECT_TRUE(allows("prepare transaction 'x'")); }

}  // namespace
}  // namespace sluice::proxy
