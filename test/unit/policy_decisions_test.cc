#include "policy/decisions.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>
#include <string>

#include "unit/policy_fixture.h"

namespace sluice::policy {
namespace {

using test::Checked;

Identity who(const Checked& run, const char* role, const char* database, bool superuser = false,
             const char* declared = nullptr, std::uint64_t memberships = 0) {
  Login login{role, database, superuser, declared, {memberships}};
  Identity identity;
  std::memset(&identity, 0xAA, sizeof(identity));
  identify(*run.policy, login, identity);
  return identity;
}

std::string document(const std::string& more) {
  return test::with_classes(R"("interactive": {"mayEnter": ["reports"]}, "batch": {}, "reports": {})", more);
}

TEST(PolicyPattern, StarMatchesAnyRunAndEverythingElseIsLiteral) {
  EXPECT_TRUE(pattern_matches("*", ""));
  EXPECT_TRUE(pattern_matches("*", "anything"));
  EXPECT_TRUE(pattern_matches("", ""));
  EXPECT_FALSE(pattern_matches("", "a"));
  EXPECT_TRUE(pattern_matches("batch_*", "batch_"));
  EXPECT_TRUE(pattern_matches("batch_*", "batch_nightly"));
  EXPECT_FALSE(pattern_matches("batch_*", "batch"));
  EXPECT_FALSE(pattern_matches("batch_*", "Batch_x"));
  EXPECT_TRUE(pattern_matches("*_ro", "app_ro_ro"));
  EXPECT_FALSE(pattern_matches("*_ro", "app_ro_x"));
  EXPECT_TRUE(pattern_matches("a*b*c", "aXbXbXc"));
  EXPECT_FALSE(pattern_matches("a*b*c", "aXcXb"));
  EXPECT_TRUE(pattern_matches("a**b", "ab"));
  EXPECT_FALSE(pattern_matches("a?b", "axb"));
  EXPECT_TRUE(pattern_matches("a.b", "a.b"));
  EXPECT_FALSE(pattern_matches("a.b", "axb"));
}

// The obvious recursive definition, as an oracle.
bool matches_slowly(const char* pattern, const char* text) {
  if (*pattern == '\0') return *text == '\0';
  if (*pattern == '*') return matches_slowly(pattern + 1, text) || (*text != '\0' && matches_slowly(pattern, text + 1));
  return *pattern == *text && matches_slowly(pattern + 1, text + 1);
}

TEST(PolicyPattern, AgreesWithTheRecursiveDefinition) {
  std::mt19937 random(7);
  auto word = [&](const char* alphabet, std::size_t longest) {
    std::string result;
    std::size_t length = random() % (longest + 1);
    for (std::size_t i = 0; i < length; i++) result += alphabet[random() % std::strlen(alphabet)];
    return result;
  };
  int matched = 0;
  for (int i = 0; i < 50000; i++) {
    std::string pattern = word("ab*", 6);
    std::string text = word("ab", 8);
    bool expected = matches_slowly(pattern.c_str(), text.c_str());
    matched += expected ? 1 : 0;
    ASSERT_EQ(pattern_matches(pattern.c_str(), text.c_str()), expected) << pattern << " on " << text;
  }
  EXPECT_GT(matched, 1000);
}

TEST(PolicyPattern, AnAdversarialPatternEndsQuickly) {
  std::string pattern;
  for (int i = 0; i < 60; i++) pattern += "a*";
  pattern += "b";
  EXPECT_FALSE(pattern_matches(pattern.c_str(), std::string(127, 'a').c_str()));
}

TEST(PolicyTenantRule, ExactBeatsPatternsAndMoreLiteralsBeatFewer) {
  Checked run(test::minimal(R"("tenants": {"*": {}, "acme*": {}, "*_reporting": {}, "acme": {}, "acme_r*": {}},)"));
  ASSERT_TRUE(run.valid) << run.all();
  auto rule = [&](const char* tenant) {
    return std::string(run.policy->tenant_rules[tenant_rule(*run.policy, tenant)].pattern);
  };
  EXPECT_EQ(rule("other"), "*");
  EXPECT_EQ(rule("acme"), "acme");
  EXPECT_EQ(rule("acme_x"), "acme*");
  EXPECT_EQ(rule("acme_r1"), "acme_r*");
  EXPECT_EQ(rule("acme_reporting"), "*_reporting");
}

TEST(PolicyTenantRule, EqualSpecificityFollowsTheDocument) {
  Checked run(test::minimal(R"("tenants": {"*xy": {}, "ab*": {}},)"));
  ASSERT_TRUE(run.valid) << run.all();
  EXPECT_STREQ(run.policy->tenant_rules[tenant_rule(*run.policy, "abxy")].pattern, "*xy");
  Checked reversed(test::minimal(R"("tenants": {"ab*": {}, "*xy": {}},)"));
  EXPECT_STREQ(reversed.policy->tenant_rules[tenant_rule(*reversed.policy, "abxy")].pattern, "ab*");
}

TEST(PolicyTenantRule, EveryTenantHasARuleEvenWhereTheDocumentNamesNone) {
  Checked none(test::minimal());
  Checked some(test::minimal(R"("tenants": {"acme": {"maxInflight": 3}, "b*": {}},)"));
  for (const Checked* run : {&none, &some}) {
    ASSERT_TRUE(run->valid) << run->all();
    std::uint16_t rule = tenant_rule(*run->policy, "zeta");
    ASSERT_NE(rule, kNone);
    EXPECT_STREQ(run->policy->tenant_rules[rule].pattern, "*");
    EXPECT_EQ(run->policy->tenant_rules[rule].max_inflight, kNoLimit);
    EXPECT_EQ(run->policy->tenant_rules[rule].weight, 1U);
  }
}

TEST(PolicyIdentify, FirstMatchingRuleAssignsTheClass) {
  Checked run(
      document(R"("assign": [{"role": "batch_*", "class": "batch"}, {"database": "analytics", "class": "reports"},
                                 {"memberOf": "etl", "class": "batch"}],)"));
  ASSERT_TRUE(run.valid) << run.all();
  EXPECT_EQ(who(run, "app", "shop").execution_class, 0);
  EXPECT_EQ(who(run, "app", "shop").assign_rule, kNone);
  EXPECT_EQ(who(run, "batch_1", "analytics").execution_class, 1);
  EXPECT_EQ(who(run, "batch_1", "analytics").assign_rule, 0);
  EXPECT_EQ(who(run, "app", "analytics").execution_class, 2);
  EXPECT_EQ(who(run, "app", "analytics_2").execution_class, 0);
  EXPECT_EQ(who(run, "app", "shop", false, nullptr, 1U << 2).execution_class, 1);
  EXPECT_EQ(who(run, "app", "shop", false, nullptr, 1U << 2).assign_rule, 2);
  EXPECT_EQ(who(run, "app", "shop", false, nullptr, 1U << 1).execution_class, 0)
      << "a bit of a rule that asks for none";
}

TEST(PolicyIdentify, MembershipBitsBeyondTheFirstWordCount) {
  std::string rules;
  for (int i = 0; i < 100; i++) rules += R"({"role": "nobody)" + std::to_string(i) + R"(", "class": "reports"},)";
  Checked run(document(R"("assign": [)" + rules + R"({"memberOf": "etl", "class": "batch"}],)"));
  ASSERT_TRUE(run.valid) << run.all();
  Login login{"app", "shop", false, nullptr, {}};
  login.memberships[100 / 64] = std::uint64_t{1} << (100 % 64);
  Identity identity;
  identify(*run.policy, login, identity);
  EXPECT_EQ(identity.assign_rule, 100);
  EXPECT_EQ(identity.execution_class, 1);
}

TEST(PolicyIdentify, StandingIsTheAttributeOrTheNamedRole) {
  Checked admins(R"({"schema": "dbAdmissionPolicy.v1", "database": "a/write", "serverSessionPermits": 10,
    "adminRoles": {"dba": {}, "monitor": {"guaranteedSessions": 2}}})");
  ASSERT_TRUE(admins.valid) << admins.all();
  EXPECT_EQ(who(admins, "app", "shop").standing, Standing::ordinary);
  EXPECT_EQ(who(admins, "app", "shop").admin_role, kNone);
  EXPECT_EQ(who(admins, "monitor", "shop").standing, Standing::admin_role);
  EXPECT_EQ(who(admins, "monitor", "shop").admin_role, 1);
  EXPECT_EQ(who(admins, "postgres", "shop", true).standing, Standing::superuser);
  EXPECT_EQ(who(admins, "postgres", "shop", true).admin_role, kNone);
  EXPECT_EQ(who(admins, "dba", "shop", true).standing, Standing::superuser);
  EXPECT_EQ(who(admins, "dba", "shop", true).admin_role, 0) << "a named superuser claims its name's guarantee";
}

TEST(PolicyIdentify, CapsAreFoundByExactName) {
  Checked run(test::minimal(R"("databaseCaps": {"one": {"maxSessions": 5}, "two": {"maxSessions": 5}},
                           "roleCaps": {"etl": {"maxSessions": 5}},)"));
  ASSERT_TRUE(run.valid) << run.all();
  Identity identity = who(run, "etl", "two");
  EXPECT_EQ(identity.database_cap, 1);
  EXPECT_EQ(identity.role_cap, 0);
  identity = who(run, "app", "three");
  EXPECT_EQ(identity.database_cap, kNone);
  EXPECT_EQ(identity.role_cap, kNone);
}

TEST(PolicyIdentify, TenantFollowsTheTenantKey) {
  auto tenant = [](const char* key) {
    Checked run(test::minimal(std::string(R"("tenantKey": ")") + key + R"(",)"));
    EXPECT_TRUE(run.valid) << run.all();
    return std::string(who(run, "app", "shop", false, "declared").tenant);
  };
  EXPECT_EQ(tenant("role"), "app");
  EXPECT_EQ(tenant("database"), "shop");
  EXPECT_EQ(tenant("database+role"), "shop/app");
  EXPECT_EQ(tenant("setting"), "app") << "nobody is trusted";
}

TEST(PolicyIdentify, ADeclaredTenantIsBelievedFromTrustedRolesOnly) {
  Checked run(test::minimal(R"("tenantKey": "setting", "declare": {"trustedRoles": ["gateway"]},)"));
  ASSERT_TRUE(run.valid) << run.all();
  EXPECT_STREQ(who(run, "gateway", "shop", false, "acme").tenant, "acme");
  EXPECT_STREQ(who(run, "app", "shop", false, "acme").tenant, "app");
  EXPECT_STREQ(who(run, "gateway", "shop", false, nullptr).tenant, "gateway");
  EXPECT_STREQ(who(run, "gateway", "shop", false, "").tenant, "gateway");
  std::string longest(kTenantBytes - 1, 'x');
  EXPECT_EQ(who(run, "gateway", "shop", false, longest.c_str()).tenant, longest);
  std::string too_long(kTenantBytes, 'x');
  EXPECT_STREQ(who(run, "gateway", "shop", false, too_long.c_str()).tenant, "gateway") << "cut it would be another's";
  EXPECT_TRUE(is_trusted(*run.policy, "gateway"));
  EXPECT_FALSE(is_trusted(*run.policy, "gatewa"));
}

TEST(PolicyIdentify, DatabaseAndRolePairsNeverShareATenant) {
  Checked run(test::minimal(R"("tenantKey": "database+role",)"));
  ASSERT_TRUE(run.valid) << run.all();
  std::vector<std::string> names = {"a",
                                    "/",
                                    "a/",
                                    "/a",
                                    "a/b",
                                    "%2F",
                                    "%",
                                    "a%2Fb",
                                    "a//b",
                                    std::string(63, '/'),
                                    std::string(62, '/') + "x",
                                    std::string(63, 'n'),
                                    "b",
                                    "b/c",
                                    "//"};
  std::set<std::string> tenants;
  for (const std::string& database : names) {
    for (const std::string& role : names) {
      Identity identity = who(run, role.c_str(), database.c_str());
      EXPECT_LT(std::strlen(identity.tenant), kTenantBytes);
      EXPECT_TRUE(tenants.insert(identity.tenant).second) << database << " and " << role << ": " << identity.tenant;
    }
  }
  EXPECT_EQ(tenants.size(), names.size() * names.size());
  EXPECT_STREQ(who(run, std::string(63, 'r').c_str(), std::string(63, 'd').c_str()).tenant,
               (std::string(63, 'd') + "/" + std::string(63, 'r')).c_str());
}

TEST(PolicyIdentify, LeavesNoByteOfTheIdentityUnset) {
  Checked run(test::minimal());
  Login login{"app", "shop", false, nullptr, {}};
  Identity one;
  Identity other;
  std::memset(&one, 0x00, sizeof(one));
  std::memset(&other, 0xFF, sizeof(other));
  identify(*run.policy, login, one);
  identify(*run.policy, login, other);
  EXPECT_EQ(std::memcmp(&one, &other, sizeof(one)), 0);
}

TEST(PolicyDeclaredClass, OnlyItselfAndWhatMayEnterLists) {
  Checked run(document(""));
  ASSERT_TRUE(run.valid) << run.all();
  EXPECT_EQ(declared_class(*run.policy, 0, "interactive"), 0);
  EXPECT_EQ(declared_class(*run.policy, 0, "reports"), 2);
  EXPECT_EQ(declared_class(*run.policy, 0, "batch"), kNone);
  EXPECT_EQ(declared_class(*run.policy, 2, "interactive"), kNone) << "not the way back";
  EXPECT_EQ(declared_class(*run.policy, 0, "no such class"), kNone);
  EXPECT_EQ(declared_class(*run.policy, 9, "interactive"), kNone);
}

TEST(PolicyDeclaredClass, WithBulkheadsOffEveryNameMeansTheOneClass) {
  Checked run(document(R"("bulkheads": "off",)"));
  ASSERT_TRUE(run.valid) << run.all();
  EXPECT_EQ(declared_class(*run.policy, 0, "batch"), 0);
}

}  // namespace
}  // namespace sluice::policy
