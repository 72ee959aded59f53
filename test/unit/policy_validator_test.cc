// The document as a whole: the examples of the design, the top-level fields, label and role, and that all findings
// come.
#include "policy/validator.h"

#include <gtest/gtest.h>

#include <random>

#include "unit/policy_fixture.h"

namespace sluice::policy {
namespace {

using test::Checked;
using test::has_error;
using test::has_warning;
using test::minimal;
using test::no_server;
using test::server;

constexpr char kShortForm[] =
    R"({"schema": "dbAdmissionPolicy.v1", "database": "orders-primary/write", "generation": 27,
  "serverSessionPermits": 180, "adminReserve": 12,
  "executionClasses": {"interactive": {"permits": 130, "maxQueue": 800}, "batch": {"permits": 50, "maxQueue": 100}},
  "fairness": "weighted-deficit-v2"})";

constexpr char kFullForm[] = R"({
  "schema": "dbAdmissionPolicy.v1", "database": "orders-primary/write", "generation": 27, "hardConnectionLimit": 200,
  "serverSessionPermits": 160, "adminReserve": 12, "loginHeadroom": 10, "replicationReserve": 8,
  "adminRoles": {"dba": {}, "monitor": {"guaranteedSessions": 2}}, "poolMode": "transaction", "bulkheads": true,
  "executionClasses": {
    "interactive": {"permits": 110, "maxQueue": 800, "queueDeadlineMs": 2000, "agingMs": 500,
      "transactionTimeLimitMs": 30000, "mayEnter": ["batch"], "borrow": {"from": ["batch"], "max": 20, "ttlMs": 5000}},
    "batch": {"permits": 50, "maxQueue": 100, "queueDeadlineMs": 60000, "agingMs": 5000,
      "borrow": {"from": ["interactive"], "max": 40, "ttlMs": 2000, "onExpiry": "cancel"}}},
  "overdraft": {"max": 3}, "fairness": "weighted-deficit-v2", "tenantKey": "role",
  "declare": {"classSetting": "pg_sluice.class", "tenantSetting": "pg_sluice.tenant", "trustedRoles": ["app"]},
  "tenants": {"*": {"weight": 1, "maxInflight": 30, "maxSessions": 60, "guaranteedSessions": 0},
              "acme": {"weight": 4, "maxInflight": 60, "guaranteedSessions": 5}},
  "defaultClass": "interactive",
  "assign": [{"role": "batch_*", "class": "batch"}, {"database": "analytics", "class": "batch"},
             {"memberOf": "etl", "class": "batch"}],
  "databaseCaps": {"shared_db": {"maxSessions": 80, "burstReserve": 16, "burstReserveAfterMs": 3000,
    "guaranteedSessionsPerTenant": 5, "maxTenants": 12, "minSessionAgeMs": 30000}},
  "roleCaps": {}, "eviction": {"direct": "off", "proxied": "on", "idleAfterMs": 1500}, "retry": {"baseMs": 250},
  "leaseMs": 11000, "leakAfterMs": 3700000})";

TEST(PolicyValidator, TheShortFormIsValidWithAndWithoutAServer) {
  Checked alone(kShortForm);
  EXPECT_TRUE(alone.valid) << alone.all();
  Checked on_server(kShortForm, server(200));
  EXPECT_TRUE(on_server.valid) << on_server.all();
}

TEST(PolicyValidator, FieldsLeftOutHaveTheDocumentedDefaults) {
  Checked run(kShortForm, server(200));
  ASSERT_TRUE(run.valid) << run.all();
  const Policy& policy = *run.policy;
  EXPECT_EQ(policy.hard_connection_limit, 200U);
  EXPECT_EQ(policy.login_headroom, 5U);
  EXPECT_EQ(policy.replication_reserve, 0U);
  EXPECT_EQ(policy.overdraft_max, 2U);
  EXPECT_EQ(policy.retry_base_ms, 200U);
  EXPECT_EQ(policy.lease_ms, 10000U);
  EXPECT_EQ(policy.leak_after_ms, 3600000U);
  EXPECT_EQ(policy.evict_idle_after_ms, 1000U);
  EXPECT_FALSE(policy.evict_direct);
  EXPECT_TRUE(policy.evict_proxied);
  EXPECT_TRUE(policy.bulkheads);
  EXPECT_EQ(policy.pool_mode, PoolMode::transaction);
  EXPECT_EQ(policy.tenant_key, TenantKey::role);
  EXPECT_STREQ(policy.class_setting, "pg_sluice.class");
  EXPECT_STREQ(policy.tenant_setting, "pg_sluice.tenant");
  EXPECT_EQ(policy.default_class, 0);
  EXPECT_EQ(policy.classes[0].queue_deadline_ms, 30000U);
  EXPECT_EQ(policy.classes[0].aging_ms, 1000U);
  EXPECT_EQ(policy.classes[0].transaction_time_limit_ms, kNoTimeLimit);
  EXPECT_EQ(policy.classes[0].may_enter, 0U);
  EXPECT_EQ(policy.classes[0].borrow.from_classes, 0U);
  Checked bare(minimal());
  EXPECT_EQ(bare.policy->admin_reserve, 3U);
  EXPECT_EQ(bare.policy->generation, 0U) << "left for the publisher to assign";
}

