#include "proxy/password_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace sluice::proxy {
namespace {

ClientKeys keys_of(std::string_view password) {
  ClientKeys keys;
  EXPECT_TRUE(derive_keys(password, "W22ZaJ0SNY7soEsUEjb6gQ==", 4096, keys));
  return keys;
}

class ProxyPasswordCheck : public ::testing::Test {
 protected:
  static PasswordOptions passwords() {
    PasswordOptions options;
    options.verify_ttl = 60 * kSecond;
    options.verification_wait = 5 * kSecond;
    options.max_verifications = 2;
    options.max_passwords = 3;
    options.max_rejected = 3;
    return options;
  }
  static AuthFailureOptions failures() {
    AuthFailureOptions options;
    options.failure_window = 30 * kSecond;
    options.max_failures_per_address = 3;
    options.max_failures = 4;
    return options;
  }

  PasswordDecision ask(LoginNumber login, std::string_view user, std::string_view password, Time now = 0,
                       std::string_view address = "a") {
    return check_.ask(login, user, address, password, now);
  }

  // From the question to the server's verdict.
  void server_accepts(std::string_view user, std::string_view password, Time now = 0) {
    PasswordDecision decision = ask(next_++, user, password, now);
    ASSERT_EQ(decision.answer, PasswordAnswer::verify);
    check_.verified(decision.verification, keys_of(password), now, again_);
  }
  void server_rejects(std::string_view user, std::string_view password, Time now = 0, std::string_view address = "a") {
    PasswordDecision decision = ask(next_++, user, password, now, address);
    ASSERT_EQ(decision.answer, PasswordAnswer::verify) << password;
    check_.rejected(decision.verification, now, again_);
  }

