#include "ledger/admission.h"

#include <gtest/gtest.h>

#include "ledger/atomics.h"
#include "ledger/class_use.h"
#include "ledger_fixture.h"

namespace sluice::ledger {
namespace {

// One class of 2 permits and a queue of 4, tenants of at most 2 in flight (a: 1).
class LedgerAdmission : public ::testing::Test {
 protected:
  LedgerAdmission() : t({16, 0, 8, 2, 16, 16, 16}) {
    policy::Policy policy = test::empty_policy(27);
    test::add_class(policy, "default", 2, 4);
    test::add_tenant(policy, "*", 1, 2);
    test::add_tenant(policy, "a", 1, 1);
    if (t.apply(policy) != Status::ok) std::abort();
    a = t.tenant("a");
    b = t.tenant("b");
    // The first take of a record goes through the lock; these have been there.
    for (std::uint32_t ticket = 0; ticket < 8; ticket++) {
      (void)t.begin(ticket, ticket < 2 ? a : b);
      (void)t.finish(ticket);
    }
  }

  void gate(bool set) {
    ClassWord word = t.klass();
    word.gate = set;
    t.ledger.classes[0].word = pack(word);
  }

  test::TestLedger t;
  std::uint32_t a, b;
};

TEST_F(LedgerAdmission, AFreePermitIsTakenAndReturnedWithoutTheLock) {
  EXPECT_EQ(take(t.ledger, 2, t.request(b, 0)), Status::ok);
  EXPECT_EQ(t.state(2), TicketState::in_transaction);
  EXPECT_EQ(t.klass().free, 1);
  EXPECT_EQ(t.row(b).in_use, 1U);
  EXPECT_EQ(t.ledger.tickets[2].generation, 27U);
  EXPECT_EQ(t.audit_report(), "");
  t.now_us += 1500;
  EXPECT_EQ(release(t.ledger, 2, t.now_us), Status::ok);
  EXPECT_EQ(t.state(2), TicketState::request_released);
  EXPECT_EQ(t.klass().free, 2);
  EXPECT_EQ(t.row(b).in_use, 0U);
  EXPECT_EQ(t.ledger.tickets[2].stat_execution_us, 1500U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerAdmission, ASecondReleaseChangesNothing) {
  ASSERT_EQ(take(t.ledger, 2, t.request(b, 0)), Status::ok);
  ASSERT_EQ(take(t.ledger, 3, t.request(b, 0)), Status::ok);
  ASSERT_EQ(release(t.ledger, 2, t.now_us), Status::ok);
  EXPECT_EQ(release(t.ledger, 2, t.now_us), Status::ok);
  Wakes wakes = {};
  EXPECT_EQ(release_locked(t.ledger, t.lock, 2, t.now_us, wakes), Status::ok);
  EXPECT_EQ(t.klass().free, 1);
  EXPECT_EQ(t.row(b).in_use, 1U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerAdmission, AFullClassSendsTheTakeToTheLockHoldingItsSlot) {
  ASSERT_EQ(take(t.ledger, 2, t.request(b, 0)), Status::ok);
  ASSERT_EQ(take(t.ledger, 0, t.request(a, 0)), Status::ok);
  EXPECT_EQ(take(t.ledger, 3, t.request(b, 0)), Status::contended);
  EXPECT_EQ(t.mark(3), Mark::row_held);
  EXPECT_EQ(t.row(b).in_use, 2U);
  EXPECT_EQ(t.audit_report(), "");
  EXPECT_EQ(t.begin_locked(3, t.request(b, 0)).status, Status::queued);
  EXPECT_EQ(t.row(b).in_use, 2U);
  EXPECT_EQ(t.klass().waiters, 1U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerAdmission, ATakeThatIsGivenUpBetweenItsStepsReturnsItsSlot) {
  ASSERT_EQ(take(t.ledger, 2, t.request(b, 0)), Status::ok);
  ASSERT_EQ(take(t.ledger, 0, t.request(a, 0)), Status::ok);
  ASSERT_EQ(take(t.ledger, 3, t.request(b, 0)), Status::contended);
  EXPECT_EQ(t.finish(3), Status::ok);
  EXPECT_EQ(t.mark(3), Mark::none);
  EXPECT_EQ(t.row(b).in_use, 1U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerAdmission, ARowAtItsLimitSendsTheTakeToTheLockWithNothingHeld) {
  ASSERT_EQ(take(t.ledger, 0, t.request(a, 0)), Status::ok);
  EXPECT_EQ(take(t.ledger, 1, t.request(a, 0)), Status::contended);
  EXPECT_EQ(t.mark(1), Mark::none);
  EXPECT_EQ(t.row(a).in_use, 1U);
}

TEST_F(LedgerAdmission, WhileSomebodyWaitsNobodyTakesOrReturnsWithoutTheLock) {
  ASSERT_EQ(take(t.ledger, 2, t.request(b, 0)), Status::ok);
  ASSERT_EQ(take(t.ledger, 0, t.request(a, 0)), Status::ok);
  ASSERT_EQ(t.begin(3, b).status, Status::queued);
  EXPECT_EQ(release(t.ledger, 2, t.now_us), Status::contended);
  EXPECT_EQ(t.mark(2), Mark::none);
  EXPECT_EQ(t.state(2), TicketState::in_transaction);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerAdmission, ParkedTicketsSendTheirRowsReleasesToTheLock) {
  ASSERT_EQ(take(t.ledger, 0, t.request(a, 0)), Status::ok);
  ASSERT_EQ(t.begin(1, a).status, Status::queued);
  ASSERT_TRUE(t.ledger.tickets[1].parked);
  // It does not count in the class word: others go on without the lock.
  EXPECT_EQ(take(t.ledger, 2, t.request(b, 0)), Status::ok);
  EXPECT_EQ(release(t.ledger, 2, t.now_us), Status::ok);
  EXPECT_EQ(release(t.ledger, 0, t.now_us), Status::contended);
  EXPECT_EQ(t.mark(0), Mark::none);
}

TEST_F(LedgerAdmission, AGateSendsTakesAndReleasesToTheLockUnmarked) {
  ASSERT_EQ(take(t.ledger, 2, t.request(b, 0)), Status::ok);
  gate(true);
  EXPECT_EQ(take(t.ledger, 3, t.request(b, 0)), Status::contended);
  EXPECT_EQ(t.mark(3), Mark::none);
  EXPECT_EQ(take(t.ledger, 3, t.request(b, 0, false)), Status::contended);
  EXPECT_EQ(release(t.ledger, 2, t.now_us), Status::contended);
  EXPECT_EQ(t.mark(2), Mark::none);
  gate(false);
  EXPECT_EQ(t.finish(2), Status::ok);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerAdmission, ARecordOfAnotherRowGoesThroughTheLock) {
  EXPECT_EQ(take(t.ledger, 0, t.request(b, 0)), Status::contended);
  EXPECT_EQ(take(t.ledger, 0, t.request(kNil, 0)), Status::contended);
  EXPECT_EQ(t.begin_locked(0, t.request(kNil, 0)).status, Status::not_found);
  EXPECT_EQ(t.begin_locked(0, t.request(b, 9)).status, Status::not_found);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerAdmission, IllegalStepsAreFaultsThatChangeNothing) {
  ASSERT_EQ(take(t.ledger, 2, t.request(b, 0)), Status::ok);
  EXPECT_EQ(take(t.ledger, 2, t.request(b, 0)), Status::illegal_transition);
  EXPECT_EQ(t.begin_locked(2, t.request(b, 0)).status, Status::illegal_transition);
  ASSERT_EQ(take(t.ledger, 3, t.request(b, 0)), Status::ok);
  ASSERT_EQ(t.begin(0, a).status, Status::queued);
  EXPECT_EQ(release(t.ledger, 0, t.now_us), Status::illegal_transition);
  EXPECT_EQ(take(t.ledger, 0, t.request(a, 0)), Status::illegal_transition);
  EXPECT_EQ(release(t.ledger, 99, t.now_us), Status::not_found);
  EXPECT_EQ(t.ledger.header->faults, 5U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerAdmission, ShadowTakesOverEveryLimitAndCountsWhatWouldHaveHappened) {
  for (std::uint32_t ticket = 2; ticket < 8; ticket++)
    EXPECT_EQ(take(t.ledger, ticket, t.request(b, 0, false)), Status::ok);
  EXPECT_EQ(t.klass().free, -4);
  EXPECT_EQ(t.row(b).in_use, 6U);
  EXPECT_EQ(t.ledger.classes[0].would_refuse, 0U);
  EXPECT_EQ(peak_in_use(t.ledger.classes[0]), 6U);
  std::uint64_t would_wait = 0;
  for (std::uint32_t ticket = 2; ticket < 8; ticket++) would_wait += t.ledger.tickets[ticket].stat_would_wait;
  EXPECT_EQ(would_wait, 4U);
  // The fifth over the permits would have met a queue of four.
  EXPECT_EQ(take(t.ledger, 0, t.request(a, 0, false)), Status::ok);
  EXPECT_EQ(t.ledger.classes[0].would_refuse, 1U);
  EXPECT_EQ(t.audit_report(), "");
  for (std::uint32_t ticket = 0; ticket < 8; ticket++) EXPECT_EQ(t.finish(ticket), Status::ok);
  EXPECT_EQ(t.klass().free, 2);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerAdmission, ACommitThatBeganCannotBeExpired) {
  TicketRequest request = t.request(b, 0);
  request.time_limit_us = 1000;
  ASSERT_EQ(take(t.ledger, 2, request), Status::ok);
  EXPECT_EQ(begin_commit(t.ledger, 2), Status::ok);
  t.now_us += 5000;
  EXPECT_EQ(expire(t.ledger, t.lock, 2, t.now_us), Status::illegal_transition);
  EXPECT_EQ(t.finish(2), Status::ok);
}

TEST_F(LedgerAdmission, AProcedureThatCommitsInsideCanExpireAfterwards) {
  TicketRequest request = t.request(b, 0);
  request.time_limit_us = 1000;
  ASSERT_EQ(take(t.ledger, 2, request), Status::ok);
  ASSERT_EQ(begin_commit(t.ledger, 2), Status::ok);
  EXPECT_EQ(continue_transaction(t.ledger, 2), Status::ok);
  EXPECT_EQ(t.state(2), TicketState::in_transaction);
  EXPECT_EQ(continue_transaction(t.ledger, 2), Status::ok);
  t.now_us += 5000;
  EXPECT_EQ(expire(t.ledger, t.lock, 2, t.now_us), Status::ok);
  EXPECT_EQ(continue_transaction(t.ledger, 2), Status::ok);
  EXPECT_EQ(t.state(2), TicketState::expiring);
  EXPECT_EQ(t.finish(2), Status::ok);
  EXPECT_EQ(continue_transaction(t.ledger, 2), Status::illegal_transition);
}

TEST_F(LedgerAdmission, AnExpiringTransactionMustNotCommitAndLeavesThroughTheLock) {
  TicketRequest request = t.request(b, 0);
  request.time_limit_us = 1000;
  ASSERT_EQ(take(t.ledger, 2, request), Status::ok);
  EXPECT_EQ(expire(t.ledger, t.lock, 2, t.now_us + 999), Status::illegal_transition);
  EXPECT_EQ(expire(t.ledger, t.lock, 2, t.now_us + 1000), Status::ok);
  EXPECT_EQ(expire(t.ledger, t.lock, 2, t.now_us + 2000), Status::ok);
  EXPECT_EQ(t.ledger.header->time_limit_cancels, 1U);
  EXPECT_EQ(begin_commit(t.ledger, 2), Status::time_limit);
  // Its release waits for the lock under which the signal is sent.
  EXPECT_EQ(release(t.ledger, 2, t.now_us), Status::contended);
  EXPECT_EQ(t.finish(2), Status::ok);
  EXPECT_EQ(expire(t.ledger, t.lock, 2, t.now_us + 3000), Status::illegal_transition);
  EXPECT_EQ(t.audit_report(), "");
}

// A guard that looked at one transaction must not hit the next one of the same record.
TEST_F(LedgerAdmission, EveryUseOfARecordHasAPhaseOfItsOwn) {
  ASSERT_EQ(take(t.ledger, 2, t.request(b, 0)), Status::ok);
  const std::uint32_t first = t.ledger.tickets[2].phase;
  ASSERT_EQ(release(t.ledger, 2, t.now_us), Status::ok);
  ASSERT_EQ(take(t.ledger, 2, t.request(b, 0)), Status::ok);
  EXPECT_EQ(phase_state(t.ledger.tickets[2].phase), phase_state(first));
  EXPECT_NE(t.ledger.tickets[2].phase, first);
}

TEST_F(LedgerAdmission, AnUnderflowOfTheRowIsAFaultNotAWrap) {
  ASSERT_EQ(take(t.ledger, 2, t.request(b, 0)), Status::ok);
  t.ledger.rows[b * 2].word = pack(RowWord{0, 0, 2});
  EXPECT_EQ(release(t.ledger, 2, t.now_us), Status::corrupt);
  EXPECT_EQ(t.ledger.header->faults, 1U);
  EXPECT_NE(t.audit_report().find("row_in_use"), std::string::npos);
}

}  // namespace
}  // namespace sluice::ledger
