#include "ledger/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "ledger_fixture.h"

namespace sluice::ledger {
namespace {

constexpr std::int64_t kMs = 1000;
constexpr std::int64_t kLookAhead = 50 * kMs;  // of agingMs 500

// Two tenants of one class with one permit, which a third one holds while they queue.
class LedgerScheduler : public ::testing::Test {
 protected:
  LedgerScheduler() : t({64, 0, 16, 1, 8, 8, 8}) { use(1, 1); }

  void use(std::uint32_t weight_a, std::uint32_t weight_b, std::uint32_t permits = 1, std::uint32_t limit = 64) {
    policy = test::empty_policy(++generation);
    test::add_class(policy, "default", permits, 100);
    test::add_tenant(policy, "a", weight_a, limit);
    test::add_tenant(policy, "b", weight_b, limit);
    ASSERT_EQ(t.apply(policy), Status::ok);
    a = t.tenant("a");
    b = t.tenant("b");
    other = t.tenant("other");
  }

  std::uint32_t queue(std::uint32_t tenant) {
    EXPECT_EQ(t.begin(next, tenant).status, Status::queued);
    return next++;
  }
  std::uint32_t hold(std::uint32_t tenant) {
    EXPECT_EQ(t.begin(next, tenant).status, Status::ok);
    return next++;
  }
  // Ends the ticket and says whose ticket was granted in its place.
  std::uint32_t pass_on(std::uint32_t ticket) {
    t.woken.clear();
    EXPECT_EQ(t.finish(ticket), Status::ok);
    EXPECT_EQ(t.audit_report(), "");
    if (t.woken.empty()) return kNil;
    EXPECT_EQ(t.poll(t.woken[0]).status, Status::ok);
    return t.woken[0];
  }
  std::uint32_t tenant_of(std::uint32_t ticket) { return t.ledger.tickets[ticket].tenant; }
  const Row& row(std::uint32_t tenant) { return row_at(t.ledger, tenant, 0); }
  std::int64_t key(std::uint32_t tenant) { return key_at(t.ledger, t.lock, tenant, t.now_us); }

