// Settings that follow their client, and what the session does with a server connection of its own accord.
#include "unit/proxy_session_fixture.h"

namespace sluice::proxy {
namespace {

class SessionHousekeepingTest : public SessionTest {
 protected:
  static constexpr std::string_view kReadBack =
      "SELECT pg_catalog.current_setting('role'),session_user;SELECT name,pg_catalog.current_setting(name) FROM "
      "pg_catalog.pg_settings WHERE source OPERATOR(pg_catalog.=) 'session'";

  // The answer to the question what is set.
  static std::string read_back(const std::vector<std::string>& first,
                               const std::vector<std::pair<std::string, std::string>>& set) {
    std::string bytes = columns() + row(first) + tag("SELECT 1") + columns();
    for (const auto& [name, value] : set) bytes += row({name, value});
    return bytes + tag("SELECT 2") + ready();
  }
};

TEST_F(SessionHousekeepingTest, TheClientsBytesWaitForTheSettingsAnswer) {
  startup_.set("DateStyle", "ISO");
  send(query("select 1"));
  EXPECT_EQ(server(), "Q(SELECT pg_catalog.set_config('datestyle','ISO',false))");
  answer(columns() + row({"ISO, MDY"}) + tag("SELECT 1") + parameter("DateStyle", "ISO, MDY"));
  EXPECT_EQ(server(), "");
  answer(ready());
  EXPECT_EQ(server(), "Q(select 1)");
  answer_and_release(tag("SELECT 1") + ready());
  EXPECT_EQ(client(), "S(DateStyle,ISO, MDY) C(SELECT 1) Z(I)");
}

TEST_F(SessionHousekeepingTest, OneSetAPairingHoweverTheValueWasSpelled) {
  startup_.set("DateStyle", "ISO");
  send(query("select 1"));
  answer(columns() + row({"ISO, MDY"}) + tag("SELECT 1") + ready());
  answer_and_release(tag("SELECT 1") + ready());
  server();
  for (int i = 0; i < 100; i++) {
    send(query("select 1"));
    EXPECT_EQ(server(), "Q(select 1)");
    answer_and_release(tag("SELECT 1") + ready());
  }
}

TEST_F(SessionHousekeepingTest, SettingsThatCannotBeGivenAreTheEndAndNotIgnored) {
  startup_.set("work_mem", "much");
  send(query("select 1"));
  answer(error("22023", "invalid value") + ready());
  EXPECT_EQ(client(), "E(FATAL 22023: invalid value)");
  EXPECT_EQ(session().wants().discard, Discard::settings);
  EXPECT_EQ(session().end(), SessionEnd::setup_failed);
}

TEST_F(SessionHousekeepingTest, AServerThatDiesDuringTheSetupIsReplaced) {
  startup_.set("work_mem", "5MB");
  send(query("select 1"));
  session().server_lost(now_, out_);
  EXPECT_EQ(client(), "");
  EXPECT_TRUE(session().wants().server);
}

TEST_F(SessionHousekeepingTest, WhatATransactionSetIsReadBackBeforeTheRelease) {
  send(query("SET work_mem = '5MB'"));
  server();
  answer(tag("SET") + ready());
  EXPECT_EQ(client(), "C(SET) Z(I)") << "the client does not wait for it";
  EXPECT_EQ(server(), "Q(" + std::string(kReadBack) + ")");
  EXPECT_FALSE(session().wants().release);
  EXPECT_FALSE(session().accepts_cancel());
  answer_and_release(read_back({"none", "app"}, {{"work_mem", "5MB"}}));
  EXPECT_EQ(client(), "");
  server_ = fresh_server();
  send(query("select 1"));
  EXPECT_EQ(server(), "Q(SELECT pg_catalog.set_config('work_mem','5MB',false))");
}

TEST_F(SessionHousekeepingTest, WhatTheNextClientHasNotIsReset) {
  server_->settings.set("work_mem", "5MB");
  server_->settings.set("role", "bob");
  send(query("select 1"));
  EXPECT_EQ(server(), "Q(RESET role;RESET \"work_mem\";)");
  answer(tag("RESET") + tag("RESET") + ready());
  EXPECT_EQ(server(), "Q(select 1)");
  EXPECT_EQ(server_->settings.size(), 0U);
}

TEST_F(SessionHousekeepingTest, ASetThatWasRolledBackLeavesNothing) {
  send(query("begin; set timezone = 'UTC'"));
  answer(tag("BEGIN") + tag("SET") + parameter("TimeZone", "UTC") + ready('T'));
  send(query("rollback"));
  answer(tag("ROLLBACK") + parameter("TimeZone", "Etc/UTC") + ready());
  answer_and_release(read_back({"none", "app"}, {}));
  EXPECT_EQ(session().settings().size(), 0U);
  EXPECT_EQ(client(), "C(BEGIN) C(SET) S(TimeZone,UTC) Z(T) C(ROLLBACK) S(TimeZone,Etc/UTC) Z(I)");
}

TEST_F(SessionHousekeepingTest, AReportedChangeThatNoTextToldOfIsReadBack) {
  send(query("select hidden()"));
  server();
  answer(parameter("TimeZone", "UTC") + tag("SELECT 1") + ready());
  EXPECT_EQ(server(), "Q(" + std::string(kReadBack) + ")");
}

TEST_F(SessionHousekeepingTest, SetLocalNeedsNoQuestionButItsParameterExistsFromThenOn) {
  send(query("begin; set local app.tenant = '7'"));
  answer(tag("BEGIN") + tag("SET") + ready('T'));
  send(query("commit"));
  answer_and_release(tag("COMMIT") + ready());
  ASSERT_NE(server_->settings.find("app.tenant"), nullptr);
  EXPECT_EQ(*server_->settings.find("app.tenant"), "");
  server();
  send(query("select 1"));
  EXPECT_EQ(server(), "Q(select 1)") << "for this client nothing is different";
}

TEST_F(SessionHousekeepingTest, AClientThatNeverMadeAParameterIsNotServedWhereItExists) {
  server_->settings.set("app.tenant", "7");
  give_ = false;
  send(query("select 1"));
  ASSERT_TRUE(session().wants().server);
  session().assign(*server_, now_, out_);
  EXPECT_EQ(session().wants().discard, Discard::settings);
  EXPECT_EQ(server(), "");
  session().release();
  send({});
  EXPECT_TRUE(session().wants().server);
  EXPECT_EQ(client(), "");
}

TEST_F(SessionHousekeepingTest, ParametersOfSetConfigAndRoleAreReadBackByName) {
  send(query("select set_config('App.Tenant', '7', false)"));
  server();
  answer(columns() + row({"7"}) + tag("SELECT 1") + ready());
  EXPECT_TRUE(server().starts_with(
      "Q(SELECT pg_catalog.current_setting('role'),session_user,pg_catalog.current_setting('app.tenant',true);"));
  answer_and_release(read_back({"bob", "app", "7"}, {}));
  EXPECT_EQ(*session().settings().find("app.tenant"), "7");
  EXPECT_EQ(*session().settings().find("role"), "bob");
}

TEST_F(SessionHousekeepingTest, WhatCannotBeKnownIsNotReused) {
  for (std::string_view text : {"select set_config($1, '7', false)", "set session authorization bob",
                                "do $$ begin execute 'set app.x = 1'; end $$"}) {
    session_ = nullptr;
    server_ = fresh_server();
    send(query(text));
    answer(tag("DO") + ready());
    answer(read_back({"none", "app"}, {}));
    EXPECT_EQ(session().wants().discard, Discard::settings) << text;
  }
}

TEST_F(SessionHousekeepingTest, AnotherSessionUserIsNotReused) {
  send(query("call p()"));
  answer(tag("CALL") + ready());
  answer(read_back({"none", "bob"}, {}));
  EXPECT_EQ(session().wants().discard, Discard::settings);
}

TEST_F(SessionHousekeepingTest, AResetBringsBackWhatTheClientBeganWith) {
  startup_.set("work_mem", "5MB");
  send(query("RESET ALL") + query("select 1"));
  answer(columns() + row({"5MB"}) + tag("SELECT 1") + ready());
  EXPECT_TRUE(server().ends_with("Q(RESET ALL)")) << "what follows waits";
  answer(tag("RESET") + ready());
  answer_and_release(read_back({"none", "app"}, {}));
  EXPECT_TRUE(server().ends_with("Q(SELECT pg_catalog.set_config('work_mem','5MB',false))"));
}

TEST_F(SessionHousekeepingTest, AFailedQuestionEndsTheSession) {
  send(query("set work_mem = '5MB'"));
  answer(tag("SET") + ready());
  answer(error("57014", "canceled") + ready());
  EXPECT_EQ(client(), "C(SET) Z(I) E(FATAL 57014: canceled)");
  EXPECT_EQ(session().wants().discard, Discard::settings);
}

TEST_F(SessionHousekeepingTest, AServerThatDoesNotAnswerTheSessionIsGivenUp) {
  send(query("set work_mem = '5MB'"));
  answer(tag("SET") + ready());
  now_ += options_.housekeeping_timeout;
  session().tick(now_, out_);
  EXPECT_EQ(session().wants().discard, Discard::settings);
  EXPECT_TRUE(session().wants().close);
}

TEST_F(SessionHousekeepingTest, ParametersOfAnotherServerAreToldBeforeItsAnswers) {
  server_->parameters.set("server_version", "15.9");
  send(query("select 1"));
  EXPECT_EQ(client(), "S(server_version,15.9)");
}

TEST_F(SessionHousekeepingTest, WhatCannotBeCarriedFollowsThePoolsChoice) {
  for (std::string_view text : {"select pg_advisory_lock(7)", "listen x", "create temp table t(a int)",
                                "declare c cursor with hold for select 1", "prepare x as select 1", "load 'x'"}) {
    options_.untracked = Untracked::refuse;
    session_ = nullptr;
    server_ = fresh_server();
    send(query(text));
    answer(error("42601", "x") + ready());
    EXPECT_TRUE(client().starts_with("E(0A000: ")) << text;
    EXPECT_TRUE(session().wants().release) << text;

    options_.untracked = Untracked::discard;
    session_ = nullptr;
    server_ = fresh_server();
    send(query(text));
    answer(tag("X") + ready());
    EXPECT_EQ(session().wants().discard, Discard::untracked) << text;
    client();
  }
}

TEST_F(SessionHousekeepingTest, AClientKeepsItsServerWithinThePoolsBudget) {
  PinBudget pins = {1, 0};
  options_.untracked = Untracked::session;
  options_.pins = &pins;
  send(query("listen x"));
  answer(tag("LISTEN") + ready());
  EXPECT_FALSE(session().wants().release);
  EXPECT_TRUE(session().pinned());
  EXPECT_EQ(pins.used, 1U);
  client();
  auto other_server = fresh_server();
  Session other(options_, 2, startup_, parameters_);
  Recorder out;
  std::string text = query("listen y");
  other.assign(*other_server, now_, out);
  EXPECT_EQ(other.take_client(wire::as_bytes(text), now_, out), text.size());
  EXPECT_EQ(shown(out.server), "Q(refused)");
  other.release();
  session().client_gone(Departure::in_order, now_, out_);
  EXPECT_EQ(session().wants().discard, Discard::untracked);
  session().release();
  EXPECT_EQ(pins.used, 0U);
}

TEST_F(SessionHousekeepingTest, DiscardAllGivesTheClientItsBeginningBack) {
  startup_.set("work_mem", "5MB");
  send(query("DISCARD ALL"));
  answer(columns() + row({"5MB"}) + tag("SELECT 1") + ready());
  answer(tag("DISCARD ALL") + ready());
  answer_and_release(read_back({"none", "app"}, {}));
  EXPECT_EQ(client(), "C(DISCARD ALL) Z(I)");
  EXPECT_EQ(*session().settings().find("work_mem"), "5MB");
  EXPECT_EQ(server_->settings.size(), 0U);
}

}  // namespace
}  // namespace sluice::proxy
