#include "ledger/tenants.h"

#include <gtest/gtest.h>

#include "ledger_fixture.h"

namespace sluice::ledger {
namespace {

class LedgerTenants : public ::testing::Test {
 protected:
  LedgerTenants() : t({8, 0, 4, 2, 8, 8, 8}) {}

  test::TestLedger t;
};

TEST_F(LedgerTenants, TheSameNameIsTheSameTenant) {
  const std::uint32_t acme = t.tenant("acme");
  EXPECT_NE(acme, kOverflowTenant);
  EXPECT_EQ(t.tenant("acme"), acme);
  EXPECT_NE(t.tenant("ACME"), acme);
  EXPECT_EQ(find_tenant(t.ledger, t.lock, "acme"), acme);
  EXPECT_EQ(find_tenant(t.ledger, t.lock, "nobody"), kNil);
}

TEST_F(LedgerTenants, ANewTenantGetsTheLimitsOfItsRule) {
  policy::Policy policy = test::empty_policy();
  test::add_class(policy, "default", 10, 10);
  test::add_tenant(policy, "*", 1, 3, 7);
  test::add_tenant(policy, "acme", 4, 5, 9, 2);
  ASSERT_EQ(t.apply(policy), Status::ok);
  const std::uint32_t acme = t.tenant("acme");
  const std::uint32_t other = t.tenant("other");
  EXPECT_EQ(t.row(acme).limit, 5U);
  EXPECT_EQ(row_at(t.ledger, acme, 0).weight, 4U);
  EXPECT_EQ(t.ledger.tenants[acme].guaranteed, 2U);
  EXPECT_EQ(t.ledger.tenants[acme].max_sessions, 9U);
  EXPECT_EQ(t.row(other).limit, 3U);
  EXPECT_EQ(t.ledger.tenants[other].max_sessions, 7U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerTenants, OnlyTheFirstTenantsOfAWildcardAreGuaranteed) {
  policy::Policy policy = test::empty_policy();
  test::add_class(policy, "default", 10, 10);
  test::add_tenant(policy, "*", 1, 3, 7, 5, 2);
  ASSERT_EQ(t.apply(policy), Status::ok);
  EXPECT_EQ(t.ledger.header->unclaimed_guarantees, 10U);
  EXPECT_EQ(t.ledger.tenants[t.tenant("a")].guaranteed, 5U);
  EXPECT_EQ(t.ledger.tenants[t.tenant("b")].guaranteed, 5U);
  EXPECT_EQ(t.ledger.tenants[t.tenant("c")].guaranteed, 0U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerTenants, AFullTableSendsNewcomersToTheOverflowTenantAndCountsThem) {
  for (const char* name : {"a", "b", "c"}) {
    const std::uint32_t tenant = t.tenant(name);
    EXPECT_EQ(t.begin(tenant, t.request(tenant, 0, false)).status, Status::ok);
  }
  t.now_us += 10'000'000;
  EXPECT_EQ(t.tenant("newcomer"), kOverflowTenant);
  EXPECT_EQ(t.ledger.header->tenant_overflows, 1U);
  EXPECT_EQ(t.ledger.events[0].kind, EventKind::tenant_overflow);
  EXPECT_EQ(t.tenant("a"), 1U);
  EXPECT_EQ(t.begin(7, t.request(kOverflowTenant, 0, false)).status, Status::ok);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerTenants, TheLongestUnusedIdleTenantIsRecycled) {
  for (const char* name : {"a", "b", "c"}) {
    t.now_us += 1'000'000;
    (void)t.tenant(name);
  }
  t.now_us += 5'000'000;
  const std::uint32_t a = find_tenant(t.ledger, t.lock, "a");
  EXPECT_EQ(t.tenant("newcomer"), a);
  EXPECT_EQ(find_tenant(t.ledger, t.lock, "a"), kNil);
  EXPECT_STREQ(t.ledger.tenants[a].name, "newcomer");
  EXPECT_EQ(t.ledger.header->tenant_overflows, 0U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerTenants, ATenantThatATicketStillNamesIsNotRecycled) {
  for (const char* name : {"a", "b", "c"}) {
    const std::uint32_t tenant = t.tenant(name);
    ASSERT_EQ(t.begin(tenant, t.request(tenant, 0, false)).status, Status::ok);
    ASSERT_EQ(t.finish(tenant), Status::ok);
  }
  t.now_us += 10'000'000;
  // The records would take on these rows without a lock.
  EXPECT_EQ(t.tenant("newcomer"), kOverflowTenant);
}

TEST_F(LedgerTenants, ATenantLookedUpAMomentAgoIsNotRecycled) {
  for (const char* name : {"a", "b", "c"}) (void)t.tenant(name);
  t.now_us += 10;
  EXPECT_EQ(t.tenant("newcomer"), kOverflowTenant);
}

TEST_F(LedgerTenants, AGuaranteeIsPassedOnWhenItsTenantIsRecycled) {
  policy::Policy policy = test::empty_policy();
  test::add_class(policy, "default", 10, 10);
  test::add_tenant(policy, "*", 1, 3, 7, 5, 1);
  ASSERT_EQ(t.apply(policy), Status::ok);
  for (const char* name : {"a", "b", "c"}) {
    t.now_us += 1'000'000;
    (void)t.tenant(name);
  }
  t.now_us += 5'000'000;
  const std::uint32_t newcomer = t.tenant("newcomer");
  EXPECT_EQ(t.ledger.tenants[newcomer].guaranteed, 5U);
  EXPECT_EQ(t.ledger.header->guaranteed_tenants[0], 1U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerTenants, ANameLongerThanItsFieldIsAFaultAndGoesToOverflow) {
  const std::string name(policy::kTenantBytes, 'x');
  EXPECT_EQ(t.tenant(name.c_str()), kOverflowTenant);
  EXPECT_EQ(t.ledger.header->faults, 1U);
}

}  // namespace
}  // namespace sluice::ledger
