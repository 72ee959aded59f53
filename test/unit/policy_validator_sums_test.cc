// Sums that must fit: the connection budget, guarantees, database caps, replication.
#include <gtest/gtest.h>

#include "unit/policy_fixture.h"

namespace sluice::policy {
namespace {

using test::Checked;
using test::has_error;
using test::has_warning;
using test::minimal;
using test::server;

TEST(PolicySums, TheBudgetIsSpelledOutWithItsExcessAndAFix) {
  ServerFacts facts = server(200);
  facts.reserved_connections = 2;
  Checked run(R"({"schema": "dbAdmissionPolicy.v1", "database": "orders-primary/write", "serverSessionPermits": 190,
              "adminReserve": 12, "loginHeadroom": 10, "hardConnectionLimit": 200})",
              facts);
  ASSERT_TRUE(
      has_error(run, "serverSessionPermits",
                "serverSessionPermits 190 + adminReserve 12 + loginHeadroom 10 + superuser_reserved_connections 3 + "
                "reserved_connections 2 = 217, which is 17 more than hardConnectionLimit 200"));
  EXPECT_STREQ(run.error("serverSessionPermits")->fix,
               "lower serverSessionPermits to 173, or raise hardConnectionLimit to 217");
}

// Case A12: permits and reserve beyond what max_connections leaves.
TEST(PolicySums, ABudgetBeyondMaxConnectionsIsRefused) {
  Checked run(minimal(), server(100));
  ASSERT_TRUE(has_error(run, "serverSessionPermits", "= 111, which is 11 more than max_connections 100"));
  EXPECT_STREQ(run.error("serverSessionPermits")->fix,
               "lower serverSessionPermits to 89, or raise max_connections to 111");
}

TEST(PolicySums, TheBudgetMayBeUsedUpExactly) {
  EXPECT_TRUE(Checked(minimal(), server(111)).valid);
  EXPECT_FALSE(Checked(minimal(), server(110)).valid);
}

TEST(PolicySums, AHardLimitAboveTheServersIsRefusedAndTheSumIsHeldAgainstTheServer) {
  Checked run(minimal(R"("hardConnectionLimit": 300,)"), server(105));
  EXPECT_TRUE(has_error(run, "hardConnectionLimit", "hardConnectionLimit 300 is more than max_connections 105"));
  EXPECT_TRUE(has_error(run, "serverSessionPermits", "more than max_connections 105"));
}

TEST(PolicySums, WithoutAServerTheDocumentsOwnSumCounts) {
  EXPECT_TRUE(has_error(Checked(minimal(R"("hardConnectionLimit": 107,)")), "serverSessionPermits",
                        "serverSessionPermits 100 + adminReserve 3 + loginHeadroom 5 = 108, which is 1 more than "
                        "hardConnectionLimit 107"));
  EXPECT_TRUE(Checked(minimal(R"("hardConnectionLimit": 108,)")).valid);
  Checked open(minimal());
  EXPECT_EQ(open.policy->hard_connection_limit, 108U);
}

TEST(PolicySums, AWrongNumberIsNotAlsoASumThatDoesNotFit) {
  Checked run(minimal(R"("adminReserve": -4,)"), server(50));
  EXPECT_NE(run.error("adminReserve"), nullptr);
  EXPECT_EQ(run.error("serverSessionPermits"), nullptr) << run.all();
}

TEST(PolicySums, TenantGuaranteesMustFitTheSessionPermits) {
  Checked run(
      minimal(R"("tenants": {"*": {"guaranteedSessions": 5, "maxTenants": 18}, "acme": {"guaranteedSessions": 11},
                                 "beta": {}},)"));
  ASSERT_TRUE(has_error(run, "tenants",
                        "guaranteed sessions \"*\" 5 x maxTenants 18 + \"acme\" 11 = 101, which is 1 more "
                        "than serverSessionPermits 100"));
  Checked fits(
      minimal(R"("tenants": {"*": {"guaranteedSessions": 5, "maxTenants": 18}, "acme": {"guaranteedSessions": 10}},)"));
  ASSERT_TRUE(fits.valid) << fits.all();
  EXPECT_EQ(fits.policy->guaranteed_total, 100U);
}

