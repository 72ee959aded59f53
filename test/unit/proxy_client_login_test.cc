#include "proxy/client_login.h"

#include <gtest/gtest.h>

#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "proxy/scram_client.h"
#include "proxy_login_fixture.h"

namespace sluice::proxy {
namespace {

using namespace std::string_literals;
using Pairs = std::vector<std::pair<std::string, std::string>>;

const std::vector<std::uint8_t> kEndPoint(32, 0xAB);
const std::string kSslRequest = made_message(0, big_endian(wire::kSslRequestCode));
const std::string kGssencRequest = made_message(0, big_endian(wire::kGssencRequestCode));
const std::string kStartup = made_startup(wire::kProtocol30, {{"user", "app"}, {"database", "shop"}});

ClientKeys keys_of(std::string_view password) {
  ClientKeys keys;
  EXPECT_TRUE(derive_keys(password, "W22ZaJ0SNY7soEsUEjb6gQ==", 4096, keys));
  return keys;
}

FoundVerifier found(FindKind kind = FindKind::verifier, std::string cause = "") {
  return {kind, keys_of("pencil").verifier, std::move(cause)};
}

ClientLoginOptions plaintext() {
  ClientLoginOptions options;
  options.tls_available = false;
  options.tls_required = false;
  return options;
}

std::string sasl_initial(std::string_view mechanism, std::string_view message) {
  return made_message('p', std::string(mechanism) + '\0' + big_endian(static_cast<std::uint32_t>(message.size())) +
                               std::string(message));
}

// A login and the buffer that an edge would keep for it.
class Client {
 public:
  explicit Client(const ClientLoginOptions& options) : login(options) {}

  LoginStep send(std::string_view bytes) {
    buffer += bytes;
    wire::Bytes input = wire::as_bytes(buffer);
    LoginStep step = login.receive(input, out);
    buffer.erase(0, buffer.size() - input.size());
    return step;
  }

  // One byte a call, until something is wanted.
  LoginStep send_slowly(std::string_view bytes) {
    LoginStep step = LoginStep::need_more;
    for (std::size_t i = 0; i < bytes.size(); i++) {
      step = send(bytes.substr(i, 1));
      if (step != LoginStep::need_more) {
        EXPECT_EQ(i + 1, bytes.size()) << "wanted before the end";
        break;
      }
    }
    return step;
  }

  // As far as the verifier, over TLS or without.
  LoginStep start(bool tls, std::vector<std::uint8_t> end_point = kEndPoint) {
    if (tls) {
      EXPECT_EQ(send(kSslRequest), LoginStep::start_tls);
      EXPECT_EQ(out.client, "S");
      out.client.clear();
      EXPECT_EQ(login.tls_started({false, std::move(end_point)}), LoginStep::need_more);
    }
    return send(kStartup);
  }

