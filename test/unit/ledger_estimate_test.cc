// Early rejection: whom an estimate of the wait may refuse, and what overload comes to (A16).
#include <gtest/gtest.h>

#include <cstdio>

#include "ledger/atomics.h"
#include "ledger/estimate.h"
#include "sim/scenarios.h"

namespace sluice::ledger {
namespace {

class LedgerEstimate : public ::testing::Test {
 protected:
  LedgerEstimate() : t({200, 0, 6, 1, 64, 16, 16}) {
    policy::Policy policy = test::empty_policy();
    test::add_class(policy, "default", 2, 1000, 30000);
    policy.classes[0].aging_ms = 1000;
    test::add_tenant(policy, "*", 1, policy::kNoLimit);
    if (t.apply(policy) != Status::ok) std::abort();
    a = t.tenant("a");
    b = t.tenant("b");
  }

  // Both permits in use and a ticket that waits, so that what follows goes through the lock and counts as a sample.
  void serve(std::uint32_t tenant, int count, std::int64_t hold_us) {
    for (int i = 0; i < count; i++) {
      ASSERT_EQ(t.begin(190, tenant).status, Status::ok);
      ASSERT_EQ(t.begin(191, tenant).status, Status::ok);
      ASSERT_EQ(t.begin(192, tenant).status, Status::queued);
      t.now_us += hold_us;
      ASSERT_EQ(t.finish(190), Status::ok);
      ASSERT_EQ(t.poll(192).status, Status::ok);
      ASSERT_EQ(t.finish(191), Status::ok);
      t.now_us += hold_us;
      ASSERT_EQ(t.finish(192), Status::ok);
    }
  }

  Outcome ask(std::uint32_t ticket, std::uint32_t tenant, std::int64_t within_us) {
    TicketRequest request = t.request(tenant, 0);
    request.deadline_us = t.now_us + within_us;
    return t.begin(ticket, request);
  }

  std::int64_t expected(std::uint32_t tenant) { return expected_wait_us(t.ledger, t.lock, tenant, 0, t.now_us); }

