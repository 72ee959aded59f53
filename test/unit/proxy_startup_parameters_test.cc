#include "proxy/startup_parameters.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "proxy_login_fixture.h"

namespace sluice::proxy {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

struct Judged {
  StartupRefusal refusal;
  StartupParameters parameters;
};

Judged judge(const Pairs& pairs, Profile profile, bool allow_replication = false) {
  std::string packet = made_startup(wire::kProtocol30, pairs);
  wire::Bytes parameters = wire::as_bytes(packet).subspan(8);
  Judged judged;
  judged.refusal = read_startup_parameters(parameters, profile, allow_replication, judged.parameters);
  return judged;
}

Judged strict(Pairs pairs) {
  pairs.insert(pairs.begin(), {"user", "app"});
  return judge(pairs, Profile::strict);
}

Judged compatible(Pairs pairs) {
  pairs.insert(pairs.begin(), {"user", "app"});
  return judge(pairs, Profile::compatible);
}

using Settings = std::vector<Setting>;

TEST(ProxyStartupParameters, TheDatabaseIsTheUsersWhereNoneIsNamed) {
  Judged judged = strict({});
  EXPECT_EQ(judged.refusal.sqlstate, "");
  EXPECT_EQ(judged.parameters.user, "app");
  EXPECT_EQ(judged.parameters.database, "app");
  EXPECT_TRUE(judged.parameters.settings.empty());
  EXPECT_EQ(strict({{"database", "shop"}}).parameters.database, "shop");
}

TEST(ProxyStartupParameters, ANameOfMoreThan63BytesIsTooLongAndNeverCutOff) {
  std::string longest(63, 'x');
  for (Profile profile : {Profile::strict, Profile::compatible}) {
    EXPECT_EQ(judge({{"user", longest}, {"database", longest}}, profile).refusal.sqlstate, "");
    EXPECT_EQ(judge({{"user", longest + "x"}, {"database", "d"}}, profile).refusal.sqlstate, "42622");
    EXPECT_EQ(judge({{"user", "u"}, {"database", longest + "x"}}, profile).refusal.sqlstate, "42622");
  }
}

TEST(ProxyStartupParameters, NobodyLogsInWithoutAName) {
  for (Profile profile : {Profile::strict, Profile::compatible}) {
    EXPECT_EQ(judge({}, profile).refusal.sqlstate, "28000");
    EXPECT_EQ(judge({{"user", ""}}, profile).refusal.sqlstate, "28000");
    EXPECT_EQ(judge({{"database", "shop"}}, profile).refusal.sqlstate, "28000");
  }
}

TEST(ProxyStartupParameters, StrictTakesItsFewSettings) {
  Judged judged = strict({{"application_name", "a b"},
                          {"client_encoding", "utf-8"},
                          {"statement_timeout", "0"},
                          {"lock_timeout", "0250"},
                          {"idle_in_transaction_session_timeout", "2147483647"}});
  EXPECT_EQ(judged.refusal.sqlstate, "");
  EXPECT_EQ(judged.parameters.settings, (Settings{{"application_name", "a b"},
                                                  {"client_encoding", "UTF8"},
                                                  {"statement_timeout", "0"},
                                                  {"lock_timeout", "250"},
                                                  {"idle_in_transaction_session_timeout", "2147483647"}}));
  EXPECT_EQ(judged.parameters.application_name(), "a b");
}

TEST(ProxyStartupParameters, StrictRefusesEveryOtherNameWith0A000AndSaysWhich) {
  for (std::string name : {"options", "replication", "extra_float_digits", "search_path", "IntervalStyle", "geqo",
                           "TimeZone", "role", "no_such_setting", "statement_timeout2", "statement_timeou"}) {
    for (std::string value : {"", "off", "1"}) {
      Judged judged = strict({{name, value}});
      EXPECT_EQ(judged.refusal.sqlstate, "0A000") << name << "=" << value;
      EXPECT_NE(judged.refusal.message.find(name), std::string::npos) << judged.refusal.message;
    }
  }
}

TEST(ProxyStartupParameters, StrictTakesTimeLimitsInWholeMillisecondsOnly) {
  for (std::string value : {"", "-1", "+1", "5s", "1.5", " 1", "1 ", "0x10", "2147483648", "99999999999", "abc"}) {
    EXPECT_EQ(strict({{"statement_timeout", value}}).refusal.sqlstate, "22023") << value;
  }
}

TEST(ProxyStartupParameters, StrictTakesNoEncodingButUtf8) {
  for (std::string value : {"UTF8", "utf8", "UTF-8", "Unicode", "'utf-8'"}) {
    EXPECT_EQ(strict({{"client_encoding", value}}).refusal.sqlstate, "") << value;
  }
  for (std::string value : {"", "LATIN1", "SQL_ASCII", "UTF16", "utf88"}) {
    EXPECT_EQ(strict({{"client_encoding", value}}).refusal.sqlstate, "0A000") << value;
  }
}

// Case G1: what drivers send.
TEST(ProxyStartupParameters, CompatibleTakesWhatDriversSend) {
  Pairs pairs = {
      {"extra_float_digits", "2"},  {"IntervalStyle", "iso_8601"}, {"geqo", "off"},        {"search_path", "a, b"},
      {"DateStyle", "ISO"},         {"TimeZone", "Europe/Berlin"}, {"app.tenant", "acme"}, {"role", "other"},
      {"pg_sluice.class", "batch"}, {"no_such_setting", ""}};
  Judged judged = compatible(pairs);
  EXPECT_EQ(judged.refusal.sqlstate, "");
  ASSERT_EQ(judged.parameters.settings.size(), pairs.size());
  for (std::size_t i = 0; i < pairs.size(); i++) {
    EXPECT_EQ(judged.parameters.settings[i], (Setting{pairs[i].first, pairs[i].second}));
  }
}

TEST(ProxyStartupParameters, CompatibleRefusesByNameWhatItCannotGive) {
  for (std::string name : {"replication", "ignore_system_indexes", "jit_debugging_support", "jit_profiling_support",
                           "local_preload_libraries", "session_preload_libraries", "log_connections",
                           "LOG_DISCONNECTIONS", "post_auth_delay", "session_authorization", "transaction_isolation",
                           "transaction_read_only", "transaction_deferrable", "seed", "pg_sluice.ticket"}) {
    Judged judged = compatible({{name, "on"}});
    EXPECT_EQ(judged.refusal.sqlstate, "0A000") << name;
    EXPECT_NE(judged.refusal.message.find(name), std::string::npos) << judged.refusal.message;
    EXPECT_FALSE(judged.refusal.hint.empty()) << name;
    if (name == "replication") continue;
    EXPECT_EQ(compatible({{"options", "-c " + name + "=on"}}).refusal.sqlstate, "0A000") << name;
  }
}

TEST(ProxyStartupParameters, ReplicationIsReadAsTheServerReadsItAndHandedOnWhereThePoolCan) {
  EXPECT_EQ(compatible({{"replication", "false"}}).refusal.sqlstate, "");
  EXPECT_EQ(compatible({{"replication", "maybe"}}).refusal.sqlstate, "22023");
  EXPECT_EQ(compatible({{"replication", "on"}, {"replication", "maybe"}}).refusal.message,
            "invalid value for parameter \"replication\": \"maybe\"");
  Judged judged = judge({{"user", "app"}, {"replication", "database"}}, Profile::compatible, true);
  EXPECT_EQ(judged.refusal.sqlstate, "");
  EXPECT_EQ(judged.parameters.replication, wire::Replication::logical);
  EXPECT_TRUE(judged.parameters.settings.empty());
}

TEST(ProxyStartupParameters, WhatNoSettingCanBeCalledIsUnknown) {
  for (std::string name : {"a b", "1a", "a.", ".a", "a..b", "a-b", "a;b", "a\"b", "a'b", "a\nb"}) {
    EXPECT_EQ(compatible({{name, "x"}}).refusal.sqlstate, "42704") << name;
  }
  for (std::string name : {"a", "_a", "a1", "a$b", "a.b", "a.b.c", "\xC3\xA9t\xC3\xA9"}) {
    EXPECT_EQ(compatible({{name, "x"}}).refusal.sqlstate, "") << name;
  }
}

// Case D20.
TEST(ProxyStartupParameters, OptionsAreReadInEveryForm) {
  Judged judged = compatible({{"options", "-c application_name=a\\ b --geqo=off -csearch_path=x --work-mem=1MB"}});
  EXPECT_EQ(judged.refusal.sqlstate, "");
  EXPECT_EQ(judged.parameters.settings,
            (Settings{{"application_name", "a b"}, {"geqo", "off"}, {"search_path", "x"}, {"work_mem", "1MB"}}));
  EXPECT_TRUE(compatible({{"options", ""}}).parameters.settings.empty());
}

TEST(ProxyStartupParameters, OptionsOfUnknownFormAreRefusedAndNotIgnored) {
  for (std::string options : {"-x", "geqo=off", "-c", "-c geqo", "--geqo", "-B 10", "-S 64"}) {
    EXPECT_EQ(compatible({{"options", options}}).refusal.sqlstate, "42601") << options;
  }
}

TEST(ProxyStartupParameters, TheLastValueCountsAndAParameterMoreThanOptions) {
  Judged judged = compatible({{"TimeZone", "UTC"},
                              {"options", "-c timezone=Asia/Tokyo -c geqo=on -c geqo=off"},
                              {"timezone", "Europe/Paris"},
                              {"user", "second"}});
  EXPECT_EQ(judged.parameters.user, "second");
  EXPECT_EQ(judged.parameters.settings, (Settings{{"timezone", "Europe/Paris"}, {"geqo", "off"}}));
}

TEST(ProxyStartupParameters, OptionsOfTheProtocolAreNoSettings) {
  Judged judged = compatible({{"_pq_.something", "x"}});
  EXPECT_EQ(judged.refusal.sqlstate, "");
  EXPECT_TRUE(judged.parameters.settings.empty());
  EXPECT_EQ(strict({{"_pq_.something", "x"}}).refusal.sqlstate, "");
}

TEST(ProxyStartupParameters, TheNumberOfSettingsIsLimited) {
  Pairs pairs;
  for (std::size_t i = 0; i < kMaxStartupSettings; i++) pairs.emplace_back("a.b" + std::to_string(i), "x");
  EXPECT_EQ(compatible(pairs).parameters.settings.size(), kMaxStartupSettings);
  pairs.emplace_back("A.B0", "again");
  EXPECT_EQ(compatible(pairs).refusal.sqlstate, "");
  pairs.emplace_back("a.c", "x");
  EXPECT_EQ(compatible(pairs).refusal.sqlstate, "54000");
}

}  // namespace
}  // namespace sluice::proxy
