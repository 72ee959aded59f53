// Accepted with a warning: combinations that are legal and rarely meant.
#include <gtest/gtest.h>

#include "unit/policy_fixture.h"

namespace sluice::policy {
namespace {

using test::Checked;
using test::has_warning;
using test::minimal;
using test::with_classes;

TEST(PolicyDoubtful, ACleanDocumentHasNoFindings) {
  Checked run(minimal());
  EXPECT_TRUE(run.valid);
  EXPECT_EQ(run.findings->count, 0U) << run.all();
}

// Requirement C17.
TEST(PolicyDoubtful, ACapWithoutGuarantees) {
  EXPECT_TRUE(has_warning(Checked(minimal(R"("databaseCaps": {"shared": {"maxSessions": 80}},)")),
                          "databaseCaps.shared.guaranteedSessionsPerTenant", "can starve"));
}

TEST(PolicyDoubtful, ATimeLimitOnTheCatchAllClass) {
  Checked run(with_classes(R"("interactive": {"transactionTimeLimitMs": 30000})"));
  EXPECT_TRUE(has_warning(run, "executionClasses.interactive.transactionTimeLimitMs", "pg_dump"));
  Checked other(with_classes(R"("interactive": {}, "batch": {"transactionTimeLimitMs": 30000})",
                             R"("assign": [{"role": "b", "class": "batch"}],)"));
  EXPECT_EQ(other.findings->count, 0U) << other.all();
}

TEST(PolicyDoubtful, ASingleTenantUnderTenantKeyRole) {
  EXPECT_TRUE(
      has_warning(Checked(minimal(R"("tenants": {"app": {"maxInflight": 5}},)")), "tenants", "a single tenant"));
  EXPECT_EQ(Checked(minimal(R"("tenants": {"app": {}, "*": {}},)")).findings->count, 0U);
  EXPECT_EQ(Checked(minimal(R"("tenants": {"*": {}},)")).findings->count, 0U);
  EXPECT_EQ(Checked(minimal(R"("tenantKey": "database", "tenants": {"app": {}},)")).findings->count, 0U);
}

TEST(PolicyDoubtful, NoWayInForAdministrators) {
  EXPECT_TRUE(has_warning(Checked(minimal(R"("adminReserve": 0,)")), "adminReserve", "superuser on a Unix socket"));
  EXPECT_TRUE(has_warning(Checked(minimal(R"("loginHeadroom": 0,)")), "loginHeadroom", "logins in progress"));
}

TEST(PolicyDoubtful, AClassNobodyComesInto) {
  EXPECT_TRUE(has_warning(Checked(with_classes(R"("interactive": {}, "batch": {})")), "executionClasses.batch",
                          "no session comes"));
  EXPECT_EQ(Checked(with_classes(R"("interactive": {"mayEnter": ["batch"]}, "batch": {})")).findings->count, 0U);
  Checked silent(
      with_classes(R"("interactive": {"mayEnter": ["batch"]}, "batch": {})", R"("declare": {"classSetting": ""},)"));
  EXPECT_TRUE(has_warning(silent, "executionClasses.batch", "no session comes"));
  EXPECT_TRUE(has_warning(silent, "executionClasses.interactive.mayEnter", "has no effect"));
}

TEST(PolicyDoubtful, LimitsThatLimitNothing) {
  EXPECT_TRUE(
      has_warning(Checked(with_classes(R"("a": {"permits": 101})")), "executionClasses.a.permits", "limits nothing"));
  EXPECT_TRUE(has_warning(Checked(minimal(R"("tenants": {"*": {"maxInflight": 61}},)")), "tenants.*.maxInflight",
                          "more than any class's permits, 60"));
  EXPECT_EQ(Checked(minimal(R"("tenants": {"*": {"maxInflight": 60}},)")).findings->count, 0U);
  EXPECT_TRUE(has_warning(Checked(minimal(R"("tenants": {"*": {"maxInflight": 6, "maxSessions": 5}},)")),
                          "tenants.*.maxInflight", "cannot be reached with maxSessions 5"));
  EXPECT_TRUE(
      has_warning(Checked(minimal(R"("tenants": {"acme": {"guaranteedSessions": 1, "maxTenants": 4}, "*": {}},)")),
                  "tenants.acme.maxTenants", "has no effect"));
}

TEST(PolicyDoubtful, BorrowingThatCannotHappen) {
  Checked run(
      with_classes(R"("interactive": {"permits": 5, "mayEnter": ["batch"], "borrow": {"from": ["batch"], "max": 9}},
                          "batch": {"permits": 8})"));
  EXPECT_TRUE(
      has_warning(run, "executionClasses.interactive.borrow.max", "max 9 is more than the lenders' permits, 8"));
  Checked open(with_classes(R"("interactive": {"mayEnter": ["batch"], "borrow": {"from": ["batch"], "max": 4}},
                           "batch": {"permits": 8})"));
  EXPECT_TRUE(has_warning(open, "executionClasses.interactive.borrow", "no limit of its own"));
}

TEST(PolicyDoubtful, TenantsFromASettingThatNobodyMaySet) {
  EXPECT_TRUE(
      has_warning(Checked(minimal(R"("tenantKey": "setting",)")), "declare.trustedRoles", "no role is trusted"));
  EXPECT_TRUE(has_warning(
      Checked(minimal(R"("tenantKey": "setting", "declare": {"trustedRoles": ["a"], "tenantSetting": ""},)")),
      "declare.tenantSetting", "no setting names"));
  EXPECT_TRUE(
      has_warning(Checked(minimal(R"("declare": {"trustedRoles": ["a"]},)")), "declare.trustedRoles", "has no effect"));
}

TEST(PolicyDoubtful, LeaksReportedBeforeTheLeaseEnds) {
  EXPECT_TRUE(has_warning(Checked(minimal(R"("leakAfterMs": 5000, "leaseMs": 10000,)")), "leakAfterMs",
                          "shorter than leaseMs"));
}

TEST(PolicyDoubtful, ATenantPatternThatCannotMatch) {
  EXPECT_TRUE(has_warning(Checked(minimal(R"("tenantKey": "database+role", "tenants": {"acme": {}, "*": {}},)")),
                          "tenants.acme", "matches no tenant"));
}

}  // namespace
}  // namespace sluice::policy
