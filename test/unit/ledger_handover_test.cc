#include <gtest/gtest.h>

#include "ledger/admission.h"
#include "ledger_fixture.h"

namespace sluice::ledger {
namespace {

class LedgerHandover : public ::testing::Test {
 protected:
  LedgerHandover() : t({64, 0, 8, 2, 16, 16, 16}) {
    policy = test::empty_policy();
    test::add_class(policy, "default", 2, 60);
    test::add_tenant(policy, "*", 1, 60);
    test::add_tenant(policy, "a", 1, 1);
    if (t.apply(policy) != Status::ok) std::abort();
    a = t.tenant("a");
    b = t.tenant("b");
    if (t.begin(0, b).status != Status::ok || t.begin(1, b).status != Status::ok) std::abort();
  }

  test::TestLedger t;
  policy::Policy policy;
  std::uint32_t a, b;
};

TEST_F(LedgerHandover, APermitGoesToTheChosenWaiterInOneStep) {
  ASSERT_EQ(t.begin(2, b).status, Status::queued);
  ASSERT_EQ(t.begin(3, b).status, Status::queued);
  EXPECT_EQ(hand_over(t.ledger, t.lock, 0, 3, t.now_us), Status::ok);
  EXPECT_EQ(t.state(0), TicketState::request_released);
  EXPECT_EQ(t.state(3), TicketState::execution_granted);
  EXPECT_EQ(t.state(2), TicketState::queued);
  EXPECT_EQ(t.klass().free, 0);
  EXPECT_EQ(t.klass().waiters, 1U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerHandover, AParkedTicketOfTheSameRowTakesTheSlotToo) {
  ASSERT_EQ(t.finish(0), Status::ok);
  ASSERT_EQ(t.begin(2, a).status, Status::ok);
  ASSERT_EQ(t.begin(3, a).status, Status::queued);
  ASSERT_TRUE(t.ledger.tickets[3].parked);
  EXPECT_EQ(hand_over(t.ledger, t.lock, 2, 3, t.now_us), Status::ok);
  EXPECT_EQ(t.row(a).in_use, 1U);
  EXPECT_EQ(t.row(a).parked, 0U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerHandover, AParkedTicketOfAnotherRowHasNoSlotToRunIn) {
  ASSERT_EQ(t.begin(2, a).status, Status::queued);
  ASSERT_EQ(t.begin(3, a).status, Status::queued);
  EXPECT_EQ(hand_over(t.ledger, t.lock, 0, 3, t.now_us), Status::contended);
  EXPECT_EQ(t.state(0), TicketState::in_transaction);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerHandover, OnlyHoldersGiveAndOnlyWaitersTake) {
  EXPECT_EQ(hand_over(t.ledger, t.lock, 0, 1, t.now_us), Status::illegal_transition);
  EXPECT_EQ(hand_over(t.ledger, t.lock, 5, 1, t.now_us), Status::illegal_transition);
  EXPECT_EQ(hand_over(t.ledger, t.lock, 0, 999, t.now_us), Status::not_found);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerHandover, AtMostSixteenLatchesAreCollectedAndTheRestFollows) {
  for (std::uint32_t ticket = 2; ticket < 42; ticket++) ASSERT_EQ(t.begin(ticket, b).status, Status::queued);
  policy.classes[0].permits = 60;
  policy.generation++;
  ASSERT_EQ(t.apply(policy), Status::ok);
  EXPECT_TRUE(t.more);
  EXPECT_EQ(t.woken.size(), 16U);
  EXPECT_EQ(t.audit_report(), "");
  Wakes wakes = {};
  dispatch(t.ledger, t.lock, 0, t.now_us, wakes);
  EXPECT_EQ(wakes.count, 16U);
  EXPECT_TRUE(wakes.more);
  wakes = {};
  dispatch(t.ledger, t.lock, 0, t.now_us, wakes);
  EXPECT_EQ(wakes.count, 8U);
  EXPECT_FALSE(wakes.more);
  EXPECT_EQ(t.klass().waiters, 0U);
  EXPECT_EQ(t.klass().free, 18);
  EXPECT_EQ(t.ledger.header->over_limit_grants, 0U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerHandover, AfterALoweredLimitReleasesGrantNobodyUntilUseIsBelowIt) {
  policy.classes[0].permits = 1;
  policy.generation++;
  ASSERT_EQ(t.apply(policy), Status::ok);
  EXPECT_EQ(t.klass().free, -1);
  ASSERT_EQ(t.begin(2, b).status, Status::queued);
  ASSERT_EQ(t.finish(0), Status::ok);
  EXPECT_EQ(t.state(2), TicketState::queued);
  EXPECT_EQ(t.klass().free, 0);
  ASSERT_EQ(t.finish(1), Status::ok);
  EXPECT_EQ(t.state(2), TicketState::execution_granted);
  EXPECT_EQ(t.ledger.header->over_limit_grants, 0U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerHandover, TheKillSwitchAdmitsEveryWaiterAndCountersStayExact) {
  for (std::uint32_t ticket = 2; ticket < 32; ticket++) {
    ASSERT_EQ(t.begin(ticket, ticket % 2 == 0 ? a : b).status, Status::queued);
  }
  std::uint32_t admitted = 0;
  Wakes wakes;
  do {
    wakes = {};
    admitted += admit_waiters(t.ledger, t.lock, t.now_us, wakes);
  } while (wakes.more);
  EXPECT_EQ(admitted, 30U);
  EXPECT_EQ(t.ledger.header->admitted_by_switch, 30U);
  EXPECT_EQ(t.klass().free, -30);
  EXPECT_EQ(t.audit_report(), "");
  for (std::uint32_t ticket = 0; ticket < 32; ticket++) {
    (void)t.poll(ticket);
    EXPECT_EQ(t.finish(ticket), Status::ok);
  }
  EXPECT_EQ(t.klass().free, 2);
  EXPECT_EQ(t.row(a).in_use, 0U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerHandover, ARevokedGrantOfADeadOwnerIsPassedOn) {
  ASSERT_EQ(t.begin(2, b).status, Status::queued);
  ASSERT_EQ(t.begin(3, b).status, Status::queued);
  ASSERT_EQ(t.finish(0), Status::ok);
  ASSERT_EQ(t.state(2), TicketState::execution_granted);
  // Never polled: the proof that the transaction never started is the state itself (A8).
  EXPECT_EQ(t.finish(2), Status::ok);
  EXPECT_EQ(t.state(3), TicketState::execution_granted);
  EXPECT_EQ(t.audit_report(), "");
}

}  // namespace
}  // namespace sluice::ledger
