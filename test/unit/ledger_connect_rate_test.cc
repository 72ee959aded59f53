#include "ledger/connect_rate.h"

#include <gtest/gtest.h>

#include <cstring>

#include "ledger_fixture.h"

namespace sluice::ledger {
namespace {

constexpr std::int64_t kSecond = 1'000'000;

// Three roles: one opens four sessions a second at the most, one none, one as many as it likes.
class LedgerConnectRate : public ::testing::Test {
 protected:
  LedgerConnectRate() : t({64, 0, 8, 1, 8, 64, 16}), policy(test::empty_policy()) {
    test::add_class(policy, "default", 10, 10);
    test::add_tenant(policy, "*", 1, policy::kNoLimit);
    add_cap("four", 4);
    add_cap("none", 0);
    add_cap("free", policy::kNoLimit);
    if (t.apply(policy) != Status::ok) std::abort();
  }

  void add_cap(const char* role, std::uint32_t connects) {
    policy::RoleCap& cap = policy.role_caps[policy.role_cap_count++];
    cap = {};
    std::strcpy(cap.role, role);
    cap.max_sessions = policy::kNoLimit;
    cap.connects_per_second = connects;
  }

  Outcome login(const char* role, bool enforce = true, SessionKind kind = SessionKind::ordinary) {
    const policy::Identity identity = test::identity_of(t.ledger.header->policy, role, "app");
    SessionRequest request = {};
    request.slot = slot++ % 64;
    request.identity = &identity;
    request.role = role;
    request.database = "app";
    request.kind = kind;
    request.enforce = enforce;
    request.now_us = t.now_us;
    const Outcome outcome = open_session(t.ledger, t.lock, request);
    if (outcome.status == Status::ok) (void)close_session(t.ledger, t.lock, request.slot, t.now_us);
    return outcome;
  }

  // How many of so many logins at this moment are admitted.
  std::uint32_t admitted(const char* role, std::uint32_t logins) {
    std::uint32_t count = 0;
    for (std::uint32_t i = 0; i < logins; i++) count += login(role).status == Status::ok ? 1 : 0;
    return count;
  }

  std::uint32_t recent(std::uint16_t cap) { return recent_connects(t.ledger, t.lock, cap, t.now_us); }

  test::TestLedger t;
  policy::Policy policy;
  std::uint32_t slot = 0;
};

TEST_F(LedgerConnectRate, ASecondsWorthMayComeAtOnceAndTheRestIsRefusedByItsRule) {
  EXPECT_EQ(admitted("four", 4), 4U);
  const Outcome refused = login("four");
  EXPECT_EQ(refused.status, Status::role_connect_rate);
  EXPECT_EQ(refused.rule.field, policy::RuleField::role_connects);
  EXPECT_EQ(refused.rule.index, 0U);
  EXPECT_EQ(refused.used, 4U);
  EXPECT_EQ(refused.limit, 4U);
  EXPECT_EQ(t.ledger.header->sessions_refused, 1U);
}

TEST_F(LedgerConnectRate, ThenOneIsAdmittedEachQuarterOfASecond) {
  EXPECT_EQ(admitted("four", 10), 4U);
  t.now_us += kSecond / 4 - 1;
  EXPECT_EQ(admitted("four", 1), 0U) << "a microsecond too early";
  t.now_us += 1;
  EXPECT_EQ(admitted("four", 10), 1U);
  t.now_us += kSecond / 2;
  EXPECT_EQ(recent(0), 2U);
  EXPECT_EQ(admitted("four", 10), 2U);
}

TEST_F(LedgerConnectRate, QuietTimeIsNotSavedUpBeyondASecondsWorth) {
  EXPECT_EQ(admitted("four", 4), 4U);
  t.now_us += 3600 * kSecond;
  EXPECT_EQ(recent(0), 0U);
  EXPECT_EQ(admitted("four", 100), 4U);
}

// Whoever is refused keeps nobody out: a storm without a pause gets its rate, and a caller that comes later its turn.
TEST_F(LedgerConnectRate, AStormOfRefusedLoginsIsServedAtTheRate) {
  std::uint32_t count = 0;
  for (int i = 0; i < 10'000; i++) {
    count += admitted("four", 1);
    t.now_us += 1000;
  }
  EXPECT_GE(count, 40U);
  EXPECT_LE(count, 44U);
}

TEST_F(LedgerConnectRate, ZeroAdmitsNoneAndNoneIsNoLimit) {
  EXPECT_EQ(login("none").status, Status::role_connect_rate);
  EXPECT_EQ(login("none").limit, 0U);
  EXPECT_EQ(admitted("free", 50), 50U);
  EXPECT_EQ(admitted("stranger", 50), 50U);
}

TEST_F(LedgerConnectRate, AdministratorsAndWalsendersHaveNoRate) {
  EXPECT_EQ(admitted("four", 4), 4U);
  for (const SessionKind kind : {SessionKind::superuser, SessionKind::walsender}) {
    EXPECT_EQ(login("four", true, kind).status, Status::ok);
    EXPECT_EQ(login("none", true, kind).status, Status::ok);
  }
}

TEST_F(LedgerConnectRate, InShadowItIsCountedAndNobodyIsRefused) {
  for (int i = 0; i < 100; i++) EXPECT_EQ(login("four", false).status, Status::ok);
  EXPECT_EQ(t.ledger.header->sessions_would_refuse, 96U);
  EXPECT_EQ(t.ledger.header->sessions_refused, 0U);
  // The debt of a flood that was let through is a second's worth, not the flood's.
  EXPECT_EQ(login("four").status, Status::role_connect_rate);
  t.now_us += kSecond;
  EXPECT_EQ(admitted("four", 10), 4U);
}

TEST_F(LedgerConnectRate, ANewGenerationBeginsWithASecondsWorth) {
  EXPECT_EQ(admitted("four", 10), 4U);
  policy.role_cap_count = 0;
  add_cap("free", 1);
  add_cap("four", 2);
  ASSERT_EQ(t.apply(policy), Status::ok);
  EXPECT_EQ(admitted("four", 10), 2U);
  EXPECT_EQ(admitted("free", 10), 1U);
}

TEST_F(LedgerConnectRate, TheLargestRateStillHasAPace) {
  policy.role_caps[0].connects_per_second = 1'000'000;
  ASSERT_EQ(t.apply(policy), Status::ok);
  EXPECT_EQ(admitted("four", 60), 60U);
  EXPECT_EQ(recent(0), 60U);
  EXPECT_EQ(recent(policy::kNone), 0U);
}

}  // namespace
}  // namespace sluice::ledger
