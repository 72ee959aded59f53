// Each rule of the fair queue alone: a test here fails when just that rule is broken (A13, A15).
#include <gtest/gtest.h>

#include <map>

#include "sim/scenarios.h"

namespace sluice::sim {
namespace {

Plan of(std::uint32_t permits, std::uint32_t aging_ms, std::vector<TenantPlan> tenants) {
  Plan plan = one_class(permits, aging_ms, std::move(tenants));
  plan.audit_every = 8;
  plan.duration_us = 1000 * kSecond;
  return plan;
}

TEST(LedgerFairness, WeightsDivideService) {
  Traffic traffic(of(4, 500,
                     {backlogged(1, 8, fixed_hold(20 * kMs)), backlogged(3, 8, fixed_hold(20 * kMs)),
                      backlogged(6, 8, fixed_hold(20 * kMs))}));
  ASSERT_TRUE(traffic.run_until(100 * kSecond)) << traffic.failure();
  EXPECT_NEAR(traffic.service_us(1) / traffic.service_us(0), 3, 0.1);
  EXPECT_NEAR(traffic.service_us(2) / traffic.service_us(0), 6, 0.2);
}

// Transactions that do not end weigh on their row while they run, not only when they are over.
TEST(LedgerFairness, RunningTransactionsAreCharged) {
  TenantPlan late = backlogged(1, 8, fixed_hold(60 * kSecond));
  late.start_us = 100 * kMs;
  Traffic traffic(of(4, 500, {backlogged(1, 12, fixed_hold(10 * kMs)), late}));
  for (int second = 1; second < 60; second++) {
    ASSERT_TRUE(traffic.run_until(second * kSecond)) << traffic.failure();
    ASSERT_GE(traffic.held(0), 1U) << "after " << second << " s";
    ASSERT_GE(traffic.held(1), 1U) << "after " << second << " s";
    ASSERT_LE(traffic.held(1), 3U) << "after " << second << " s";
  }
  EXPECT_LE(traffic.service_us(1), 3 * 60 * 1e6);
}

// Permits that come back at one moment are divided, although no time has passed in which anybody could be charged.
TEST(LedgerFairness, PermitsThatComeBackTogetherAreDivided) {
  ledger::test::TestLedger t({100, 0, 5, 1, 0, 16, 16});
  policy::Policy policy = ledger::test::empty_policy();
  ledger::test::add_class(policy, "default", 20, 1000);
  policy.classes[0].aging_ms = 500;
  ledger::test::add_tenant(policy, "*", 1, policy::kNoLimit);
  ASSERT_EQ(t.apply(policy), policy::Status::ok);
  const std::uint32_t c = t.tenant("c"), a = t.tenant("a"), b = t.tenant("b");
  for (std::uint32_t i = 0; i < 20; i++) ASSERT_EQ(t.begin(i, c).status, policy::Status::ok);
  for (std::uint32_t i = 0; i < 20; i++) ASSERT_EQ(t.begin(20 + i, a).status, policy::Status::queued);
  for (std::uint32_t i = 0; i < 20; i++) ASSERT_EQ(t.begin(40 + i, b).status, policy::Status::queued);
  t.now_us += 1000;
  for (std::uint32_t i = 0; i < 20; i++) ASSERT_EQ(t.finish(i), policy::Status::ok);
  std::map<std::uint32_t, int> granted;
  for (const std::uint32_t ticket : t.woken) granted[t.ledger.tickets[ticket].tenant]++;
  EXPECT_EQ(granted[a], 10);
  EXPECT_EQ(granted[b], 10);
}

// Whoever asked for nothing while others competed has saved nothing up but one look-ahead.
TEST(LedgerFairness, IdleTimeIsNotSavedUp) {
  TenantPlan sleeper = backlogged(1, 4, fixed_hold(10 * kMs));
  sleeper.on_us = kSecond;
  sleeper.off_us = 60 * kSecond;
  Traffic traffic(
      of(1, 500, {backlogged(1, 4, fixed_hold(10 * kMs)), backlogged(1, 4, fixed_hold(10 * kMs)), sleeper}));
  ASSERT_TRUE(traffic.run_until(61 * kSecond)) << traffic.failure();
  const double before = traffic.service_us(2);
  EXPECT_LE(before, 0.5e6);
  ASSERT_TRUE(traffic.run_until(62 * kSecond)) << traffic.failure();
  EXPECT_GE(traffic.service_us(2) - before, 0.25e6);
  EXPECT_LE(traffic.service_us(2) - before, 0.5e6);
}

// A row that took every permit for 30 s while it was alone owes much to a newcomer eight times its weight. Without
// forgiveness it would wait for 240 s.
TEST(LedgerFairness, DebtIsForgivenAfterAgingSoThatNobodyStarves) {
  TenantPlan late = backlogged(8, 100, fixed_hold(10 * kMs));
  late.start_us = 100 * kMs;
  Plan plan = of(20, 1000, {backlogged(1, 40, fixed_hold(30 * kSecond)), late});
  Traffic traffic(plan);
  ASSERT_TRUE(traffic.run_until(30 * kSecond - kMs)) << traffic.failure();
  EXPECT_EQ(traffic.held(0), 20U);
  ASSERT_TRUE(traffic.run_until(31 * kSecond)) << traffic.failure();
  EXPECT_EQ(traffic.held(0), 0U);  // its debt counts: the newcomer has everything
  ASSERT_TRUE(traffic.run_until(60 * kSecond)) << traffic.failure();
  EXPECT_GE(traffic.held(0), 1U);
  EXPECT_GT(traffic.row(0).forgiven, 0U);
}

// Aging counts from the row's last permit, not from its oldest ticket: deadlines shorter than the aging do not begin it
// anew.
TEST(LedgerFairness, DebtIsForgivenAlsoToARowWhoseTicketsExpireSooner) {
  TenantPlan hasty = backlogged(1, 40, fixed_hold(30 * kSecond));
  hasty.deadline_us = 400 * kMs;
  TenantPlan late = backlogged(8, 100, fixed_hold(10 * kMs));
  late.start_us = 100 * kMs;
  Plan plan = of(20, 1000, {hasty, late});
  plan.audit_every = 1000;
  Traffic traffic(plan);
  ASSERT_TRUE(traffic.run_until(30 * kSecond + kMs)) << traffic.failure();
  EXPECT_EQ(traffic.held(0), 0U);
  ASSERT_TRUE(traffic.run_until(60 * kSecond)) << traffic.failure();
  EXPECT_GE(traffic.held(0), 1U);
}

// The smaller of the two is at its limit most of the time; what it leaves is the other's, and its return is no flood.
TEST(LedgerFairness, ARowAtItsLimitDoesNotHoldTheOthersBack) {
  TenantPlan limited = backlogged(8, 20, fixed_hold(50 * kMs));
  limited.limit = 2;
  Traffic traffic(of(10, 500, {limited, backlogged(1, 20, fixed_hold(50 * kMs))}));
  ASSERT_TRUE(traffic.run_until(60 * kSecond)) << traffic.failure();
  EXPECT_NEAR(traffic.service_us(0) / (2 * 60 * 1e6), 1, 0.01);
  EXPECT_NEAR(traffic.service_us(1) / (8 * 60 * 1e6), 1, 0.01);
}

// Contention starts anew: what somebody had while nobody waited is not held against him, but for what he still holds.
TEST(LedgerFairness, HistoryBeforeContentionIsForgotten) {
  TenantPlan early = backlogged(1, 6, exponential_hold(10 * kMs));
  TenantPlan late = backlogged(1, 12, exponential_hold(10 * kMs));
  late.start_us = 100 * kSecond;
  late.on_us = 10 * kSecond;
  late.off_us = 90 * kSecond;
  Traffic traffic(of(6, 500, {early, late}));
  // Alone at first, then beside the other, then alone again, and beside it once more.
  for (const std::int64_t at_s : {100, 200}) {
    ASSERT_TRUE(traffic.run_until(at_s * kSecond)) << traffic.failure();
    const double before = traffic.service_us(0);
    ASSERT_TRUE(traffic.run_until((at_s + 10) * kSecond)) << traffic.failure();
    EXPECT_NEAR(traffic.service_us(0) - before, 3 * 10 * 1e6, 3e6) << "from " << at_s << " s on";
  }
}

// Within a tenant: first come, first served, whatever the rest does.
TEST(LedgerFairness, ARetryStandsByTheAgeItHasKept) {
  ledger::test::TestLedger t({10, 0, 5, 1, 16, 16, 16});
  policy::Policy policy = ledger::test::empty_policy();
  ledger::test::add_class(policy, "default", 1, 100);
  policy.lease_ms = 10000;
  policy.classes[0].aging_ms = 1000;
  ledger::test::add_tenant(policy, "*", 1, policy::kNoLimit);
  ASSERT_EQ(t.apply(policy), policy::Status::ok);
  const std::uint32_t a = t.tenant("a");
  const auto request = [&](std::uint8_t id, std::uint32_t owner) {
    ledger::TicketRequest one = t.request(a, 0);
    one.id.bytes[0] = id;
    one.owner = owner;
    return one;
  };
  ASSERT_EQ(t.begin(0, a).status, policy::Status::ok);
  ASSERT_EQ(t.begin(1, request(1, 7)).status, policy::Status::queued);
  t.now_us += 1000;
  ASSERT_EQ(t.begin(2, request(2, 7)).status, policy::Status::queued);
  t.now_us += 1000;
  ASSERT_EQ(t.end(1, policy::Status::cancelled).status, policy::Status::cancelled);
  t.now_us += 1000;
  ASSERT_EQ(t.begin(3, request(3, 7)).status, policy::Status::queued);
  // The first one comes again, through another session; somebody else's ticket of the same id has no age.
  ASSERT_EQ(t.begin(4, request(1, 7)).status, policy::Status::queued);
  ASSERT_EQ(t.begin(5, request(1, 8)).status, policy::Status::queued);
  for (const std::uint32_t next : {4U, 2U, 3U, 5U}) {
    t.woken.clear();
    t.now_us += 1000;
    std::uint32_t holder = ledger::kNil;
    for (std::uint32_t i = 0; i < 6; i++) {
      if (ledger::holds_permit(t.state(i))) holder = i;
    }
    ASSERT_EQ(t.finish(holder), policy::Status::ok);
    ASSERT_EQ(t.woken, (std::vector<std::uint32_t>{next}));
    ASSERT_EQ(t.poll(next).status, policy::Status::ok);
  }
  EXPECT_EQ(t.audit_report(), "");
}

}  // namespace
}  // namespace sluice::sim