  // The whole of SCRAM with the password of a file's entry. What is wanted at the end.
  LoginStep prove(std::string_view password, bool plus = false) {
    ScramSecret secret;
    secret.password = Secret(password);
    ScramClient scram(secret, plus, plus ? kEndPoint : std::vector<std::uint8_t>(), 10'000);
    out.client.clear();
    EXPECT_EQ(send(sasl_initial(plus ? "SCRAM-SHA-256-PLUS" : "SCRAM-SHA-256", scram.first())), LoginStep::need_more);
    std::vector<SentMessage> sent = out.take_client();
    EXPECT_EQ(sent.size(), 1U);
    std::string reply;
    EXPECT_EQ(scram.final(sent[0].payload.substr(4), reply), ScramAnswer::go_on);
    LoginStep step = send(made_message('p', reply));
    if (step == LoginStep::pool_snapshot) {
      sent = out.take_client();
      EXPECT_EQ(sent.size(), 2U) << "the signature and AuthenticationOk";
      EXPECT_TRUE(scram.finish(sent[0].payload.substr(4)));
      EXPECT_EQ(sent[1].payload, big_endian(0));
    }
    return step;
  }

  std::string error() {
    std::vector<SentMessage> sent = out.take_client();
    return sent.empty() ? "nothing" : error_of(sent.back());
  }

  ClientLogin login;
  Recorder out;
  std::string buffer;
};

TEST(ProxyClientLogin, AWholeLoginWithScram) {
  Client client(plaintext());
  EXPECT_EQ(client.login.phase(), LoginPhase::start);
  ASSERT_EQ(client.start(false), LoginStep::lookup_verifier);
  EXPECT_EQ(client.login.user(), "app");
  EXPECT_EQ(client.login.database(), "shop");
  ASSERT_EQ(client.login.verifier(found(), client.out), LoginStep::need_more);
  std::vector<SentMessage> sent = client.out.take_client();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].payload, big_endian(10) + "SCRAM-SHA-256\0\0"s);
  ASSERT_EQ(client.prove("pencil"), LoginStep::pool_snapshot);
  EXPECT_TRUE(equal_keys(client.login.client_keys().client_key, keys_of("pencil").client_key));
  EXPECT_TRUE(same_verifier(client.login.client_keys().verifier, keys_of("pencil").verifier));
  const std::vector<Setting> parameters = {{"server_version", "15.1"}, {"application_name", "somebody else's"}};
  const std::uint8_t key[] = {1, 2, 3, 4};
  ASSERT_EQ(client.login.snapshot(parameters, {7, key}, client.out), LoginStep::accepted);
  sent = client.out.take_client();
  ASSERT_EQ(sent.size(), 4U);
  EXPECT_EQ(sent[0].payload, "server_version\0"s + "15.1\0"s);
  EXPECT_EQ(sent[1].payload, "application_name\0\0"s) << "this client has set none";
  EXPECT_EQ(sent[2].payload, big_endian(7) + "\1\2\3\4");
  EXPECT_EQ(sent[3].type, 'Z');
  EXPECT_EQ(sent[3].payload, "I");
  EXPECT_EQ(client.login.outcome(), LoginOutcome::accepted);
}

TEST(ProxyClientLogin, EveryMessageMayComeInSingleBytes) {
  Client client(plaintext());
  std::string big = made_startup(wire::kProtocol30, {{"user", "app"}, {"a.b", std::string(9000, 'x')}});
  EXPECT_EQ(client.send_slowly(big), LoginStep::lookup_verifier);
  EXPECT_EQ(client.login.verifier(found(), client.out), LoginStep::need_more);
  EXPECT_EQ(client.send_slowly(sasl_initial("SCRAM-SHA-256", "n,,n=,r=abc")), LoginStep::need_more);
  EXPECT_EQ(client.out.take_client_types(), "RR");
}

TEST(ProxyClientLogin, WhatFollowsTheLoginIsLeftForTheSession) {
  Client client(plaintext());
  ASSERT_EQ(client.start(false), LoginStep::lookup_verifier);
  EXPECT_EQ(client.send("early"), LoginStep::lookup_verifier) << "the same is still wanted";
  EXPECT_EQ(client.buffer, "early");
}

// --- TLS ---

TEST(ProxyClientLogin, PlusIsOfferedInsideTlsAndBindsThisCertificate) {
  Client client(ClientLoginOptions{});
  ASSERT_EQ(client.start(true), LoginStep::lookup_verifier);
  EXPECT_TRUE(client.login.in_tls());
  ASSERT_EQ(client.login.verifier(found(), client.out), LoginStep::need_more);
  EXPECT_EQ(client.out.take_client()[0].payload, big_endian(10) + "SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0"s);
  EXPECT_EQ(client.prove("pencil", true), LoginStep::pool_snapshot);
  EXPECT_TRUE(client.login.used_channel_binding());
}

TEST(ProxyClientLogin, PlusIsNotOfferedForACertificateThatBindsNothing) {
  Client client(ClientLoginOptions{});
  ASSERT_EQ(client.start(true, {}), LoginStep::lookup_verifier);
  ASSERT_EQ(client.login.verifier(found(), client.out), LoginStep::need_more);
  EXPECT_EQ(client.out.take_client()[0].payload, big_endian(10) + "SCRAM-SHA-256\0\0"s);
  EXPECT_EQ(client.send(sasl_initial("SCRAM-SHA-256", "y,,n=,r=abc")), LoginStep::need_more);
}

// Case D13.
TEST(ProxyClientLogin, ADowngradeIsRefusedAtOnce) {
  Client client(ClientLoginOptions{});
  ASSERT_EQ(client.start(true), LoginStep::lookup_verifier);
  ASSERT_EQ(client.login.verifier(found(), client.out), LoginStep::need_more);
  EXPECT_EQ(client.send(sasl_initial("SCRAM-SHA-256", "y,,n=,r=abc")), LoginStep::close);
  EXPECT_EQ(client.error(), "FATAL 28000 SCRAM channel binding negotiation error");
  EXPECT_EQ(client.login.outcome(), LoginOutcome::channel_binding);
}

TEST(ProxyClientLogin, PlaintextIsRefusedWhereTlsIsRequired) {
  Client client(ClientLoginOptions{});
  EXPECT_EQ(client.send(kStartup), LoginStep::close);
  EXPECT_EQ(client.error(), "FATAL 28000 this connection requires TLS");
  EXPECT_EQ(client.login.outcome(), LoginOutcome::tls_required);
  Client after_gssenc(ClientLoginOptions{});
  EXPECT_EQ(after_gssenc.send(kGssencRequest), LoginStep::need_more);
  EXPECT_EQ(after_gssenc.out.client, "N");
  after_gssenc.out.client.clear();
  EXPECT_EQ(after_gssenc.send(kStartup), LoginStep::close);
}

// Case D15.
TEST(ProxyClientLogin, EitherEncryptionMayBeAskedForFirstAndEachOnce) {
  ClientLoginOptions optional_tls = plaintext();
  Client gss_then_ssl(ClientLoginOptions{});
  EXPECT_EQ(gss_then_ssl.send(kGssencRequest), LoginStep::need_more);
  EXPECT_EQ(gss_then_ssl.send(kSslRequest), LoginStep::start_tls);
  EXPECT_EQ(gss_then_ssl.out.client, "NS");
  Client ssl_then_gss(optional_tls);
  EXPECT_EQ(ssl_then_gss.send(kSslRequest), LoginStep::need_more);
  EXPECT_EQ(ssl_then_gss.send(kGssencRequest), LoginStep::need_more);
  EXPECT_EQ(ssl_then_gss.send(kStartup), LoginStep::lookup_verifier);
  EXPECT_EQ(ssl_then_gss.out.client, "NN");
}

TEST(ProxyClientLogin, TheSameRequestASecondTimeIsFatal) {
  for (const std::string& request : {kSslRequest, kGssencRequest}) {
    Client client(plaintext());
    EXPECT_EQ(client.send(request), LoginStep::need_more);
    EXPECT_EQ(client.out.client, "N");
    client.out.client.clear();
    EXPECT_EQ(client.send(request), LoginStep::close);
    EXPECT_TRUE(client.error().starts_with("FATAL 0A000 unsupported frontend protocol 1234.56")) << request;
  }
}

TEST(ProxyClientLogin, SslRequestInsideTlsIsFatalAndGssencIsDeclined) {
  Client client(ClientLoginOptions{});
  ASSERT_EQ(client.send(kSslRequest), LoginStep::start_tls);
  ASSERT_EQ(client.login.tls_started({}), LoginStep::need_more);
  client.out.client.clear();
  EXPECT_EQ(client.send(kGssencRequest), LoginStep::need_more);
  EXPECT_EQ(client.out.client, "N");
  client.out.client.clear();
  EXPECT_EQ(client.send(kSslRequest), LoginStep::close);
  EXPECT_EQ(client.error(), "FATAL 0A000 unsupported frontend protocol 1234.5679: server supports 3.0 to 3.2");
}

// L1: what somebody slips in behind the request must not count as encrypted.
TEST(ProxyClientLogin, BytesBehindSslRequestAreRefusedAndTheHandshakeNeverBegins) {
  for (const std::string& early : {kStartup, "\x16\x03\x01"s, "x"s}) {
    Client client(ClientLoginOptions{});
    EXPECT_EQ(client.send(kSslRequest + early), LoginStep::close);
    EXPECT_EQ(client.error(), "FATAL 08P01 received unencrypted data after SSL request") << "and no 'S'";
  }
  Client declined(plaintext());
  EXPECT_EQ(declined.send(kSslRequest + kStartup), LoginStep::close);
  EXPECT_EQ(declined.out.client[0], 'N') << "as the server does";
  declined.out.client.erase(0, 1);
  EXPECT_EQ(declined.error(), "FATAL 08P01 received unencrypted data after SSL request");
  Client gssenc(plaintext());
  EXPECT_EQ(gssenc.send(kGssencRequest + "x"), LoginStep::close);
  EXPECT_EQ(gssenc.out.client[0], 'N');
}

// Case D17.
TEST(ProxyClientLogin, DirectTlsNeedsTheProtocolsName) {
  Client named(ClientLoginOptions{});
  EXPECT_EQ(named.send("\x16\x03\x01"), LoginStep::start_tls);
  EXPECT_EQ(named.buffer, "\x16\x03\x01") << "the handshake begins with them";
  EXPECT_EQ(named.out.client, "");
  named.buffer.clear();
  EXPECT_EQ(named.login.tls_started({true, kEndPoint}), LoginStep::need_more);
  EXPECT_EQ(named.send(kStartup), LoginStep::lookup_verifier);
  Client unnamed(ClientLoginOptions{});
  EXPECT_EQ(unnamed.send("\x16"), LoginStep::start_tls);
  EXPECT_EQ(unnamed.login.tls_started({false, kEndPoint}), LoginStep::close);
  Client nested(ClientLoginOptions{});
  EXPECT_EQ(nested.send("\x16"), LoginStep::start_tls);
  nested.buffer.clear();
  EXPECT_EQ(nested.login.tls_started({true, kEndPoint}), LoginStep::need_more);
  EXPECT_EQ(nested.send(kSslRequest), LoginStep::close);
}

TEST(ProxyClientLogin, TlsWhereNoneIsExpectedIsClosedSilently) {
  Client none(plaintext());
  EXPECT_EQ(none.send("\x16"), LoginStep::close);
  EXPECT_EQ(none.out.client, "");
  Client late(ClientLoginOptions{});
  EXPECT_EQ(late.send(kGssencRequest), LoginStep::need_more);
  EXPECT_EQ(late.send("\x16"), LoginStep::close);
  Client inside(ClientLoginOptions{});
  EXPECT_EQ(inside.send(kSslRequest), LoginStep::start_tls);
  EXPECT_EQ(inside.login.tls_started({true, {}}), LoginStep::need_more);
  EXPECT_EQ(inside.send("\x16"), LoginStep::close);
}

// --- Cases D19 and D22, R2, R3: every malformed start ---

TEST(ProxyClientLogin, LengthsThatCannotBeAreClosedSilentlyAndAtOnce) {
  for (std::uint32_t length : {0U, 3U, 4U, 7U, 10005U, 0x7FFFFFFFU, 0xFFFFFFFFU}) {
    Client client(plaintext());
    EXPECT_EQ(client.send(big_endian(length)), LoginStep::close) << length;
    EXPECT_EQ(client.out.client, "");
    EXPECT_EQ(client.login.outcome(), LoginOutcome::protocol);
  }
}

TEST(ProxyClientLogin, TheLongestStartupPacketIsTaken) {
  std::string packet = made_startup(wire::kProtocol30, {{"user", "app"}, {"a.b", ""}});
  packet = made_startup(wire::kProtocol30, {{"user", "app"}, {"a.b", std::string(10004 - packet.size(), 'x')}});
  ASSERT_EQ(packet.size(), 10004U);
  Client client(plaintext());
  EXPECT_EQ(client.send(packet.substr(0, 10003)), LoginStep::need_more);
  EXPECT_EQ(client.send(packet.substr(10003)), LoginStep::lookup_verifier);
}

TEST(ProxyClientLogin, AMalformedListOfParametersIsAProtocolViolation) {
  const std::string bodies[] = {
      "", "user\0app"s, "user\0app\0"s, "user\0app\0\0x"s, "user\0"s, "user\0app\0database\0\0x\0"s};
  for (const std::string& body : bodies) {
    Client client(plaintext());
    EXPECT_EQ(client.send(made_message(0, big_endian(wire::kProtocol30) + body)), LoginStep::close);
    EXPECT_TRUE(client.error().starts_with("FATAL 08P01 invalid startup packet layout"))
        << testing::PrintToString(body);
  }
}

TEST(ProxyClientLogin, OtherVersionsAreUnsupported) {
  for (std::uint32_t version : {0U, 4U << 16U, 1234U << 16U | 5677U, 0xFFFFFFFFU}) {
    Client client(plaintext());
    EXPECT_EQ(client.send(made_startup(version, {{"user", "app"}})), LoginStep::close);
    EXPECT_TRUE(client.error().starts_with("FATAL 0A000 unsupported frontend protocol "));
    EXPECT_EQ(client.login.outcome(), LoginOutcome::unsupported);
  }
}

TEST(ProxyClientLogin, ProtocolTwoGetsAnErrorItCanRead) {
  Client client(plaintext());
  EXPECT_EQ(client.send(made_startup(2U << 16U, {})), LoginStep::close);
  EXPECT_EQ(client.out.client, "EFATAL:  unsupported frontend protocol 2.0: server supports 3.0 to 3.2\n\0"s);
}

TEST(ProxyClientLogin, OnlyACancelRequestOfAPossibleLengthActs) {
  for (std::size_t key_bytes : {4U, 5U, 32U, 256U}) {
    Client client(ClientLoginOptions{});
    std::string key(key_bytes, 'k');
    EXPECT_EQ(client.send(made_message(0, big_endian(wire::kCancelRequestCode) + big_endian(7) + key)),
              LoginStep::cancel_request);
    EXPECT_EQ(client.login.cancel_target().process_id, 7U);
    client.buffer.assign(300, 'x');
    EXPECT_EQ(wire::as_text(client.login.cancel_target().key), key) << "whatever becomes of the input";
    EXPECT_EQ(client.out.client, "");
    EXPECT_EQ(client.login.outcome(), LoginOutcome::cancel);
  }
  for (std::size_t key_bytes : {0U, 3U, 257U, 9984U}) {
    Client client(ClientLoginOptions{});
    EXPECT_EQ(client.send(
                  made_message(0, big_endian(wire::kCancelRequestCode) + big_endian(7) + std::string(key_bytes, 'k'))),
              LoginStep::close);
    EXPECT_EQ(client.out.client, "");
  }
}

TEST(ProxyClientLogin, ACancelRequestMayComeInsideTls) {
  Client client(ClientLoginOptions{});
  ASSERT_EQ(client.send(kSslRequest), LoginStep::start_tls);
  ASSERT_EQ(client.login.tls_started({}), LoginStep::need_more);
  EXPECT_EQ(client.send(made_message(0, big_endian(wire::kCancelRequestCode) + big_endian(7) + "abcd")),
            LoginStep::cancel_request);
}

TEST(ProxyClientLogin, TheUsersNameIsJudgedBeforeAnythingElseHappens) {
  Client nobody(plaintext());
  EXPECT_EQ(nobody.send(made_startup(wire::kProtocol30, {})), LoginStep::close);
  EXPECT_EQ(nobody.error(), "FATAL 28000 no PostgreSQL user name specified in startup packet");
  Client too_long(plaintext());
  EXPECT_EQ(too_long.send(made_startup(wire::kProtocol30, {{"user", std::string(64, 'x')}})), LoginStep::close);
  EXPECT_TRUE(too_long.error().starts_with("FATAL 42622 "));
}

// L2.
TEST(ProxyClientLogin, ANewerProtocolIsNegotiated) {
  const struct {
    std::uint32_t asked;
    Pairs options;
    std::uint32_t spoken;
    std::string answer;  // empty: none
  } cases[] = {
      {wire::kProtocol30, {}, wire::kProtocol30, ""},
      {3U << 16U | 1U, {}, 3U << 16U | 1U, ""},
      {wire::kProtocol32, {}, wire::kProtocol32, ""},
      {3U << 16U | 3U, {}, wire::kProtocol32, big_endian(wire::kProtocol32) + big_endian(0)},
      {3U << 16U | 9999U, {}, wire::kProtocol32, big_endian(wire::kProtocol32) + big_endian(0)},
      {wire::kProtocol30,
       {{"_pq_.x", "1"}},
       wire::kProtocol30,
       big_endian(wire::kProtocol30) + big_endian(1) + "_pq_.x\0"s},
      {3U << 16U | 9999U,
       {{"_pq_.x", "1"}, {"_pq_.y", ""}},
       wire::kProtocol32,
       big_endian(wire::kProtocol32) + big_endian(2) + "_pq_.x\0_pq_.y\0"s},
  };
  for (const auto& kind : cases) {
    Client client(plaintext());
    Pairs pairs = kind.options;
    pairs.emplace_back("user", "app");
    EXPECT_EQ(client.send(made_startup(kind.asked, pairs)), LoginStep::lookup_verifier);
    EXPECT_EQ(client.login.version(), kind.spoken);
    std::vector<SentMessage> sent = client.out.take_client();
    ASSERT_EQ(sent.size(), kind.answer.empty() ? 0U : 1U);
    if (sent.empty()) continue;
    EXPECT_EQ(sent[0].type, 'v');
    EXPECT_EQ(sent[0].payload, kind.answer);
  }
}

TEST(ProxyClientLogin, ARefusedStartupParameterIsNamed) {
  ClientLoginOptions options = plaintext();
  options.profile = Profile::strict;
  Client client(options);
  EXPECT_EQ(client.send(made_startup(wire::kProtocol30, {{"user", "app"}, {"geqo", "off"}})), LoginStep::close);
  EXPECT_EQ(client.error(), "FATAL 0A000 unsupported startup parameter: geqo");
  EXPECT_EQ(client.login.outcome(), LoginOutcome::unsupported);
}

// --- Proofs ---

TEST(ProxyClientLogin, AWrongPasswordAndAnUnknownRoleLookTheSame) {
  std::string seen;
  const std::pair<FindKind, LoginOutcome> kinds[] = {{FindKind::verifier, LoginOutcome::rejected},
                                                     {FindKind::unknown, LoginOutcome::unknown_role},
                                                     {FindKind::unusable, LoginOutcome::unusable_role}};
  for (const auto& [kind, outcome] : kinds) {
    Client client(plaintext());
    ASSERT_EQ(client.start(false), LoginStep::lookup_verifier);
    ASSERT_EQ(client.login.verifier(found(kind, "md5"), client.out), LoginStep::need_more);
    EXPECT_EQ(client.prove("pen"), LoginStep::close);
    if (seen.empty()) seen = client.out.client;
    EXPECT_EQ(client.out.client, seen);
    EXPECT_EQ(client.login.outcome(), outcome);
    EXPECT_FALSE(client.login.reason().empty());
    EXPECT_EQ(client.error(), "FATAL 28P01 password authentication failed for user \"app\"");
  }
}

// Case D9.
TEST(ProxyClientLogin, AMockThatIsProvedLetsNobodyIn) {
  for (FindKind kind : {FindKind::unknown, FindKind::unusable, FindKind::lookup_needed, FindKind::lookup_running}) {
    Client client(plaintext());
    ASSERT_EQ(client.start(false), LoginStep::lookup_verifier);
    ASSERT_EQ(client.login.verifier(found(kind), client.out), LoginStep::need_more);
    EXPECT_EQ(client.prove("pencil"), LoginStep::close);
  }
}

TEST(ProxyClientLogin, OnlyPasswordMessagesAreTakenWhileAProofIsAwaited) {
  for (const std::string& bytes :
       {made_message('Q', "select 1\0"s), made_message('X', ""), made_message('p', ""), "p"s + big_endian(3),
        "p"s + big_endian(0xFFFFFFFF), "p"s + big_endian(4 + kMaxSaslBytes + 1),
        made_message('p', "SCRAM-SHA-256\0\0\0\0\xFF"s), made_message('p', "no terminator"),
        sasl_initial("SCRAM-SHA-1", "n,,n=,r=abc"), sasl_initial("SCRAM-SHA-256", ""),
        sasl_initial("SCRAM-SHA-256-PLUS", "p=tls-server-end-point,,n=,r=abc")}) {
    Client client(plaintext());
    ASSERT_EQ(client.start(false), LoginStep::lookup_verifier);
    ASSERT_EQ(client.login.verifier(found(), client.out), LoginStep::need_more);
    EXPECT_EQ(client.send(bytes), LoginStep::close) << testing::PrintToString(bytes);
    EXPECT_TRUE(client.error().starts_with("FATAL 08P01 ")) << testing::PrintToString(bytes);
    EXPECT_EQ(client.login.outcome(), LoginOutcome::protocol);
    EXPECT_EQ(client.login.phase(), LoginPhase::proof) << "where it failed";
  }
}

// --- Passwords (the strict profile) ---

ClientLoginOptions strict_options() {
  ClientLoginOptions options;
  options.profile = Profile::strict;
  options.method = ClientMethod::password;
  return options;
}

TEST(ProxyClientLogin, AskedForAPasswordTheClientGivesItToTheCaller) {
  Client client(strict_options());
  ASSERT_EQ(client.start(true), LoginStep::need_more);
  EXPECT_EQ(client.out.take_client()[0].payload, big_endian(3));
  ASSERT_EQ(client.send(made_message('p', "secret\0"s)), LoginStep::verify_password);
  EXPECT_EQ(client.login.password(), "secret");
  ASSERT_EQ(client.login.password_accepted(client.out), LoginStep::pool_snapshot);
  EXPECT_EQ(client.login.password(), "") << "wiped as soon as it is not needed";
  EXPECT_EQ(client.out.take_client()[0].payload, big_endian(0));
  const std::uint8_t key[] = {1, 2, 3, 4};
  EXPECT_EQ(client.login.snapshot({}, {7, key}, client.out), LoginStep::accepted);
  EXPECT_EQ(client.out.take_client_types(), "KZ");
}

TEST(ProxyClientLogin, ARejectedPasswordIsRefusedInTheServersWordsOrOurs) {
  Client ours(strict_options());
  ASSERT_EQ(ours.start(true), LoginStep::need_more);
  ASSERT_EQ(ours.send(made_message('p', "secret\0"s)), LoginStep::verify_password);
  EXPECT_EQ(ours.login.refuse_password(ours.out), LoginStep::close);
  EXPECT_EQ(ours.error(), "FATAL 28P01 password authentication failed for user \"app\"");
  EXPECT_EQ(ours.login.password(), "");
  Client servers(strict_options());
  ASSERT_EQ(servers.start(true), LoginStep::need_more);
  ASSERT_EQ(servers.send(made_message('p', "secret\0"s)), LoginStep::verify_password);
  std::string message = made_error("FATAL", "42501", "permission denied for database \"shop\"");
  wire::ErrorFields fields;
  ASSERT_TRUE(wire::read_error(wire::as_bytes(message).subspan(5), fields));
  servers.out.client.clear();
  EXPECT_EQ(servers.login.refuse(fields, servers.out), LoginStep::close);
  EXPECT_EQ(servers.out.client, message) << "as it came";
}

TEST(ProxyClientLogin, NoPasswordIsAskedForInPlaintext) {
  Client client(strict_options());
  EXPECT_EQ(client.send(kStartup), LoginStep::close);
  EXPECT_TRUE(client.error().starts_with("FATAL 28000 "));
}

TEST(ProxyClientLogin, EmptyMalformedAndEndlessPasswordsAreRefused) {
  Client empty(strict_options());
  ASSERT_EQ(empty.start(true), LoginStep::need_more);
  EXPECT_EQ(empty.send(made_message('p', "\0"s)), LoginStep::close);
  EXPECT_EQ(empty.error(), "FATAL 28P01 empty password returned by client");
  for (const std::string& bytes : {made_message('p', ""), made_message('p', "secret"), made_message('p', "a\0b\0"s),
                                   "p"s + big_endian(4 + kMaxPasswordBytes + 1), made_message('Q', "select 1\0"s)}) {
    Client client(strict_options());
    ASSERT_EQ(client.start(true), LoginStep::need_more);
    client.out.client.clear();
    EXPECT_EQ(client.send(bytes), LoginStep::close);
    EXPECT_TRUE(client.error().starts_with("FATAL 08P01 "));
  }
  Client longest(strict_options());
  ASSERT_EQ(longest.start(true), LoginStep::need_more);
  std::string password(kMaxPasswordBytes - 1, 'x');
  EXPECT_EQ(longest.send_slowly(made_message('p', password + '\0')), LoginStep::verify_password);
  EXPECT_EQ(longest.login.password(), password);
}

// --- The caller ---

TEST(ProxyClientLogin, TheCallerMayRefuseAtEveryStep) {
  const wire::ErrorText kFull = {"FATAL", "53300", "sorry, too many clients already", {}, {}};
  Client at_once(plaintext());
  EXPECT_EQ(at_once.login.refuse(kFull, at_once.out), LoginStep::close);
  EXPECT_EQ(at_once.error(), "FATAL 53300 sorry, too many clients already");
  EXPECT_EQ(at_once.login.outcome(), LoginOutcome::refused);
  Client looking_up(plaintext());
  ASSERT_EQ(looking_up.start(false), LoginStep::lookup_verifier);
  EXPECT_EQ(looking_up.login.refuse(kFull, looking_up.out), LoginStep::close);
  EXPECT_EQ(looking_up.login.phase(), LoginPhase::verifier);
  Client proved(plaintext());
  ASSERT_EQ(proved.start(false), LoginStep::lookup_verifier);
  ASSERT_EQ(proved.login.verifier(found(), proved.out), LoginStep::need_more);
  ASSERT_EQ(proved.prove("pencil"), LoginStep::pool_snapshot);
  EXPECT_EQ(proved.login.refuse(kFull, proved.out), LoginStep::close);
  EXPECT_EQ(proved.error(), "FATAL 53300 sorry, too many clients already");
}

TEST(ProxyClientLogin, AnEndedLoginSaysNothingMore) {
  const wire::ErrorText kFull = {"FATAL", "53300", "too many", {}, {}};
  Client client(plaintext());
  ASSERT_EQ(client.send(big_endian(7)), LoginStep::close);
  EXPECT_EQ(client.login.refuse(kFull, client.out), LoginStep::close);
  EXPECT_EQ(client.login.refuse_password(client.out), LoginStep::close);
  EXPECT_EQ(client.send(kStartup), LoginStep::close);
  EXPECT_EQ(client.login.verifier(found(), client.out), LoginStep::close);
  EXPECT_EQ(client.login.password_accepted(client.out), LoginStep::close);
  EXPECT_EQ(client.login.snapshot({}, {0, {}}, client.out), LoginStep::close);
  EXPECT_EQ(client.login.tls_started({}), LoginStep::close);
  EXPECT_EQ(client.out.client, "");
  EXPECT_EQ(client.login.outcome(), LoginOutcome::protocol);
}

TEST(ProxyClientLogin, NothingIsPutIntoAHandshake) {
  const wire::ErrorText kFull = {"FATAL", "53300", "too many", {}, {}};
  Client client(ClientLoginOptions{});
  ASSERT_EQ(client.send(kSslRequest), LoginStep::start_tls);
  EXPECT_EQ(client.login.refuse(kFull, client.out), LoginStep::start_tls);
  EXPECT_EQ(client.out.client, "S");
}

TEST(ProxyClientLogin, TheClientsOwnNameOfItsApplicationIsEchoed) {
  Client client(plaintext());
  ASSERT_EQ(client.send(made_startup(wire::kProtocol30, {{"user", "app"}, {"application_name", "mine"}})),
            LoginStep::lookup_verifier);
  ASSERT_EQ(client.login.verifier(found(), client.out), LoginStep::need_more);
  ASSERT_EQ(client.prove("pencil"), LoginStep::pool_snapshot);
  const std::vector<Setting> parameters = {{"application_name", "other"}, {"is_superuser", "off"}};
  const std::uint8_t key[] = {1, 2, 3, 4};
  ASSERT_EQ(client.login.snapshot(parameters, {7, key}, client.out), LoginStep::accepted);
  EXPECT_EQ(client.out.take_client()[0].payload, "application_name\0mine\0"s);
}

// Whatever comes, in whatever pieces: it ends, with at most one ErrorResponse, and nobody is let in.
TEST(ProxyClientLogin, NoRandomBytesAreLetIn) {
  std::mt19937 random(20240507);
  const std::string pieces[] = {kSslRequest,
                                kGssencRequest,
                                kStartup,
                                sasl_initial("SCRAM-SHA-256", "n,,n=,r=abc"),
                                made_message('p', "c=biws,r=abc,p=AAAA"),
                                made_message('p', "secret\0"s)};
  for (int round = 0; round < 3000; round++) {
    ClientLoginOptions options = round % 2 == 0 ? plaintext() : ClientLoginOptions{};
    if (round % 3 == 0) options.method = ClientMethod::password;
    if (round % 5 == 0) options.profile = Profile::strict;
    Client client(options);
    LoginStep step = LoginStep::need_more;
    for (int i = 0; i < 12 && step != LoginStep::close && step != LoginStep::cancel_request; i++) {
      std::string bytes = pieces[random() % std::size(pieces)];
      for (unsigned changes = random() % 3; changes > 0; changes--)
        bytes[random() % bytes.size()] = static_cast<char>(random());
      if (random() % 4 == 0) bytes.resize(random() % bytes.size());
      step = client.send(bytes);
      if (step == LoginStep::start_tls) {
        client.buffer.clear();
        step = client.login.tls_started({random() % 2 == 0, kEndPoint});
      }
      if (step == LoginStep::lookup_verifier) step = client.login.verifier(found(), client.out);
      if (step == LoginStep::verify_password) step = client.login.refuse_password(client.out);
      ASSERT_LE(client.buffer.size(), wire::kMaxStartupBytes + bytes.size());
    }
    ASSERT_NE(step, LoginStep::pool_snapshot) << round;
    ASSERT_NE(step, LoginStep::accepted) << round;
  }
}

TEST(ProxyClientLogin, EveryPhaseHasAName) {
  for (int i = 0; i <= static_cast<int>(LoginPhase::done); i++) {
    EXPECT_NE(phase_name(static_cast<LoginPhase>(i)), "unknown");
  }
}

}  // namespace
}  // namespace sluice::proxy
