#include "proxy/scram_client.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "proxy/scram_server.h"

namespace sluice::proxy {
namespace {

constexpr std::string_view kSalt = "W22ZaJ0SNY7soEsUEjb6gQ==";
constexpr std::uint32_t kMaxIterations = 10'000;
const std::vector<std::uint8_t> kEndPoint(32, 0xAB);

ClientKeys keys_of(std::string_view password, std::string_view salt = kSalt, std::uint32_t iterations = 4096) {
  ClientKeys keys;
  EXPECT_TRUE(derive_keys(password, salt, iterations, keys));
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

// A whole exchange with a server that knows `verifier`. True when both sides are content.
bool logs_in(ScramSecret& secret, const Verifier& verifier, bool plus) {
  ScramServer server(verifier, plus ? kEndPoint : std::vector<std::uint8_t>(), false);
  ScramClient client(secret, plus, plus ? kEndPoint : std::vector<std::uint8_t>(), kMaxIterations);
  std::string server_first;
  std::string client_final;
  std::string server_final;
  return server.first(plus ? kScramPlusMechanism : kScramMechanism, client.first(), server_first) ==
             ScramResult::go_on &&
         client.final(server_first, client_final) == ScramAnswer::go_on &&
         server.final(client_final, server_final) == ScramResult::proved && client.finish(server_final);
}

TEST(ProxyScramClient, LogsInWithAPasswordAndThenHasItsKeys) {
  for (bool plus : {false, true}) {
    ScramSecret secret = with_password("pencil");
    EXPECT_TRUE(logs_in(secret, keys_of("pencil").verifier, plus));
    EXPECT_TRUE(secret.has_keys);
    EXPECT_TRUE(equal_keys(secret.keys.client_key, keys_of("pencil").client_key));
    ScramSecret wrong = with_password("pen");
    EXPECT_FALSE(logs_in(wrong, keys_of("pencil").verifier, plus));
  }
}

TEST(ProxyScramClient, PreparesThePasswordOfAFile) {
  ScramSecret secret = with_password("I\xC2\xADX");
  EXPECT_TRUE(logs_in(secret, keys_of("IX").verifier, false));
}

TEST(ProxyScramClient, LogsInWithKeysAlone) {
  ScramSecret secret = with_keys(keys_of("pencil"));
  EXPECT_TRUE(logs_in(secret, keys_of("pencil").verifier, false));
  EXPECT_TRUE(logs_in(secret, keys_of("pencil").verifier, true));
}

// Case D11.
TEST(ProxyScramClient, KeysForAnotherSaltOrCountAreNotTried) {
  for (const ClientKeys& server : {keys_of("pencil", "AAAA"), keys_of("pencil", kSalt, 4097)}) {
    ScramSecret secret = with_keys(keys_of("pencil"));
    ScramServer scram(server.verifier, {}, false);
    ScramClient client(secret, false, {}, kMaxIterations);
    std::string server_first;
    std::string reply;
    ASSERT_EQ(scram.first(kScramMechanism, client.first(), server_first), ScramResult::go_on);
    EXPECT_EQ(client.final(server_first, reply), ScramAnswer::keys_outdated);
    EXPECT_EQ(reply, "") << "nothing is sent";
  }
}

TEST(ProxyScramClient, ThePasswordHelpsWhereTheKeysAreOutdated) {
  ScramSecret secret = with_keys(keys_of("pencil", "AAAA"));
  secret.password = Secret("pencil");
  EXPECT_TRUE(logs_in(secret, keys_of("pencil").verifier, false));
  EXPECT_EQ(secret.keys.verifier.salt, kSalt);
}

// Case D4.
TEST(ProxyScramClient, AServerCannotMakeItWorkForLong) {
  ScramSecret secret = with_password("pencil");
  ScramClient client(secret, false, {}, kMaxIterations);
  std::string first = client.first();
  std::string nonce = first.substr(first.find("r=") + 2);
  auto answer = [&](const std::string& message) {
    std::string reply;
    ScramAnswer result = client.final(message, reply);
    EXPECT_EQ(reply.empty(), result != ScramAnswer::go_on);
    return result;
  };
  std::string salt = std::string(kSalt);
  EXPECT_EQ(answer("r=" + nonce + "x,s=" + salt + ",i=10001"), ScramAnswer::too_expensive);
  EXPECT_EQ(answer("r=" + nonce + "x,s=" + salt + ",i=10000000"), ScramAnswer::too_expensive);
  EXPECT_EQ(answer("r=" + nonce + "x,s=" + salt + ",i=2147483648"), ScramAnswer::malformed);
  EXPECT_EQ(answer("r=" + nonce + "x,s=" + salt + ",i=0"), ScramAnswer::malformed);
  EXPECT_EQ(answer("r=" + nonce + std::string(65536, 'x') + ",s=" + salt + ",i=4096"), ScramAnswer::malformed);
  EXPECT_EQ(answer("r=" + nonce + ",s=" + salt + ",i=4096"), ScramAnswer::malformed) << "nothing of the server's own";
  EXPECT_EQ(answer("r=x" + nonce + ",s=" + salt + ",i=4096"), ScramAnswer::malformed) << "not our nonce";
  EXPECT_EQ(answer("r=" + nonce + "x,i=4096"), ScramAnswer::malformed);
  EXPECT_EQ(answer("r=" + nonce + "x,s=,i=4096"), ScramAnswer::malformed);
  EXPECT_EQ(answer(""), ScramAnswer::malformed);
  EXPECT_EQ(answer("r=" + nonce + "x,s=" + salt + ",i=10000"), ScramAnswer::go_on);
}

TEST(ProxyScramClient, AServerHasToProveThatItKnowsTheVerifier) {
  ScramSecret secret = with_keys(keys_of("pencil"));
  ScramServer server(keys_of("pencil").verifier, {}, false);
  ScramClient client(secret, false, {}, kMaxIterations);
  EXPECT_FALSE(client.finish("v=" + to_base64(ScramKey().bytes))) << "before anything was said";
  std::string server_first;
  std::string client_final;
  std::string server_final;
  ASSERT_EQ(server.first(kScramMechanism, client.first(), server_first), ScramResult::go_on);
  ASSERT_EQ(client.final(server_first, client_final), ScramAnswer::go_on);
  ASSERT_EQ(server.final(client_final, server_final), ScramResult::proved);
  for (std::string wrong :
       {std::string("e=other-error"), std::string(), std::string("v="), server_final + "x",
        "v=" + to_base64(ScramKey().bytes), "v=" + to_base64(server_signature(ScramKey(), "").bytes)}) {
    EXPECT_FALSE(client.finish(wrong)) << wrong;
  }
  EXPECT_TRUE(client.finish(server_final));
}

TEST(ProxyScramClient, SaysWhatItCouldHaveBound) {
  ScramSecret secret = with_password("pencil");
  EXPECT_TRUE(ScramClient(secret, false, {}, kMaxIterations).first().starts_with("n,,n=,r="));
  EXPECT_TRUE(ScramClient(secret, false, kEndPoint, kMaxIterations).first().starts_with("y,,n=,r="));
  EXPECT_TRUE(
      ScramClient(secret, true, kEndPoint, kMaxIterations).first().starts_with("p=tls-server-end-point,,n=,r="));
}

TEST(ProxyScramClient, AnotherCertificateInBetweenIsNoticedByTheServer) {
  ScramSecret secret = with_keys(keys_of("pencil"));
  ScramServer server(keys_of("pencil").verifier, std::vector<std::uint8_t>(32, 0xCD), false);
  ScramClient client(secret, true, kEndPoint, kMaxIterations);
  std::string server_first;
  std::string client_final;
  std::string server_final;
  ASSERT_EQ(server.first(kScramPlusMechanism, client.first(), server_first), ScramResult::go_on);
  ASSERT_EQ(client.final(server_first, client_final), ScramAnswer::go_on);
  EXPECT_EQ(server.final(client_final, server_final), ScramResult::binding_differs);
}

}  // namespace
}  // namespace sluice::proxy