  PasswordCheck check_{passwords(), failures()};
  std::vector<LoginNumber> again_;
  LoginNumber next_ = 1000;
};

// L5, L10, L12.
TEST_F(ProxyPasswordCheck, TheServerIsAskedOnceAndThenNotForAWhile) {
  server_accepts("app", "secret");
  EXPECT_EQ(ask(1, "app", "secret", 60 * kSecond - 1).answer, PasswordAnswer::accepted);
  EXPECT_TRUE(same_verifier(check_.keys("app")->verifier, keys_of("secret").verifier));
  EXPECT_EQ(ask(2, "app", "secret", 60 * kSecond).answer, PasswordAnswer::verify);
}

TEST_F(ProxyPasswordCheck, NothingIsRememberedBeforeTheServerHasAccepted) {
  PasswordDecision decision = ask(1, "app", "secret");
  ASSERT_EQ(decision.answer, PasswordAnswer::verify);
  EXPECT_EQ(check_.keys("app"), nullptr);
  std::vector<LoginNumber> shared;
  check_.unavailable(decision.verification, 0, shared, again_);
  EXPECT_EQ(check_.keys("app"), nullptr);
  EXPECT_EQ(ask(1, "app", "secret").answer, PasswordAnswer::verify);
}

TEST_F(ProxyPasswordCheck, AnotherPasswordOrUserIsAskedAbout) {
  server_accepts("app", "secret");
  EXPECT_EQ(ask(1, "app", "secre").answer, PasswordAnswer::verify);
  EXPECT_EQ(ask(2, "ap", "psecret").answer, PasswordAnswer::verify);
}

// L13.
TEST_F(ProxyPasswordCheck, EqualLoginsShareAVerification) {
  PasswordDecision first = ask(1, "app", "secret", 0);
  ASSERT_EQ(first.answer, PasswordAnswer::verify);
  for (LoginNumber login : {2, 3, 4}) {
    PasswordDecision decision = ask(login, "app", "secret", kSecond);
    EXPECT_EQ(decision.answer, PasswordAnswer::wait);
    EXPECT_EQ(decision.deadline, 6 * kSecond);
  }
  EXPECT_EQ(check_.running(), 1U);
  check_.withdraw(3);
  check_.verified(first.verification, keys_of("secret"), kSecond, again_);
  EXPECT_EQ(again_, (std::vector<LoginNumber>{2, 4}));
  EXPECT_EQ(ask(2, "app", "secret", kSecond).answer, PasswordAnswer::accepted);
  EXPECT_EQ(ask(4, "app", "secret", kSecond).answer, PasswordAnswer::accepted);
}

// L11.
TEST_F(ProxyPasswordCheck, NoMoreVerificationsThanAllowedAndTheRestInTheirOrder) {
  PasswordDecision first = ask(1, "u1", "x");
  PasswordDecision second = ask(2, "u2", "x");
  ASSERT_EQ(first.answer, PasswordAnswer::verify);
  ASSERT_EQ(second.answer, PasswordAnswer::verify);
  EXPECT_EQ(ask(3, "u3", "x", kSecond).answer, PasswordAnswer::wait);
  EXPECT_EQ(ask(4, "u4", "x", 2 * kSecond).deadline, 7 * kSecond);
  EXPECT_EQ(ask(5, "u5", "x", 2 * kSecond).answer, PasswordAnswer::wait);
  EXPECT_EQ(ask(3, "u3", "x", 3 * kSecond).deadline, 6 * kSecond) << "asking again moves nothing";
  check_.withdraw(4);
  check_.rejected(first.verification, 3 * kSecond, again_);
  EXPECT_EQ(again_, (std::vector<LoginNumber>{3, 5}));
  EXPECT_EQ(ask(9, "u9", "x", 3 * kSecond).answer, PasswordAnswer::wait) << "a newcomer does not go first";
  EXPECT_EQ(ask(3, "u3", "x", 3 * kSecond).answer, PasswordAnswer::verify);
  EXPECT_EQ(ask(5, "u5", "x", 3 * kSecond).answer, PasswordAnswer::wait);
  EXPECT_EQ(check_.running(), 2U);
}

TEST_F(ProxyPasswordCheck, SharersOfAVerificationWithoutVerdictEndWithItsError) {
  PasswordDecision first = ask(1, "app", "secret");
  ASSERT_EQ(ask(2, "app", "secret").answer, PasswordAnswer::wait);
  ASSERT_EQ(ask(3, "u3", "x").answer, PasswordAnswer::verify);
  ASSERT_EQ(ask(4, "u4", "x").answer, PasswordAnswer::wait);
  std::vector<LoginNumber> shared;
  check_.unavailable(first.verification, 0, shared, again_);
  EXPECT_EQ(shared, (std::vector<LoginNumber>{2}));
  EXPECT_EQ(again_, (std::vector<LoginNumber>{4}));
  EXPECT_EQ(ask(5, "app", "secret").answer, PasswordAnswer::wait) << "behind the one who waited";
  EXPECT_EQ(ask(4, "u4", "x").answer, PasswordAnswer::verify);
}

TEST_F(ProxyPasswordCheck, AnUnavailableServerCountsAsNobodysFailure) {
  std::vector<LoginNumber> shared;
  for (LoginNumber i = 0; i < 20; i++) {
    PasswordDecision decision = ask(i, "app", "secret");
    ASSERT_EQ(decision.answer, PasswordAnswer::verify) << i;
    check_.unavailable(decision.verification, 0, shared, again_);
  }
}

// L15.
TEST_F(ProxyPasswordCheck, ARejectedPasswordIsNotAskedAboutAgainForOneWindow) {
  server_rejects("app", "wrong");
  EXPECT_EQ(ask(1, "app", "wrong", 30 * kSecond - 1, "b").answer, PasswordAnswer::rejected);
  EXPECT_EQ(ask(2, "app", "wrong", 30 * kSecond, "b").answer, PasswordAnswer::verify);
}

TEST_F(ProxyPasswordCheck, ARejectedPasswordCountsForItsAddressOnly) {
  server_rejects("app", "wrong");
  for (LoginNumber i = 0; i < 3; i++) EXPECT_EQ(ask(i, "app", "wrong", 0, "b").answer, PasswordAnswer::rejected);
  EXPECT_EQ(ask(4, "app", "wrong", 0, "b").answer, PasswordAnswer::rate_limited) << "locked out";
  EXPECT_EQ(ask(5, "app", "right", 0, "c").answer, PasswordAnswer::verify) << "one failure of the user, not four";
}

// L14, first half.
TEST_F(ProxyPasswordCheck, ALockedOutAddressIsRefusedWithTheRightPasswordTooAndNoLonger) {
  server_accepts("app", "right");
  for (std::string password : {"w1", "w2", "w3"}) server_rejects("app", password);
  for (Time now = 0; now < 30 * kSecond; now += kSecond) {
    EXPECT_EQ(ask(1, "app", "right", now).answer, PasswordAnswer::rate_limited);
  }
  EXPECT_EQ(ask(2, "app", "right", 0, "b").answer, PasswordAnswer::accepted) << "another address";
  EXPECT_EQ(ask(3, "app", "right", 30 * kSecond).answer, PasswordAnswer::accepted) << "refusals do not extend it";
}

// L14, second half.
TEST_F(ProxyPasswordCheck, AUserUnderAttackIsReachedByKnownPasswordsOnly) {
  server_accepts("app", "right", 0);
  Time now = 59 * kSecond;
  for (std::string address : {"a", "b", "c", "d"}) server_rejects("app", "wrong from " + address, now, address);
  EXPECT_EQ(ask(1, "app", "another", now, "e").answer, PasswordAnswer::rate_limited);
  EXPECT_EQ(ask(2, "app", "right", now, "e").answer, PasswordAnswer::accepted) << "fresh";
  now += kSecond;
  EXPECT_EQ(ask(3, "app", "right", now, "e").answer, PasswordAnswer::verify) << "known, and to be asked about again";
  EXPECT_EQ(ask(4, "other", "x", now, "e").answer, PasswordAnswer::verify) << "another user";
}

TEST_F(ProxyPasswordCheck, RunningVerificationsCountForTheUser) {
  for (std::string address : {"a", "b", "c"}) server_rejects("app", "wrong from " + address, 0, address);
  EXPECT_EQ(ask(1, "app", "fourth", 0, "d").answer, PasswordAnswer::verify);
  EXPECT_EQ(ask(2, "app", "fifth", 0, "e").answer, PasswordAnswer::rate_limited);
}

TEST_F(ProxyPasswordCheck, WhatTheServerRejectsIsNoLongerAccepted) {
  server_accepts("app", "old");
  server_rejects("app", "old", 60 * kSecond);
  EXPECT_EQ(check_.keys("app"), nullptr);
  EXPECT_EQ(ask(1, "app", "old", 61 * kSecond).answer, PasswordAnswer::rejected);
}

TEST_F(ProxyPasswordCheck, AnEarlierVerificationNeverOverwritesALaterOne) {
  PasswordDecision earlier = ask(1, "app", "old");
  PasswordDecision later = ask(2, "app", "new");
  check_.verified(later.verification, keys_of("new"), 0, again_);
  check_.verified(earlier.verification, keys_of("old"), 0, again_);
  EXPECT_EQ(ask(3, "app", "new").answer, PasswordAnswer::accepted);
  EXPECT_TRUE(same_verifier(check_.keys("app")->verifier, keys_of("new").verifier));
}

TEST_F(ProxyPasswordCheck, AnAnswerCountsOnce) {
  PasswordDecision decision = ask(1, "app", "secret");
  check_.rejected(decision.verification, 0, again_);
  check_.verified(decision.verification, keys_of("secret"), 0, again_);
  check_.rejected(decision.verification + 7, 0, again_);
  EXPECT_EQ(check_.keys("app"), nullptr);
  EXPECT_EQ(check_.running(), 0U);
}

TEST_F(ProxyPasswordCheck, KeysThatAServerRefusedAreForgottenWithTheirPassword) {
  server_accepts("app", "old");
  check_.server_refused("app", keys_of("other").verifier);
  EXPECT_EQ(ask(1, "app", "old").answer, PasswordAnswer::accepted);
  check_.server_refused("app", keys_of("old").verifier);
  EXPECT_EQ(check_.keys("app"), nullptr);
  EXPECT_EQ(ask(2, "app", "old").answer, PasswordAnswer::verify);
}

TEST_F(ProxyPasswordCheck, MemoryIsBounded) {
  for (int i = 0; i < 10; i++) server_accepts("u" + std::to_string(i), "x");
  EXPECT_EQ(check_.keys("u6"), nullptr);
  EXPECT_NE(check_.keys("u7"), nullptr);
  for (int i = 0; i < 10; i++) server_rejects("r" + std::to_string(i), "x");
  EXPECT_EQ(ask(1, "r9", "x").answer, PasswordAnswer::rejected);
  EXPECT_EQ(ask(2, "r6", "x").answer, PasswordAnswer::verify);
}

TEST_F(ProxyPasswordCheck, ALoginThatMovesFromTheQueueToASharedVerificationLeavesTheQueue) {
  PasswordDecision first = ask(1, "u1", "x");
  ASSERT_EQ(ask(2, "u2", "x").answer, PasswordAnswer::verify);
  ASSERT_EQ(ask(3, "u3", "x").answer, PasswordAnswer::wait);
  ASSERT_EQ(ask(4, "u3", "x").answer, PasswordAnswer::wait);
  check_.rejected(first.verification, 0, again_);
  PasswordDecision third = ask(3, "u3", "x");
  ASSERT_EQ(third.answer, PasswordAnswer::verify);
  ASSERT_EQ(ask(4, "u3", "x").answer, PasswordAnswer::wait);
  again_.clear();
  check_.verified(third.verification, keys_of("x"), 0, again_);
  EXPECT_EQ(again_, (std::vector<LoginNumber>{4})) << "once, not also from the queue";
  EXPECT_EQ(ask(4, "u3", "x").answer, PasswordAnswer::accepted);
  EXPECT_EQ(ask(5, "u5", "x").answer, PasswordAnswer::verify) << "no place is held by one who has left";
}

TEST_F(ProxyPasswordCheck, ASharerThatGotNoAnswerQueuesForAVerificationOfItsOwn) {
  PasswordDecision earlier = ask(1, "app", "old");
  ASSERT_EQ(ask(2, "app", "old").answer, PasswordAnswer::wait);
  PasswordDecision later = ask(3, "app", "new");
  check_.verified(later.verification, keys_of("new"), 0, again_);
  PasswordDecision other = ask(4, "u4", "x");
  again_.clear();
  check_.verified(earlier.verification, keys_of("old"), 0, again_);
  ASSERT_EQ(again_, (std::vector<LoginNumber>{2}));
  ASSERT_EQ(ask(5, "u5", "x").answer, PasswordAnswer::verify);
  ASSERT_EQ(ask(2, "app", "old").answer, PasswordAnswer::wait);
  again_.clear();
  check_.rejected(other.verification, 0, again_);
  EXPECT_EQ(again_, (std::vector<LoginNumber>{2}));
  EXPECT_EQ(ask(2, "app", "old").answer, PasswordAnswer::verify);
}

}  // namespace
}  // namespace sluice::proxy
