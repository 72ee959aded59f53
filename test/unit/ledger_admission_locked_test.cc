#include "ledger/admission_locked.h"

#include <gtest/gtest.h>

#include "ledger/journal.h"
#include "ledger_fixture.h"

namespace sluice::ledger {
namespace {

// Two permits and a queue of three; a may have one in flight, everybody else four.
class LedgerQueue : public ::testing::Test {
 protected:
  LedgerQueue() : t({16, 0, 8, 2, 16, 16, 16}) {
    policy = test::empty_policy();
    test::add_class(policy, "default", 2, 3, 5000);
    test::add_tenant(policy, "*", 1, 4);
    test::add_tenant(policy, "a", 1, 1);
    if (t.apply(policy) != Status::ok) std::abort();
    a = t.tenant("a");
    b = t.tenant("b");
  }

  void fill() {
    ASSERT_EQ(t.begin(0, b).status, Status::ok);
    ASSERT_EQ(t.begin(1, b).status, Status::ok);
  }

  test::TestLedger t;
  policy::Policy policy;
  std::uint32_t a, b;
};

TEST_F(LedgerQueue, AWaiterIsGrantedByTheNextReleaseAndGoesOn) {
  fill();
  EXPECT_EQ(t.begin(2, b).status, Status::queued);
  EXPECT_EQ(t.state(2), TicketState::queued);
  EXPECT_EQ(t.poll(2).status, Status::queued);
  t.now_us += 3000;
  EXPECT_EQ(t.finish(0), Status::ok);
  EXPECT_EQ(t.woken, (std::vector<std::uint32_t>{2}));
  EXPECT_EQ(t.state(2), TicketState::execution_granted);
  EXPECT_EQ(t.poll(2).status, Status::ok);
  EXPECT_EQ(t.state(2), TicketState::in_transaction);
  EXPECT_EQ(t.klass().free, 0);
  EXPECT_EQ(t.ledger.classes[0].wait_histogram[2], 1U);
  EXPECT_EQ(t.ledger.classes[0].wait_us_total, 3000U);
  EXPECT_EQ(t.ledger.classes[0].handed_over, 1U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerQueue, AFullQueueRefusesAtOnceWithRuleAndNumbers) {
  fill();
  for (std::uint32_t ticket = 2; ticket < 5; ticket++) ASSERT_EQ(t.begin(ticket, b).status, Status::queued);
  const Outcome refused = t.begin(5, b);
  EXPECT_EQ(refused.status, Status::queue_full);
  EXPECT_EQ(refused.rule.field, policy::RuleField::class_max_queue);
  EXPECT_EQ(refused.rule.index, 0U);
  EXPECT_EQ(refused.used, 3U);
  EXPECT_EQ(refused.limit, 3U);
  EXPECT_EQ(t.row(b).in_use, 4U);
  EXPECT_TRUE(is_ended(t.state(5)));
  EXPECT_EQ(row_at(t.ledger, b, 0).refused, 1U);
  EXPECT_EQ(t.ledger.header->tickets_refused, 1U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerQueue, ParkedTicketsCountInTheQueue) {
  ASSERT_EQ(t.begin(0, a).status, Status::ok);
  for (std::uint32_t ticket = 1; ticket < 4; ticket++) ASSERT_EQ(t.begin(ticket, a).status, Status::queued);
  EXPECT_EQ(t.row(a).parked, 3U);
  EXPECT_EQ(t.klass().waiters, 0U);
  EXPECT_EQ(t.begin(4, a).status, Status::queue_full);
  // The class itself has room, and others use it.
  EXPECT_EQ(t.begin(5, b).status, Status::ok);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerQueue, APassedDeadlineRefusesAtOnceButNotWhereAPermitIsFree) {
  TicketRequest late = t.request(b, 0);
  late.deadline_us = late.now_us;
  EXPECT_EQ(t.begin(0, late).status, Status::ok);
  EXPECT_EQ(t.begin(1, late).status, Status::ok);
  const Outcome refused = t.begin(2, late);
  EXPECT_EQ(refused.status, Status::deadline_unreachable);
  EXPECT_EQ(refused.rule.field, policy::RuleField::class_queue_deadline);
  EXPECT_EQ(refused.limit, 0U) << "nothing is left of the time the caller has";
  EXPECT_EQ(t.row(b).in_use, 2U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerQueue, FifoWithinARow) {
  fill();
  for (std::uint32_t ticket = 2; ticket < 5; ticket++) ASSERT_EQ(t.begin(ticket, b).status, Status::queued);
  for (const std::uint32_t holder : {0U, 1U, 2U}) {
    EXPECT_EQ(t.finish(holder), Status::ok);
    (void)t.poll(holder + 2);
  }
  EXPECT_EQ(t.woken, (std::vector<std::uint32_t>{2, 3, 4}));
}

TEST_F(LedgerQueue, ParkedTicketsArePromotedOldestFirstWhenASlotComesFree) {
  ASSERT_EQ(t.begin(0, a).status, Status::ok);
  ASSERT_EQ(t.begin(1, a).status, Status::queued);
  ASSERT_EQ(t.begin(2, a).status, Status::queued);
  EXPECT_EQ(t.finish(0), Status::ok);
  EXPECT_EQ(t.woken, (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(t.row(a).in_use, 1U);
  EXPECT_EQ(t.row(a).parked, 1U);
  EXPECT_EQ(t.audit_report(), "");
  ASSERT_EQ(t.poll(1).status, Status::ok);
  EXPECT_EQ(t.finish(1), Status::ok);
  EXPECT_EQ(t.woken, (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerQueue, APromotedTicketWaitsForTheClassWhenThatIsFull) {
  ASSERT_EQ(t.begin(0, a).status, Status::ok);
  ASSERT_EQ(t.begin(1, a).status, Status::queued);
  ASSERT_EQ(t.begin(2, b).status, Status::ok);
  ASSERT_EQ(t.begin(3, b).status, Status::queued);
  EXPECT_EQ(t.finish(0), Status::ok);
  // The permit went to one of them, the other still waits, now for the class.
  ASSERT_EQ(t.woken.size(), 1U);
  EXPECT_EQ(t.klass().waiters, 1U);
  EXPECT_EQ(t.row(a).parked, 0U);
  EXPECT_EQ(t.row(a).in_use, 1U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerQueue, ANewcomerDoesNotPassItsRowsParkedTickets) {
  // The record has been on the row: only the parked ticket keeps it from taking without the lock.
  ASSERT_EQ(t.begin(2, a).status, Status::ok);
  ASSERT_EQ(t.finish(2), Status::ok);
  ASSERT_EQ(t.begin(0, a).status, Status::ok);
  ASSERT_EQ(t.begin(1, a).status, Status::queued);
  t.ledger.rows[a * 2].word = pack(RowWord{1, 1, 2});  // the limit rose, nobody has been promoted yet
  EXPECT_EQ(take(t.ledger, 2, t.request(a, 0)), Status::contended);
  EXPECT_EQ(t.mark(2), Mark::none);
  EXPECT_EQ(t.begin_locked(2, t.request(a, 0)).status, Status::queued);
  EXPECT_TRUE(t.ledger.tickets[2].parked);
}

// A3: a cancel that races with a grant ends as exactly one of CANCELLED or EXECUTION_GRANTED.
TEST_F(LedgerQueue, ACancelBeforeTheGrantEndsCancelledAndThePermitGoesElsewhere) {
  fill();
  ASSERT_EQ(t.begin(2, b).status, Status::queued);
  ASSERT_EQ(t.begin(3, b).status, Status::queued);
  EXPECT_EQ(t.end(2, Status::cancelled).status, Status::cancelled);
  EXPECT_EQ(t.state(2), TicketState::cancelled);
  EXPECT_EQ(t.finish(0), Status::ok);
  EXPECT_EQ(t.woken, (std::vector<std::uint32_t>{3}));
  EXPECT_EQ(row_at(t.ledger, b, 0).cancelled, 1U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerQueue, ACancelAfterTheGrantFindsItGrantedAndReleasesIt) {
  fill();
  ASSERT_EQ(t.begin(2, b).status, Status::queued);
  ASSERT_EQ(t.begin(3, b).status, Status::queued);
  ASSERT_EQ(t.finish(0), Status::ok);
  ASSERT_EQ(t.state(2), TicketState::execution_granted);
  EXPECT_EQ(t.end(2, Status::cancelled).status, Status::ok);
  EXPECT_TRUE(holds_permit(t.state(2)));
  EXPECT_EQ(row_at(t.ledger, b, 0).cancelled, 0U);
  EXPECT_EQ(t.finish(2), Status::ok);
  EXPECT_EQ(t.woken, (std::vector<std::uint32_t>{2, 3}));
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerQueue, ADeadlineThatPassesEndsQueueExpiredWithNumbers) {
  fill();
  ASSERT_EQ(t.begin(2, b).status, Status::queued);
  t.now_us += 5'000'000;
  const Outcome ended = t.end(2, Status::queue_deadline);
  EXPECT_EQ(ended.status, Status::queue_deadline);
  EXPECT_EQ(ended.rule.field, policy::RuleField::class_queue_deadline);
  EXPECT_EQ(ended.used, 5000U);
  EXPECT_EQ(ended.limit, 5000U);
  EXPECT_EQ(t.state(2), TicketState::queue_expired);
  EXPECT_EQ(t.row(b).in_use, 2U);
  EXPECT_EQ(t.klass().waiters, 0U);
  EXPECT_EQ(t.ledger.header->waits_expired, 1U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerQueue, AnEligibleTicketThatLeavesPassesItsSlotToAParkedOne) {
  ASSERT_EQ(t.begin(0, b).status, Status::ok);
  ASSERT_EQ(t.begin(1, b).status, Status::ok);
  ASSERT_EQ(t.begin(2, a).status, Status::queued);
  ASSERT_EQ(t.begin(3, a).status, Status::queued);
  ASSERT_FALSE(t.ledger.tickets[2].parked);
  ASSERT_TRUE(t.ledger.tickets[3].parked);
  EXPECT_EQ(t.end(2, Status::cancelled).status, Status::cancelled);
  EXPECT_FALSE(t.ledger.tickets[3].parked);
  EXPECT_EQ(t.klass().waiters, 1U);
  EXPECT_EQ(t.audit_report(), "");
  EXPECT_EQ(t.finish(0), Status::ok);
  EXPECT_EQ(t.woken, (std::vector<std::uint32_t>{3}));
}

TEST_F(LedgerQueue, AParkedTicketThatLeavesTakesNothingWithIt) {
  ASSERT_EQ(t.begin(0, a).status, Status::ok);
  ASSERT_EQ(t.begin(1, a).status, Status::queued);
  EXPECT_EQ(t.end(1, Status::cancelled).status, Status::cancelled);
  EXPECT_EQ(t.row(a).parked, 0U);
  EXPECT_EQ(t.row(a).in_use, 1U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerQueue, ARetriedTicketKeepsItsIdentityAndAge) {
  fill();
  TicketRequest request = t.request(b, 0);
  request.id.bytes[0] = 7;
  request.owner = 10;
  const std::int64_t first = t.now_us;
  ASSERT_EQ(t.begin(2, request).status, Status::queued);
  t.now_us += 1000;
  ASSERT_EQ(t.end(2, Status::queue_deadline).status, Status::queue_deadline);
  request.now_us = t.now_us += 1000;
  ASSERT_EQ(t.begin(2, request).status, Status::queued);
  EXPECT_EQ(t.ledger.tickets[2].queued_us, first);
  ASSERT_EQ(t.end(2, Status::cancelled).status, Status::cancelled);
  request.id.bytes[0] = 8;
  request.now_us = t.now_us += 1000;
  ASSERT_EQ(t.begin(2, request).status, Status::queued);
  EXPECT_EQ(t.ledger.tickets[2].queued_us, t.now_us);
}

TEST_F(LedgerQueue, TicketsThatWaitedLeaveAReceipt) {
  fill();
  TicketRequest request = t.request(b, 0);
  request.id.bytes[0] = 7;
  ASSERT_EQ(t.begin(2, request).status, Status::queued);
  ASSERT_EQ(t.finish(0), Status::ok);
  ASSERT_EQ(t.poll(2).status, Status::ok);
  EXPECT_EQ(find_receipt(t.ledger, t.lock, request.id), nullptr);
  ASSERT_EQ(t.finish(2), Status::ok);
  const Receipt* receipt = find_receipt(t.ledger, t.lock, request.id);
  ASSERT_NE(receipt, nullptr);
  EXPECT_EQ(receipt->outcome, TicketState::request_released);
  EXPECT_EQ(receipt->tenant, b);
}

TEST_F(LedgerQueue, AReleaseBetweenItsTwoStepsIsFinishedUnderTheLock) {
  fill();
  // The row's step was made, then somebody queued.
  t.ledger.rows[b * 2].word = pack(RowWord{1, 0, 4});
  t.ledger.tickets[0].phase = pack_phase(TicketState::in_transaction, Mark::row_released);
  EXPECT_EQ(t.audit_report(), "");
  ASSERT_EQ(t.begin(2, a).status, Status::queued);
  EXPECT_EQ(t.finish(0), Status::ok);
  EXPECT_EQ(t.woken, (std::vector<std::uint32_t>{2}));
  EXPECT_EQ(t.row(b).in_use, 1U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerQueue, ASlotTakenBeforeTheLimitFellIsGivenUp) {
  fill();
  ASSERT_EQ(t.begin(2, b).status, Status::queued);
  t.ledger.rows[b * 2].word = pack(RowWord{4, 0, 3});
  t.ledger.tickets[3].phase = pack_phase(TicketState::none, Mark::row_held);
  t.ledger.tickets[3].tenant = b;
  t.ledger.tickets[3].klass = 0;
  EXPECT_EQ(t.begin_locked(3, t.request(b, 0)).status, Status::queued);
  EXPECT_TRUE(t.ledger.tickets[3].parked);
  EXPECT_EQ(t.row(b).in_use, 3U);
  EXPECT_EQ(t.row(b).parked, 1U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerQueue, StatisticsFollowTheRowTheyWereMadeOn) {
  ASSERT_EQ(t.begin(0, b).status, Status::ok);
  t.now_us += 400;
  ASSERT_EQ(t.finish(0), Status::ok);
  ASSERT_EQ(t.begin(0, a).status, Status::ok);
  EXPECT_EQ(row_at(t.ledger, b, 0).granted, 1U);
  EXPECT_EQ(row_at(t.ledger, b, 0).execution_us, 400U);
  EXPECT_EQ(t.ledger.tickets[0].stat_granted, 0U);
}

}  // namespace
}  // namespace sluice::ledger
