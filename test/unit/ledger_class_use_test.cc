#include "ledger/class_use.h"

#include <gtest/gtest.h>

#include "ledger/atomics.h"
#include "ledger_fixture.h"

namespace sluice::ledger {
namespace {

class LedgerClassUse : public ::testing::Test {
 protected:
  LedgerClassUse() : t({8, 0, 4, 1, 8, 16, 16}) { set(10, 10); }

  ClassState& state() { return t.ledger.classes[0]; }
  void set(std::int32_t capacity, std::int32_t free, std::uint32_t owed = 0) {
    state().capacity = capacity;
    state().word = pack(ClassWord{free, 0, owed, false});
  }

  test::TestLedger t;
};

TEST_F(LedgerClassUse, WhatIsNotFreeIsInUse) {
  EXPECT_EQ(permits_in_use(state()), 0U);
  set(10, 3);
  EXPECT_EQ(permits_in_use(state()), 7U);
  set(2, -5);  // a lowered limit that still drains
  EXPECT_EQ(permits_in_use(state()), 7U);
  set(static_cast<std::int32_t>(policy::kNoLimit), static_cast<std::int32_t>(policy::kNoLimit) - 1);
  EXPECT_EQ(permits_in_use(state()), 1U);
}

TEST_F(LedgerClassUse, TwoLooksThatDisagreeAreNoUseBelowZero) {
  set(9, 10);
  EXPECT_EQ(permits_in_use(state()), 0U);
  raise_peak(state(), 9, 10);
  EXPECT_EQ(peak_in_use(state()), 0U);
}

TEST_F(LedgerClassUse, WhatIsOwedStandsInTheWord) {
  EXPECT_EQ(permits_owed(state()), 0U);
  set(13, 0, 3);
  EXPECT_EQ(permits_owed(state()), 3U);
}

// Capacity rises after the word and falls before it, so of two looks the smaller is the one that overstates nothing.
TEST_F(LedgerClassUse, ThePeakGoesByTheSmallerOfTwoLooksAtTheCapacity) {
  set(10, 4);
  raise_peak(state(), 20, 4);
  EXPECT_EQ(peak_in_use(state()), 6U);
  raise_peak(state(), 8, 4);
  EXPECT_EQ(peak_in_use(state()), 6U) << "a peak is never lowered";
  raise_peak(state(), 10, 1);
  EXPECT_EQ(peak_in_use(state()), 9U);
}

TEST_F(LedgerClassUse, ATickBeginsANewPeakAndKeepsTheOldOne) {
  set(10, 3);
  raise_peak(state(), 10, 1);
  EXPECT_EQ(end_peak(state()), 9U);
  EXPECT_EQ(state().recent_peak, 7U) << "what is in use goes on";
  EXPECT_EQ(end_peak(state()), 7U);
  EXPECT_EQ(peak_in_use(state()), 9U);
}

}  // namespace
}  // namespace sluice::ledger