TEST(PolicySums, ALongSumStillEndsWithItsTotal) {
  std::string tenants;
  for (int i = 0; i < 200; i++) {
    tenants += "\"tenant_with_a_rather_long_name_" + std::to_string(i) + "\": {\"guaranteedSessions\": 1},";
  }
  Checked run(minimal("\"tenants\": {" + tenants + "},"));
  EXPECT_TRUE(has_error(run, "tenants", " more = 200, which is 100 more than serverSessionPermits 100"));
}

TEST(PolicySums, AWildcardGuaranteeNeedsMaxTenants) {
  EXPECT_TRUE(has_error(Checked(minimal(R"("tenants": {"app_*": {"guaranteedSessions": 5}},)")),
                        "tenants.app_*.maxTenants", "a guarantee of 5 sessions for a pattern needs maxTenants"));
  EXPECT_FALSE(Checked(minimal(R"("tenants": {"app_*": {"guaranteedSessions": 5, "maxTenants": 0}},)")).valid);
  EXPECT_TRUE(Checked(minimal(R"("tenants": {"app": {"guaranteedSessions": 5}},)")).valid);
}

// Case B4: a minimum above the tenant's own cap.
TEST(PolicySums, AGuaranteeAboveTheTenantsOwnCapIsRefused) {
  Checked run(minimal(R"("tenants": {"acme": {"guaranteedSessions": 30, "maxSessions": 2}},)"));
  EXPECT_TRUE(has_error(run, "tenants.acme.guaranteedSessions", "guaranteedSessions 30 is more than maxSessions 2"));
}

TEST(PolicySums, AdminGuaranteesMustFitTheAdminReserve) {
  std::string json = minimal(R"("adminReserve": 4,)");
  json.replace(json.find(R"({"dba": {}})"), 11,
               R"({"dba": {"guaranteedSessions": 3}, "monitor": {"guaranteedSessions": 2}})");
  Checked run(json);
  ASSERT_TRUE(has_error(run, "adminRoles",
                        "guaranteed sessions \"dba\" 3 + \"monitor\" 2 = 5, which is 1 more than adminReserve 4"));
  EXPECT_STREQ(run.error("adminRoles")->fix, "raise adminReserve to 5, or lower the guarantees");
}

// Requirement C8.
TEST(PolicySums, DatabaseGuaranteesMustFitTheCap) {
  auto cap = [](const char* fields) {
    return minimal(std::string("\"databaseCaps\": {\"shared\": {") + fields + "}},");
  };
  EXPECT_TRUE(Checked(cap(R"("maxSessions": 60, "guaranteedSessionsPerTenant": 5, "maxTenants": 12)")).valid);
  EXPECT_TRUE(has_error(Checked(cap(R"("maxSessions": 59, "guaranteedSessionsPerTenant": 5, "maxTenants": 12)")),
                        "databaseCaps.shared.guaranteedSessionsPerTenant",
                        "guaranteedSessionsPerTenant 5 x maxTenants 12 = 60, which is 1 more than maxSessions 59"));
  EXPECT_TRUE(has_error(Checked(cap(R"("maxSessions": 59, "guaranteedSessionsPerTenant": 5)")),
                        "databaseCaps.shared.maxTenants", "needs maxTenants"));
}

TEST(PolicySums, ABurstReserveLiesInsideTheSessionPermits) {
  auto cap = [](const char* fields) {
    return minimal(std::string("\"databaseCaps\": {\"shared\": {") + fields + "}},");
  };
  EXPECT_TRUE(Checked(cap(R"("maxSessions": 84, "burstReserve": 16)")).valid);
  EXPECT_TRUE(has_error(Checked(cap(R"("maxSessions": 85, "burstReserve": 16)")), "databaseCaps.shared.burstReserve",
                        "maxSessions 85 + burstReserve 16 = 101, which is 1 more than serverSessionPermits 100"));
  EXPECT_TRUE(has_warning(Checked(cap(R"("maxSessions": 101)")), "databaseCaps.shared.maxSessions", "limits nothing"));
}

TEST(PolicySums, TheReplicationReserveIsHeldAgainstMaxWalSenders) {
  EXPECT_TRUE(Checked(minimal(R"("replicationReserve": 10,)"), server(200)).valid);
  EXPECT_TRUE(has_error(Checked(minimal(R"("replicationReserve": 11,)"), server(200)), "replicationReserve",
                        "replicationReserve 11 is more than max_wal_senders 10"));
  EXPECT_TRUE(Checked(minimal(R"("replicationReserve": 11,)")).valid) << "no server, nothing to hold it against";
}

}  // namespace
}  // namespace sluice::policy