TEST(PolicyValidator, EveryFieldOfTheFullFormArrivesInThePolicy) {
  Checked run(kFullForm, server(200));
  ASSERT_TRUE(run.valid) << run.all();
  const Policy& policy = *run.policy;
  EXPECT_STREQ(policy.database, "orders-primary/write");
  EXPECT_TRUE(policy.write_role);
  EXPECT_EQ(policy.generation, 27U);
  EXPECT_EQ(policy.hard_connection_limit, 200U);
  EXPECT_EQ(policy.server_session_permits, 160U);
  EXPECT_EQ(policy.admin_reserve, 12U);
  EXPECT_EQ(policy.login_headroom, 10U);
  EXPECT_EQ(policy.replication_reserve, 8U);
  EXPECT_EQ(policy.guaranteed_total, 5U);
  EXPECT_EQ(policy.overdraft_max, 3U);
  EXPECT_EQ(policy.retry_base_ms, 250U);
  EXPECT_EQ(policy.lease_ms, 11000U);
  EXPECT_EQ(policy.leak_after_ms, 3700000U);
  EXPECT_EQ(policy.evict_idle_after_ms, 1500U);
  ASSERT_EQ(policy.admin_role_count, 2);
  EXPECT_STREQ(policy.admin_roles[1].name, "monitor");
  EXPECT_EQ(policy.admin_roles[1].guaranteed_sessions, 2U);
  ASSERT_EQ(policy.class_count, 2);
  const ExecutionClass& interactive = policy.classes[0];
  EXPECT_STREQ(interactive.name, "interactive");
  EXPECT_EQ(interactive.permits, 110U);
  EXPECT_EQ(interactive.max_queue, 800U);
  EXPECT_EQ(interactive.queue_deadline_ms, 2000U);
  EXPECT_EQ(interactive.aging_ms, 500U);
  EXPECT_EQ(interactive.transaction_time_limit_ms, 30000U);
  EXPECT_EQ(interactive.may_enter, 2U);
  EXPECT_EQ(interactive.borrow.from_classes, 2U);
  EXPECT_EQ(interactive.borrow.max, 20U);
  EXPECT_EQ(interactive.borrow.on_expiry, BorrowExpiry::mark);
  EXPECT_EQ(policy.classes[1].borrow.ttl_ms, 2000U);
  EXPECT_EQ(policy.classes[1].borrow.on_expiry, BorrowExpiry::cancel);
  ASSERT_EQ(policy.tenant_rule_count, 2);
  EXPECT_STREQ(policy.tenant_rules[1].pattern, "acme");
  EXPECT_EQ(policy.tenant_rules[1].weight, 4U);
  EXPECT_EQ(policy.tenant_rules[1].max_inflight, 60U);
  EXPECT_EQ(policy.tenant_rules[1].max_sessions, kNoLimit) << "a limit left out means none; nothing is inherited";
  EXPECT_EQ(policy.tenant_rules[1].guaranteed_sessions, 5U);
  EXPECT_EQ(policy.tenant_rules[1].max_tenants, 1U);
  EXPECT_EQ(policy.tenant_rules[0].max_tenants, 0U);
  ASSERT_EQ(policy.assign_count, 3);
  EXPECT_EQ(policy.assign[2].by, AssignBy::member_of);
  EXPECT_EQ(policy.assign[2].execution_class, 1);
  EXPECT_STREQ(policy.assign[1].pattern, "analytics");
  ASSERT_EQ(policy.database_cap_count, 1);
  EXPECT_EQ(policy.database_caps[0].max_sessions, 80U);
  EXPECT_EQ(policy.database_caps[0].burst_reserve, 16U);
  EXPECT_EQ(policy.database_caps[0].burst_reserve_after_ms, 3000U);
  EXPECT_EQ(policy.database_caps[0].guaranteed_sessions_per_tenant, 5U);
  EXPECT_EQ(policy.database_caps[0].max_tenants, 12U);
  EXPECT_EQ(policy.database_caps[0].min_session_age_ms, 30000U);
  EXPECT_EQ(policy.role_cap_count, 0);
  ASSERT_EQ(policy.trusted_role_count, 1);
  EXPECT_STREQ(policy.trusted_roles[0], "app");
}

