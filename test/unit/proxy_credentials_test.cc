#include "proxy/credentials.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice::proxy {
namespace {

constexpr std::string_view kSalt = "W22ZaJ0SNY7soEsUEjb6gQ==";
constexpr std::string_view kOtherSalt = "AAAAAAAAAAAAAAAAAAAAAA==";

ClientKeys keys_of(std::string_view password, std::string_view salt = kSalt) {
  ClientKeys keys;
  EXPECT_TRUE(derive_keys(password, salt, 4096, keys));
  return keys;
}

std::string text_of(const Verifier& verifier) {
  return "SCRAM-SHA-256$" + std::to_string(verifier.iterations) + ":" + verifier.salt + "$" +
         to_base64(verifier.stored_key.bytes) + ":" + to_base64(verifier.server_key.bytes);
}

class ProxyCredentials : public ::testing::Test {
 protected:
  static CredentialOptions options() {
    CredentialOptions options;
    options.verifier_ttl = 60 * kSecond;
    options.unknown_ttl = 5 * kSecond;
    options.reread_interval = kSecond;
    options.max_verifiers = 3;
    options.max_unknown = 3;
    return options;
  }

  FindKind kind(std::string_view user, Time now) { return credentials_.find(user, now).kind; }

  void learn(std::string_view user, const ClientKeys& keys, Time now, Time valid_for = kNever) {
    credentials_.lookup_done(user, {true, text_of(keys.verifier), valid_for}, now);
  }

  Credentials credentials_{options()};
};

TEST_F(ProxyCredentials, OneLookupAtATimeForARole) {
  EXPECT_EQ(kind("app", 0), FindKind::lookup_needed);
  EXPECT_EQ(kind("app", 0), FindKind::lookup_running);
  EXPECT_EQ(kind("other", 0), FindKind::lookup_needed);
  learn("app", keys_of("secret"), 0);
  EXPECT_EQ(kind("app", 0), FindKind::verifier);
  EXPECT_EQ(kind("other", 0), FindKind::lookup_running);
  credentials_.lookup_failed("other");
  EXPECT_EQ(kind("other", 0), FindKind::lookup_needed) << "nothing was learned";
}

TEST_F(ProxyCredentials, AVerifierCountsForItsTime) {
  learn("app", keys_of("secret"), 0);
  FoundVerifier found = credentials_.find("app", 60 * kSecond - 1);
  ASSERT_EQ(found.kind, FindKind::verifier);
  EXPECT_TRUE(same_verifier(found.verifier, keys_of("secret").verifier));
  EXPECT_EQ(kind("app", 60 * kSecond), FindKind::lookup_needed);
}

// Case D8.
TEST_F(ProxyCredentials, AnExpiredRoleIsUnknownAtThatVeryMoment) {
  learn("app", keys_of("secret"), 0, 10 * kSecond);
  EXPECT_EQ(kind("app", 10 * kSecond - 1), FindKind::verifier);
  EXPECT_EQ(kind("app", 10 * kSecond), FindKind::unknown);
  EXPECT_EQ(kind("app", 60 * kSecond), FindKind::lookup_needed);
  learn("gone", keys_of("secret"), 0, 0);
  EXPECT_EQ(kind("gone", 0), FindKind::unknown);
  learn("far", keys_of("secret"), kSecond, kNever - 1);
  EXPECT_EQ(kind("far", 2 * kSecond), FindKind::verifier) << "no overflow";
}

// Case D8.
TEST_F(ProxyCredentials, ALostLoginRightCountsFromTheNextLookupOnAndTakesTheKey) {
  learn("app", keys_of("secret"), 0);
  credentials_.proved("app", keys_of("secret"));
  EXPECT_EQ(kind("app", 60 * kSecond), FindKind::lookup_needed);
  EXPECT_TRUE(credentials_.server_secret("app").has_keys) << "until something else is known";
  credentials_.lookup_done("app", {}, 60 * kSecond);
  EXPECT_EQ(kind("app", 60 * kSecond), FindKind::unknown);
  EXPECT_TRUE(credentials_.server_secret("app").empty());
}

// Cases A8 and D9.
TEST_F(ProxyCredentials, AnUnknownRoleHasAMockThatStaysTheSame) {
  credentials_.lookup_done("nobody", {}, 0);
  FoundVerifier first = credentials_.find("nobody", 0);
  FoundVerifier second = credentials_.find("nobody", kSecond);
  ASSERT_EQ(first.kind, FindKind::unknown);
  EXPECT_TRUE(same_verifier(first.verifier, second.verifier));
  EXPECT_EQ(first.verifier.iterations, 4096U);
  EXPECT_EQ(first.verifier.salt.size(), kSalt.size()) << "as long as a real one";
  credentials_.lookup_done("noone", {}, 0);
  EXPECT_NE(credentials_.find("noone", 0).verifier.salt, first.verifier.salt);
  Credentials other_process(options());
  other_process.lookup_done("nobody", {}, 0);
  EXPECT_NE(other_process.find("nobody", 0).verifier.salt, first.verifier.salt);
}

TEST_F(ProxyCredentials, ARoleIsUnknownForAShortTime) {
  credentials_.lookup_done("nobody", {}, 0);
  EXPECT_EQ(kind("nobody", 5 * kSecond - 1), FindKind::unknown);
  EXPECT_EQ(kind("nobody", 5 * kSecond), FindKind::lookup_needed);
}

TEST_F(ProxyCredentials, ARoleWithoutAScramVerifierIsRefusedWithTheCause) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "no password"}, {"md5" + std::string(32, 'a'), "md5"}, {"SCRAM-SHA-256$broken", "no SCRAM-SHA-256"}};
  for (const auto& [verifier, cause] : cases) {
    credentials_.lookup_done("app", {true, verifier, kNever}, 0);
    FoundVerifier found = credentials_.find("app", 0);
    EXPECT_EQ(found.kind, FindKind::unusable) << verifier;
    EXPECT_NE(found.cause.find(cause), std::string::npos) << found.cause;
    EXPECT_EQ(found.cause.find("broken"), std::string::npos) << "never the secret";
    EXPECT_EQ(found.verifier.salt.size(), kSalt.size()) << "a mock";
  }
}

