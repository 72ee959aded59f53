#include "cli/table.h"

#include <gtest/gtest.h>

#include <sstream>

namespace sluice::cli {
namespace {

TEST(CliTable, AlignsTextLeftAndNumbersRight) {
  Rows rows{{"kind", "now", "limit"}, {{"class", "7", "110"}, {"tenant \xC3\xA4", "110", std::nullopt}}};
  std::ostringstream out;
  print_table(out, rows);
  EXPECT_EQ(out.str(),
            "kind      now  limit\n"
            "--------  ---  -----\n"
            "class       7    110\n"
            "tenant \xC3\xA4  110      -\n");
}

TEST(CliTable, WithoutRowsOnlyTheHeadIsPrinted) {
  Rows rows{{"a"}, {}};
  std::ostringstream out;
  print_table(out, rows);
  EXPECT_EQ(out.str(), "a\n-\n");
}

}  // namespace
}  // namespace sluice::cli
