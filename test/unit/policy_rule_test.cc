#include "policy/rule.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "unit/policy_fixture.h"

namespace sluice::policy {
namespace {

class PolicyRule : public testing::Test {
 protected:
  test::Checked run{
      R"({"schema": "dbAdmissionPolicy.v1", "database": "orders-primary/write", "serverSessionPermits": 100,
    "adminRoles": {"dba": {}, "monitor": {"guaranteedSessions": 1}},
    "executionClasses": {"interactive": {}, "batch": {}},
    "assign": [{"role": "b", "class": "batch"}],
    "tenants": {"*": {}, "acme.eu": {}},
    "databaseCaps": {"shared_db": {"maxSessions": 9}},
    "roleCaps": {"etl": {"maxSessions": 2}}})"};

  std::string path(RuleField field, std::uint16_t index = 0) {
    char out[256];
    std::size_t length = rule_path(*run.policy, {field, index}, out, sizeof(out));
    EXPECT_EQ(length, std::string(out).size());
    return out;
  }
};

TEST_F(PolicyRule, PathsAreThoseOfTheDocument) {
  ASSERT_TRUE(run.valid) << run.all();
  EXPECT_EQ(path(RuleField::none), "");
  EXPECT_EQ(path(RuleField::server_session_permits), "serverSessionPermits");
  EXPECT_EQ(path(RuleField::admin_reserve), "adminReserve");
  EXPECT_EQ(path(RuleField::admin_guarantee, 1), "adminRoles.monitor.guaranteedSessions");
  EXPECT_EQ(path(RuleField::login_headroom), "loginHeadroom");
  EXPECT_EQ(path(RuleField::class_permits, 0), "executionClasses.interactive.permits");
  EXPECT_EQ(path(RuleField::class_max_queue, 1), "executionClasses.batch.maxQueue");
  EXPECT_EQ(path(RuleField::class_queue_deadline, 1), "executionClasses.batch.queueDeadlineMs");
  EXPECT_EQ(path(RuleField::class_time_limit, 1), "executionClasses.batch.transactionTimeLimitMs");
  EXPECT_EQ(path(RuleField::class_borrow_ttl, 1), "executionClasses.batch.borrow.ttlMs");
  EXPECT_EQ(path(RuleField::tenant_max_inflight, 0), "tenants.*.maxInflight");
  EXPECT_EQ(path(RuleField::tenant_max_sessions, 1), "tenants.\"acme.eu\".maxSessions");
  EXPECT_EQ(path(RuleField::database_max_sessions, 0), "databaseCaps.shared_db.maxSessions");
  EXPECT_EQ(path(RuleField::role_max_sessions, 0), "roleCaps.etl.maxSessions");
  EXPECT_EQ(path(RuleField::role_connects, 0), "roleCaps.etl.connectsPerSecond");
  EXPECT_EQ(path(RuleField::overdraft_max), "overdraft.max");
}

TEST_F(PolicyRule, AnIndexBeyondTheTableIsShownAndNotFollowed) {
  EXPECT_EQ(path(RuleField::class_permits, 2), "executionClasses.?.permits");
  EXPECT_EQ(path(RuleField::tenant_max_sessions, 0xFFFF), "tenants.?.maxSessions");
  EXPECT_EQ(path(RuleField::admin_guarantee, 2), "adminRoles.?.guaranteedSessions");
  EXPECT_EQ(path(RuleField::database_max_sessions, 1), "databaseCaps.?.maxSessions");
  EXPECT_EQ(path(RuleField::role_max_sessions, 1), "roleCaps.?.maxSessions");
  EXPECT_EQ(path(RuleField::role_connects, 1), "roleCaps.?.connectsPerSecond");
}

TEST_F(PolicyRule, AShortBufferIsCutAndTerminated) {
  char out[10];
  EXPECT_EQ(rule_path(*run.policy, {RuleField::class_permits, 0}, out, sizeof(out)), 9U);
  EXPECT_STREQ(out, "execution");
}

}  // namespace
}  // namespace sluice::policy
