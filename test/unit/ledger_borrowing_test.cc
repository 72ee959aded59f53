// Guaranteed permits and what is lent of them (A14).
#include <gtest/gtest.h>

#include <cstdio>

#include "ledger/borrowing.h"
#include "ledger/class_use.h"
#include "sim/scenarios.h"

namespace sluice::ledger {
namespace {

constexpr std::uint32_t kOnline = 0, kBatch = 1;

class LedgerBorrowing : public ::testing::Test {
 protected:
  LedgerBorrowing() : t({64, 0, 6, 2, 64, 16, 16}) {}

  void start(std::uint32_t online, std::uint32_t batch, std::uint32_t max, policy::BorrowExpiry expiry) {
    policy::Policy policy = test::empty_policy();
    test::add_class(policy, "online", online, 1000);
    test::add_class(policy, "batch", batch, 1000);
    policy.classes[0].aging_ms = policy.classes[1].aging_ms = 1000;
    policy.classes[1].borrow = {1, max, 1000, expiry};
    test::add_tenant(policy, "*", 1, policy::kNoLimit);
    ASSERT_EQ(t.apply(policy), Status::ok);
    web = t.tenant("web");
    jobs = t.tenant("jobs");
  }

  std::uint32_t holding(std::uint32_t klass) const {
    std::uint32_t count = 0;
    for (std::uint32_t i = 0; i < 64; i++) {
      if (holds_permit(t.state(i)) && t.ledger.tickets[i].klass == klass) count++;
    }
    return count;
  }

  std::uint32_t borrowed_ticket() const {
    for (std::uint32_t i = 0; i < 64; i++) {
      if (holds_permit(t.state(i)) && t.ledger.tickets[i].source == PermitSource::borrowed) return i;
    }
    return kNil;
  }

