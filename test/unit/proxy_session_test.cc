#include "proxy/session.h"

#include "unit/proxy_session_fixture.h"

namespace sluice::proxy {
namespace {

TEST_F(SessionTest, AServerIsWantedByTheFirstMessageOnly) {
  give_ = false;
  EXPECT_FALSE(session().wants().server);
  send(query("select 1").substr(0, 6));
  EXPECT_FALSE(session().wants().server) << "half a message must not hold a server";
  send(query("select 1").substr(6));
  EXPECT_TRUE(session().wants().server);
  EXPECT_EQ(server(), "");
}

TEST_F(SessionTest, AnIdleSessionAnswersSyncByItself) {
  give_ = false;
  send(sync() + sync() + sync());
  EXPECT_EQ(client(), "Z(I) Z(I) Z(I)");
  EXPECT_FALSE(session().wants().server);
}

TEST_F(SessionTest, TheServerIsReleasedWhenIdleAndNothingIsOwed) {
  send(query("begin"));
  answer(tag("BEGIN") + ready('T'));
  EXPECT_FALSE(session().wants().release);
  send(query("select 1/0"));
  answer(error("22012", "division by zero") + ready('E'));
  EXPECT_FALSE(session().wants().release);
  send(query("rollback"));
  answer_and_release(tag("ROLLBACK") + ready());
  EXPECT_EQ(client(), "C(BEGIN) Z(T) E(22012: division by zero) Z(E) C(ROLLBACK) Z(I)");
}

TEST_F(SessionTest, RefusedInPlaceTheClientGoesOn) {
  give_ = false;
  send(query("select 1") + query("select 2"));
  session().refuse({"FATAL", "53000", "full", "", ""}, now_, out_);
  EXPECT_EQ(client(), "E(53000: full) Z(I)");
  send({});
  EXPECT_TRUE(session().wants().server) << "the second query waits";
  give_ = true;
  send({});
  EXPECT_EQ(server(), "Q(select 2)");
}

TEST_F(SessionTest, ARefusedBatchIsSkippedToItsSync) {
  give_ = false;
  send(parse("", "select 1") + bind("", "") + execute() + query("skipped") + sync() + sync());
  session().refuse({"ERROR", "53000", "full", "", ""}, now_, out_);
  send({});
  EXPECT_EQ(client(), "E(53000: full) Z(I) Z(I)");
  EXPECT_FALSE(session().wants().server);
}

TEST_F(SessionTest, StrictRefusalsEndTheSession) {
  options_.profile = Profile::strict;
  give_ = false;
  send(query("select 1"));
  session().refuse({"ERROR", "53300", "full", "", ""}, now_, out_);
  EXPECT_EQ(client(), "E(FATAL 53300: full)");
  EXPECT_TRUE(session().done());
  EXPECT_EQ(session().end(), SessionEnd::refused_by_pool);
}

TEST_F(SessionTest, ALostServerIsReportedOnceAndEndsTheSession) {
  send(query("select 1"));
  session().server_lost(now_, out_);
  EXPECT_EQ(client(), "E(FATAL 08006: the connection to the server was lost)");
  EXPECT_TRUE(session().done());
}

TEST_F(SessionTest, TheServersFatalIsTheOnlyError) {
  send(parse("", "select 1") + bind("", "") + describe('P', "") + execute() + sync());
  answer(error("57P01", "terminating connection", "FATAL"));
  EXPECT_EQ(session().wants().discard, Discard::server_fatal);
  session().server_lost(now_, out_);
  EXPECT_EQ(client(), "E(FATAL 57P01: terminating connection)");
  EXPECT_TRUE(session().done());
  EXPECT_EQ(session().end(), SessionEnd::server_fatal);
}

TEST_F(SessionTest, ACleanServerThatIsLostBeforeItsReleaseIsNotTheClientsLoss) {
  send(query("select 1"));
  answer(tag("SELECT 1") + ready());
  session().server_lost(now_, out_);
  EXPECT_EQ(client(), "C(SELECT 1) Z(I)");
  EXPECT_FALSE(session().wants().close);
}

TEST_F(SessionTest, AClientThatIdlesInATransactionLosesIt) {
  options_.idle_transaction_timeout = 10 * kSecond;
  send(query("begin"));
  EXPECT_EQ(session().next_deadline(), kNever) << "the server is at work";
  answer(tag("BEGIN") + ready('T'));
  EXPECT_EQ(session().next_deadline(), now_ + 10 * kSecond);
  now_ += 10 * kSecond - 1;
  session().tick(now_, out_);
  EXPECT_FALSE(session().wants().close);
  now_ += 1;
  session().tick(now_, out_);
  EXPECT_EQ(client(), "C(BEGIN) Z(T) E(FATAL 25P03: terminating connection due to idle-in-transaction timeout)");
  EXPECT_EQ(session().wants().discard, Discard::idle_in_transaction);
}

TEST_F(SessionTest, TheIdleLimitHoldsInFailedTransactionsAndUnfinishedBatches) {
  options_.idle_transaction_timeout = 10 * kSecond;
  send(query("begin; bad"));
  answer(error("42601", "no") + ready('E'));
  EXPECT_EQ(session().next_deadline(), now_ + 10 * kSecond);
  session_ = nullptr;
  server_ = fresh_server();
  send(parse("", "select 1"));
  EXPECT_EQ(session().next_deadline(), now_ + 10 * kSecond);
}

TEST_F(SessionTest, WhatWasSentBeforeTerminateIsCarriedOut) {
  send(query("insert into t values (1)") + message('X'));
  EXPECT_TRUE(session().wants().close);
  EXPECT_FALSE(session().done());
  answer(tag("INSERT 0 1") + ready());
  EXPECT_TRUE(session().wants().release);
  session().release();
  EXPECT_TRUE(session().done());
}

TEST_F(SessionTest, ATransactionThatTheClientLeftIsRolledBack) {
  send(query("begin"));
  answer(tag("BEGIN") + ready('T'));
  server();
  session().client_gone(Departure::reset, now_, out_);
  EXPECT_EQ(server(), "Q(ROLLBACK)");
  answer(tag("ROLLBACK") + ready());
  EXPECT_TRUE(session().wants().release);
  EXPECT_EQ(client(), "C(BEGIN) Z(T)");
}

TEST_F(SessionTest, ABatchWithoutSyncIsMadeToFailSoThatNothingIsCommitted) {
  send(parse("", "insert into t values (1)") + bind("", "") + execute());
  server();
  session().client_gone(Departure::in_order, now_, out_);
  EXPECT_EQ(server(), "P(sluice_refused,refused) S");
  answer(message('1') + message('2') + tag("INSERT 0 1") + error("42601", "refused") + ready());
  EXPECT_TRUE(session().wants().release);
}

TEST_F(SessionTest, ACopyThatTheClientLeftFails) {
  send(query("copy t from stdin"));
  answer(message('G', std::string(3, '\0')));
  server();
  session().client_gone(Departure::reset, now_, out_);
  EXPECT_EQ(server(), "f(the client is gone)");
  answer(error("57014", "COPY failed") + ready());
  EXPECT_TRUE(session().wants().release);
}

TEST_F(SessionTest, HalfAMessageOfAClientThatLeftCostsTheServer) {
  send(query("begin"));
  answer(tag("BEGIN") + ready('T'));
  send(message('B', std::string(Session::kInputBytes + 100, '\0')).substr(0, Session::kInputBytes));
  session().client_gone(Departure::reset, now_, out_);
  EXPECT_EQ(session().wants().discard, Discard::client_left);
}

TEST_F(SessionTest, ARunningQueryIsCancelledAtOnceOnResetAndAfterTheGraceOtherwise) {
  send(query("select pg_sleep(100)"));
  session().client_gone(Departure::reset, now_, out_);
  EXPECT_TRUE(session().wants().cancel);
  EXPECT_EQ(session().wants().discard, Discard::client_left);

  session_ = nullptr;
  server_ = fresh_server();
  send(query("select pg_sleep(100)"));
  session().client_gone(Departure::in_order, now_, out_);
  EXPECT_FALSE(session().wants().cancel);
  EXPECT_EQ(session().next_deadline(), now_ + options_.client_gone_grace);
  now_ += options_.client_gone_grace;
  session().tick(now_, out_);
  EXPECT_TRUE(session().wants().cancel);
  EXPECT_EQ(session().wants().discard, Discard::client_left);
}

TEST_F(SessionTest, StrictDiscardsAServerWhoseClientLeftInATransaction) {
  options_.profile = Profile::strict;
  send(query("begin"));
  answer(tag("BEGIN") + ready('T'));
  session().client_gone(Departure::in_order, now_, out_);
  EXPECT_EQ(session().wants().discard, Discard::client_left);
}

TEST_F(SessionTest, AClientThatDoesNotReadIsCutOff) {
  send(query("select * from large"));
  answer(row({"1"}));
  session().client_stalled(now_, out_);
  EXPECT_TRUE(session().wants().cancel);
  EXPECT_EQ(session().wants().discard, Discard::client_stalled);
  EXPECT_EQ(client(), "D(1) E(FATAL 08006: the client does not read its answers)");
}

TEST_F(SessionTest, ShuttingDownWaitsForTheTransaction) {
  send(query("begin"));
  answer(tag("BEGIN") + ready('T'));
  session().shut_down({"FATAL", "57P01", "bye", "", ""}, now_, out_);
  EXPECT_FALSE(session().wants().close);
  send(query("commit"));
  answer(tag("COMMIT") + ready());
  EXPECT_TRUE(session().wants().close);
  EXPECT_TRUE(session().wants().release);
  EXPECT_EQ(client(), "C(BEGIN) Z(T) C(COMMIT) Z(I) E(FATAL 57P01: bye)");
}

TEST_F(SessionTest, ShuttingDownEndsAnIdleSessionAtOnce) {
  session().shut_down({"FATAL", "57P01", "bye", "", ""}, now_, out_);
  EXPECT_EQ(client(), "E(FATAL 57P01: bye)");
  EXPECT_TRUE(session().done());
}

TEST_F(SessionTest, ACancelMeetsOnlyTheClientsOwnQuery) {
  startup_.set("work_mem", "5MB");
  send(query("select 1"));
  EXPECT_FALSE(session().accepts_cancel()) << "the session's own statement is running";
  answer(columns() + row({"5MB"}) + tag("SELECT 1") + ready());
  EXPECT_TRUE(session().accepts_cancel());
  answer(tag("SELECT 1") + ready());
  EXPECT_FALSE(session().accepts_cancel());
}

}  // namespace
}  // namespace sluice::proxy