TEST(PolicyValidator, TheSameDocumentGivesTheSameBytes) {
  Checked one(kFullForm);
  auto policy = std::make_unique<Policy>();
  std::memset(policy.get(), 0xFF, sizeof(Policy));
  ASSERT_TRUE(validate(*one.document, no_server(), *policy, *one.findings));
  EXPECT_EQ(std::memcmp(policy.get(), one.policy.get(), sizeof(Policy)), 0);
}

TEST(PolicyValidator, RequiredFieldsAreNamedWhenMissing) {
  Checked run("{}");
  EXPECT_TRUE(has_error(run, "schema", "is missing"));
  EXPECT_TRUE(has_error(run, "database", "is missing"));
  EXPECT_TRUE(has_error(run, "serverSessionPermits", "is missing"));
  EXPECT_EQ(run.findings->errors, 3U) << run.all();
}

TEST(PolicyValidator, ARootThatIsNoGroupIsRefused) {
  EXPECT_TRUE(has_error(Checked("[]"), "", "must be a group of fields, found a list"));
  EXPECT_TRUE(has_error(Checked("\"x\""), "", "must be a group of fields"));
  EXPECT_TRUE(has_error(Checked("null"), "", "must be a group of fields"));
}

TEST(PolicyValidator, AnEmptyOrOverlargeDocumentIsRefusedAsAWhole) {
  auto document = std::make_unique<Document>();
  auto policy = std::make_unique<Policy>();
  auto findings = std::make_unique<Findings>();
  document->clear();
  EXPECT_FALSE(validate(*document, no_server(), *policy, *findings));
  ASSERT_EQ(findings->count, 1U);
  EXPECT_NE(std::string(findings->entries[0].message).find("too large"), std::string::npos);
  ASSERT_EQ(document->begin_array(), Status::ok);
  while (document->add_null() == Status::ok) continue;
  EXPECT_FALSE(validate(*document, no_server(), *policy, *findings));
}

TEST(PolicyValidator, UnknownFieldsAreRefusedWithPathAndProposal) {
  EXPECT_TRUE(has_error(Checked(minimal(R"("serverSessionPermit": 4,)")), "serverSessionPermit",
                        "did you mean serverSessionPermits?"));
  EXPECT_TRUE(has_error(Checked(test::with_classes(R"("batch": {"maxqueue": 4})")), "executionClasses.batch.maxqueue",
                        "did you mean maxQueue?"));
  EXPECT_TRUE(
      has_error(Checked(minimal(R"("tenants": {"*": {"weigth": 4}},)")), "tenants.*.weigth", "did you mean weight?"));
  EXPECT_TRUE(has_error(Checked(minimal(R"("eviction": {"max_idle": 4},)")), "eviction.max_idle", "unknown field"));
  Checked far(minimal(R"("zzz": 1,)"));
  ASSERT_TRUE(has_error(far, "zzz", "unknown field"));
  EXPECT_EQ(std::string(far.error("zzz")->message).find("did you mean"), std::string::npos);
  for (const char* mode : {"mode", "percent", "scope"}) {
    EXPECT_TRUE(has_error(Checked(minimal(std::string("\"") + mode + "\": \"enforce\",")), mode, "unknown field"))
        << "only activate decides these";
  }
}

TEST(PolicyValidator, AFieldGivenTwiceIsRefused) {
  Checked run("{\"leaseMs\": 1000,\n\"leaseMs\": 2000," + minimal().substr(1));
  ASSERT_TRUE(has_error(run, "leaseMs", "is given twice, first in line 1"));
  EXPECT_EQ(run.error("leaseMs")->line, 2U);
}

