// What becomes of the server's messages, and the session against a model of a server.
#include <random>

#include "unit/proxy_session_fixture.h"

namespace sluice::proxy {
namespace {

using SessionServerTest = SessionTest;

TEST_F(SessionServerTest, SplitAnywhereTheClientSeesTheSame) {
  std::string answers = message('1') + message('2') + columns() + row({"x"}) +
                        message('N', "SNOTICE" + std::string(2, '\0')) + tag("SELECT 1") +
                        parameter("TimeZone", "UTC") + message('3') + error("22012", "division by zero") + ready();
  auto run = [&](std::size_t cut) {
    session_ = nullptr;
    server_ = fresh_server();
    out_ = {};
    send(parse("", "select 1") + bind("", "") + describe('P', "") + execute() + close('P', "") + execute() + sync());
    answer(std::string_view(answers).substr(0, cut));
    answer(std::string_view(answers).substr(cut));
    EXPECT_EQ(server_->status, wire::TransactionStatus::idle) << cut;
    return out_.client;
  };
  EXPECT_EQ(run(answers.size()), answers);
  for (std::size_t cut = 1; cut < answers.size(); cut++) EXPECT_EQ(run(cut), answers) << cut;
}

// The client would take the error for the rest of its row.
TEST_F(SessionServerTest, NoErrorIsPutIntoAnUnfinishedMessage) {
  const std::string long_row = row({std::string(200, 'v')});
  for (std::size_t cut = 0; cut < long_row.size(); cut += 3) {
    session_ = nullptr;
    server_ = fresh_server();
    out_ = {};
    send(query("select 1"));
    answer(columns() + long_row.substr(0, cut));
    session().server_lost(now_, out_);
    EXPECT_EQ(session().end(), SessionEnd::server_lost) << cut;
    if (cut < 5) {
      EXPECT_EQ(client(), "T E(FATAL 08006: the connection to the server was lost)") << cut;
    } else {
      EXPECT_EQ(out_.client, columns() + long_row.substr(0, cut)) << cut;
    }
  }
}

TEST_F(SessionServerTest, AServerIsNotGivenBackInTheMiddleOfWhatItSendsOnItsOwn) {
  const std::string notices[] = {message('N', "SNOTICE" + std::string(2, '\0')), parameter("TimeZone", "UTC"),
                                 message('A', std::string(4, '\0') + terminated("channel") + terminated("text"))};
  for (const std::string& notice : notices) {
    for (std::size_t cut = 1; cut < notice.size(); cut++) {
      session_ = nullptr;
      server_ = fresh_server();
      out_ = {};
      send(query("select 1"));
      answer(tag("SELECT 1") + ready() + notice.substr(0, cut));
      EXPECT_FALSE(session().wants().release) << cut;
      send(close('S', "a") + query("select 2"));
      EXPECT_EQ(server(), "Q(select 1)") << cut;
      session().take_server(wire::as_bytes(std::string_view(notice).substr(cut)), now_, out_);
      EXPECT_TRUE(session().wants().release) << cut;
      EXPECT_EQ(out_.client, tag("SELECT 1") + ready() + notice) << cut;
      ASSERT_EQ(session().release(), server_.get());
      send({});
      EXPECT_EQ(server(), "Q(select 2)") << cut;
      input_.clear();
    }
  }
}

TEST_F(SessionServerTest, RowsOfAnyLengthPassWithoutBeingKept) {
  send(query("select large"));
  std::string large = columns() + message('D', std::string(1 << 20, 'v'));
  for (std::size_t at = 0; at < large.size(); at += 8192) answer(std::string_view(large).substr(at, 8192));
  EXPECT_EQ(out_.client, large);
  EXPECT_EQ(server_->partial.capacity(), 0U);
}

TEST_F(SessionServerTest, AnErrorTooLongToReadIsForwarded) {
  send(query("select 1"));
  std::string long_error = error("22012", std::string(100000, 'x')) + ready();
  for (std::size_t at = 0; at < long_error.size(); at += 7000) {
    session().take_server(wire::as_bytes(std::string_view(long_error).substr(at, 7000)), now_, out_);
  }
  EXPECT_EQ(out_.client, long_error);
  EXPECT_TRUE(session().wants().release);
}

TEST_F(SessionServerTest, AServerThatCarriesOutWhatItIsSentToRefuseIsNotTrusted) {
  const std::string refused[] = {query("listen x"), parse("a", "listen x") + sync(), parse("", "listen x") + sync()};
  for (const std::string& sent : refused) {
    session_ = nullptr;
    server_ = fresh_server();
    input_.clear();
    out_ = {};
    send(sent);
    answer((sent[0] == 'Q' ? tag("LISTEN") : message('1')) + ready());
    EXPECT_EQ(session().wants().discard, Discard::server_protocol) << shown(sent);
    EXPECT_TRUE(client().starts_with("E(FATAL 08006")) << shown(sent);
  }
}

TEST_F(SessionServerTest, AServerThatDoesNotKeepToTheProtocolIsNotTrusted) {
  for (const std::string& bad : {std::string("\x01"), std::string("Z\0\0\0\4", 5), message('Z', "Q"),
                                 message('E', "Mtext" + std::string(2, '\0')), message('E', std::string(1, '\0')),
                                 message('E', "Sx"), message('1'), message('2'), message('3'), message('S', "name"),
                                 tag("X") + message('s'), message('W', std::string(3, '\0'))}) {
    session_ = nullptr;
    server_ = fresh_server();
    send(query("select 1"));
    answer(bad);
    EXPECT_NE(session().wants().discard, Discard::none) << shown(bad);
    EXPECT_TRUE(client().find("E(FATAL ") != std::string::npos) << shown(bad);
    EXPECT_TRUE(session().wants().close);
  }
}

TEST_F(SessionServerTest, BytesBehindTheLastReadyForQueryCostTheServer) {
  send(query("select 1"));
  answer(tag("SELECT 1") + ready() + row({"1"}));
  EXPECT_EQ(session().wants().discard, Discard::server_protocol);
}

TEST_F(SessionServerTest, APlanThatChangedIsParsedAgainNextTime) {
  send(parse("s", "select * from t") + sync());
  answer_and_release(message('1') + ready());
  send(bind("", "s") + sync());
  std::string changed = message('E', "SERROR" + std::string(1, '\0') + "C0A000" + std::string(1, '\0') + "Mchanged" +
                                         std::string(1, '\0') + "RRevalidateCachedQuery" + std::string(2, '\0'));
  server();
  answer(changed + ready());
  EXPECT_EQ(server(), "C(Ssluice_1) S");
  answer_and_release(message('3') + ready());
  send(bind("", "s") + sync());
  EXPECT_EQ(server(), "P(sluice_2,select * from t) B(sluice_2) S");
}

TEST_F(SessionServerTest, StrictDiscardsAServerWhoseParametersChanged) {
  options_.profile = Profile::strict;
  send(query("select hidden()"));
  answer(parameter("TimeZone", "UTC") + tag("SELECT 1") + ready());
  EXPECT_EQ(session().wants().discard, Discard::parameters_changed);
}

TEST_F(SessionServerTest, StrictDiscardsUnsafeTextEvenIfItWasReverted) {
  for (const char* name : {"standard_conforming_strings", "client_encoding"}) {
    options_.profile = Profile::strict;
    session_ = nullptr;
    server_ = fresh_server();
    send(query("select hidden()"));
    answer(parameter(name, "off") + parameter(name, *parameters_.find(name)) + tag("SELECT 1") + ready());
    EXPECT_EQ(session().wants().discard, Discard::unsafe_text) << name;
  }
}

TEST_F(SessionServerTest, StrictDiscardsAfterACancel) {
  options_.profile = Profile::strict;
  send(query("select 1"));
  session().cancel_sent();
  answer(tag("SELECT 1") + ready());
  EXPECT_EQ(session().wants().discard, Discard::cancelled);
}

// A server that carries out whole messages as PostgreSQL does: after an error in a batch it skips to the Sync.
class ModelServer {
 public:
  explicit ModelServer(std::mt19937& random) : random_(random) {}