TEST_F(ProxyCredentials, AFailedProofForcesOneLookupInAnInterval) {
  learn("app", keys_of("old"), 0);
  credentials_.proof_failed("app", kSecond - 1);
  EXPECT_EQ(kind("app", kSecond - 1), FindKind::verifier) << "it was read a moment ago";
  credentials_.proof_failed("app", kSecond);
  EXPECT_EQ(kind("app", kSecond), FindKind::lookup_needed);
  learn("app", keys_of("new"), kSecond);
  credentials_.proof_failed("app", kSecond);
  EXPECT_EQ(kind("app", kSecond), FindKind::verifier);
  credentials_.proof_failed("nobody", kSecond);
  EXPECT_EQ(kind("nobody", kSecond), FindKind::lookup_needed);
}

TEST_F(ProxyCredentials, AFailedProofOfAnUnknownRoleReadsAgainToo) {
  credentials_.lookup_done("created", {}, 0);
  credentials_.proof_failed("created", kSecond);
  EXPECT_EQ(kind("created", kSecond), FindKind::lookup_needed);
}

// Case D10.
TEST_F(ProxyCredentials, AProvedKeyLogsInAgainAndAgainAlsoAfterTheVerifierWasReadAnew) {
  learn("app", keys_of("secret"), 0);
  EXPECT_TRUE(credentials_.server_secret("app").empty());
  credentials_.proved("app", keys_of("secret"));
  for (Time now : {Time{0}, 59 * kSecond, 600 * kSecond}) {
    if (kind("app", now) == FindKind::lookup_needed) learn("app", keys_of("secret"), now);
    ScramSecret secret = credentials_.server_secret("app");
    ASSERT_TRUE(secret.has_keys);
    EXPECT_TRUE(equal_keys(secret.keys.client_key, keys_of("secret").client_key));
    EXPECT_TRUE(same_verifier(secret.keys.verifier, keys_of("secret").verifier));
  }
}

TEST_F(ProxyCredentials, TheKeyOfASupersededVerifierIsDropped) {
  learn("app", keys_of("secret"), 0);
  credentials_.proved("app", keys_of("secret"));
  learn("app", keys_of("secret", kOtherSalt), kSecond);
  EXPECT_TRUE(credentials_.server_secret("app").empty()) << "the same password with another salt is another key";
}

TEST_F(ProxyCredentials, ALateLoginWithTheOldPasswordOverwritesNothing) {
  learn("app", keys_of("old"), 0);
  learn("app", keys_of("new"), kSecond);
  credentials_.proved("app", keys_of("new"));
  credentials_.proved("app", keys_of("old"));
  EXPECT_TRUE(equal_keys(credentials_.server_secret("app").keys.client_key, keys_of("new").client_key));
  credentials_.proved("nobody", keys_of("old"));
  EXPECT_TRUE(credentials_.server_secret("nobody").empty());
}