TEST(PolicyValidator, SchemaAndFairnessAreExactlyTheKnownOnes) {
  std::string other = minimal();
  other.replace(other.find("Policy.v1"), 9, "Policy.v2");
  EXPECT_TRUE(has_error(Checked(other), "schema", "must be dbAdmissionPolicy.v1"));
  EXPECT_TRUE(has_error(Checked(minimal(R"("fairness": "fifo",)")), "fairness", "must be weighted-deficit-v2"));
  EXPECT_TRUE(
      has_error(Checked(minimal(R"("poolMode": "transactions",)")), "poolMode", "transaction, session or statement"));
  EXPECT_TRUE(
      has_error(Checked(minimal(R"("tenantKey": "user",)")), "tenantKey", "role, database, database+role or setting"));
  EXPECT_TRUE(has_error(Checked(minimal(R"("tenantKey": 1,)")), "tenantKey", "found 1"));
}

TEST(PolicyValidator, SwitchesAreBooleansOrOnAndOff) {
  for (const char* off : {"false", "\"off\""}) {
    Checked run(minimal(std::string("\"eviction\": {\"proxied\": ") + off + "},"));
    EXPECT_TRUE(run.valid) << run.all();
    EXPECT_FALSE(run.policy->evict_proxied);
  }
  for (const char* on : {"true", "\"on\""}) {
    Checked run(minimal(std::string("\"eviction\": {\"direct\": ") + on + "},"));
    EXPECT_TRUE(run.valid) << run.all();
    EXPECT_TRUE(run.policy->evict_direct);
  }
  for (const char* wrong : {"\"yes\"", "1", "null", "\"ON\"", "{}"}) {
    EXPECT_TRUE(
        has_error(Checked(minimal(std::string("\"bulkheads\": ") + wrong + ",")), "bulkheads", "must be on or off"))
        << wrong;
  }
}

TEST(PolicyValidator, NumbersMustBeWholeAndInRange) {
  struct Case {
    const char* value;
    const char* found;
  };
  for (const Case& wrong :
       {Case{"-1", "found -1"}, Case{"1.5", "found 1.5"}, Case{"262144", "found 262144"},
        Case{"99999999999999999999", "found 99999999999999999999"}, Case{"\"10\"", "found the text \"10\""},
        Case{"true", "found true"}, Case{"null", "found nothing"}, Case{"[]", "found a list"},
        Case{"{}", "found a group of fields"}, Case{"1e3", "found 1e3"}}) {
    Checked run(minimal(std::string("\"adminReserve\": ") + wrong.value + ","));
    EXPECT_TRUE(has_error(run, "adminReserve", "must be a whole number from 0 to 262143 (sessions)"));
    EXPECT_TRUE(has_error(run, "adminReserve", wrong.found));
  }
  EXPECT_TRUE(Checked(minimal(R"("adminReserve": 0,)")).valid);
  EXPECT_TRUE(
      has_error(Checked(minimal(R"("retry": {"baseMs": 0},)")), "retry.baseMs", "from 1 to 60000 (milliseconds)"));
  EXPECT_TRUE(has_error(Checked(minimal(R"("leaseMs": 5,)")), "leaseMs", "from 100"));
  EXPECT_TRUE(has_error(Checked(minimal(R"("leakAfterMs": 5,)")), "leakAfterMs", "from 1000"));
  EXPECT_TRUE(has_error(Checked(minimal(R"("overdraft": {"max": 1001},)")), "overdraft.max", "from 0 to 1000"));
  EXPECT_TRUE(has_error(Checked(minimal(R"("overdraft": 2,)")), "overdraft", "must be a group of fields, found 2"));
}

TEST(PolicyValidator, TheLabelMustBeTheServersAndTheRoleToo) {
  EXPECT_TRUE(Checked(minimal(), server(200)).valid);
  EXPECT_TRUE(has_error(Checked(minimal(), server(200, "billing")), "database", "this server's label is \"billing\""));
  EXPECT_TRUE(has_error(Checked(minimal(), server(200, "")), "database", "this server has no label"));
  ServerFacts standby = server(200);
  standby.in_recovery = true;
  EXPECT_TRUE(has_error(Checked(minimal(), standby), "database", "this server is a standby"));
  std::string read = minimal();
  read.replace(read.find("/write"), 6, "/read");
  EXPECT_TRUE(has_error(Checked(read, server(200)), "database", "this server is a primary"));
  Checked on_standby(read, standby);
  ASSERT_TRUE(on_standby.valid) << on_standby.all();
  EXPECT_FALSE(on_standby.policy->write_role);
}

