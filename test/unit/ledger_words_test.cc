#include "ledger/words.h"

#include <gtest/gtest.h>

namespace sluice::ledger {
namespace {

TEST(LedgerWords, RowWordsComeBackAsTheyWerePacked) {
  for (const std::uint32_t in_use : {0U, 1U, 77U, (1U << 22) - 1}) {
    for (const std::uint32_t parked : {0U, 1U, (1U << 20) - 1}) {
      for (const std::uint32_t limit : {0U, 60U, policy::kNoLimit}) {
        const RowWord word = unpack_row(pack(RowWord{in_use, parked, limit}));
        EXPECT_EQ(word.in_use, in_use);
        EXPECT_EQ(word.parked, parked);
        EXPECT_EQ(word.limit, limit);
      }
    }
  }
}

TEST(LedgerWords, ClassWordsComeBackAsTheyWerePackedAlsoWhenFreeIsNegative) {
  for (const std::int32_t free : {-8388608, -4194304, -1, 0, 1, 110, 4194303, 8388607}) {
    for (const std::uint32_t waiters : {0U, 1U, (1U << 20) - 1}) {
      for (const std::uint32_t owed : {0U, 1U, (1U << 19) - 1}) {
        for (const bool gate : {false, true}) {
          const ClassWord word = unpack_class(pack(ClassWord{free, waiters, owed, gate}));
          EXPECT_EQ(word.free, free);
          EXPECT_EQ(word.waiters, waiters);
          EXPECT_EQ(word.owed, owed);
          EXPECT_EQ(word.gate, gate);
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::ledger
