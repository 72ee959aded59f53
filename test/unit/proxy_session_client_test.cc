// What becomes of the client's messages, in both profiles.
#include "unit/proxy_session_fixture.h"

namespace sluice::proxy {
namespace {

using SessionClientTest = SessionTest;

TEST_F(SessionClientTest, ABatchThatNeedsNoRewritingIsForwardedInOneSpan) {
  send(parse("", "select 1") + bind("", "") + describe('P', "") + execute() + sync());
  EXPECT_EQ(out_.server_calls, 1U);
  EXPECT_EQ(server(), "P(select 1) B D(P) E S");
}

TEST_F(SessionClientTest, SplitAnywhereTheStreamStaysTheSame) {
  std::string stream = query("begin") + parse("a", "select 1") + bind("", "a") + describe('S', "a") + execute() +
                       close('S', "a") + sync() + query("set local work_mem='5MB'") + flush() + sync();
  send(stream);
  std::string whole = server();
  for (std::size_t cut = 1; cut < stream.size(); cut++) {
    session_ = nullptr;
    server_ = fresh_server();
    input_.clear();
    send(stream.substr(0, cut));
    send(stream.substr(cut));
    EXPECT_EQ(server(), whole) << cut;
  }
}

TEST_F(SessionClientTest, LongMessagesStreamInWhateverPiecesTheyCome) {
  std::string large = message('B', std::string(2, '\0') + std::string(1 << 20, 'v'));
  send(parse("", "select $1"));
  server();
  for (std::size_t at = 0; at < large.size(); at += 9000) {
    send(large.substr(at, 9000));
    EXPECT_LE(input_.size(), Session::kInputBytes);
  }
  EXPECT_EQ(input_, "");
  EXPECT_EQ(out_.server, large);
}

TEST_F(SessionClientTest, AMessageOverTheConfiguredLimitIsRefusedFromItsHeader) {
  options_.max_message_bytes = 1000;
  send(query(std::string(1001, ' ')).substr(0, 5));
  EXPECT_EQ(client(), "E(FATAL 54000: a message is longer than max_message_bytes allows)");
  EXPECT_TRUE(session().done());
}

TEST_F(SessionClientTest, MalformedHeadersEndTheSessionAfterWhatWasSentBefore) {
  for (const std::string& bad :
       {std::string("\x01"), message('p', "x"), std::string("Q\0\0\0\3", 5), std::string("S\x7F\xFF\xFF\xFF", 5)}) {
    session_ = nullptr;
    server_ = fresh_server();
    input_.clear();
    send(query("select 1") + bad);
    EXPECT_EQ(client(), "");
    answer(tag("SELECT 1") + ready());
    std::string shown = client();
    EXPECT_TRUE(shown.starts_with("C(SELECT 1) Z(I) E(FATAL 08P01: ")) << shown;
    EXPECT_TRUE(session().wants().close);
  }
}

TEST_F(SessionClientTest, AtTheLimitOfRepliesAFlushAndNoSyncIsSent) {
  options_.max_owed_replies = 4;
  send(parse("", "select 1") + bind("", "") + execute() + bind("", "") + execute());
  EXPECT_EQ(server(), "P(select 1) B E B H");
  EXPECT_TRUE(session().wants().pause_client);
  answer(message('1') + message('2'));
  EXPECT_EQ(server(), "E");
}

TEST_F(SessionClientTest, ManyClosesWithoutSyncAreAnsweredAsTheyCome) {
  std::string closes;
  for (int i = 0; i < 1600; i++) closes += close('S', "unknown");
  send(closes);
  EXPECT_EQ(out_.client.size(), 1600 * 5U);
}

TEST_F(SessionClientTest, ReleaseWaitsForWhatWasSentBehindTheSync) {
  send(bind("", "") + execute() + sync() + parse("", "select 2") + describe('S', "") + flush());
  answer(error("26000", "unnamed prepared statement does not exist") + ready());
  EXPECT_FALSE(session().wants().release);
  answer(message('1') + message('t', std::string(2, '\0')) + columns());
  EXPECT_EQ(client(), "E(26000: unnamed prepared statement does not exist) Z(I) 1 t T");
  EXPECT_FALSE(session().wants().release) << "the batch is open";
  send(sync());
  answer(ready());
  EXPECT_TRUE(session().wants().release);
}

TEST_F(SessionClientTest, CopyDataThatNobodyReadsIsDropped) {
  give_ = false;
  send(message('d', "1\n") + message('c') + message('f', terminated("no")) + flush());
  EXPECT_EQ(input_, "");
  EXPECT_FALSE(session().wants().server);
}

TEST_F(SessionClientTest, ExtendedCopyWithAnEarlySyncHasOneReadyForQuery) {
  send(parse("", "copy t from stdin") + bind("", "") + execute() + sync());
  answer(message('1') + message('2') + message('G', std::string(3, '\0')));
  send(message('d', "1\n") + message('c') + sync());
  EXPECT_EQ(server(), "P(copy t from stdin) B E S d(1) c S");
  answer_and_release(tag("COPY 1") + ready());
  EXPECT_EQ(client(), "1 2 G C(COPY 1) Z(I)");
}

TEST_F(SessionClientTest, SyncAndFlushDuringACopyAreNotForwarded) {
  send(query("copy t from stdin"));
  answer(message('G', std::string(3, '\0')));
  server();
  send(sync() + flush() + message('d', "1\n") + message('c'));
  EXPECT_EQ(server(), "d(1) c");
  answer_and_release(tag("COPY 1") + ready());
}

TEST_F(SessionClientTest, AFailedCopyWhoseSyncMayHaveBeenReadCostsTheServer) {
  send(parse("", "copy t from stdin") + bind("", "") + execute() + sync());
  answer(message('1') + message('2') + message('G', std::string(3, '\0')));
  send(message('d', "x\n") + message('c') + sync());
  answer(error("22P02", "bad") + ready());
  EXPECT_EQ(session().wants().discard, Discard::copy);
}

TEST_F(SessionClientTest, SixBatchesAtOnceGetSixAnswersInOrder) {
  std::string batches;
  std::string answers;
  for (int i = 0; i < 6; i++) {
    batches += parse("", "select 1") + bind("", "") + execute() + sync();
    answers += message('1') + message('2') + tag("SELECT 1") + ready();
  }
  send(batches);
  answer_and_release(answers);
  EXPECT_EQ(out_.client, answers);
}

TEST_F(SessionClientTest, ARefusedTextFailsOnTheServerInItsPlace) {
  send(query("begin") + query("listen x") + query("select 1"));
  EXPECT_EQ(server(), "Q(begin) Q(refused) Q(select 1)");
  answer(tag("BEGIN") + ready('T') + error("42601", "syntax error") + ready('E'));
  EXPECT_EQ(client(), "C(BEGIN) Z(T) E(0A000: LISTEN is not supported in transaction pooling) Z(E)");
}

TEST_F(SessionClientTest, ALongTextThatIsRefusedIsSpoiled) {
  std::string text = "select 1 /*" + std::string(Session::kInputBytes, ' ') + "*/; listen x";
  std::string stream = query(text);
  send(stream.substr(0, Session::kInputBytes));
  send(stream.substr(Session::kInputBytes));
  ASSERT_EQ(out_.server.size(), stream.size());
  EXPECT_EQ(out_.server.find('\0', 5), std::string::npos) << "no end of a text may be left";
  answer(error("08P01", "invalid string in message") + ready());
  EXPECT_EQ(client(), "E(0A000: LISTEN is not supported in transaction pooling) Z(I)");
}

class StrictClientTest : public SessionTest {
 protected:
  StrictClientTest() { options_.profile = Profile::strict; }
  void expect_end(std::string_view stream, std::string_view sqlstate) {
    session_ = nullptr;
    server_ = fresh_server();
    input_.clear();
    out_ = {};
    send(stream);
    std::string shown = client();
    EXPECT_TRUE(shown.starts_with("E(FATAL " + std::string(sqlstate))) << shown << " for " << stream;
    EXPECT_TRUE(session().wants().close);
    EXPECT_NE(session().wants().discard, Discard::none);
  }
};

TEST_F(StrictClientTest, UnnamedObjectsOfTheSameBatchPassUnchanged) {
  std::string batch = parse("", "select 1") + describe('S', "") + bind("", "") + describe('P', "") + execute() +
                      close('P', "") + close('S', "") + flush() + sync();
  send(batch);
  EXPECT_EQ(out_.server, batch);
}

TEST_F(StrictClientTest, WhatTheProfileDoesNotKnowEndsTheSession) {
  expect_end(parse("a", "select 1"), "0A000");
  expect_end(parse("", "select 1") + bind("p", ""), "0A000");
  expect_end(parse("", "select 1") + bind("", "a"), "0A000");
  expect_end(close('S', "a"), "0A000");
  expect_end(message('F', std::string(12, '\0')), "0A000");
  expect_end(bind("", ""), "26000");
  expect_end(describe('P', ""), "26000");
  expect_end(parse("", "select 1") + sync() + bind("", ""), "26000");
  expect_end(parse("", "select 1") + execute(), "26000");
  expect_end(parse("", "select 1") + query("select 1"), "08P01");
  for (std::string_view text :
       {"set a=1", "select 1; reset all", "discard plans", "prepare x as select 1", "listen x",
        "declare c cursor with hold for select 1", "set constraints all deferred", "copy t from stdin",
        "copy t to stdout", "/* */ SeT session characteristics as transaction read only"}) {
    expect_end(query(text), "0A000");
    expect_end(parse("", text), "0A000");
  }
}

TEST_F(StrictClientTest, TheGuardLetsThroughWhatLastsForATransactionOnly) {
  for (std::string_view text : {"set local a=1", "set transaction read only", "select 'set a=1'",
                                "select $$;reset all$$", "declare c cursor for select 1", "deallocate all"}) {
    session_ = nullptr;
    server_ = fresh_server();
    send(query(text));
    EXPECT_EQ(std::exchange(out_.server, {}), query(text));
  }
}

// Nothing more is read of such a client, so nobody would end the COPY that the server waits for.
TEST_F(SessionTest, AMistakeOfTheClientDoesNotWaitForTheEndOfACopy) {
  const std::string began = message('G', std::string(3, '\0'));
  const std::string batch = parse("", "copy t from stdin") + bind("", "") + execute();
  const std::string answered = message('1') + message('2');
  const std::string bad[] = {std::string("d\0\0\0\0", 5), "\x01"};
  for (const std::string& mistake : bad) {
    for (bool early : {false, true}) {
      for (bool simple : {false, true}) {
        session_ = nullptr;
        server_ = fresh_server();
        input_.clear();
        out_ = {};
        send(simple ? query("copy t from stdin") : batch + flush());
        if (early) send(mistake);
        answer((simple ? "" : answered) + began);
        if (!early) send(mistake);
        EXPECT_EQ(session().wants().discard, Discard::client_left) << early << simple;
        EXPECT_TRUE(session().wants().close) << early << simple;
        EXPECT_TRUE(client().find("E(FATAL 08P01") != std::string::npos) << early << simple;
      }
    }
  }
}

// What resets settings is waited for, and a COPY in the same Query or batch waits for the client.
TEST_F(SessionTest, ACopyBehindAResetIsFed) {
  const std::string began = message('G', std::string(3, '\0'));
  const std::string data = message('d', "1\n") + message('c');
  for (std::string_view reset : {"reset all", "deallocate all", "discard all"}) {
    session_ = nullptr;
    server_ = fresh_server();
    input_.clear();
    out_ = {};
    send(query(std::string(reset) + "; copy t from stdin"));
    out_.server.clear();
    answer(tag("RESET") + began);
    send(data + query("select 2"));
    EXPECT_EQ(out_.server, data) << reset << ": the next query waits";

    session_ = nullptr;
    server_ = fresh_server();
    input_.clear();
    out_ = {};
    send(parse("", reset) + bind("", "") + execute() + parse("", "copy t from stdin") + bind("", "") + execute() +
         sync());
    out_.server.clear();
    answer(message('1') + message('2') + tag("RESET") + message('1') + message('2') + began);
    send(data + sync() + query("select 2"));
    EXPECT_EQ(out_.server, data + sync()) << reset << ": the next query waits";
  }
}

TEST_F(SessionTest, AQueryThatGoesOnBehindItsTextIsForwardedToItsEnd) {
  const std::string longer = query(terminated("reset all") + std::string(3 * Session::kInputBytes, 'x'));
  std::string_view rest = longer;
  for (; !rest.empty(); rest.remove_prefix(std::min<std::size_t>(rest.size(), 8192))) send(rest.substr(0, 8192));
  EXPECT_EQ(out_.server, longer);
  EXPECT_EQ(input_, "");
}

}  // namespace
}  // namespace sluice::proxy