  test::TestLedger t;
  std::uint32_t web = 0, jobs = 0;
};

TEST_F(LedgerBorrowing, IdlePermitsAreLentUpToTheMaximum) {
  start(10, 2, 4, policy::BorrowExpiry::mark);
  for (std::uint32_t i = 0; i < 20; i++) (void)t.begin(i, jobs, kBatch);
  t.pass(100'000);
  EXPECT_EQ(holding(kBatch), 6U);
  EXPECT_EQ(permits_owed(t.ledger.classes[kBatch]), 4U);
  EXPECT_EQ(t.ledger.classes[kOnline].lent, 4U);
  EXPECT_EQ(t.klass(kOnline).free, 6);
  EXPECT_EQ(t.audit_report(), "");
}

// Every look rounds down, so looks that are not counted by time would use up the memory by themselves.
TEST_F(LedgerBorrowing, TheLenderForgetsAtItsOwnPaceHoweverOftenItIsAsked) {
  std::int64_t left[2];
  for (const bool often : {false, true}) {
    start(10, 2, 4, policy::BorrowExpiry::mark);
    for (std::uint32_t i = 40; i < 50; i++) ASSERT_EQ(t.begin(i, web, kOnline).status, Status::ok);
    t.pass(100'000);
    for (std::uint32_t i = 40; i < 50; i++) ASSERT_EQ(t.finish(i), Status::ok);
    t.pass(100'000);
    // As often as a borrower of many short transactions asks, or only at every tick.
    for (int i = 0; i < 2000; i++) {
      if (often) note_demand(t.ledger, t.lock, kOnline, t.now_us);
      t.now_us += 1000;
      if (i % 100 == 99) note_demand(t.ledger, t.lock, kOnline, t.now_us);
    }
    left[often ? 1 : 0] = t.ledger.classes[kOnline].lending_peak;
  }
  EXPECT_GT(left[0], 0);
  EXPECT_EQ(left[0], left[1]);
}

TEST_F(LedgerBorrowing, InTheEndNothingIsRememberedAndAllIsLent) {
  start(4, 2, 4, policy::BorrowExpiry::mark);
  for (std::uint32_t i = 40; i < 44; i++) ASSERT_EQ(t.begin(i, web, kOnline).status, Status::ok);
  t.pass(100'000);
  for (std::uint32_t i = 40; i < 44; i++) ASSERT_EQ(t.finish(i), Status::ok);
  for (std::uint32_t i = 0; i < 20; i++) (void)t.begin(i, jobs, kBatch);
  t.pass(1'000'000);
  EXPECT_EQ(holding(kBatch), 2U) << "what was used a second ago is not lent";
  t.pass(60'000'000);
  EXPECT_EQ(holding(kBatch), 6U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerBorrowing, WhatTheLenderUsedLatelyStaysItsOwn) {
  start(10, 2, 10, policy::BorrowExpiry::mark);
  for (std::uint32_t i = 0; i < 8; i++) ASSERT_EQ(t.begin(40 + i, web, kOnline).status, Status::ok);
  for (std::uint32_t i = 0; i < 8; i++) ASSERT_EQ(t.finish(40 + i), Status::ok);
  for (std::uint32_t i = 0; i < 20; i++) (void)t.begin(i, jobs, kBatch);
  t.pass(100'000);
  // Eight were in use a moment ago: two are idle by that account, and more only as the memory fades over 5·ttl.
  EXPECT_EQ(t.ledger.classes[kOnline].lent, 2U);
  t.pass(30'000'000);
  EXPECT_GE(t.ledger.classes[kOnline].lent, 9U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerBorrowing, AnyReleaseRepaysBeforeItServesTheBorrower) {
  start(4, 2, 4, policy::BorrowExpiry::mark);
  for (std::uint32_t i = 0; i < 20; i++) (void)t.begin(i, jobs, kBatch);
  t.pass(100'000);
  ASSERT_EQ(permits_owed(t.ledger.classes[kBatch]), 4U);
  for (std::uint32_t i = 0; i < 2; i++) ASSERT_EQ(t.begin(40 + i, web, kOnline).status, Status::queued);
  t.woken.clear();
  // The first two of the borrowers' tickets hold permits of their own class; permits are all alike.
  ASSERT_EQ(t.finish(0), Status::ok);
  EXPECT_EQ(t.woken, (std::vector<std::uint32_t>{40}));
  ASSERT_EQ(t.finish(1), Status::ok);
  EXPECT_EQ(t.woken, (std::vector<std::uint32_t>{40, 41}));
  EXPECT_EQ(t.ledger.classes[kOnline].lent, 2U);
  EXPECT_EQ(permits_owed(t.ledger.classes[kBatch]), 2U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerBorrowing, NothingIsLentWhileTheLenderQueues) {
  start(4, 2, 4, policy::BorrowExpiry::mark);
  for (std::uint32_t i = 0; i < 5; i++) (void)t.begin(40 + i, web, kOnline);
  ASSERT_EQ(t.klass(kOnline).waiters, 1U);
  for (std::uint32_t i = 0; i < 10; i++) (void)t.begin(i, jobs, kBatch);
  t.pass(500'000);
  EXPECT_EQ(t.ledger.classes[kOnline].lent, 0U);
  EXPECT_EQ(holding(kBatch), 2U);
}

TEST_F(LedgerBorrowing, ABorrowedTicketIsCancelledAfterItsTimeOnlyWhileTheLenderQueues) {
  start(4, 2, 4, policy::BorrowExpiry::cancel);
  for (std::uint32_t i = 0; i < 20; i++) (void)t.begin(i, jobs, kBatch);
  t.pass(100'000);
  const std::uint32_t ticket = borrowed_ticket();
  ASSERT_NE(ticket, kNil);
  ASSERT_EQ(t.poll(ticket).status, Status::ok);
  EXPECT_EQ(expire_borrowed(t.ledger, t.lock, ticket, t.now_us), Status::illegal_transition);
  t.pass(2'000'000);
  EXPECT_EQ(expire_borrowed(t.ledger, t.lock, ticket, t.now_us), Status::illegal_transition);  // nobody wants it
  ASSERT_EQ(t.begin(40, web, kOnline).status, Status::queued);
  EXPECT_EQ(expire_borrowed(t.ledger, t.lock, ticket, t.now_us), Status::ok);
  EXPECT_EQ(t.state(ticket), TicketState::expiring);
  EXPECT_EQ(begin_commit(t.ledger, ticket), Status::time_limit);
}

TEST_F(LedgerBorrowing, ACommitThatHasBegunIsNeverCancelled) {
  start(4, 2, 4, policy::BorrowExpiry::cancel);
  for (std::uint32_t i = 0; i < 20; i++) (void)t.begin(i, jobs, kBatch);
  t.pass(100'000);
  const std::uint32_t ticket = borrowed_ticket();
  ASSERT_NE(ticket, kNil);
  ASSERT_EQ(t.poll(ticket).status, Status::ok);
  ASSERT_EQ(begin_commit(t.ledger, ticket), Status::ok);
  ASSERT_EQ(t.begin(40, web, kOnline).status, Status::queued);
  t.pass(2'000'000);
  EXPECT_EQ(expire_borrowed(t.ledger, t.lock, ticket, t.now_us), Status::illegal_transition);
}

TEST_F(LedgerBorrowing, MarkCancelsNobody) {
  start(4, 2, 4, policy::BorrowExpiry::mark);
  for (std::uint32_t i = 0; i < 20; i++) (void)t.begin(i, jobs, kBatch);
  t.pass(100'000);
  const std::uint32_t ticket = borrowed_ticket();
  ASSERT_NE(ticket, kNil);
  ASSERT_EQ(t.poll(ticket).status, Status::ok);
  ASSERT_EQ(t.begin(40, web, kOnline).status, Status::queued);
  t.pass(5'000'000);
  EXPECT_EQ(expire_borrowed(t.ledger, t.lock, ticket, t.now_us), Status::illegal_transition);
}

// Two seconds on, two off, beside batch tickets of 5 s. With cancel the permits are back after ttl, a tick of the guard
// and what a cancel takes.
TEST(LedgerBorrowingTraffic, LentPermitsAreBackByTtlAndTheLatencyOfACancel) {
  for (const sim::Recall recall : {sim::Recall::none, sim::Recall::mark, sim::Recall::cancel}) {
    const sim::Plan plan = sim::lending_plan(3, recall, 300 * sim::kSecond);
    sim::Traffic traffic(plan);
    ASSERT_TRUE(traffic.run()) << traffic.failure();
    const char* names[] = {"nothing lent", "mark", "cancel"};
    std::printf("# %s: lender p99 %.0f ms, borrowed %lu, recalled %lu, longest recall %.0f ms\n",
                names[static_cast<int>(recall)], sim::percentile(traffic.fate(0).waits_ms, 0.99),
                static_cast<unsigned long>(traffic.borrowed_grants()),
                static_cast<unsigned long>(traffic.fate(1).recalled),
                static_cast<double>(traffic.longest_recall_us(0)) / 1000);
    if (recall == sim::Recall::none) {
      EXPECT_EQ(traffic.borrowed_grants(), 0U);
      continue;
    }
    EXPECT_GT(traffic.borrowed_grants(), 0U);
    if (recall == sim::Recall::mark) continue;
    const std::int64_t ttl_us = std::int64_t{plan.classes[1].borrow_ttl_ms} * sim::kMs;
    EXPECT_LE(traffic.longest_recall_us(0), ttl_us + 100 * sim::kMs + plan.cancel_latency_us);
  }
}

// A lender that was silent for long has lent nearly everything; when it comes back it must wait, but not for the
// tickets of 5 s: the recall has its bound, and it is met.
TEST(LedgerBorrowingTraffic, ALenderThatComesBackRecallsWhatItLent) {
  sim::Plan plan = sim::lending_plan(5, sim::Recall::cancel, 120 * sim::kSecond);
  plan.tenants[0].on_us = 5 * sim::kSecond;
  plan.tenants[0].off_us = 40 * sim::kSecond;
  plan.tenants[1].hold = sim::fixed_hold(20 * sim::kSecond);
  sim::Traffic traffic(plan);
  ASSERT_TRUE(traffic.run()) << traffic.failure();
  EXPECT_GT(traffic.fate(1).recalled, 0U);
  EXPECT_GT(traffic.longest_recall_us(0), 0);
  EXPECT_LE(traffic.longest_recall_us(0), 1'100'000 + plan.cancel_latency_us);
}

}  // namespace
}  // namespace sluice::ledger
