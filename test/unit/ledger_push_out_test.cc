// A full queue: who has to leave it for whom (A13, A16, A17).
#include <gtest/gtest.h>

#include "sim/scenarios.h"

namespace sluice::ledger {
namespace {

class LedgerPushOut : public ::testing::Test {
 protected:
  LedgerPushOut() : t({100, 0, 8, 1, 64, 16, 16}) {}

  void start(std::uint32_t max_queue) {
    policy::Policy policy = test::empty_policy();
    test::add_class(policy, "default", 1, max_queue);
    policy.classes[0].aging_ms = 1000;
    policy.lease_ms = 10000;
    test::add_tenant(policy, "heavy", 3, policy::kNoLimit);
    test::add_tenant(policy, "*", 1, policy::kNoLimit);
    ASSERT_EQ(t.apply(policy), Status::ok);
    a = t.tenant("a");
    b = t.tenant("b");
    heavy = t.tenant("heavy");
    ASSERT_EQ(t.begin(next++, t.tenant("holder")).status, Status::ok);
  }

  Outcome ask(std::uint32_t tenant, std::uint8_t id = 0) {
    t.now_us += 1000;
    TicketRequest request = t.request(tenant, 0);
    request.id.bytes[0] = id;
    request.owner = id == 0 ? 0 : 42;
    return t.begin(next++, request);
  }

  std::uint32_t waiting(std::uint32_t tenant) {
    std::uint32_t count = 0;
    for (std::uint32_t i = 0; i < next; i++) {
      if (t.state(i) == TicketState::queued && t.ledger.tickets[i].tenant == tenant) count++;
    }
    return count;
  }

