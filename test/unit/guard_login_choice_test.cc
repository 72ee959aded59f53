// Whom the login guard ends when there is no room.
#include "extension/guard_login_choice.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice::extension {
namespace {

constexpr std::int64_t kSecond = 1'000'000;
constexpr std::int64_t kNow = 100 * kSecond;

Source source(std::uint32_t last) { return {{0, 0, 0xFFFF0000, last}}; }

LoginInProgress login(int pid, std::uint32_t from, std::int64_t age_us, bool ending = false) {
  return {pid, pid, kNow - age_us, source(from), ending};
}

std::vector<int> choose(std::vector<LoginInProgress> logins, int wanted, std::int64_t min_age_us = kSecond) {
  const int chosen = choose_logins(logins.data(), static_cast<int>(logins.size()), wanted, kNow, min_age_us);
  std::vector<int> pids;
  for (int i = 0; i < chosen; ++i) pids.push_back(logins[static_cast<std::size_t>(i)].pid);
  return pids;
}

TEST(GuardLoginChoice, NothingIsChosenFromNothing) {
  EXPECT_TRUE(choose({}, 5).empty());
  EXPECT_TRUE(choose({login(1, 1, 5 * kSecond)}, 0).empty());
}

TEST(GuardLoginChoice, TheSourceWithMostLoginsComesFirst) {
  EXPECT_EQ(choose({login(1, 1, 9 * kSecond), login(2, 2, 3 * kSecond), login(3, 2, 4 * kSecond)}, 1),
            (std::vector<int>{3}));
}

TEST(GuardLoginChoice, WithinASourceTheOldestComesFirst) {
  EXPECT_EQ(choose({login(1, 1, 2 * kSecond), login(2, 1, 5 * kSecond), login(3, 1, 3 * kSecond)}, 2),
            (std::vector<int>{2, 3}));
}

TEST(GuardLoginChoice, SourcesThatHaveBecomeEqualShareByAge) {
  // Two of source 1 go first; then both sources have one login left, and the older of them is next.
  EXPECT_EQ(
      choose({login(1, 1, 4 * kSecond), login(2, 1, 3 * kSecond), login(3, 1, 2 * kSecond), login(4, 2, 9 * kSecond)},
             3),
      (std::vector<int>{1, 2, 4}));
}

TEST(GuardLoginChoice, ASmallerSourceIsNotHitForTheHasteOfABiggerOne) {
  EXPECT_TRUE(choose({login(1, 1, kSecond / 2), login(2, 1, kSecond / 2), login(3, 2, 9 * kSecond)}, 1).empty());
}

TEST(GuardLoginChoice, TheAgeLimitIsInclusive) {
  EXPECT_EQ(choose({login(1, 1, kSecond)}, 1), (std::vector<int>{1}));
  EXPECT_TRUE(choose({login(1, 1, kSecond - 1)}, 1).empty());
}

TEST(GuardLoginChoice, ALoginOnItsWayOutIsNotChosenAgainButCountsForItsSource) {
  EXPECT_EQ(choose({login(1, 1, 9 * kSecond, true), login(2, 1, 8 * kSecond, true), login(3, 1, 2 * kSecond),
                    login(4, 2, 9 * kSecond), login(5, 2, 9 * kSecond)},
                   1),
            (std::vector<int>{3}));
  EXPECT_TRUE(choose({login(1, 1, 9 * kSecond, true)}, 1).empty());
}

TEST(GuardLoginChoice, NeverMoreThanThereAre) {
  std::vector<LoginInProgress> many;
  for (int i = 0; i < 500; ++i) many.push_back(login(i + 1, static_cast<std::uint32_t>(i % 7), (i + 2) * kSecond));
  const std::vector<int> chosen = choose(many, 10'000);
  EXPECT_EQ(chosen.size(), 500U);
  std::vector<bool> seen(501, false);
  for (const int pid : chosen) {
    EXPECT_FALSE(seen[static_cast<std::size_t>(pid)]);
    seen[static_cast<std::size_t>(pid)] = true;
  }
}

}  // namespace
}  // namespace sluice::extension
