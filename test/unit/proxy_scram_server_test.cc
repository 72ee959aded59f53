#include "proxy/scram_server.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "proxy/scram_client.h"

namespace sluice::proxy {
namespace {

using namespace std::string_literals;

const std::vector<std::uint8_t> kEndPoint(32, 0xAB);
constexpr std::string_view kNonce = "rOprNGfwEbeRWgbNEkqO";

ClientKeys keys_of(std::string_view password) {
  ClientKeys keys;
  EXPECT_TRUE(derive_keys(password, "W22ZaJ0SNY7soEsUEjb6gQ==", 4096, keys));
  return keys;
}

ScramServer server(std::vector<std::uint8_t> end_point = {}, bool doomed = false) {
  return {keys_of("pencil").verifier, std::move(end_point), doomed};
}

// The server's nonce, client's half included, out of its first message.
std::string nonce_of(const std::string& server_first) { return server_first.substr(2, server_first.find(',') - 2); }

// A last message for what was said, right as far as `binding` is.
std::string last_message(const std::string& client_first_bare, const std::string& server_first,
                         const std::string& binding, std::string_view password = "pencil") {
  ClientKeys keys = keys_of(password);
  std::string without_proof = "c=" + to_base64(wire::as_bytes(binding)) + ",r=" + nonce_of(server_first);
  std::string auth_message = client_first_bare + "," + server_first + "," + without_proof;
  ScramKey proof = client_proof(keys.client_key, keys.verifier.stored_key, auth_message);
  return without_proof + ",p=" + to_base64(proof.bytes);
}

std::string bare() { return "n=,r=" + std::string(kNonce); }

TEST(ProxyScramServer, LetsTheRightPasswordInAndLearnsItsKey) {
  for (std::string flag : {"n,,", "y,,"}) {
    ScramServer scram = server();
    std::string first;
    ASSERT_EQ(scram.first(kScramMechanism, flag + bare(), first), ScramResult::go_on);
    EXPECT_TRUE(first.starts_with("r=" + std::string(kNonce)));
    EXPECT_NE(first.find(",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"), std::string::npos);
    std::string reply;
    EXPECT_EQ(scram.final(last_message(bare(), first, flag), reply), ScramResult::proved);
    EXPECT_TRUE(reply.starts_with("v="));
    EXPECT_TRUE(equal_keys(scram.client_key(), keys_of("pencil").client_key));
    EXPECT_FALSE(scram.uses_plus());
  }
}

TEST(ProxyScramServer, RefusesAWrongPassword) {
  ScramServer scram = server();
  std::string first;
  std::string reply;
  ASSERT_EQ(scram.first(kScramMechanism, "n,," + bare(), first), ScramResult::go_on);
  EXPECT_EQ(scram.final(last_message(bare(), first, "n,,", "pen"), reply), ScramResult::wrong_proof);
  EXPECT_EQ(reply, "") << "nothing that could be tried against";
}

TEST(ProxyScramServer, ADoomedExchangeEndsLikeAWrongPasswordWhateverIsProved) {
  ScramServer scram = server({}, true);
  std::string first;
  std::string reply;
  ASSERT_EQ(scram.first(kScramMechanism, "n,," + bare(), first), ScramResult::go_on);
  EXPECT_EQ(scram.final(last_message(bare(), first, "n,,"), reply), ScramResult::wrong_proof);
  EXPECT_EQ(reply, "");
}

TEST(ProxyScramServer, BindsTheChannelWithPlus) {
  ScramServer scram = server(kEndPoint);
  std::string flag = "p=tls-server-end-point,,";
  std::string first;
  std::string reply;
  ASSERT_TRUE(scram.offers_plus());
  ASSERT_EQ(scram.first(kScramPlusMechanism, flag + bare(), first), ScramResult::go_on);
  std::string binding = flag + std::string(kEndPoint.begin(), kEndPoint.end());
  EXPECT_EQ(scram.final(last_message(bare(), first, binding), reply), ScramResult::proved);
  EXPECT_TRUE(scram.uses_plus());
}

TEST(ProxyScramServer, ClientsThatCannotBindAreServedBesidePlus) {
  ScramServer scram = server(kEndPoint);
  std::string first;
  std::string reply;
  ASSERT_EQ(scram.first(kScramMechanism, "n,," + bare(), first), ScramResult::go_on);
  EXPECT_EQ(scram.final(last_message(bare(), first, "n,,"), reply), ScramResult::proved);
}

// Case D13.
TEST(ProxyScramServer, ADowngradeIsRefused) {
  ScramServer scram = server(kEndPoint);
  std::string first;
  EXPECT_EQ(scram.first(kScramMechanism, "y,," + bare(), first), ScramResult::downgrade);
  EXPECT_EQ(first, "");
}

TEST(ProxyScramServer, AnotherCertificateIsNoticed) {
  std::string flag = "p=tls-server-end-point,,";
  const std::string others[] = {flag + std::string(32, '\xCD'),  flag,
                                flag + std::string(31, '\xAB'),  flag + std::string(33, '\xAB'),
                                "n,," + std::string(32, '\xAB'), "n,,"};
  for (const std::string& binding : others) {
    ScramServer scram = server(kEndPoint);
    std::string first;
    std::string reply;
    ASSERT_EQ(scram.first(kScramPlusMechanism, flag + bare(), first), ScramResult::go_on);
    EXPECT_EQ(scram.final(last_message(bare(), first, binding), reply), ScramResult::binding_differs);
  }
}

TEST(ProxyScramServer, MechanismAndFlagHaveToAgree) {
  const struct {
    std::string mechanism;
    std::string flag;
    bool plus;
  } cases[] = {
      {"SCRAM-SHA-256-PLUS", "p=tls-server-end-point,,", false},  // not offered
      {"SCRAM-SHA-256-PLUS", "n,,", true},
      {"SCRAM-SHA-256-PLUS", "y,,", true},
      {"SCRAM-SHA-256-PLUS", "p=tls-unique,,", true},
      {"SCRAM-SHA-256", "p=tls-server-end-point,,", true},
      {"SCRAM-SHA-256", "p=tls-server-end-point,,", false},
      {"SCRAM-SHA-1", "n,,", false},
      {"scram-sha-256", "n,,", false},
      {"", "n,,", false},
  };
  for (const auto& kind : cases) {
    ScramServer scram = server(kind.plus ? kEndPoint : std::vector<std::uint8_t>());
    std::string first;
    EXPECT_EQ(scram.first(kind.mechanism, kind.flag + bare(), first), ScramResult::malformed)
        << kind.mechanism << " " << kind.flag;
    EXPECT_FALSE(scram.reason().empty());
  }
}

TEST(ProxyScramServer, MalformedFirstMessagesAreRefused) {
  for (std::string message :
       {""s, "n"s, "n,"s, "n,,"s, "n,,n="s, "n,,n=,"s, "n,,n=,r="s, "n,a=other,n=,r=abc"s, "x,,n=,r=abc"s,
        "n,,m=must,n=,r=abc"s, "n,,n=,r=abc,x=\0"s, "n,,n=,r=abc\0"s, "n,,n=,r="s + std::string(257, 'a')}) {
    ScramServer scram = server();
    std::string first;
    EXPECT_EQ(scram.first(kScramMechanism, message, first), ScramResult::malformed) << message;
  }
}

TEST(ProxyScramServer, MalformedAndForeignLastMessagesAreRefused) {
  ScramServer scram = server();
  std::string first;
  ASSERT_EQ(scram.first(kScramMechanism, "n,," + bare(), first), ScramResult::go_on);
  std::string right = last_message(bare(), first, "n,,");
  std::string reply;
  for (std::size_t cut = 0; cut < right.size(); cut++) {
    EXPECT_NE(scram.final(right.substr(0, cut), reply), ScramResult::proved) << cut;
  }
  std::string foreign = "r=" + std::string(kNonce) + std::string(24, 'A') + ",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
  EXPECT_EQ(scram.final(last_message(bare(), foreign, "n,,"), reply), ScramResult::malformed) << "another nonce";
  EXPECT_EQ(scram.final(last_message(bare(), first, "y,,"), reply), ScramResult::malformed) << "another flag";
  EXPECT_EQ(scram.final(right + "x", reply), ScramResult::malformed);
  EXPECT_EQ(scram.final(right, reply), ScramResult::proved);
}

TEST(ProxyScramServer, EveryNonceIsNew) {
  ScramServer one = server();
  ScramServer two = server();
  std::string first;
  std::string second;
  ASSERT_EQ(one.first(kScramMechanism, "n,," + bare(), first), ScramResult::go_on);
  ASSERT_EQ(two.first(kScramMechanism, "n,," + bare(), second), ScramResult::go_on);
  EXPECT_NE(nonce_of(first), nonce_of(second));
  std::string reply;
  EXPECT_NE(two.final(last_message(bare(), first, "n,,"), reply), ScramResult::proved) << "no message may be replayed";
}

}  // namespace
}  // namespace sluice::proxy
