// Statements of clients that move between server connections.
#include "unit/proxy_session_fixture.h"

namespace sluice::proxy {
namespace {

class SessionStatementsTest : public SessionTest {
 protected:
  void prepare(std::string_view name, std::string_view text) {
    send(parse(name, text) + sync());
    answer_and_release(message('1') + ready());
    client();
    server();
  }
  void move_to_another_server() { server_ = fresh_server(); }
};

TEST_F(SessionStatementsTest, ANameIsTheServersAndIsParsedAgainWhereItIsNotKnown) {
  send(parse("s", "select 1") + bind("", "s") + execute() + sync());
  EXPECT_EQ(server(), "P(sluice_1,select 1) B(sluice_1) E S");
  answer_and_release(message('1') + message('2') + tag("SELECT 1") + ready());
  EXPECT_EQ(client(), "1 2 C(SELECT 1) Z(I)");
  send(bind("", "s") + execute() + sync());
  EXPECT_EQ(server(), "B(sluice_1) E S");
  answer_and_release(message('2') + tag("SELECT 1") + ready());
  client();
  move_to_another_server();
  send(bind("", "s") + execute() + sync());
  EXPECT_EQ(server(), "P(sluice_1,select 1) B(sluice_1) E S");
  answer_and_release(message('1') + message('2') + tag("SELECT 1") + ready());
  EXPECT_EQ(client(), "2 C(SELECT 1) Z(I)") << "the second Parse was not the client's";
}

TEST_F(SessionStatementsTest, ClientsWithTheSameSettingsShareATextAndOthersDoNot) {
  prepare("a", "select '01/02/2024'::date");
  session_ = std::make_unique<Session>(options_, 2, startup_, parameters_);
  send(parse("b", "select '01/02/2024'::date") + bind("", "b") + sync());
  EXPECT_EQ(server(), "B(sluice_1) S") << "on an idle connection its Parse is answered here";
  answer_and_release(message('2') + ready());
  EXPECT_EQ(client(), "1 2 Z(I)");
  startup_.set("DateStyle", "ISO, DMY");
  session_ = std::make_unique<Session>(options_, 3, startup_, parameters_);
  send(parse("c", "select '01/02/2024'::date") + sync());
  answer(columns() + row({"ISO, DMY"}) + tag("SELECT 1") + ready());
  EXPECT_EQ(server(),
            "Q(SELECT pg_catalog.set_config('datestyle','ISO, DMY',false)) "
            "P(sluice_2,select '01/02/2024'::date) S");
}

TEST_F(SessionStatementsTest, CalendarLiteralsAndTextsBehindASetAreNobodyElses) {
  prepare("a", "select 'today'::date");
  session_ = std::make_unique<Session>(options_, 2, startup_, parameters_);
  send(parse("b", "select 'today'::date") + sync());
  EXPECT_EQ(server(), "P(sluice_2,select 'today'::date) S");
  answer_and_release(message('1') + ready());
  send(query("begin; set local search_path to x") + parse("d", "select 7") + sync());
  answer(tag("BEGIN") + tag("SET") + ready('T') + message('1') + ready('T'));
  send(query("commit"));
  answer_and_release(tag("COMMIT") + ready());
  server();
  session_ = std::make_unique<Session>(options_, 3, startup_, parameters_);
  send(parse("e", "select 7") + sync());
  EXPECT_EQ(server(), "P(sluice_4,select 7) S");
}

TEST_F(SessionStatementsTest, AStatementWhoseParseFailedIsNobodys) {
  send(parse("s", "bad") + sync());
  answer_and_release(error("42601", "syntax error") + ready());
  EXPECT_EQ(server_->statements.size(), 0U);
  server();
  send(parse("s", "select 1") + sync());
  EXPECT_EQ(server(), "P(sluice_2,select 1) S");
}

TEST_F(SessionStatementsTest, ASkippedCloseDoesNotCloseAndASkippedParseDoesNotPrepare) {
  prepare("s", "select 1");
  send(bind("", "none") + close('S', "s") + parse("new", "select 2") + sync());
  answer_and_release(error("26000", "x") + ready());
  EXPECT_EQ(client(), "E(26000: prepared statement \"none\" does not exist) Z(I)");
  server();
  send(bind("", "s") + bind("", "new") + sync());
  EXPECT_EQ(server(), "B(sluice_1) B(sluice_0) S");
}

TEST_F(SessionStatementsTest, ErrorsShowTheClientsName) {
  prepare("mine", "select 1");
  send(bind("", "mine") + sync());
  answer_and_release(
      error("08P01", "bind message supplies 1 parameters, but prepared statement \"sluice_1\" requires 0") + ready());
  EXPECT_EQ(client(), "E(08P01: bind message supplies 1 parameters, but prepared statement \"mine\" requires 0) Z(I)");
}

TEST_F(SessionStatementsTest, ADuplicateNameIsRefusedByTheServer) {
  prepare("s", "select 1");
  send(parse("s", "select 2") + sync());
  EXPECT_EQ(server(), "P(sluice_1,select 2) S");
  answer_and_release(error("42P05", "prepared statement \"sluice_1\" already exists") + ready());
  EXPECT_EQ(client(), "E(42P05: prepared statement \"s\" already exists) Z(I)");
}

TEST_F(SessionStatementsTest, CloseIsAnsweredInItsPlaceAndFreesTheName) {
  prepare("s", "select 1");
  send(bind("", "s") + close('S', "s") + parse("s", "select 2") + sync());
  EXPECT_EQ(server(), "B(sluice_1) P(sluice_2,select 2) S");
  answer_and_release(message('2') + message('1') + ready());
  EXPECT_EQ(client(), "2 3 1 Z(I)");
}

TEST_F(SessionStatementsTest, DeallocateOfAProtocolNameActsAsClose) {
  prepare("s", "select 1");
  send(query("DEALLOCATE s"));
  EXPECT_EQ(server(), "Q(UNLISTEN sluice)");
  answer_and_release(tag("UNLISTEN") + ready());
  EXPECT_EQ(client(), "C(DEALLOCATE) Z(I)");
  prepare("s", "select 2");
  send(parse("", "deallocate s") + bind("", "") + execute() + sync());
  answer_and_release(message('1') + message('2') + tag("UNLISTEN") + ready());
  EXPECT_EQ(client(), "1 2 C(DEALLOCATE) Z(I)");
  send(bind("", "s") + sync());
  answer_and_release(error("26000", "x") + ready());
  EXPECT_EQ(client(), "E(26000: prepared statement \"s\" does not exist) Z(I)");
}

TEST_F(SessionStatementsTest, AFailedDeallocateKeepsTheStatement) {
  prepare("s", "select 1");
  send(query("begin; bad"));
  answer(error("42601", "bad") + ready('E'));
  send(query("deallocate s"));
  answer(error("25P02", "aborted") + ready('E'));
  send(query("rollback"));
  answer_and_release(tag("ROLLBACK") + ready());
  server();
  send(bind("", "s") + sync());
  EXPECT_EQ(server(), "B(sluice_1) S");
}

TEST_F(SessionStatementsTest, DeallocateAllClearsTheServersAndTheClientsNames) {
  prepare("s", "select 1");
  send(query("DEALLOCATE ALL") + parse("s", "select 1") + sync());
  EXPECT_EQ(server(), "Q(DEALLOCATE ALL)") << "what follows waits";
  answer(tag("DEALLOCATE ALL") + ready());
  EXPECT_EQ(server_->statements.size(), 0U);
  ASSERT_TRUE(session().wants().release);
  session().release();
  send({});
  EXPECT_EQ(server(), "P(sluice_2,select 1) S");
}

TEST_F(SessionStatementsTest, TheUnnamedStatementFollowsItsClient) {
  send(parse("", "select 'mine'") + sync());
  answer_and_release(message('1') + ready());
  move_to_another_server();
  server_->unnamed_client = 77;
  server();
  send(bind("", "") + execute() + sync());
  EXPECT_EQ(server(), "P(select 'mine') B E S");
  answer_and_release(message('1') + message('2') + tag("SELECT 1") + ready());
  EXPECT_EQ(client(), "1 Z(I) 2 C(SELECT 1) Z(I)");
}

TEST_F(SessionStatementsTest, AnotherClientsUnnamedStatementIsNeverBound) {
  server_->unnamed_client = 77;
  send(bind("", "") + execute() + sync());
  EXPECT_EQ(server(), "B(sluice_0) E S");
  answer_and_release(error("26000", "prepared statement \"sluice_0\" does not exist") + ready());
  EXPECT_EQ(client(), "E(26000: unnamed prepared statement does not exist) Z(I)");
}

TEST_F(SessionStatementsTest, AnUnnamedStatementComesBackWhenItsSuccessorIsSkipped) {
  send(parse("", "select 1") + sync());
  answer_and_release(message('1') + ready());
  server();
  send(bind("", "none") + parse("", "select 2") + query("select 3") + sync());
  answer_and_release(error("26000", "x") + ready());
  server();
  send(bind("", "") + sync());
  EXPECT_EQ(server(), "B S");
}

TEST_F(SessionStatementsTest, TheLeastRecentlyUsedStatementIsClosedBehindTheBatch) {
  options_.max_server_statements = 2;
  prepare("a", "select 1");
  prepare("b", "select 2");
  send(bind("", "a") + sync());
  answer_and_release(message('2') + ready());
  server();
  client();
  send(parse("c", "select 3") + sync());
  answer(message('1') + ready());
  EXPECT_EQ(server(), "P(sluice_3,select 3) S C(Ssluice_2) S");
  EXPECT_FALSE(session().wants().release);
  answer_and_release(message('3') + ready());
  EXPECT_EQ(client(), "1 Z(I)");
}

TEST_F(SessionStatementsTest, TheClientsStatementsAreCapped) {
  options_.max_client_statements = 1;
  prepare("a", "select 1");
  send(parse("b", "select 2") + sync());
  answer_and_release(error("42601", "x") + ready());
  EXPECT_EQ(client(), "E(54000: too many prepared statements of one client) Z(I)");
}

TEST_F(SessionStatementsTest, NamesOfAnyLengthAreTheClientsBusiness) {
  std::string name(20000, 'n');
  send(parse(name, "select 1") + proxy::bind("", name) + sync());
  EXPECT_EQ(server(), "P(sluice_1,select 1) B(sluice_1) S");
}

TEST_F(SessionTest, ABindThatGetsALongerNameKeepsToTheServersLimit) {
  for (std::uint32_t length : {wire::kLargeLength, wire::kLargeLength - 1}) {
    for (std::string_view name : {"a", "absent", ""}) {
      session_ = nullptr;
      server_ = fresh_server();
      input_.clear();
      out_ = {};
      send(parse(name.empty() ? name : "a", "select $1") + sync());
      answer(message('1') + ready());
      if (session().wants().release) session().release();
      std::string bind_head = "B";
      for (int shift = 24; shift >= 0; shift -= 8) bind_head += static_cast<char>(length >> shift);
      out_.server.clear();
      out_.client.clear();
      send(bind_head + terminated("") + terminated(name) + std::string(40'000, '\0'));
      if (name.empty()) {
        EXPECT_TRUE(out_.server.find(bind_head) != std::string::npos) << "as it came";
      } else {
        EXPECT_TRUE(client().starts_with("E(FATAL 54000")) << length;
        EXPECT_EQ(out_.server, "");
      }
    }
  }
}

}  // namespace
}  // namespace sluice::proxy
