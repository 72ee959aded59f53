// Property test of the queues: random takes, releases and ends over random limits, and after each of them every balance
// agrees with the records, nobody waits while a permit is free, and rows are first in, first out.
#include "ledger/queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "ledger_fixture.h"

namespace sluice::ledger {
namespace {

constexpr std::uint32_t kTickets = 24;

class RandomLedger {
 public:
  explicit RandomLedger(std::uint32_t seed) : t({kTickets, 0, 8, 2, 8, 8, 8}), random(seed) {
    change_policy();
    for (const char* name : {"a", "b", "c", "d"}) tenants.push_back(t.tenant(name));
  }

  std::uint32_t pick(std::uint32_t count) { return static_cast<std::uint32_t>(random() % count); }

  void change_policy() {
    policy::Policy policy = test::empty_policy(++generation);
    test::add_class(policy, "one", pick(6), pick(12));
    test::add_class(policy, "two", pick(4), pick(6));
    test::add_tenant(policy, "*", 1 + pick(3), pick(5));
    test::add_tenant(policy, "a", 1 + pick(5), 1 + pick(3));
    policy.overdraft_max = pick(3);
    for (std::uint32_t klass = 0; klass < 2; klass++) {
      policy.classes[klass].aging_ms = 1 + pick(20);
      const auto on_expiry = pick(2) == 0 ? policy::BorrowExpiry::mark : policy::BorrowExpiry::cancel;
      if (pick(3) != 0) test::let_borrow(policy, klass, 3U & ~(1U << klass), 1 + pick(4), 1 + pick(20), on_expiry);
    }
    ASSERT_EQ(t.apply(policy), Status::ok);
    tick_all();
  }

  void tick_all() {
    Wakes wakes;
    do {
      wakes = {};
      tick(t.ledger, t.lock, t.now_us, wakes);
    } while (wakes.more);
  }

  void step() {
    t.now_us += pick(1000);
    if (pick(50) == 0) tick_all();
    const std::uint32_t ticket = pick(kTickets);
    switch (t.state(ticket)) {
      case TicketState::queued:
        change_waiter(ticket);
        break;
      case TicketState::execution_granted:
        (void)(pick(2) == 0 ? t.poll(ticket) : t.end(ticket, Status::cancelled));
        break;
      case TicketState::in_transaction:
      case TicketState::committing:
      case TicketState::expiring:
        if (t.state(ticket) == TicketState::expiring) {
          EXPECT_EQ(t.finish(ticket), Status::ok);
          break;
        }
        if (pick(8) == 0 && expire_borrowed(t.ledger, t.lock, ticket, t.now_us) == Status::ok) {
          EXPECT_EQ(t.state(ticket), TicketState::expiring);
        } else if (pick(4) == 0) {
          EXPECT_EQ(begin_commit(t.ledger, ticket), Status::ok);
        } else {
          EXPECT_EQ(t.finish(ticket), Status::ok);
          EXPECT_EQ(t.finish(ticket), Status::ok);
        }
        break;
      default:
        if (pick(40) == 0) change_policy();
        (void)t.begin(ticket, t.request(tenants[pick(4)], pick(2), pick(20) != 0));
    }
  }

  void change_waiter(std::uint32_t ticket) {
    Wakes wakes = {};
    const std::uint32_t other = pick(kTickets);
    switch (pick(6)) {
      case 0:
        (void)t.end(ticket, Status::cancelled);
        break;
      case 1:
        (void)t.end(ticket, Status::queue_deadline);
        break;
      case 2:
        (void)mark_blocker(t.ledger, t.lock, ticket, t.now_us);
        break;
      case 3:
        (void)grant_overdraft(t.ledger, t.lock, ticket, t.now_us, wakes);
        break;
      case 4:
        (void)refuse_blocker(t.ledger, t.lock, ticket, t.now_us, wakes);
        break;
      default:
        if (t.state(other) == TicketState::in_transaction &&
            t.ledger.tickets[other].klass == t.ledger.tickets[ticket].klass &&
            t.ledger.tickets[other].source == PermitSource::own_class) {
          (void)hand_over(t.ledger, t.lock, other, ticket, t.now_us);
          tick_all();
        }
    }
  }

  // Nobody waits while what he waits for is there.
  void expect_work_conserved() {
    for (std::uint32_t klass = 0; klass < 2; klass++) {
      const ClassWord word = t.klass(klass);
      EXPECT_FALSE(word.free > 0 && word.waiters > 0);
      EXPECT_LE(t.ledger.classes[klass].queued, std::max(t.ledger.classes[klass].max_queue, most_queued[klass]));
      most_queued[klass] = t.ledger.classes[klass].queued;
      for (const std::uint32_t tenant : tenants) {
        const RowWord row = t.row(tenant, klass);
        EXPECT_FALSE(row.parked > 0 && row.in_use < row.limit);
      }
    }
  }

  test::TestLedger t;
  std::mt19937 random;
  std::vector<std::uint32_t> tenants;
  std::uint64_t generation = 0;
  std::uint32_t most_queued[2] = {0, 0};  // a queue that is too long after a change of policy only gets shorter
};

TEST(LedgerQueueProperty, EveryRandomHistoryConservesBothQuotas) {
  for (std::uint32_t seed = 1; seed <= 20; seed++) {
    RandomLedger random(seed);
    for (int i = 0; i < 3000; i++) {
      random.step();
      ASSERT_EQ(random.t.audit_report(), "") << "seed " << seed << " step " << i;
      random.expect_work_conserved();
      ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed << " step " << i;
    }
    EXPECT_EQ(random.t.ledger.header->faults, 0U) << "seed " << seed;
    EXPECT_EQ(random.t.ledger.header->over_limit_grants, 0U) << "seed " << seed;
  }
}

// Whatever comes between, the unmarked tickets of a row are granted in the order they came (A15: no overtaking).
TEST(LedgerQueueProperty, RowsStayFirstInFirstOutUnderChangingLimits) {
  std::mt19937 random(7);
  test::TestLedger t({200, 0, 4, 1, 0, 0, 0});
  policy::Policy policy = test::empty_policy();
  test::add_class(policy, "default", 3, 500);
  test::add_tenant(policy, "*", 1, 4);
  ASSERT_EQ(t.apply(policy), Status::ok);
  const std::uint32_t tenant = t.tenant("a");
  for (std::uint32_t ticket = 0; ticket < 200; ticket++) (void)t.begin(ticket, tenant);
  std::vector<std::uint32_t> holders = {0, 1, 2};
  std::size_t seen = 0;
  while (!holders.empty()) {
    policy.tenant_rules[0].max_inflight = static_cast<std::uint32_t>(1 + random() % 8);
    policy.classes[0].permits = static_cast<std::uint32_t>(1 + random() % 6);
    policy.generation++;
    ASSERT_EQ(t.apply(policy), Status::ok);
    const std::size_t at = random() % holders.size();
    if (holders[at] != kNil) {
      (void)t.poll(holders[at]);
      ASSERT_EQ(t.finish(holders[at]), Status::ok);
    }
    holders.erase(holders.begin() + static_cast<std::ptrdiff_t>(at));
    for (; seen < t.woken.size(); seen++) holders.push_back(t.woken[seen]);
  }
  ASSERT_EQ(t.woken.size(), 197U);
  EXPECT_TRUE(std::is_sorted(t.woken.begin(), t.woken.end()));
  EXPECT_EQ(t.audit_report(), "");
  EXPECT_EQ(t.ledger.header->over_limit_grants, 0U);
}

}  // namespace
}  // namespace sluice::ledger