  std::string take(std::string_view bytes) {
    input_ += bytes;
    std::string answers;
    while (input_.size() >= 5) {
      std::size_t length = wire::read_uint32(reinterpret_cast<const std::uint8_t*>(input_.data()) + 1) + 1;
      if (input_.size() < length) break;
      answers += carry_out(input_[0]);
      input_.erase(0, length);
    }
    return answers;
  }

 private:
  std::string carry_out(char type) {
    bool fails = random_() % 8 == 0;
    if (type == 'S') {
      skipping_ = false;
      return ready();
    }
    if (skipping_) return {};
    if (type == 'Q') return (fails ? error("22012", "x") : tag("SELECT 1")) + ready();
    if (type == 'H') return {};
    if (fails) {
      skipping_ = true;
      return error("22012", "x");
    }
    switch (type) {
      case 'P':
        return message('1');
      case 'B':
        return message('2');
      case 'D':
        return message('n');
      case 'E':
        return tag("SELECT 1");
      default:
        return message('3');
    }
  }

  std::mt19937& random_;
  std::string input_;
  bool skipping_ = false;
};

TEST_F(SessionServerTest, EachSyncAndQueryIsAnsweredOnceWhateverFails) {
  for (unsigned seed = 0; seed < 300; seed++) {
    std::mt19937 random(seed);
    session_ = nullptr;
    server_ = fresh_server();
    input_.clear();
    out_ = {};
    ModelServer model(random);
    std::size_t owed = 0;
    for (int step = 0; step < 60; step++) {
      std::string batch = parse("", "select 1");
      for (unsigned i = random() % 4; i > 0; i--) {
        std::string name(1, static_cast<char>('a' + random() % 3));
        batch += random() % 2 == 0 ? parse(name, "select " + name) + proxy::bind("", name)
                                   : close('S', name) + proxy::bind("", "");
      }
      batch += execute() + sync();
      owed++;
      if (random() % 3 == 0) {
        batch += query("select 2");
        owed++;
      }
      std::size_t cut = random() % batch.size();
      send(batch.substr(0, cut));
      send(batch.substr(cut));
      // The server is fast or slow.
      while (!out_.server.empty() && (random() % 2 == 0 || step == 59)) {
        answer(model.take(std::exchange(out_.server, {})));
        if (session().wants().release) {
          session().release();
          send({});
        }
      }
    }
    while (!out_.server.empty() || session().assigned()) {
      answer(model.take(std::exchange(out_.server, {})));
      ASSERT_EQ(session().wants().discard, Discard::none) << seed << ' ' << shown(out_.client);
      if (session().wants().release) {
        session().release();
        send({});
      }
    }
    EXPECT_EQ(input_, "") << seed;
    std::string seen = shown(out_.client);
    std::size_t found = 0;
    for (std::size_t at = seen.find("Z(I)"); at != std::string::npos; at = seen.find("Z(I)", at + 1)) found++;
    EXPECT_EQ(found, owed) << seed;
    EXPECT_TRUE(session().idle()) << seed;
  }
}

}  // namespace
}  // namespace sluice::proxy
