#include <gtest/gtest.h>

#include "ledger/admission.h"
#include "ledger/estimate.h"
#include "ledger_fixture.h"

namespace sluice::ledger {
namespace {

// One permit, one overdraft permit; ticket 0 holds the permit, 1 to 3 wait, 4 and 5 of tenant a (limit 1) as well.
class LedgerOverdraft : public ::testing::Test {
 protected:
  LedgerOverdraft() : t({16, 0, 8, 1, 16, 16, 16}) {
    policy::Policy policy = test::empty_policy();
    test::add_class(policy, "default", 1, 10);
    test::add_tenant(policy, "*", 1, 10);
    test::add_tenant(policy, "a", 1, 1);
    policy.overdraft_max = 1;
    if (t.apply(policy) != Status::ok) std::abort();
    b = t.tenant("b");
    a = t.tenant("a");
    (void)t.begin(0, b);
    for (std::uint32_t ticket = 1; ticket < 4; ticket++) (void)t.begin(ticket, b);
    for (std::uint32_t ticket = 4; ticket < 6; ticket++) (void)t.begin(ticket, a);
  }

  test::TestLedger t;
  std::uint32_t a, b;
};

TEST_F(LedgerOverdraft, ABlockerMovesToTheHeadOfItsRowBehindOlderBlockers) {
  EXPECT_EQ(mark_blocker(t.ledger, t.lock, 3, t.now_us), Status::ok);
  EXPECT_EQ(mark_blocker(t.ledger, t.lock, 2, t.now_us), Status::ok);
  EXPECT_EQ(mark_blocker(t.ledger, t.lock, 2, t.now_us + 9), Status::ok);
  EXPECT_EQ(t.ledger.tickets[2].blocking_since_us, t.now_us);
  EXPECT_EQ(t.ledger.header->overdraft_waiters, 2U);
  EXPECT_EQ(t.audit_report(), "");
  ASSERT_EQ(t.finish(0), Status::ok);
  EXPECT_EQ(t.woken, (std::vector<std::uint32_t>{3}));
  EXPECT_EQ(queue_position(t.ledger, t.lock, 2, t.now_us), 2U);
  EXPECT_EQ(t.ledger.header->overdraft_waiters, 1U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerOverdraft, OverdraftPermitsAreCountedApartAndRecycled) {
  EXPECT_EQ(mark_blocker(t.ledger, t.lock, 2, t.now_us), Status::ok);
  Wakes wakes = {};
  EXPECT_EQ(grant_overdraft(t.ledger, t.lock, 2, t.now_us, wakes), Status::ok);
  EXPECT_EQ(wakes.count, 1U);
  EXPECT_EQ(wakes.tickets[0], 2U);
  EXPECT_EQ(t.ledger.header->overdraft_in_use, 1U);
  EXPECT_EQ(t.klass().free, 0);
  EXPECT_EQ(t.audit_report(), "");
  EXPECT_EQ(grant_overdraft(t.ledger, t.lock, 3, t.now_us, wakes), Status::overdraft_exhausted);
  ASSERT_EQ(t.poll(2).status, Status::ok);
  t.now_us += 50;
  EXPECT_EQ(t.finish(2), Status::ok);
  EXPECT_EQ(t.ledger.header->overdraft_in_use, 0U);
  EXPECT_EQ(t.ledger.header->overdraft_released_us, t.now_us);
  EXPECT_EQ(t.klass().free, 0);
  EXPECT_EQ(t.audit_report(), "");
  wakes = {};
  EXPECT_EQ(grant_overdraft(t.ledger, t.lock, 3, t.now_us, wakes), Status::ok);
  EXPECT_EQ(t.ledger.header->overdraft_granted, 2U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerOverdraft, AParkedBlockerCanUseOverdraft) {
  ASSERT_TRUE(t.ledger.tickets[5].parked);
  EXPECT_EQ(mark_blocker(t.ledger, t.lock, 5, t.now_us), Status::ok);
  Wakes wakes = {};
  EXPECT_EQ(grant_overdraft(t.ledger, t.lock, 5, t.now_us, wakes), Status::ok);
  EXPECT_EQ(t.row(a).parked, 0U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerOverdraft, ARefusedBlockerSeesWhyInItsPoll) {
  Wakes wakes = {};
  EXPECT_EQ(refuse_blocker(t.ledger, t.lock, 2, t.now_us, wakes), Status::illegal_transition);
  ASSERT_EQ(mark_blocker(t.ledger, t.lock, 2, t.now_us), Status::ok);
  EXPECT_EQ(refuse_blocker(t.ledger, t.lock, 2, t.now_us, wakes), Status::ok);
  EXPECT_EQ(wakes.tickets[0], 2U);
  const Outcome seen = t.poll(2);
  EXPECT_EQ(seen.status, Status::overdraft_exhausted);
  EXPECT_EQ(seen.rule.field, policy::RuleField::overdraft_max);
  EXPECT_EQ(t.end(2, Status::cancelled).status, Status::overdraft_exhausted);
  EXPECT_EQ(t.ledger.header->overdraft_waiters, 0U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerOverdraft, OnlyWaitersCanBeMarkedOrLentTo) {
  Wakes wakes = {};
  EXPECT_EQ(mark_blocker(t.ledger, t.lock, 0, t.now_us), Status::illegal_transition);
  EXPECT_EQ(grant_overdraft(t.ledger, t.lock, 0, t.now_us, wakes), Status::illegal_transition);
  EXPECT_EQ(mark_blocker(t.ledger, t.lock, 999, t.now_us), Status::illegal_transition);
}

TEST_F(LedgerOverdraft, PositionsFollowTheOrderOfService) {
  EXPECT_EQ(queue_position(t.ledger, t.lock, 0, t.now_us), 0U);
  // a holds nothing and comes before b, which does; a's parked ticket has to wait for a's slot besides.
  EXPECT_EQ(queue_position(t.ledger, t.lock, 4, t.now_us), 1U);
  EXPECT_EQ(queue_position(t.ledger, t.lock, 1, t.now_us), 2U);
  EXPECT_EQ(queue_position(t.ledger, t.lock, 2, t.now_us), 3U);
  EXPECT_EQ(queue_position(t.ledger, t.lock, 3, t.now_us), 4U);
  EXPECT_GE(queue_position(t.ledger, t.lock, 5, t.now_us), 2U);
}

}  // namespace
}  // namespace sluice::ledger