  test::TestLedger t;
  policy::Policy policy;
  std::uint64_t generation = 0;
  std::uint32_t a = 0, b = 0, other = 0, next = 0;
};

TEST_F(LedgerScheduler, NobodyIsServedWhereNobodyWaits) { EXPECT_EQ(pick(t.ledger, t.lock, 0, t.now_us), kNil); }

TEST_F(LedgerScheduler, AmongEqualsTheOneThatHasWaitedLongestIsServed) {
  const std::uint32_t holder = hold(other);
  queue(b);
  t.now_us++;
  queue(a);
  EXPECT_EQ(tenant_of(pass_on(holder)), b);
}

// Holds of a cost twice those of b: it gets half as many grants, so that both are served alike.
TEST_F(LedgerScheduler, TimeIsSharedNotGrants) {
  std::uint32_t holder = hold(other);
  std::map<std::uint32_t, int> waiting, grants;
  for (int i = 0; i < 300; i++) {
    for (const std::uint32_t tenant : {a, b}) {
      while (waiting[tenant] < 2) {
        for (next = 0; next < 64; next++) {
          const TicketState state = t.state(next);
          if (state == TicketState::none || is_ended(state)) break;
        }
        queue(tenant);
        waiting[tenant]++;
      }
    }
    t.now_us += (tenant_of(holder) == a ? 20 : 10) * kMs;
    holder = pass_on(holder);
    waiting[tenant_of(holder)]--;
    if (i >= 20) grants[tenant_of(holder)]++;
  }
  EXPECT_NEAR(static_cast<double>(grants[b]) / grants[a], 2.0, 0.1);
}

TEST_F(LedgerScheduler, ServiceIsChargedWhileItIsHeld) {
  use(2, 1);
  const std::uint32_t holder = hold(other);
  queue(a);
  queue(b);
  ASSERT_EQ(tenant_of(pass_on(holder)), a);
  const std::int64_t start = key(a);
  t.now_us += 30 * kMs;
  EXPECT_EQ(key(a) - start, 15 * kMs) << "30 permit-milliseconds at weight 2";
  EXPECT_EQ(key(b), 0);
}

TEST_F(LedgerScheduler, WhatIsHeldCountsAhead) {
  use(1, 1, 2);
  const std::uint32_t first = hold(a);
  const std::uint32_t second = hold(other);
  queue(a);
  queue(b);
  EXPECT_EQ(key(a), kLookAhead);
  EXPECT_EQ(key(b), 0);
  EXPECT_EQ(tenant_of(pass_on(second)), b) << "a came first, and holds a permit already";
  EXPECT_EQ(tenant_of(pass_on(first)), a);
}

TEST_F(LedgerScheduler, HavingBeenAwayEarnsALookAheadOfCreditAndNoMore) {
  std::uint32_t holder = hold(other);
  for (int i = 0; i < 6; i++) queue(a);
  holder = pass_on(holder);
  for (int i = 0; i < 4; i++) {
    t.now_us += 1000 * kMs;
    holder = pass_on(holder);
    ASSERT_EQ(tenant_of(holder), a);
  }
  const std::int64_t virtual_time = t.ledger.classes[0].virtual_time;
  ASSERT_GE(virtual_time, 3000 * kMs);
  queue(b);
  EXPECT_GE(key(b), virtual_time - kLookAhead);
  EXPECT_LE(key(b), key(a));
}

TEST_F(LedgerScheduler, ContentionStartsWithACleanSlate) {
  std::uint32_t holder = hold(other);
  queue(a);
  queue(a);
  queue(b);
  holder = pass_on(holder);
  t.now_us += 5000 * kMs;
  for (int i = 0; i < 2; i++) holder = pass_on(holder);
  ASSERT_GT(key(a), 4000 * kMs);
  (void)pass_on(holder);
  ASSERT_EQ(t.ledger.classes[0].key_count, 0U);
  holder = hold(other);
  queue(a);
  EXPECT_EQ(key(a), 0);
}

// A row that waited for agingMs with nothing held is forgiven all but one of its own longest holds.
TEST_F(LedgerScheduler, ADebtIsForgivenInTime) {
  use(1, 1, 2);
  const std::uint32_t blocker = hold(other);
  std::uint32_t holder = hold(other);
  queue(b);
  queue(b);
  t.now_us++;
  queue(a);
  holder = pass_on(holder);
  ASSERT_EQ(tenant_of(holder), b);
  t.now_us += kMs;
  ASSERT_EQ(tenant_of(pass_on(holder)), a);
  const std::uint32_t costly = t.woken[0];
  queue(a);
  t.now_us += 10'000 * kMs;
  ASSERT_EQ(tenant_of(pass_on(costly)), b);
  ASSERT_GT(key(a), 9'000 * kMs);
  t.pass(400 * kMs);
  ASSERT_GT(key(a), 9'000 * kMs) << "not before agingMs";
  row_at(t.ledger, a, 0).max_hold_us = 70 * kMs;
  t.pass(200 * kMs);
  EXPECT_EQ(key(a), t.ledger.classes[0].virtual_time + kLookAhead + 70 * kMs);
  EXPECT_GT(row(a).forgiven, 8'000 * kMs);
  EXPECT_EQ(t.audit_report(), "");
  (void)blocker;
}

TEST_F(LedgerScheduler, ARowAtItsLimitIsNotInTheOrder) {
  use(1, 1, 3, 1);
  const std::uint32_t first = hold(a);
  const std::uint32_t second = hold(other);
  hold(other);
  queue(a);
  EXPECT_EQ(t.ledger.classes[0].key_count, 0U) << "parked on its row";
  t.now_us++;
  queue(b);
  EXPECT_EQ(t.ledger.classes[0].key_count, 1U);
  EXPECT_EQ(tenant_of(pass_on(second)), b) << "though a came first";
  EXPECT_EQ(t.ledger.classes[0].key_count, 0U);
  EXPECT_EQ(tenant_of(pass_on(first)), a) << "which has its slot again";
}

TEST_F(LedgerScheduler, ANewWeightKeepsTheKey) {
  std::uint32_t holder = hold(other);
  queue(a);
  queue(a);
  queue(b);
  holder = pass_on(holder);
  t.now_us += 100 * kMs;
  (void)pass_on(holder);
  const std::int64_t before = key(a);
  ASSERT_GT(before, 0);
  reweigh(t.ledger, t.lock, a, 7, t.now_us);
  EXPECT_NEAR(static_cast<double>(key(a)), static_cast<double>(before), 8);
  EXPECT_EQ(row(a).weight, 7U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerScheduler, ANewAgingMovesEveryKey) {
  use(1, 1, 2);
  hold(a);
  hold(other);
  queue(a);
  queue(b);
  ASSERT_EQ(key(a), kLookAhead);
  policy.classes[0].aging_ms = 2000;
  policy.generation++;
  ASSERT_EQ(t.apply(policy), Status::ok);
  EXPECT_EQ(key(a), 200 * kMs);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerScheduler, KeysAreRebasedBeforeTheyCouldOverflow) {
  std::uint32_t holder = hold(other);
  for (int i = 0; i < 3; i++) queue(a);
  queue(b);
  const std::int64_t far = (std::int64_t{1} << 52) + 7;
  ClassState& state = t.ledger.classes[0];
  state.virtual_time += far;
  for (const std::uint32_t tenant : {a, b, other}) {
    Row& entry = row_at(t.ledger, tenant, 0);
    entry.service += far;
    entry.key += far;
  }
  const std::int64_t distance = key(a) - state.virtual_time;
  t.pass(100 * kMs);
  EXPECT_LT(state.virtual_time, 1000 * kMs);
  EXPECT_EQ(key(a) - state.virtual_time, distance);
  EXPECT_EQ(t.audit_report(), "");
  EXPECT_NE(pass_on(holder), kNil);
}

TEST_F(LedgerScheduler, TheLargestQueueIsThatWithMostPerWeight) {
  use(4, 1);
  hold(other);
  for (int i = 0; i < 4; i++) queue(a);
  queue(b);
  queue(b);
  EXPECT_EQ(largest_queue(t.ledger, t.lock, 0), b);
}

}  // namespace
}  // namespace sluice::ledger