  test::TestLedger t;
  std::uint32_t a = 0, b = 0;
};

TEST_F(LedgerEstimate, AColdStartAdmits) {
  for (std::uint32_t i = 0; i < 150; i++) ASSERT_NE(ask(i, a, 1).status, Status::deadline_unreachable);
  EXPECT_EQ(expected(a), -1);
}

TEST_F(LedgerEstimate, ATicketThatWouldMissItsDeadlineIsRefusedWithTheNumbers) {
  serve(a, 20, 500'000);
  std::uint32_t ticket = 0;
  for (; ticket < 42; ticket++) ASSERT_NE(ask(ticket, a, 3'600'000'000).status, Status::deadline_unreachable);
  // 40 tickets of half a second on two permits are ten seconds.
  const std::int64_t wait_us = expected(a);
  EXPECT_GT(wait_us, 5'000'000);
  EXPECT_LT(wait_us, 20'000'000);
  const Outcome outcome = ask(ticket, a, 2'000'000);
  EXPECT_EQ(outcome.status, Status::deadline_unreachable);
  EXPECT_EQ(outcome.rule.field, policy::RuleField::class_queue_deadline);
  EXPECT_NEAR(outcome.used, wait_us / 1000, 1);
  EXPECT_EQ(outcome.limit, 2000U);
  EXPECT_EQ(ask(ticket + 1, a, 60'000'000).status, Status::queued);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerEstimate, WhoeverHasNothingQueuedOrHeldIsNeverRefusedByEstimate) {
  serve(a, 20, 500'000);
  serve(b, 20, 500'000);
  for (std::uint32_t i = 0; i < 150; i++) ASSERT_NE(ask(i, a, 3'600'000'000).status, Status::deadline_unreachable);
  EXPECT_EQ(ask(150, b, 1).status, Status::queued);
}

// Its key is 20 s ahead of the others, so it would miss its deadline; it may try all the same, once.
TEST_F(LedgerEstimate, ARowWithDebtAndNothingQueuedOrHeldIsNotRefusedByEstimate) {
  serve(a, 20, 500'000);
  ASSERT_EQ(ask(0, a, 3'600'000'000).status, Status::ok);
  ASSERT_EQ(ask(1, a, 3'600'000'000).status, Status::ok);
  ASSERT_EQ(ask(2, a, 3'600'000'000).status, Status::queued);
  for (std::uint32_t i = 10; i < 60; i++) ASSERT_EQ(ask(i, b, 3'600'000'000).status, Status::queued);
  t.now_us += 20'000'000;
  ASSERT_EQ(t.end(2, Status::cancelled).status, Status::cancelled);
  ASSERT_EQ(t.finish(0), Status::ok);
  ASSERT_EQ(t.finish(1), Status::ok);
  EXPECT_GT(expected(a), 1'000'000);
  EXPECT_EQ(ask(3, a, 1'000'000).status, Status::queued);
  EXPECT_EQ(ask(4, a, 1'000'000).status, Status::deadline_unreachable);
}

// What was held when nobody waited any more was given back without the lock: an hour later it is no debt.
TEST_F(LedgerEstimate, WhatWasHeldWhenContentionEndedIsNoDebtLater) {
  serve(a, 20, 10'000);
  ASSERT_EQ(ask(0, a, 3'600'000'000).status, Status::ok);
  ASSERT_EQ(ask(1, a, 3'600'000'000).status, Status::ok);
  ASSERT_EQ(ask(2, a, 3'600'000'000).status, Status::queued);
  ASSERT_EQ(t.finish(0), Status::ok);
  ASSERT_EQ(t.poll(2).status, Status::ok);
  ASSERT_EQ(t.finish(1), Status::ok);
  t.now_us += 3'600'000'000;
  ASSERT_EQ(ask(3, a, 3'600'000'000).status, Status::ok);
  EXPECT_LE(expected(a), 1'000'000);
  EXPECT_EQ(ask(4, a, 10'000'000).status, Status::queued);
}

TEST_F(LedgerEstimate, TheExpectedWaitGrowsWithTheOwnQueue) {
  serve(a, 20, 100'000);
  std::int64_t before = -1;
  for (std::uint32_t i = 0; i < 60; i++) {
    ASSERT_NE(ask(i, a, 3'600'000'000).status, Status::deadline_unreachable);
    if (i < 2) continue;
    EXPECT_GE(expected(a), before);
    before = expected(a);
  }
  EXPECT_GT(before, 1'000'000);
}

TEST_F(LedgerEstimate, OfAWaiterOnlyThoseOfItsRowThatStandBeforeItCount) {
  serve(a, 20, 100'000);
  for (std::uint32_t i = 0; i < 12; i++) ASSERT_NE(ask(i, a, 3'600'000'000).status, Status::deadline_unreachable);
  const auto expected_of = [&](std::uint32_t ticket) { return expected_wait_of(t.ledger, t.lock, ticket, t.now_us); };
  // Tickets of a tenth of a second on two permits: each that stands before another costs it 50 ms.
  for (std::uint32_t i = 3; i < 12; i++) EXPECT_NEAR(expected_of(i) - expected_of(i - 1), 50'000, 1'000) << i;
  // A newcomer has all of them before it; it is told what the last one would be told one place further back.
  EXPECT_NEAR(expected(a) - expected_of(11), 50'000, 1'000);
  ASSERT_EQ(t.end(5, Status::cancelled).status, Status::cancelled);
  EXPECT_NEAR(expected(a) - expected_of(11), 50'000, 1'000);
}

TEST_F(LedgerEstimate, NothingIsToldOfWhoDoesNotWaitOrWhoseRowIsUnknown) {
  const auto expected_of = [&](std::uint32_t ticket) { return expected_wait_of(t.ledger, t.lock, ticket, t.now_us); };
  for (std::uint32_t i = 0; i < 3; i++) ASSERT_NE(ask(i, b, 3'600'000'000).status, Status::deadline_unreachable);
  EXPECT_EQ(expected_of(2), -1) << "it waits, and fewer than eight holds have been seen";
  ASSERT_EQ(t.end(2, Status::cancelled).status, Status::cancelled);
  for (std::uint32_t i = 0; i < 2; i++) ASSERT_EQ(t.finish(i), Status::ok);
  serve(b, 20, 100'000);
  ASSERT_EQ(ask(0, b, 3'600'000'000).status, Status::ok);
  EXPECT_EQ(expected_of(0), -1) << "it runs";
  EXPECT_EQ(expected_of(7), -1) << "it never asked";
  EXPECT_EQ(expected_of(ticket_count(t.ledger)), -1) << "there is no such ticket";
}

// A parked ticket stands behind the eligible ones of its row as well.
TEST_F(LedgerEstimate, AParkedTicketWaitsForTheEligibleOnesBeforeIt) {
  serve(a, 20, 100'000);
  const std::uint32_t index = a * t.ledger.header->sizes.classes;
  change_row(t.ledger.rows[index], [](RowWord& word) noexcept {
    word.limit = 4;
    return true;
  });
  for (std::uint32_t i = 0; i < 6; i++) ASSERT_NE(ask(i, a, 3'600'000'000).status, Status::deadline_unreachable);
  ASSERT_FALSE(t.ledger.tickets[3].parked);
  ASSERT_TRUE(t.ledger.tickets[4].parked);
  const std::int64_t before = expected_wait_of(t.ledger, t.lock, 3, t.now_us);
  EXPECT_NEAR(expected_wait_of(t.ledger, t.lock, 4, t.now_us) - before, 50'000, 1'000);
  EXPECT_NEAR(expected_wait_of(t.ledger, t.lock, 5, t.now_us) - before, 100'000, 1'000);
}

// Without early rejection 32 % and 66 % of the tickets expired in the queue.
TEST(LedgerEstimateTraffic, OverloadIsRefusedEarlyInsteadOfExpiringInTheQueue) {
  for (const double load : {1.5, 3.0}) {
    sim::Traffic traffic(sim::overload_plan(1, load, 60 * sim::kSecond));
    ASSERT_TRUE(traffic.run()) << traffic.failure();
    double asked = 0, expired = 0, granted = 0;
    for (std::uint32_t i = 0; i < 10; i++) {
      asked += static_cast<double>(traffic.fate(i).asked);
      expired += static_cast<double>(traffic.fate(i).expired);
      granted += static_cast<double>(traffic.fate(i).granted);
    }
    std::printf("# load %.1f: %.1f %% served, %.1f %% expired in the queue\n", load, 100 * granted / asked,
                100 * expired / asked);
    EXPECT_LE(expired / asked, 0.12) << "at load " << load;
    EXPECT_GE(granted / asked, 0.85 / load) << "at load " << load;
    EXPECT_EQ(traffic.fate(10).expired, 0U);
    EXPECT_LE(traffic.fate(10).unreachable * 100, traffic.fate(10).asked);
  }
}

TEST(LedgerEstimateTraffic, NobodyIsRefusedWhileThereIsEnough) {
  sim::Traffic traffic(sim::overload_plan(1, 0.8, 60 * sim::kSecond));
  ASSERT_TRUE(traffic.run()) << traffic.failure();
  for (std::uint32_t i = 0; i <= 10; i++) EXPECT_EQ(traffic.fate(i).unreachable + traffic.fate(i).expired, 0U);
}

}  // namespace
}  // namespace sluice::ledger
