#include "ledger/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "ledger_fixture.h"

namespace sluice::ledger {
namespace {

class LedgerScheduler : public ::testing::Test {
 protected:
  LedgerScheduler() : t({4, 0, 8, 1, 0, 0, 0}) {}

  void weigh(std::uint32_t row, std::uint32_t weight) { t.ledger.rows[row].weight = weight; }
  std::vector<std::uint32_t> serve(int count) {
    std::vector<std::uint32_t> served;
    for (int i = 0; i < count; i++) {
      const std::uint32_t row = scheduler_pick(t.ledger, t.lock, 0);
      if (row == kNil) break;
      served.push_back(row);
      scheduler_served(t.ledger, t.lock, 0, row);
    }
    return served;
  }

  test::TestLedger t;
};

TEST_F(LedgerScheduler, AnEmptyRingServesNobody) { EXPECT_EQ(scheduler_pick(t.ledger, t.lock, 0), kNil); }

TEST_F(LedgerScheduler, EachVisitGrantsAsManyAsTheRowWeighs) {
  weigh(1, 3);
  weigh(2, 1);
  weigh(3, 2);
  for (const std::uint32_t row : {1U, 2U, 3U}) scheduler_enter(t.ledger, t.lock, 0, row);
  EXPECT_EQ(serve(12), (std::vector<std::uint32_t>{1, 1, 1, 2, 3, 3, 1, 1, 1, 2, 3, 3}));
}

TEST_F(LedgerScheduler, ANewRowJoinsAtTheEndOfTheRound) {
  for (const std::uint32_t row : {1U, 2U}) scheduler_enter(t.ledger, t.lock, 0, row);
  EXPECT_EQ(serve(1), (std::vector<std::uint32_t>{1}));
  scheduler_enter(t.ledger, t.lock, 0, 3);
  EXPECT_EQ(serve(4), (std::vector<std::uint32_t>{2, 1, 3, 2}));
}

TEST_F(LedgerScheduler, ARowThatLeavesLosesItsCreditAndTheNextIsVisited) {
  weigh(1, 5);
  weigh(2, 2);
  for (const std::uint32_t row : {1U, 2U}) scheduler_enter(t.ledger, t.lock, 0, row);
  EXPECT_EQ(serve(2), (std::vector<std::uint32_t>{1, 1}));
  scheduler_leave(t.ledger, t.lock, 0, 1);
  EXPECT_EQ(serve(1), (std::vector<std::uint32_t>{2}));
  scheduler_enter(t.ledger, t.lock, 0, 1);
  EXPECT_EQ(serve(7), (std::vector<std::uint32_t>{2, 1, 1, 1, 1, 1, 2}));
  scheduler_leave(t.ledger, t.lock, 0, 2);
  scheduler_leave(t.ledger, t.lock, 0, 1);
  EXPECT_EQ(scheduler_pick(t.ledger, t.lock, 0), kNil);
  EXPECT_EQ(t.ledger.classes[0].ring_size, 0U);
}

TEST_F(LedgerScheduler, EnteringTwiceAndLeavingTwiceChangeNothing) {
  scheduler_enter(t.ledger, t.lock, 0, 1);
  scheduler_enter(t.ledger, t.lock, 0, 1);
  EXPECT_EQ(t.ledger.classes[0].ring_size, 1U);
  scheduler_leave(t.ledger, t.lock, 0, 1);
  scheduler_leave(t.ledger, t.lock, 0, 1);
  EXPECT_EQ(t.ledger.classes[0].ring_size, 0U);
}

// Saturated rows of weights 1 to 4 get grants in proportion, exactly over whole rounds (A13).
TEST_F(LedgerScheduler, SaturatedRowsShareByWeight) {
  test::TestLedger ledger({401, 0, 8, 1, 0, 0, 0});
  policy::Policy policy = test::empty_policy();
  test::add_class(policy, "default", 1, 1000);
  for (std::uint32_t i = 1; i <= 4; i++) {
    test::add_tenant(policy, std::string(1, static_cast<char>('a' + i)).c_str(), i, policy::kNoLimit);
  }
  ASSERT_EQ(ledger.apply(policy), Status::ok);
  std::uint32_t ticket = 0;
  ASSERT_EQ(ledger.begin(ticket++, ledger.tenant("holder")).status, Status::ok);
  std::map<std::uint32_t, std::uint32_t> weight_of;
  for (std::uint32_t i = 1; i <= 4; i++) {
    const std::uint32_t tenant = ledger.tenant(std::string(1, static_cast<char>('a' + i)).c_str());
    weight_of[tenant] = i;
    for (int k = 0; k < 100; k++) ASSERT_EQ(ledger.begin(ticket++, tenant).status, Status::queued);
  }
  std::map<std::uint32_t, std::uint32_t> grants;
  std::uint32_t holder = 0;
  for (int i = 0; i < 200; i++) {
    ledger.woken.clear();
    ASSERT_EQ(ledger.finish(holder), Status::ok);
    ASSERT_EQ(ledger.woken.size(), 1U);
    holder = ledger.woken[0];
    ASSERT_EQ(ledger.poll(holder).status, Status::ok);
    grants[ledger.ledger.tickets[holder].tenant]++;
  }
  for (const auto& [tenant, weight] : weight_of) EXPECT_EQ(grants[tenant], 20 * weight);
}

}  // namespace
}  // namespace sluice::ledger
