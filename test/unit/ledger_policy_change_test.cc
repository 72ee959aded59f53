#include "ledger/policy_change.h"

#include <gtest/gtest.h>

#include "ledger_fixture.h"

namespace sluice::ledger {
namespace {

class LedgerPolicyChange : public ::testing::Test {
 protected:
  LedgerPolicyChange() : t({64, 0, 8, 3, 16, 16, 16}) {
    policy = test::empty_policy(1);
    test::add_class(policy, "interactive", 4, 40);
    test::add_class(policy, "batch", 2, 10);
    test::add_tenant(policy, "*", 1, 8);
    if (t.apply(policy) != Status::ok) std::abort();
    a = t.tenant("a");
    b = t.tenant("b");
  }

  std::uint32_t slot(const char* name) { return find_class(t.ledger, t.lock, name); }

  test::TestLedger t;
  policy::Policy policy;
  std::uint32_t a, b;
};

TEST_F(LedgerPolicyChange, ClassesKeepTheirSlotsByName) {
  const std::uint32_t interactive = slot("interactive");
  const std::uint32_t batch = slot("batch");
  ASSERT_EQ(t.begin(0, a, interactive).status, Status::ok);
  policy::Policy next = test::empty_policy(2);
  test::add_class(next, "batch", 7, 10);
  test::add_class(next, "interactive", 9, 40);
  test::add_tenant(next, "*", 1, 8);
  const std::uint64_t version = t.ledger.header->policy_version;
  ASSERT_EQ(t.apply(next), Status::ok);
  EXPECT_EQ(slot("interactive"), interactive);
  EXPECT_EQ(slot("batch"), batch);
  EXPECT_EQ(class_slot(t.ledger, t.lock, 0), batch);
  EXPECT_EQ(t.klass(interactive).free, 8);
  EXPECT_EQ(t.klass(batch).free, 7);
  EXPECT_EQ(t.ledger.header->policy_version, version + 1);
  EXPECT_EQ(t.ledger.header->generation, 2U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerPolicyChange, ARaisedLimitGrantsWaitersAtOnce) {
  for (std::uint32_t i = 0; i < 6; i++) (void)t.begin(i, a, slot("interactive"));
  EXPECT_EQ(t.klass(slot("interactive")).waiters, 2U);
  policy.classes[0].permits = 5;
  ASSERT_EQ(t.apply(policy), Status::ok);
  EXPECT_EQ(t.woken, (std::vector<std::uint32_t>{4}));
  policy.classes[0].permits = 50;
  ASSERT_EQ(t.apply(policy), Status::ok);
  EXPECT_EQ(t.woken, (std::vector<std::uint32_t>{4, 5}));
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerPolicyChange, ARaisedInflightLimitPromotesAndGrants) {
  policy.tenant_rules[0].max_inflight = 1;
  ASSERT_EQ(t.apply(policy), Status::ok);
  for (std::uint32_t i = 0; i < 3; i++) (void)t.begin(i, a, slot("interactive"));
  EXPECT_EQ(t.row(a, slot("interactive")).parked, 2U);
  policy.tenant_rules[0].max_inflight = 2;
  ASSERT_EQ(t.apply(policy), Status::ok);
  EXPECT_EQ(t.woken, (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(t.row(a, slot("interactive")).parked, 1U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerPolicyChange, ALoweredInflightLimitParksTheYoungestEligibleFirst) {
  for (std::uint32_t i = 0; i < 4; i++) (void)t.begin(i, b, slot("interactive"));
  for (std::uint32_t i = 4; i < 8; i++) (void)t.begin(i, a, slot("interactive"));
  EXPECT_EQ(t.klass(slot("interactive")).waiters, 4U);
  policy.tenant_rules[0].max_inflight = 2;
  ASSERT_EQ(t.apply(policy), Status::ok);
  EXPECT_EQ(t.row(a, slot("interactive")).in_use, 2U);
  EXPECT_EQ(t.row(a, slot("interactive")).parked, 2U);
  EXPECT_FALSE(t.ledger.tickets[4].parked);
  EXPECT_FALSE(t.ledger.tickets[5].parked);
  EXPECT_TRUE(t.ledger.tickets[6].parked);
  EXPECT_EQ(t.audit_report(), "");
  // Still first in, first out.
  for (std::uint32_t i = 0; i < 4; i++) ASSERT_EQ(t.finish(i), Status::ok);
  for (const std::uint32_t i : {4U, 5U}) {
    ASSERT_EQ(t.poll(i).status, Status::ok);
    ASSERT_EQ(t.finish(i), Status::ok);
  }
  EXPECT_EQ(t.woken, (std::vector<std::uint32_t>{4, 5, 6, 7}));
  EXPECT_EQ(t.ledger.header->over_limit_grants, 0U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerPolicyChange, LoweredPermitsDrainAndAreNoDiscrepancy) {
  for (std::uint32_t i = 0; i < 4; i++) ASSERT_EQ(t.begin(i, a, slot("interactive")).status, Status::ok);
  policy.classes[0].permits = 1;
  ASSERT_EQ(t.apply(policy), Status::ok);
  EXPECT_EQ(t.klass(slot("interactive")).free, -3);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerPolicyChange, AVanishedClassDrainsInItsSlotBeforeTheSlotIsReused) {
  const std::uint32_t batch = slot("batch");
  ASSERT_EQ(t.begin(0, a, batch).status, Status::ok);
  ASSERT_EQ(t.begin(1, a, batch).status, Status::ok);
  ASSERT_EQ(t.begin(2, a, batch).status, Status::queued);
  policy::Policy next = test::empty_policy(2);
  test::add_class(next, "interactive", 4, 40);
  test::add_class(next, "reports", 2, 10);
  ASSERT_EQ(t.apply(next), Status::ok);
  EXPECT_EQ(slot("batch"), kNil);
  EXPECT_NE(slot("reports"), batch);
  // Its waiters are let in, nobody is stranded.
  EXPECT_EQ(t.woken, (std::vector<std::uint32_t>{2}));
  EXPECT_EQ(t.audit_report(), "");
  policy::Policy third = next;
  third.generation = 3;
  test::add_class(third, "exports", 1, 10);
  EXPECT_EQ(t.apply(third), Status::table_full);
  EXPECT_EQ(t.ledger.header->policy.generation, 2U);
  (void)t.poll(2);
  for (std::uint32_t i = 0; i < 3; i++) ASSERT_EQ(t.finish(i), Status::ok);
  EXPECT_EQ(t.apply(third), Status::ok);
  EXPECT_EQ(slot("exports"), batch);
  EXPECT_EQ(t.klass(batch).free, 1);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerPolicyChange, ReturningClassFindsItsSlotAndItsTickets) {
  const std::uint32_t batch = slot("batch");
  ASSERT_EQ(t.begin(0, a, batch).status, Status::ok);
  policy::Policy next = test::empty_policy(2);
  test::add_class(next, "interactive", 4, 40);
  ASSERT_EQ(t.apply(next), Status::ok);
  ASSERT_EQ(t.apply(policy), Status::ok);
  EXPECT_EQ(slot("batch"), batch);
  EXPECT_EQ(t.klass(batch).free, 1);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerPolicyChange, SessionsOfAVanishedClassGetTheDefaultClass) {
  const policy::Identity identity = [&] {
    policy::Identity who = test::identity_of(policy, "web", "app");
    who.execution_class = 1;
    return who;
  }();
  SessionRequest request = {};
  request.slot = 3;
  request.identity = &identity;
  request.role = "web";
  request.database = "app";
  request.enforce = true;
  ASSERT_EQ(open_session(t.ledger, t.lock, request).status, Status::ok);
  ASSERT_EQ(t.ledger.sessions[3].klass, slot("batch"));
  policy::Policy next = test::empty_policy(2);
  test::add_class(next, "interactive", 4, 40);
  ASSERT_EQ(t.apply(next), Status::ok);
  EXPECT_EQ(t.ledger.sessions[3].klass, slot("interactive"));
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerPolicyChange, LeavingEnforcementAdmitsEveryWaiter) {
  for (std::uint32_t i = 0; i < 7; i++) (void)t.begin(i, a, slot("interactive"));
  ASSERT_EQ(t.apply(policy, Mode::shadow), Status::ok);
  EXPECT_EQ(t.woken.size(), 3U);
  EXPECT_TRUE(t.ledger.tickets[6].admitted_by_switch);
  EXPECT_EQ(t.klass(slot("interactive")).free, -3);
  EXPECT_EQ(t.audit_report(), "");
  ASSERT_EQ(t.apply(policy, Mode::enforce), Status::ok);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerPolicyChange, CapsAreRecountedByNameWhenTheirIndexesMove) {
  policy.database_cap_count = 2;
  std::strcpy(policy.database_caps[0].database, "one");
  std::strcpy(policy.database_caps[1].database, "two");
  policy.database_caps[0].max_sessions = policy.database_caps[1].max_sessions = 9;
  ASSERT_EQ(t.apply(policy), Status::ok);
  const policy::Identity identity = test::identity_of(policy, "web", "two");
  SessionRequest request = {};
  request.slot = 3;
  request.identity = &identity;
  request.role = "web";
  request.database = "two";
  ASSERT_EQ(open_session(t.ledger, t.lock, request).status, Status::ok);
  EXPECT_EQ(t.ledger.header->database_sessions[1], 1U);
  std::swap(policy.database_caps[0], policy.database_caps[1]);
  ASSERT_EQ(t.apply(policy), Status::ok);
  EXPECT_EQ(t.ledger.header->database_sessions[0], 1U);
  EXPECT_EQ(t.ledger.header->database_sessions[1], 0U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerPolicyChange, ThePolicyInForceCanBeAppliedToItself) {
  ASSERT_EQ(t.apply(t.ledger.header->policy, Mode::shadow), Status::ok);
  EXPECT_EQ(t.ledger.header->mode, static_cast<std::uint32_t>(Mode::shadow));
  EXPECT_EQ(t.audit_report(), "");
}

}  // namespace
}  // namespace sluice::ledger
