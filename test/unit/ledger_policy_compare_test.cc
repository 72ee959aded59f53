#include <gtest/gtest.h>

#include <string>

#include "ledger/policy_change.h"
#include "ledger_fixture.h"

namespace sluice::ledger {
namespace {

class LedgerPolicyCompare : public ::testing::Test {
 protected:
  LedgerPolicyCompare() : t({64, 0, 8, 2, 16, 16, 16}) {
    policy = test::empty_policy(1);
    test::add_class(policy, "default", 2, 1);
    test::add_tenant(policy, "*", 1, 2, 3);
    policy.server_session_permits = 4;
    if (t.apply(policy, Mode::shadow) != Status::ok) std::abort();
    web = t.tenant("web");
    const policy::Identity identity = test::identity_of(policy, "web", "app");
    for (std::uint32_t i = 0; i < 5; i++) {
      SessionRequest request = {};
      request.slot = i;
      request.identity = &identity;
      request.role = "web";
      request.database = "app";
      if (open_session(t.ledger, t.lock, request).status != Status::ok) std::abort();
      (void)t.begin(i, t.request(web, 0, false));
    }
  }

  const OverLimit* find(policy::RuleField field) const {
    for (std::uint32_t i = 0; i < count; i++) {
      if (entries[i].rule.field == field) return &entries[i];
    }
    return nullptr;
  }

  test::TestLedger t;
  policy::Policy policy;
  std::uint32_t web;
  OverLimit entries[16];
  std::uint32_t count = 0;
};

TEST_F(LedgerPolicyCompare, SaysWhatIsOverWithPeakLimitAndWouldBeRefusals) {
  count = compare_policy(t.ledger, t.lock, policy, entries, 16);
  const OverLimit* server = find(policy::RuleField::server_session_permits);
  ASSERT_NE(server, nullptr);
  EXPECT_EQ(server->now, 5U);
  EXPECT_EQ(server->peak, 5U);
  EXPECT_EQ(server->limit, 4U);
  const OverLimit* klass = find(policy::RuleField::class_permits);
  ASSERT_NE(klass, nullptr);
  EXPECT_STREQ(klass->name, "default");
  EXPECT_EQ(klass->now, 5U);
  EXPECT_EQ(klass->limit, 2U);
  EXPECT_EQ(klass->would_wait, 3U);
  EXPECT_EQ(klass->would_refuse, 2U);
  const OverLimit* tenant = find(policy::RuleField::tenant_max_sessions);
  ASSERT_NE(tenant, nullptr);
  EXPECT_STREQ(tenant->name, "web");
  EXPECT_EQ(tenant->now, 5U);
  EXPECT_EQ(tenant->would_refuse, 2U);
  ASSERT_NE(find(policy::RuleField::tenant_max_inflight), nullptr);
}

TEST_F(LedgerPolicyCompare, WhatIsOverComesFirstSoThatAShortTableNeverHidesIt) {
  policy.server_session_permits = 100;
  policy.admin_reserve = 3;
  count = compare_policy(t.ledger, t.lock, policy, entries, 1);
  ASSERT_EQ(count, 1U);
  EXPECT_GT(entries[0].now, entries[0].limit);
}

TEST_F(LedgerPolicyCompare, AfterEverythingLeftOnlyPeaksRemain) {
  for (std::uint32_t i = 0; i < 5; i++) {
    ASSERT_EQ(t.finish(i), Status::ok);
    ASSERT_EQ(close_session(t.ledger, t.lock, i, t.now_us), Status::ok);
  }
  count = compare_policy(t.ledger, t.lock, policy, entries, 16);
  for (std::uint32_t i = 0; i < count; i++) EXPECT_LE(entries[i].now, entries[i].limit);
  ASSERT_NE(find(policy::RuleField::class_permits), nullptr);
  EXPECT_EQ(find(policy::RuleField::class_permits)->peak, 5U);
  EXPECT_EQ(find(policy::RuleField::class_permits)->would_wait, 3U);
}

}  // namespace
}  // namespace sluice::ledger
