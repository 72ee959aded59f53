#include "cli/lint.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>

#include "cli/text_file.h"
#include "policy/defaults.h"

namespace sluice::cli {
namespace {

constexpr char kValid[] =
    "schema: dbAdmissionPolicy.v1\n"
    "database: orders-primary/write\n"
    "serverSessionPermits: 100\n"
    "adminRoles: {dba: {}}\n"
    "executionClasses:\n"
    "  interactive: {permits: 60, maxQueue: 100}\n";

std::string output_of(const std::string& yaml, LintOptions options = {}, Shown shown = Shown::everything) {
  options.file = "p.yaml";
  std::ostringstream out;
  (void)check_policy(options, yaml, out, shown);
  return out.str();
}

LintOptions against(std::uint32_t max_connections) {
  LintOptions options;
  options.max_connections = max_connections;
  return options;
}

TEST(CliLint, AValidPolicySaysNothing) { EXPECT_EQ(output_of(kValid), ""); }

TEST(CliLint, FindingsHaveFileLineSeverityPathAndFix) {
  EXPECT_EQ(output_of(std::string(kValid) + "leaseMs: -1\nadminReserve: 0\n"),
            "p.yaml:7: error: leaseMs: must be a whole number from 100 to 3600000 (milliseconds), found -1\n");
  EXPECT_EQ(output_of(std::string(kValid) + "leaseMS: 1\n"),
            "p.yaml:7: error: leaseMS: unknown field \"leaseMS\" (did you mean leaseMs?)\n"
            "    fix: write leaseMs, or remove the field\n");
  EXPECT_EQ(
      output_of(std::string(kValid) + "adminReserve: 0\n"),
      "p.yaml:7: warning: adminReserve: 0: once sessions are used up only a superuser on a Unix socket is sure to get "
      "in\n    fix: reserve at least 3 sessions\n");
}

TEST(CliLint, FindingsComeInTheOrderOfLines) {
  std::string out = output_of(std::string(kValid) + "leaseMs: -1\nadminReserve: x\n");
  EXPECT_LT(out.find("p.yaml:7:"), out.find("p.yaml:8:"));
}

TEST(CliLint, DuplicateKeysAreRefusedWithBothLines) {
  EXPECT_EQ(output_of(std::string(kValid) + "adminRoles: {}\n"),
            "p.yaml:7: error: adminRoles: is given twice, first in line 4\n    fix: keep one of the two\n");
  EXPECT_NE(output_of(std::string(kValid) + "  interactive: {permits: 1}\n")
                .find("p.yaml:7: error: "
                      "executionClasses.interactive: is given twice"),
            std::string::npos);
}

TEST(CliLint, BrokenYamlIsAFindingToo) {
  EXPECT_EQ(output_of("a: 1\nb: &x 2\n"),
            "p.yaml:2: error: an anchor (&name) is not supported\n"
            "    fix: remove it and write the value out where it is used\n");
}

TEST(CliLint, TerminalsAreNotObeyedFromTheFile) {
  std::string out = output_of(std::string(kValid) + "\"x\\e[31m\": 1\n\"tenantKey\": \"\\e]0;\"\n");
  EXPECT_EQ(out.find('\x1B'), std::string::npos) << out;
}

TEST(CliLint, ServerNumbersAreUsedOnlyWhenGiven) {
  EXPECT_EQ(output_of(kValid, against(111)), "");
  EXPECT_NE(output_of(kValid, against(110)).find("= 111, which is 1 more than max_connections 110"), std::string::npos);
  LintOptions options = against(111);
  options.reserved_connections = 1;
  EXPECT_NE(output_of(kValid, options).find("reserved_connections 1 = 112"), std::string::npos);
  options = against(200);
  options.label = "billing";
  EXPECT_NE(output_of(kValid, options).find("p.yaml:2: error: database: is for \"orders-primary\""), std::string::npos);
  options.label = "orders-primary";
  options.newest_generation = 5;
  EXPECT_EQ(output_of(kValid, options), "");
  EXPECT_NE(output_of(std::string(kValid) + "generation: 5\n", options).find("not newer"), std::string::npos);
}

TEST(CliLint, APolicyForAStandbyCanBeChecked) {
  std::string yaml = kValid;
  yaml.replace(yaml.find("/write"), 6, "/read");
  EXPECT_EQ(output_of(yaml, against(200)), "");
}

TEST(CliLint, WarningsCanBeLeftOut) {
  EXPECT_EQ(output_of(std::string(kValid) + "adminReserve: 0\n", {}, Shown::errors), "");
  EXPECT_NE(output_of(std::string(kValid) + "leaseMs: 0\n", {}, Shown::errors), "");
}

TEST(CliLint, TheExamplesOfTheProjectAreValid) {
  for (const char* file : {"config/policy-short.yaml", "config/policy-full.yaml"}) {
    LintOptions options = against(200);
    options.file = std::string(SLUICE_SOURCE_DIR) + "/" + file;
    std::ostringstream out;
    EXPECT_EQ(lint(options, out), 0) << out.str();
  }
}

// The comments of the example ("field: … # default N") are what operators read: they must be what the validator does.
TEST(CliLint, TheFullExampleStatesTheTrueDefaults) {
  std::ifstream file(std::string(SLUICE_SOURCE_DIR) + "/config/policy-full.yaml");
  const std::map<std::string, std::uint32_t> expected = {{"adminReserve", policy::kDefaultAdminReserve},
                                                         {"loginHeadroom", policy::kDefaultLoginHeadroom},
                                                         {"replicationReserve", 0},
                                                         {"queueDeadlineMs", policy::kDefaultQueueDeadlineMs},
                                                         {"agingMs", policy::kDefaultAgingMs},
                                                         {"ttlMs", policy::kDefaultBorrowTtlMs},
                                                         {"max", policy::kDefaultOverdraftMax},
                                                         {"weight", policy::kDefaultTenantWeight},
                                                         {"guaranteedSessions", 0},
                                                         {"maxTenants", 0},
                                                         {"burstReserve", 0},
                                                         {"burstReserveAfterMs", policy::kDefaultBurstReserveAfterMs},
                                                         {"guaranteedSessionsPerTenant", 0},
                                                         {"minSessionAgeMs", policy::kDefaultMinSessionAgeMs},
                                                         {"idleAfterMs", policy::kDefaultEvictIdleAfterMs},
                                                         {"baseMs", policy::kDefaultRetryBaseMs},
                                                         {"leaseMs", policy::kDefaultLeaseMs},
                                                         {"leakAfterMs", policy::kDefaultLeakAfterMs}};
  const std::regex stated(R"((\w+): [^:#]*# default (\d+))");
  std::map<std::string, std::uint32_t> found;
  for (std::string line; std::getline(file, line);) {
    std::smatch match;
    if (std::regex_search(line, match, stated)) found[match[1]] = static_cast<std::uint32_t>(std::stoul(match[2]));
  }
  EXPECT_EQ(found, expected);
}

TEST(CliLint, TheFullExampleNamesEveryField) {
  std::string text = read_text_file(std::string(SLUICE_SOURCE_DIR) + "/config/policy-full.yaml");
  for (const char* field : {"schema",
                            "database",
                            "generation",
                            "hardConnectionLimit",
                            "serverSessionPermits",
                            "adminReserve",
                            "loginHeadroom",
                            "replicationReserve",
                            "adminRoles",
                            "poolMode",
                            "bulkheads",
                            "executionClasses",
                            "overdraft",
                            "fairness",
                            "tenantKey",
                            "declare",
                            "tenants",
                            "defaultClass",
                            "assign",
                            "databaseCaps",
                            "roleCaps",
                            "eviction",
                            "retry",
                            "leaseMs",
                            "leakAfterMs",
                            "permits",
                            "maxQueue",
                            "queueDeadlineMs",
                            "agingMs",
                            "transactionTimeLimitMs",
                            "mayEnter",
                            "borrow",
                            "from",
                            "max",
                            "ttlMs",
                            "onExpiry",
                            "classSetting",
                            "tenantSetting",
                            "trustedRoles",
                            "weight",
                            "maxInflight",
                            "maxSessions",
                            "guaranteedSessions",
                            "maxTenants",
                            "role",
                            "memberOf",
                            "class",
                            "burstReserve",
                            "burstReserveAfterMs",
                            "guaranteedSessionsPerTenant",
                            "minSessionAgeMs",
                            "direct",
                            "proxied",
                            "idleAfterMs",
                            "baseMs"}) {
    EXPECT_NE(text.find(std::string(field) + ":"), std::string::npos) << field;
  }
}

}  // namespace
}  // namespace sluice::cli
