// adminRoles, assign, declare, tenants, databaseCaps, roleCaps: shapes and names.
#include <gtest/gtest.h>

#include "unit/policy_fixture.h"

namespace sluice::policy {
namespace {

using test::Checked;
using test::has_error;
using test::has_warning;
using test::minimal;

std::string rules(const std::string& list) { return minimal("\"assign\": " + list + ","); }

TEST(PolicyAssign, EachRuleHasOneConditionAndAClass) {
  EXPECT_TRUE(has_error(Checked(rules(R"([{"class": "interactive"}])")), "assign[0]",
                        "exactly one of role, database or memberOf, found 0"));
  EXPECT_TRUE(
      has_error(Checked(rules(R"([{"role": "a", "database": "b", "class": "interactive"}])")), "assign[0]", "found 2"));
  EXPECT_TRUE(has_error(Checked(rules(R"([{"role": "a"}])")), "assign[0].class", "is missing"));
  EXPECT_TRUE(has_error(Checked(rules(R"([{"roles": "a", "class": "interactive"}])")), "assign[0].roles",
                        "did you mean role?"));
  EXPECT_TRUE(has_error(Checked(rules(R"([{"role": 7, "class": "interactive"}])")), "assign[0].role",
                        "must be a text, found 7"));
  EXPECT_TRUE(has_error(Checked(rules(R"({"role": "a", "class": "interactive"})")), "assign", "must be a list"));
  EXPECT_TRUE(has_error(Checked(rules(R"(["a"])")), "assign[0]", "must be a group of fields"));
}

TEST(PolicyAssign, RulesBehindACatchAllAreWarnedAbout) {
  Checked run(rules(R"([{"role": "*", "class": "interactive"}, {"role": "a", "class": "interactive"}])"));
  EXPECT_TRUE(has_warning(run, "assign[1]", "never reached: assign[0]"));
  EXPECT_EQ(run.warning("assign[0]"), nullptr);
}

TEST(PolicyAssign, AtMost128Rules) {
  std::string list;
  for (int i = 0; i < 128; i++) list += R"({"role": "a", "class": "interactive"},)";
  EXPECT_TRUE(Checked(rules("[" + list + "]")).valid);
  EXPECT_TRUE(has_error(Checked(rules("[" + list + R"({"role": "a", "class": "interactive"}])")), "assign[128]",
                        "at most 128"));
}

TEST(PolicyAssign, APatternInMemberOfIsWarnedAbout) {
  EXPECT_TRUE(has_warning(Checked(rules(R"([{"memberOf": "etl_*", "class": "interactive"}])")), "assign[0].memberOf",
                          "taken as a name"));
}

TEST(PolicyAdminRoles, ShapeAndNames) {
  auto admins = [](const std::string& value) {
    std::string json = minimal();
    return json.replace(json.find(R"({"dba": {}})"), 11, value);
  };
  EXPECT_TRUE(has_error(Checked(admins(R"(["dba"])")), "adminRoles", "must be a group of fields, found a list"));
  EXPECT_TRUE(has_error(Checked(admins(R"({"dba": null})")), "adminRoles.dba", "found nothing"));
  EXPECT_TRUE(
      has_error(Checked(admins(R"({"dba": {"guaranteed": 1}})")), "adminRoles.dba.guaranteed", "unknown field"));
  EXPECT_TRUE(has_warning(Checked(admins(R"({"dba_*": {}})")), "adminRoles.dba_*", "taken as a name"));
  EXPECT_TRUE(has_warning(Checked(admins("{}")), "adminRoles", "no administrator is named"));
  std::string many;
  for (int i = 0; i < 33; i++) many += "\"r" + std::to_string(i) + "\": {},";
  EXPECT_TRUE(has_error(Checked(admins("{" + many + "}")), "adminRoles.r32", "at most 32"));
}

TEST(PolicyDeclare, SettingsAreNamesOfCustomSettings) {
  auto declare = [](const std::string& fields) { return minimal("\"declare\": {" + fields + "},"); };
  Checked run(declare(R"("classSetting": "app.work_class", "tenantSetting": "")"));
  ASSERT_TRUE(run.valid) << run.all();
  EXPECT_STREQ(run.policy->class_setting, "app.work_class");
  EXPECT_STREQ(run.policy->tenant_setting, "");
  for (const char* wrong : {"class", "a.b.c", ".a", "a.", "a b.c", "1a.b", "a.1b", "a-b.c"}) {
    EXPECT_TRUE(has_error(Checked(declare(std::string("\"classSetting\": \"") + wrong + "\"")), "declare.classSetting",
                          "must be the name of a custom setting"))
        << wrong;
  }
  EXPECT_TRUE(has_error(Checked(declare(R"("trustedRoles": "app")")), "declare.trustedRoles", "must be a list"));
  EXPECT_TRUE(
      has_error(Checked(declare(R"("trustedRoles": ["app", "app"])")), "declare.trustedRoles[1]", "listed twice"));
  EXPECT_TRUE(has_error(Checked(declare(R"("trustedRoles": [5])")), "declare.trustedRoles[0]", "must be a text"));
}

TEST(PolicyTenants, WeightsLieBetweenOneAndAThousand) {
  EXPECT_TRUE(Checked(minimal(R"("tenants": {"*": {"weight": 1000}},)")).valid);
  EXPECT_TRUE(
      has_error(Checked(minimal(R"("tenants": {"*": {"weight": 1001}},)")), "tenants.*.weight", "from 1 to 1000"));
  EXPECT_TRUE(has_error(Checked(minimal(R"("tenants": {"*": {"weight": 0}},)")), "tenants.*.weight", "from 1 to 1000"));
}

TEST(PolicyTenants, PatternsAreAsLongAsWhatTheyMatch) {
  std::string long_name(100, 'x');
  auto tenants = [&](const char* key) {
    return minimal(std::string("\"tenantKey\": \"") + key + "\", \"tenants\": {\"" + long_name + "/*\": {}},");
  };
  EXPECT_TRUE(Checked(tenants("database+role")).valid);
  EXPECT_FALSE(Checked(tenants("role")).valid);
  EXPECT_FALSE(Checked(tenants("database")).valid);
}

TEST(PolicyTenants, AtMost256RulesWithTheOneForEverybody) {
  std::string list;
  for (int i = 0; i < 255; i++) list += "\"t" + std::to_string(i) + "\": {},";
  Checked implied(minimal("\"tenants\": {" + list + "},"));
  ASSERT_TRUE(implied.valid) << implied.all();
  EXPECT_EQ(implied.policy->tenant_rule_count, 256);
  EXPECT_STREQ(implied.policy->tenant_rules[255].pattern, "*");
  EXPECT_TRUE(Checked(minimal("\"tenants\": {" + list + "\"*\": {}},")).valid);
  EXPECT_TRUE(has_error(Checked(minimal("\"tenants\": {" + list + "\"more\": {}},")), "tenants.more", "at most 256"));
}

TEST(PolicyCaps, ShapeAndMissingLimits) {
  EXPECT_TRUE(
      has_warning(Checked(minimal(R"("roleCaps": {"etl": {}},)")), "roleCaps.etl.maxSessions", "limits nothing"));
  EXPECT_TRUE(
      has_warning(Checked(minimal(R"("databaseCaps": {"d": {}},)")), "databaseCaps.d.maxSessions", "limits nothing"));
  EXPECT_TRUE(
      has_error(Checked(minimal(R"("roleCaps": {"etl": 5},)")), "roleCaps.etl", "must be a group of fields, found 5"));
  EXPECT_TRUE(has_error(Checked(minimal(R"("roleCaps": {"etl": {"maxSessions": "5"}},)")), "roleCaps.etl.maxSessions",
                        "whole number"));
  EXPECT_TRUE(has_error(Checked(minimal(R"("databaseCaps": [],)")), "databaseCaps", "must be a group of fields"));
  Checked run(minimal(R"("roleCaps": {"etl": {"maxSessions": 0}},)"));
  ASSERT_TRUE(run.valid) << run.all();
  EXPECT_EQ(run.policy->role_caps[0].max_sessions, 0U);
  EXPECT_EQ(run.policy->role_caps[0].connects_per_second, kNoLimit);
}

TEST(PolicyCaps, ARolesRateStandsAloneOrBesideItsSessions) {
  Checked alone(minimal(R"("roleCaps": {"etl": {"connectsPerSecond": 5}},)"));
  ASSERT_TRUE(alone.valid) << alone.all();
  EXPECT_FALSE(has_warning(alone, "roleCaps.etl.maxSessions", "limits nothing"));
  EXPECT_EQ(alone.policy->role_caps[0].connects_per_second, 5U);
  EXPECT_EQ(alone.policy->role_caps[0].max_sessions, kNoLimit);
  Checked both(minimal(
      R"("roleCaps": {"a": {"maxSessions": 1, "connectsPerSecond": 0}, "b": {"connectsPerSecond": 1000000}},)"));
  ASSERT_TRUE(both.valid) << both.all();
  EXPECT_EQ(both.policy->role_caps[0].connects_per_second, 0U);
  EXPECT_EQ(both.policy->role_caps[1].connects_per_second, 1000000U);
  for (const char* wrong : {"1000001", "-1", "0.5", "\"5\"", "null"}) {
    const std::string caps = std::string(R"("roleCaps": {"etl": {"connectsPerSecond": )") + wrong + "}},";
    EXPECT_FALSE(Checked(minimal(caps)).valid) << wrong;
  }
}

}  // namespace
}  // namespace sluice::policy
