#include "proxy/auth_failures.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice::proxy {
namespace {

AuthFailureOptions options() {
  AuthFailureOptions options;
  options.failure_window = 60 * kSecond;
  options.max_failures_per_address = 3;
  options.max_failures = 5;
  options.max_tracked = 100;
  return options;
}

TEST(ProxyAuthFailures, APairIsLockedOutAtItsLimitUntilTheWindowHasPassed) {
  AuthFailures failures(options());
  for (Time at : {0, 1, 2}) {
    EXPECT_FALSE(failures.is_locked_out("app", "a", at * kSecond));
    failures.failed("app", "a", at * kSecond);
  }
  EXPECT_TRUE(failures.is_locked_out("app", "a", 3 * kSecond));
  EXPECT_FALSE(failures.is_locked_out("app", "b", 3 * kSecond)) << "another address";
  EXPECT_FALSE(failures.is_locked_out("other", "a", 3 * kSecond)) << "another user";
  EXPECT_TRUE(failures.is_locked_out("app", "a", 60 * kSecond - 1));
  EXPECT_FALSE(failures.is_locked_out("app", "a", 60 * kSecond));
}

TEST(ProxyAuthFailures, OnlyWhatWasJudgedAnewCountsForTheUser) {
  AuthFailures failures(options());
  failures.failed("app", "a", 0);
  failures.failed_again("app", "b", 0);
  failures.failed_again("app", "b", 0);
  failures.failed("app", "b", 0);
  EXPECT_EQ(failures.failures_of("app", 0), 2U);
  EXPECT_TRUE(failures.is_locked_out("app", "b", 0));
  EXPECT_FALSE(failures.is_locked_out("app", "a", 0));
}

TEST(ProxyAuthFailures, AUserIsNeverMixedUpWithAPair) {
  AuthFailures failures(options());
  for (int i = 0; i < 3; i++) failures.failed_again("app", "", 0);
  EXPECT_EQ(failures.failures_of("app", 0), 0U);
  EXPECT_TRUE(failures.is_locked_out("app", "", 0));
}

TEST(ProxyAuthFailures, MemoryIsBoundedInUsersAndInFailures) {
  AuthFailureOptions few = options();
  few.max_tracked = 4;
  AuthFailures failures(few);
  for (int i = 0; i < 1000; i++) failures.failed("app", "a", i);
  EXPECT_EQ(failures.failures_of("app", 1000), 5U) << "as many as matter";
  for (int i = 0; i < 1000; i++) failures.failed_again("u" + std::to_string(i), "a", 1000);
  EXPECT_EQ(failures.failures_of("app", 1000), 0U) << "the oldest is forgotten first";
}

TEST(ProxyAuthFailures, TheNewestFailuresCountWhereOldOnesLeaveTheWindow) {
  AuthFailures failures(options());
  failures.failed("app", "a", 0);
  failures.failed("app", "a", 59 * kSecond);
  failures.failed("app", "a", 61 * kSecond);
  EXPECT_FALSE(failures.is_locked_out("app", "a", 61 * kSecond));
  failures.failed("app", "a", 62 * kSecond);
  EXPECT_TRUE(failures.is_locked_out("app", "a", 62 * kSecond));
}

}  // namespace
}  // namespace sluice::proxy