TEST(PolicyValidator, DatabaseMustBeLabelSlashRole) {
  for (const char* wrong : {"orders", "orders/", "/write", "orders/primary", "orders/write/", ""}) {
    std::string json = minimal();
    json.replace(json.find("orders-primary/write"), 20, wrong);
    EXPECT_FALSE(Checked(json).valid) << wrong;
    EXPECT_NE(Checked(json).error("database"), nullptr) << wrong;
  }
  std::string json = minimal();
  json.replace(json.find("orders-primary"), 14, std::string(64, 'x'));
  EXPECT_TRUE(has_error(Checked(json), "database", "1 to 63 bytes"));
  json = minimal();
  json.replace(json.find("orders-primary"), 14, "eu/orders");
  EXPECT_TRUE(Checked(json).valid) << "the role stands behind the last slash";
}

TEST(PolicyValidator, GenerationsOnlyEverRise) {
  ServerFacts facts = server(200);
  facts.newest_generation = 27;
  EXPECT_TRUE(has_error(Checked(minimal(R"("generation": 27,)"), facts), "generation",
                        "not newer than the newest published one, 27"));
  EXPECT_TRUE(has_error(Checked(minimal(R"("generation": 3,)"), facts), "generation", "not newer"));
  EXPECT_EQ(Checked(minimal(R"("generation": 28,)"), facts).policy->generation, 28U);
  EXPECT_TRUE(Checked(minimal(), facts).valid);
  for (const char* wrong : {"0", "-1", "1.5", "\"28\"", "9223372036854775808", "null"}) {
    EXPECT_TRUE(has_error(Checked(minimal(std::string("\"generation\": ") + wrong + ","), facts), "generation",
                          "whole number from 1"))
        << wrong;
  }
}

TEST(PolicyValidator, AllFindingsAreCollectedAndCountedBeyondTheTable) {
  Checked run(minimal(
      R"("adminReserve": -1, "leaseMs": "x", "nonsense": 1, "tenants": {"*": {"weight": 0}}, "assign": [{}],)"));
  EXPECT_NE(run.error("adminReserve"), nullptr);
  EXPECT_NE(run.error("leaseMs"), nullptr);
  EXPECT_NE(run.error("nonsense"), nullptr);
  EXPECT_NE(run.error("tenants.*.weight"), nullptr);
  EXPECT_NE(run.error("assign[0]"), nullptr);

  std::string many;
  for (int i = 0; i < 100; i++) many += "\"zz" + std::to_string(i) + "zzzzzzzzzz\": 1,";
  Checked full(minimal(many));
  EXPECT_FALSE(full.valid);
  EXPECT_EQ(full.findings->count, kMaxFindings);
  EXPECT_EQ(full.findings->errors, 100U);
  EXPECT_EQ(full.findings->dropped, 100U - kMaxFindings);
}

TEST(PolicyValidator, FindingsCarryTheLine) {
  Checked run("{\n\"schema\": \"dbAdmissionPolicy.v1\",\n\"adminReserve\": true\n}");
  ASSERT_NE(run.error("adminReserve"), nullptr);
  EXPECT_EQ(run.error("adminReserve")->line, 3U);
  EXPECT_EQ(run.error("database")->line, 1U);
}

// Whatever is written where, the validator answers: no crash, no accepted document that breaks the budget.
TEST(PolicyValidator, RandomlyDamagedDocumentsAreAnsweredAndNeverBreakTheBudget) {
  std::mt19937 random(42);
  const char* values[] = {"-1",    "0",  "1",  "40",          "262143", "null", "true",
                          "\"x\"", "[]", "{}", "[\"batch\"]", "1.5",    "\"*\""};
  std::string text = kFullForm;
  std::vector<std::size_t> colons;
  for (std::size_t i = 0; i < text.size(); i++) {
    if (text[i] == ':' && std::strchr("0123456789", text[i + 2]) != nullptr) colons.push_back(i + 2);
  }
  int accepted = 0;
  for (int round = 0; round < 3000; round++) {
    std::string damaged = text;
    std::size_t at = colons[random() % colons.size()];
    std::size_t end = damaged.find_first_not_of("0123456789", at);
    damaged.replace(at, end - at, values[random() % std::size(values)]);
    Checked run(damaged, server(200));
    EXPECT_EQ(run.valid, run.findings->errors == 0);
    if (!run.valid) continue;
    accepted++;
    const Policy& policy = *run.policy;
    EXPECT_LE(policy.server_session_permits + policy.admin_reserve + policy.login_headroom + 3,
              policy.hard_connection_limit);
    EXPECT_LE(policy.hard_connection_limit, 200U);
    EXPECT_LE(policy.guaranteed_total, policy.server_session_permits);
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace sluice::policy