  test::TestLedger t;
  std::uint32_t a = 0, b = 0, heavy = 0;
  std::uint32_t next = 0;
};

TEST_F(LedgerPushOut, AFullQueueTakesTheYoungestOfTheRowThatHasMost) {
  start(10);
  for (int i = 0; i < 10; i++) ASSERT_EQ(ask(a).status, Status::queued);
  const std::uint32_t youngest = next - 1;
  t.woken.clear();
  ASSERT_EQ(ask(b).status, Status::queued);
  EXPECT_EQ(t.woken, (std::vector<std::uint32_t>{youngest}));
  const Outcome outcome = t.poll(youngest);
  EXPECT_EQ(outcome.status, Status::pushed_out);
  EXPECT_EQ(outcome.rule.field, policy::RuleField::class_max_queue);
  EXPECT_EQ(outcome.limit, 10U);
  EXPECT_EQ(t.ledger.classes[0].queued, 10U);
  EXPECT_EQ(t.ledger.header->pushed_out, 1U);
  EXPECT_EQ(row_at(t.ledger, a, 0).pushed_out, 1U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerPushOut, TheRowThatLosesTicketsKeepsItsShare) {
  start(10);
  for (int i = 0; i < 10; i++) ASSERT_EQ(ask(a).status, Status::queued);
  for (int i = 0; i < 5; i++) ASSERT_EQ(ask(b).status, Status::queued);
  for (int i = 0; i < 5; i++) {
    const Outcome outcome = ask(b);
    EXPECT_EQ(outcome.status, Status::queue_full);
    EXPECT_EQ(outcome.used, 10U);
    EXPECT_EQ(outcome.limit, 10U);
  }
  EXPECT_EQ(waiting(a), 5U);
  EXPECT_EQ(waiting(b), 5U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerPushOut, SharesOfAFullQueueFollowTheWeights) {
  start(40);
  for (int i = 0; i < 40; i++) ASSERT_EQ(ask(a).status, Status::queued);
  for (int i = 0; i < 45; i++) (void)ask(heavy);
  EXPECT_EQ(waiting(heavy) + waiting(a), 40U);
  EXPECT_GE(waiting(heavy), 29U);
  EXPECT_GE(waiting(a), 10U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerPushOut, WhoeverWasPushedOutAndComesBackAtOnceIsRefused) {
  start(10);
  for (std::uint8_t i = 1; i <= 10; i++) ASSERT_EQ(ask(a, i).status, Status::queued);
  for (int i = 0; i < 5; i++) ASSERT_EQ(ask(b).status, Status::queued);
  ASSERT_EQ(t.poll(10).status, Status::pushed_out);
  EXPECT_EQ(ask(a, 10).status, Status::queue_full);
  EXPECT_EQ(waiting(a), 5U);
  EXPECT_EQ(waiting(b), 5U);
}

// With equal shares only age decides, and only an age that the ledger has written down itself.
TEST_F(LedgerPushOut, AnOlderRetryTakesThePlaceOfAYoungerTicket) {
  start(4);
  ASSERT_EQ(ask(a, 1).status, Status::queued);
  const std::uint32_t first = next - 1;
  ASSERT_EQ(t.end(first, Status::cancelled).status, Status::cancelled);
  for (int i = 0; i < 2; i++) ASSERT_EQ(ask(a).status, Status::queued);
  ASSERT_EQ(ask(b).status, Status::queued);
  ASSERT_EQ(ask(heavy).status, Status::queued);
  // (1 + 1) / 1 is what the other then has had: no margin. A newcomer is refused, the older ticket is not.
  EXPECT_EQ(ask(b).status, Status::queue_full);
  EXPECT_EQ(ask(b, 9).status, Status::queue_full);
  EXPECT_EQ(waiting(a), 2U);
  TicketRequest again = t.request(b, 0);
  again.id.bytes[0] = 1;
  again.owner = 42;
  again.now_us = t.now_us;
  EXPECT_EQ(t.begin(next++, again).status, Status::queued);
  EXPECT_EQ(waiting(a), 1U);
  EXPECT_EQ(waiting(b), 2U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerPushOut, OneTicketEachIsNobodysExcess) {
  start(2);
  ASSERT_EQ(ask(a).status, Status::queued);
  ASSERT_EQ(ask(b).status, Status::queued);
  for (int i = 0; i < 5; i++) EXPECT_EQ(ask(heavy).status, Status::queue_full);
  EXPECT_EQ(waiting(a) + waiting(b), 2U);
}

// Without the margin these pushed each other out 13 times for each one that was served, and 100 were ever served.
TEST(LedgerPushOutTraffic, FiveHundredTenantsOnAHundredPlacesAreAllServed) {
  sim::Plan plan;
  plan.duration_us = 60 * sim::kSecond;
  plan.audit_every = 500;
  plan.compare_pairs = false;
  sim::ClassPlan klass;
  klass.permits = 4;
  klass.max_queue = 100;
  plan.classes.push_back(klass);
  for (std::uint32_t i = 0; i < 500; i++) {
    sim::TenantPlan tenant;
    tenant.clients = 1;
    tenant.hold = sim::fixed_hold(20 * sim::kMs);
    tenant.retries = true;
    tenant.owner = i + 1;
    tenant.start_us = i * 50;
    plan.tenants.push_back(tenant);
  }
  sim::Traffic traffic(plan);
  ASSERT_TRUE(traffic.run()) << traffic.failure();
  std::uint64_t served = 0, pushed_out = 0, never = 0;
  for (std::uint32_t i = 0; i < 500; i++) {
    served += traffic.fate(i).granted;
    pushed_out += traffic.fate(i).pushed_out;
    if (traffic.fate(i).granted == 0) never++;
  }
  EXPECT_EQ(never, 0U);
  EXPECT_LE(pushed_out, 2 * served);
  EXPECT_GT(served, 10000U);
}

// A flood fills the queue again as soon as there is a place; a tenant of few tickets is served as if it were alone.
TEST(LedgerPushOutTraffic, AFloodCannotKeepALightTenantOutOfTheQueue) {
  sim::Plan plan;
  plan.duration_us = 60 * sim::kSecond;
  plan.audit_every = 100;
  sim::ClassPlan klass;
  klass.permits = 4;
  klass.max_queue = 50;
  plan.classes.push_back(klass);
  sim::TenantPlan flood;
  flood.clients = 200;
  flood.hold = sim::fixed_hold(50 * sim::kMs);
  sim::TenantPlan light;
  light.clients = 2;
  light.think_us = 100 * sim::kMs;
  light.hold = sim::fixed_hold(10 * sim::kMs);
  plan.tenants = {flood, light};
  sim::Traffic traffic(plan);
  ASSERT_TRUE(traffic.run()) << traffic.failure();
  EXPECT_EQ(traffic.fate(1).full + traffic.fate(1).pushed_out, 0U);
  EXPECT_GT(traffic.fate(0).pushed_out, 0U);
  EXPECT_LT(sim::percentile(traffic.fate(1).waits_ms, 1), 100);
}

}  // namespace
}  // namespace sluice::ledger
