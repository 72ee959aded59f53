#include "proxy/server_login.h"

#include <gtest/gtest.h>

#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "proxy/scram_server.h"
#include "proxy_login_fixture.h"
#include "wire/frontend_messages.h"

namespace sluice::proxy {
namespace {

using namespace std::string_literals;

const std::vector<std::uint8_t> kEndPoint(32, 0xAB);
const std::string kOffer = "SCRAM-SHA-256\0\0"s;
const std::string kOfferPlus = "SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0"s;
const std::string kKey = made_message('K', big_endian(42) + "\1\2\3\4"s);
const std::string kReady = made_message('Z', "I");

ClientKeys keys_of(std::string_view password, std::string_view salt = "W22ZaJ0SNY7soEsUEjb6gQ==") {
  ClientKeys keys;
  EXPECT_TRUE(derive_keys(password, salt, 4096, keys));
  return keys;
}

ScramSecret with_password(std::string_view password) {
  ScramSecret secret;
  secret.password = Secret(password);
  return secret;
}

ScramSecret with_keys(const ClientKeys& keys) {
  ScramSecret secret;
  secret.has_keys = true;
  secret.keys = keys;
  return secret;
}

ServerLoginOptions without_tls() {
  ServerLoginOptions options;
  options.tls = false;
  return options;
}

// A login and a server that a test plays.
class Server {
 public:
  explicit Server(const ServerLoginOptions& options, ScramSecret secret = with_password("pencil"))
      : login(options, "app", "shop", {{"statement_timeout", "5"}}, std::move(secret)) {}

  ServerLoginStep say(const std::string& bytes) {
    wire::Bytes input = wire::as_bytes(bytes);
    ServerLoginStep step = login.receive(input, out);
    left = input.size();
    return step;
  }

  // As far as the StartupMessage.
  void start(bool tls, std::vector<std::uint8_t> end_point = kEndPoint) {
    EXPECT_EQ(login.start(out), ServerLoginStep::need_more);
    if (tls) {
      EXPECT_EQ(say("S"), ServerLoginStep::start_tls);
      EXPECT_EQ(login.tls_started(std::move(end_point), out), ServerLoginStep::need_more);
    }
    out.server.clear();
  }

  // The mechanism that was chosen and the client's first message.
  std::string mechanism;
  std::string first_message() {
    std::vector<SentMessage> sent = out.take_server();
    wire::SaslInitialResponse response = {};
    EXPECT_EQ(sent.size(), 1U);
    EXPECT_TRUE(!sent.empty() && wire::read_sasl_initial_response(wire::as_bytes(sent[0].payload), response));
    mechanism = response.mechanism;
    return std::string(wire::as_text(response.data));
  }

  // The whole of SCRAM but AuthenticationOk, from the offer on.
  ServerLoginStep scram(const Verifier& verifier, const std::string& offer, std::vector<std::uint8_t> end_point) {
    ScramServer scram(verifier, std::move(end_point), false);
    ServerLoginStep step = say(made_authentication(10, offer));
    if (step != ServerLoginStep::need_more) return step;
    std::string reply;
    std::string first = first_message();
    EXPECT_EQ(scram.first(mechanism, first, reply), ScramResult::go_on);
    step = say(made_authentication(11, reply));
    if (step != ServerLoginStep::need_more) return step;
    std::vector<SentMessage> sent = out.take_server();
    EXPECT_EQ(sent.size(), 1U);
    if (scram.final(sent[0].payload, reply) != ScramResult::proved) return say(made_error("FATAL", "28P01", "wrong"));
    return say(made_authentication(12, reply));
  }