TEST_F(ProxyCredentials, AKeyThatTheServerRefusedIsGoneAndTheVerifierReadAgain) {
  learn("app", keys_of("secret"), 0);
  credentials_.proved("app", keys_of("secret"));
  credentials_.server_refused("app", keys_of("secret").verifier, 2 * kSecond);
  EXPECT_TRUE(credentials_.server_secret("app").empty());
  EXPECT_EQ(kind("app", 2 * kSecond), FindKind::lookup_needed);
}

TEST_F(ProxyCredentials, ARefusalOfTheOldKeyDoesNotTouchTheNewOne) {
  learn("app", keys_of("new"), 0);
  credentials_.proved("app", keys_of("new"));
  credentials_.server_refused("app", keys_of("old").verifier, 2 * kSecond);
  EXPECT_TRUE(credentials_.server_secret("app").has_keys);
  EXPECT_EQ(kind("app", 2 * kSecond), FindKind::verifier);
}

TEST_F(ProxyCredentials, BothTablesAreBoundedAndDoNotPushEachOtherOut) {
  for (int i = 0; i < 10; i++) learn("r" + std::to_string(i), keys_of("secret"), i);
  for (int i = 0; i < 10; i++) credentials_.lookup_done("u" + std::to_string(i), {}, i);
  EXPECT_EQ(credentials_.remembered(), 3U);
  EXPECT_EQ(credentials_.unknown(), 3U);
  EXPECT_EQ(kind("r9", 10), FindKind::verifier);
  EXPECT_EQ(kind("r7", 10), FindKind::verifier);
  EXPECT_EQ(kind("r6", 10), FindKind::lookup_needed) << "the one read longest ago has gone";
  EXPECT_EQ(kind("u9", 10), FindKind::unknown);
  EXPECT_EQ(credentials_.running(), 1U);
}

TEST_F(ProxyCredentials, AReadRoleMovesToTheEndOfTheLine) {
  for (std::string user : {"a", "b", "c", "a", "d"}) learn(user, keys_of("secret"), 0);
  EXPECT_EQ(kind("a", 0), FindKind::verifier);
  EXPECT_EQ(kind("b", 0), FindKind::lookup_needed);
}

TEST_F(ProxyCredentials, AFileGoesBeforeEveryLookup) {
  credentials_.set_file(read_credential_file("app " + text_of(keys_of("filed").verifier) + "\nbatch secret").entries);
  EXPECT_TRUE(same_verifier(credentials_.find("app", 0).verifier, keys_of("filed").verifier));
  EXPECT_EQ(kind("batch", 0), FindKind::verifier);
  EXPECT_EQ(kind("app", 1'000'000 * kSecond), FindKind::verifier) << "as long as it is there";
  EXPECT_TRUE(credentials_.server_secret("app").empty()) << "a verifier alone logs in nowhere";
  EXPECT_EQ(credentials_.server_secret("batch").password.view(), "secret");
  credentials_.set_file({});
  EXPECT_EQ(kind("app", 0), FindKind::lookup_needed);
}

TEST_F(ProxyCredentials, AFiledVerifierKeepsTheKeyOfItsClientOverAReload) {
  std::string text = "app " + text_of(keys_of("filed").verifier);
  credentials_.set_file(read_credential_file(text).entries);
  credentials_.proved("app", keys_of("other"));
  EXPECT_TRUE(credentials_.server_secret("app").empty());
  credentials_.proved("app", keys_of("filed"));
  EXPECT_TRUE(credentials_.server_secret("app").has_keys);
  credentials_.set_file(read_credential_file(text).entries);
  EXPECT_TRUE(credentials_.server_secret("app").has_keys);
  credentials_.set_file(read_credential_file("app " + text_of(keys_of("changed").verifier)).entries);
  EXPECT_TRUE(credentials_.server_secret("app").empty());
}

TEST_F(ProxyCredentials, AFiledPasswordKeepsWhatItWasTurnedIntoForTheServer) {
  credentials_.set_file(read_credential_file("batch secret").entries);
  credentials_.logged_in("batch", keys_of("secret"));
  ScramSecret secret = credentials_.server_secret("batch");
  EXPECT_TRUE(secret.has_keys);
  EXPECT_EQ(secret.password.view(), "secret");
  credentials_.server_refused("batch", keys_of("secret").verifier, 0);
  EXPECT_FALSE(credentials_.server_secret("batch").has_keys);
  EXPECT_EQ(credentials_.server_secret("batch").password.view(), "secret") << "it may be right for the next server";
  credentials_.logged_in("nobody", keys_of("secret"));
  EXPECT_TRUE(credentials_.server_secret("nobody").empty());
}

}  // namespace
}  // namespace sluice::proxy