  ServerLogin login;
  Recorder out;
  std::size_t left = 0;
};

TEST(ProxyServerLogin, BeginsWithSslRequestAndThenNamesRoleAndDatabase) {
  Server server(ServerLoginOptions{});
  EXPECT_EQ(server.login.start(server.out), ServerLoginStep::need_more);
  EXPECT_EQ(server.out.server, made_message(0, big_endian(wire::kSslRequestCode)));
  server.out.server.clear();
  EXPECT_EQ(server.say(""), ServerLoginStep::need_more);
  EXPECT_EQ(server.say("S"), ServerLoginStep::start_tls);
  EXPECT_EQ(server.out.server, "") << "nothing in plaintext";
  EXPECT_EQ(server.login.tls_started(kEndPoint, server.out), ServerLoginStep::need_more);
  EXPECT_EQ(server.out.server,
            made_startup(wire::kProtocol30, {{"user", "app"}, {"database", "shop"}, {"statement_timeout", "5"}}));
}

// CVE-2021-23222.
TEST(ProxyServerLogin, BytesBehindTheServersYesAreRefused) {
  Server server(ServerLoginOptions{});
  EXPECT_EQ(server.login.start(server.out), ServerLoginStep::need_more);
  EXPECT_EQ(server.say("S" + made_authentication(0)), ServerLoginStep::failed);
  EXPECT_EQ(server.login.failure(), ServerFailure::protocol);
}

TEST(ProxyServerLogin, NothingIsSentToAServerWithoutTls) {
  for (const std::string& answer :
       {"N"s, "N"s + made_authentication(0), made_error("FATAL", "53300", "full"), "\x16"s, "\0"s}) {
    Server server(ServerLoginOptions{});
    EXPECT_EQ(server.login.start(server.out), ServerLoginStep::need_more);
    server.out.server.clear();
    EXPECT_EQ(server.say(answer), ServerLoginStep::failed);
    EXPECT_EQ(server.login.failure(), ServerFailure::tls_refused);
    EXPECT_EQ(server.login.error().size(), 0U) << "an error in plaintext is not passed on";
    EXPECT_EQ(server.say(made_authentication(10, kOffer)), ServerLoginStep::failed) << "and it stays failed";
    EXPECT_EQ(server.out.server, "");
  }
}

TEST(ProxyServerLogin, WhereTlsIsOptionalAServerWithoutItIsUsedInPlaintext) {
  ServerLoginOptions optional;
  optional.tls_required = false;
  Server server(optional);
  EXPECT_EQ(server.login.start(server.out), ServerLoginStep::need_more);
  server.out.server.clear();
  EXPECT_EQ(server.say("N"), ServerLoginStep::need_more);
  EXPECT_EQ(server.out.server.substr(4, 4), big_endian(wire::kProtocol30));
  server.out.server.clear();
  EXPECT_EQ(server.scram(keys_of("pencil").verifier, kOfferPlus, {}), ServerLoginStep::need_more);
  EXPECT_EQ(server.mechanism, "SCRAM-SHA-256") << "no channel to bind";
  for (const std::string& answer : {"N"s + made_authentication(0), made_error("FATAL", "53300", "full"), "x"s}) {
    Server refused(optional);
    EXPECT_EQ(refused.login.start(refused.out), ServerLoginStep::need_more);
    EXPECT_EQ(refused.say(answer), ServerLoginStep::failed);
  }
  ServerLoginOptions cleartext = optional;
  cleartext.allow_cleartext = true;
  Server asks(cleartext);
  EXPECT_EQ(asks.login.start(asks.out), ServerLoginStep::need_more);
  EXPECT_EQ(asks.say("N"), ServerLoginStep::need_more);
  EXPECT_EQ(asks.say(made_authentication(3)), ServerLoginStep::failed) << "never in plaintext";
}

TEST(ProxyServerLogin, AWholeLogin) {
  Server server(without_tls());
  server.start(false);
  ASSERT_EQ(server.scram(keys_of("pencil").verifier, kOffer, {}), ServerLoginStep::need_more);
  EXPECT_TRUE(server.login.secret_sent());
  EXPECT_FALSE(server.login.authenticated());
  EXPECT_EQ(server.say(made_authentication(0) + made_message('S', "server_version\0"s + "15.1\0"s) +
                       made_message('N', "SNOTICE\0C00000\0Mx\0\0"s) + made_message('S', "TimeZone\0UTC\0"s) +
                       made_message('S', "server_version\0"s + "15.2\0"s) + kKey),
            ServerLoginStep::need_more);
  EXPECT_TRUE(server.login.authenticated());
  EXPECT_EQ(server.say(kReady), ServerLoginStep::ready);
  EXPECT_EQ(server.login.parameters(), (std::vector<Setting>{{"server_version", "15.2"}, {"TimeZone", "UTC"}}));
  EXPECT_EQ(server.login.process_id(), 42U);
  EXPECT_EQ(wire::as_text(server.login.cancel_key()), "\1\2\3\4");
  ASSERT_TRUE(server.login.has_keys());
  EXPECT_TRUE(equal_keys(server.login.keys().client_key, keys_of("pencil").client_key)) << "L7: the key is kept";
}

TEST(ProxyServerLogin, EveryMessageMayComeInSingleBytes) {
  Server server(without_tls());
  server.start(false);
  ASSERT_EQ(server.scram(keys_of("pencil").verifier, kOffer, {}), ServerLoginStep::need_more);
  std::string bytes = made_authentication(0) + made_message('S', "a\0b\0"s) + kKey + kReady;
  for (std::size_t i = 0; i + 1 < bytes.size(); i++) {
    ASSERT_EQ(server.say(bytes.substr(i, 1)), ServerLoginStep::need_more) << i;
  }
  EXPECT_EQ(server.say("I"), ServerLoginStep::ready);
}

TEST(ProxyServerLogin, WhatFollowsReadyForQueryIsLeft) {
  Server server(without_tls());
  server.start(false);
  ASSERT_EQ(server.scram(keys_of("pencil").verifier, kOffer, {}), ServerLoginStep::need_more);
  EXPECT_EQ(server.say(made_authentication(0) + kKey + kReady + "noise"), ServerLoginStep::ready);
  EXPECT_EQ(server.left, 5U);
}

TEST(ProxyServerLogin, BindsTheChannelWhereTheServerOffersIt) {
  const struct {
    bool tls;
    std::vector<std::uint8_t> end_point;
    std::string offer;
    std::string mechanism;
    std::string flag;
  } cases[] = {
      {true, kEndPoint, kOfferPlus, "SCRAM-SHA-256-PLUS", "p=tls-server-end-point,,"},
      {true, kEndPoint, kOffer, "SCRAM-SHA-256", "y,,"},
      {true, {}, kOfferPlus, "SCRAM-SHA-256", "n,,"},
      {false, {}, kOffer, "SCRAM-SHA-256", "n,,"},
      {false, {}, kOfferPlus, "SCRAM-SHA-256", "n,,"},
  };
  for (const auto& kind : cases) {
    Server server(kind.tls ? ServerLoginOptions{} : without_tls());
    server.start(kind.tls, kind.end_point);
    ASSERT_EQ(server.say(made_authentication(10, kind.offer)), ServerLoginStep::need_more);
    EXPECT_TRUE(server.first_message().starts_with(kind.flag));
    EXPECT_EQ(server.mechanism, kind.mechanism);
  }
  Server whole(ServerLoginOptions{});
  whole.start(true);
  EXPECT_EQ(whole.scram(keys_of("pencil").verifier, kOfferPlus, kEndPoint), ServerLoginStep::need_more);
  EXPECT_EQ(whole.say(made_authentication(0) + kKey + kReady), ServerLoginStep::ready);
}

TEST(ProxyServerLogin, KeysLogInWithoutAPassword) {
  Server server(without_tls(), with_keys(keys_of("pencil")));
  server.start(false);
  EXPECT_EQ(server.scram(keys_of("pencil").verifier, kOffer, {}), ServerLoginStep::need_more);
  EXPECT_EQ(server.say(made_authentication(0) + kKey + kReady), ServerLoginStep::ready);
}

// Case D11.
TEST(ProxyServerLogin, OutdatedKeysFailAtOnceWithTheirCause) {
  Server server(without_tls(), with_keys(keys_of("pencil", "AAAA")));
  server.start(false);
  EXPECT_EQ(server.scram(keys_of("pencil").verifier, kOffer, {}), ServerLoginStep::failed);
  EXPECT_EQ(server.login.failure(), ServerFailure::keys_outdated);
  EXPECT_FALSE(server.login.secret_sent());
  EXPECT_EQ(server.out.server, "");
}

// L9.
TEST(ProxyServerLogin, ARefusalIsKeptAsItCameAndSaysWhetherThePasswordWasJudged) {
  Server before(without_tls());
  before.start(false);
  EXPECT_EQ(before.say(made_error("FATAL", "28000", "no pg_hba.conf entry")), ServerLoginStep::failed);
  EXPECT_EQ(before.login.failure(), ServerFailure::refused);
  EXPECT_EQ(before.login.error().sqlstate(), "28000");
  EXPECT_FALSE(before.login.secret_sent());
  Server wrong(without_tls(), with_password("pen"));
  wrong.start(false);
  EXPECT_EQ(wrong.scram(keys_of("pencil").verifier, kOffer, {}), ServerLoginStep::failed);
  EXPECT_EQ(wrong.login.error().sqlstate(), "28P01");
  EXPECT_TRUE(wrong.login.secret_sent());
  EXPECT_FALSE(wrong.login.authenticated());
  Server after(without_tls());
  after.start(false);
  ASSERT_EQ(after.scram(keys_of("pencil").verifier, kOffer, {}), ServerLoginStep::need_more);
  EXPECT_EQ(after.say(made_authentication(0) + made_error("FATAL", "3D000", "database \"shop\" does not exist")),
            ServerLoginStep::failed);
  EXPECT_EQ(after.login.error().sqlstate(), "3D000");
  EXPECT_TRUE(after.login.authenticated()) << "the password was right";
}

// Case D5.
TEST(ProxyServerLogin, AMalformedErrorIsNotPassedOn) {
  for (const std::string& payload :
       {"Mno code\0\0"s, "\0"s, ""s, "SFATAL\0C28000\0Munterminated"s, "SFATAL\0C2800\0Mx\0\0"s}) {
    Server server(without_tls());
    server.start(false);
    EXPECT_EQ(server.say(made_message('E', payload)), ServerLoginStep::failed);
    EXPECT_EQ(server.login.failure(), ServerFailure::protocol);
    EXPECT_EQ(server.login.error().size(), 0U);
  }
}

// Case D4.
TEST(ProxyServerLogin, AnOverlongNonceOrCountIsRefusedBeforeUse) {
  const std::string salt = "W22ZaJ0SNY7soEsUEjb6gQ==";
  const struct {
    std::string tail;
    ServerFailure failure;
  } cases[] = {
      {std::string(20000, 'x') + ",s=" + salt + ",i=4096", ServerFailure::protocol},
      {"x,s=" + salt + ",i=2147483648", ServerFailure::protocol},
      {"x,s=" + salt + ",i=100001", ServerFailure::too_expensive},
      {"x,i=4096", ServerFailure::protocol},
      {"x,s=" + salt, ServerFailure::protocol},
      {",s=" + salt + ",i=4096", ServerFailure::protocol},
  };
  for (const auto& kind : cases) {
    Server server(without_tls());
    server.start(false);
    ASSERT_EQ(server.say(made_authentication(10, kOffer)), ServerLoginStep::need_more);
    std::string first = server.first_message();
    std::string nonce = first.substr(first.find("r=") + 2);
    EXPECT_EQ(server.say(made_authentication(11, "r=" + nonce + kind.tail)), ServerLoginStep::failed);
    EXPECT_EQ(server.login.failure(), kind.failure) << kind.tail.substr(0, 40);
    EXPECT_FALSE(server.login.secret_sent());
    EXPECT_EQ(server.out.server, "");
  }
  Server huge(without_tls());
  huge.start(false);
  EXPECT_EQ(huge.say("R" + big_endian(65536)), ServerLoginStep::failed) << "from the header alone";
}

// Case D18.
TEST(ProxyServerLogin, NoSecretGoesToAServerThatAsksForItInAnotherWay) {
  const std::string cases[] = {
      made_authentication(0),                       // nothing
      made_authentication(3),                       // cleartext
      made_authentication(5, "salt"),               // md5
      made_authentication(7),                       // GSS
      made_authentication(9),                       // SSPI
      made_authentication(6),                       // SCM, of old
      made_authentication(10, "SCRAM-SHA-1\0\0"s),  //
      made_authentication(10, "OAUTHBEARER\0\0"s),  //
      made_authentication(10, ""),                  //
      made_authentication(10, "SCRAM-SHA-256"),     // unterminated
  };
  for (bool tls : {false, true}) {
    for (const std::string& asked : cases) {
      Server server(tls ? ServerLoginOptions{} : without_tls());
      server.start(tls);
      EXPECT_EQ(server.say(asked), ServerLoginStep::failed) << testing::PrintToString(asked);
      EXPECT_EQ(server.login.failure(), ServerFailure::method) << testing::PrintToString(asked);
      EXPECT_EQ(server.out.server, "");
      EXPECT_FALSE(server.login.secret_sent());
    }
  }
}

TEST(ProxyServerLogin, WhatIsAllowedIsAnswered) {
  ServerLoginOptions nothing = without_tls();
  nothing.allow_nothing = true;
  Server peer(nothing, {});
  peer.start(false);
  EXPECT_EQ(peer.say(made_authentication(0) + kKey + kReady), ServerLoginStep::ready);
  ServerLoginOptions cleartext;
  cleartext.allow_cleartext = true;
  Server inside(cleartext);
  inside.start(true);
  EXPECT_EQ(inside.say(made_authentication(3)), ServerLoginStep::need_more);
  EXPECT_EQ(inside.out.server, made_message('p', "pencil\0"s));
  EXPECT_EQ(inside.say(made_authentication(0) + kKey + kReady), ServerLoginStep::ready);
  cleartext.tls = false;
  Server outside(cleartext);
  outside.start(false);
  EXPECT_EQ(outside.say(made_authentication(3)), ServerLoginStep::failed) << "never in plaintext";
  EXPECT_EQ(outside.out.server, "");
  ServerLoginOptions md5 = without_tls();
  md5.allow_md5 = true;
  Server hashed(md5);
  hashed.start(false);
  EXPECT_EQ(hashed.say(made_authentication(5, "\1\2\3\4")), ServerLoginStep::need_more);
  EXPECT_EQ(hashed.out.server, made_message('p', "md54bfca4ca571b8df74c2fc2247888d96f\0"s));
  Server no_salt(md5);
  no_salt.start(false);
  EXPECT_EQ(no_salt.say(made_authentication(5, "abc")), ServerLoginStep::failed);
}

TEST(ProxyServerLogin, WithoutASecretNothingIsAnswered) {
  ServerLoginOptions all;
  all.allow_cleartext = true;
  all.allow_md5 = true;
  for (const std::string& asked :
       {made_authentication(3), made_authentication(5, "salt"), made_authentication(10, kOffer)}) {
    Server server(all, {});
    server.start(true);
    EXPECT_EQ(server.say(asked), ServerLoginStep::failed);
    EXPECT_EQ(server.login.failure(), ServerFailure::method);
    EXPECT_EQ(server.out.server, "");
  }
}

// L6.
TEST(ProxyServerLogin, AServerThatDoesNotKnowTheVerifierIsNotUsed) {
  for (const std::string& end :
       {made_authentication(12, "v=" + std::string(43, 'A') + "="), made_authentication(12, "e=x"),
        made_authentication(12), made_authentication(0), kReady, kKey}) {
    Server server(without_tls());
    server.start(false);
    ASSERT_EQ(server.say(made_authentication(10, kOffer)), ServerLoginStep::need_more);
    ScramServer scram(keys_of("pencil").verifier, {}, false);
    std::string reply;
    ASSERT_EQ(scram.first("SCRAM-SHA-256", server.first_message(), reply), ScramResult::go_on);
    ASSERT_EQ(server.say(made_authentication(11, reply)), ServerLoginStep::need_more);
    EXPECT_EQ(server.say(end), ServerLoginStep::failed);
    EXPECT_FALSE(server.login.authenticated());
  }
}

TEST(ProxyServerLogin, MessagesOutOfTheirOrderFail) {
  const std::string cases[] = {
      kReady,
      kKey,
      made_message('S', "a\0b\0"s),
      made_authentication(11, "r=a,s=b,i=1"),
      made_authentication(12, "v=a"),
      made_message('R', "\0\0"s),
      made_message('C', "SELECT 1\0"s),
      made_message('D', "\0\0"s),
      "HTTP/1.1 400 Bad Request\r\n",
  };
  for (const std::string& bytes : cases) {
    Server server(without_tls());
    server.start(false);
    EXPECT_EQ(server.say(bytes), ServerLoginStep::failed) << testing::PrintToString(bytes);
    EXPECT_EQ(server.login.failure(), ServerFailure::protocol);
    EXPECT_EQ(server.out.server, "");
  }
  for (const std::string& twice : {made_authentication(0), kKey + kKey, made_authentication(10, kOffer),
                                   made_message('Z', "T"), made_message('S', "a\0"s), made_message('K', "\0\0\0\1"s)}) {
    Server server(without_tls());
    server.start(false);
    ASSERT_EQ(server.scram(keys_of("pencil").verifier, kOffer, {}), ServerLoginStep::need_more);
    ASSERT_EQ(server.say(made_authentication(0)), ServerLoginStep::need_more);
    EXPECT_EQ(server.say(twice), ServerLoginStep::failed) << testing::PrintToString(twice);
  }
  Server early(ServerLoginOptions{});
  EXPECT_EQ(early.say("x"), ServerLoginStep::failed) << "before we said anything";
}

// Case D22.
TEST(ProxyServerLogin, KeysOfThreeTwoAreLongerAndAnOlderServerNegotiates) {
  ServerLoginOptions newest = without_tls();
  newest.protocol = wire::kProtocol32;
  for (std::size_t bytes : {4U, 32U, 256U}) {
    Server server(newest);
    server.start(false);
    ASSERT_EQ(server.scram(keys_of("pencil").verifier, kOffer, {}), ServerLoginStep::need_more);
    EXPECT_EQ(server.say(made_authentication(0) + made_message('K', big_endian(1) + std::string(bytes, 'k')) + kReady),
              ServerLoginStep::ready);
    EXPECT_EQ(server.login.cancel_key().size(), bytes);
    EXPECT_EQ(server.login.version(), wire::kProtocol32);
  }
  Server older(newest);
  older.start(false);
  ASSERT_EQ(older.say(made_message('v', big_endian(wire::kProtocol30) + big_endian(0))), ServerLoginStep::need_more);
  ASSERT_EQ(older.scram(keys_of("pencil").verifier, kOffer, {}), ServerLoginStep::need_more);
  EXPECT_EQ(older.say(made_authentication(0) + made_message('K', big_endian(1) + std::string(32, 'k'))),
            ServerLoginStep::failed)
      << "four bytes in 3.0";
  EXPECT_EQ(older.login.version(), wire::kProtocol30);
}

TEST(ProxyServerLogin, ANegotiationThatNegotiatesNothingFails) {
  for (std::uint32_t version : {wire::kProtocol32, 3U << 16U | 3U, 2U << 16U, 4U << 16U, 0U}) {
    ServerLoginOptions newest = without_tls();
    newest.protocol = wire::kProtocol32;
    Server server(newest);
    server.start(false);
    EXPECT_EQ(server.say(made_message('v', big_endian(version) + big_endian(0))), ServerLoginStep::failed) << version;
  }
  Server options(without_tls());
  options.start(false);
  EXPECT_EQ(options.say(made_message('v', big_endian(wire::kProtocol30) + big_endian(1) + "_pq_.x\0"s)),
            ServerLoginStep::failed);
}

TEST(ProxyServerLogin, ParametersAreBounded) {
  Server server(without_tls());
  server.start(false);
  ASSERT_EQ(server.scram(keys_of("pencil").verifier, kOffer, {}), ServerLoginStep::need_more);
  ASSERT_EQ(server.say(made_authentication(0)), ServerLoginStep::need_more);
  for (std::size_t i = 0; i < kMaxServerParameters; i++) {
    ASSERT_EQ(server.say(made_message('S', "p" + std::to_string(i) + "\0v\0"s)), ServerLoginStep::need_more);
  }
  EXPECT_EQ(server.say(made_message('S', "p0\0again\0"s)), ServerLoginStep::need_more);
  EXPECT_EQ(server.say(made_message('S', "one more\0v\0"s)), ServerLoginStep::failed);
}

// Whatever comes, in whatever pieces: without the right signature it never ends well.
TEST(ProxyServerLogin, NoRandomBytesLogIn) {
  std::mt19937 random(20240508);
  const std::string pieces[] = {made_authentication(10, kOffer),
                                made_authentication(11, "r=abc,s=AAAA,i=4096"),
                                made_authentication(12, "v=AAAA"),
                                made_authentication(0),
                                kKey,
                                kReady,
                                made_message('S', "a\0b\0"s),
                                made_error("FATAL", "28000", "no"),
                                made_message('v', big_endian(wire::kProtocol30) + big_endian(0))};
  for (int round = 0; round < 3000; round++) {
    Server server(round % 2 == 0 ? without_tls() : ServerLoginOptions{});
    server.start(round % 2 != 0);
    ServerLoginStep step = ServerLoginStep::need_more;
    for (int i = 0; i < 12 && step == ServerLoginStep::need_more; i++) {
      std::string bytes = pieces[random() % std::size(pieces)];
      for (unsigned changes = random() % 3; changes > 0; changes--)
        bytes[random() % bytes.size()] = static_cast<char>(random());
      if (random() % 4 == 0) bytes.resize(random() % bytes.size());
      step = server.say(bytes);
    }
    ASSERT_NE(step, ServerLoginStep::ready) << round;
    ASSERT_FALSE(server.login.authenticated()) << round;
    ASSERT_FALSE(server.login.secret_sent()) << round << ": no message continues our own nonce";
  }
}

TEST(ProxyServerLogin, EveryFailureHasANameAndNoReasonASecret) {
  for (int i = 0; i <= static_cast<int>(ServerFailure::too_expensive); i++) {
    EXPECT_NE(failure_name(static_cast<ServerFailure>(i)), "unknown");
  }
  Server server(ServerLoginOptions{});
  server.start(true);
  EXPECT_EQ(server.say(made_authentication(3)), ServerLoginStep::failed);
  EXPECT_EQ(server.login.reason().find("pencil"), std::string::npos);
  EXPECT_FALSE(server.login.reason().empty());
}

}  // namespace
}  // namespace sluice::proxy
