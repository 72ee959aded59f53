#include "proxy/readiness.h"

#include <gtest/gtest.h>

namespace sluice::proxy {
namespace {

constexpr Time kLimit = 200 * kMillisecond;
constexpr Time kWindow = 5 * kSecond;

TEST(ProxyReadiness, TheMeanOfTheWindowDecides) {
  Readiness readiness(kLimit, kWindow);
  Time now = 100 * kSecond;
  EXPECT_EQ(readiness.mean(now), 0);
  EXPECT_FALSE(readiness.degraded(now, 0));
  readiness.waited(398 * kMillisecond, now);
  readiness.waited(0, now);
  EXPECT_EQ(readiness.mean(now), 199 * kMillisecond);
  EXPECT_FALSE(readiness.degraded(now, 0));
  readiness.waited(203 * kMillisecond, now);
  EXPECT_TRUE(readiness.degraded(now, 0)) << "at 200 ms, and not only beyond";
}

TEST(ProxyReadiness, WhatIsOlderThanTheWindowIsForgotten) {
  Readiness readiness(kLimit, kWindow);
  Time now = 100 * kSecond;
  readiness.waited(kSecond, now);
  EXPECT_TRUE(readiness.degraded(now + kWindow - kSecond, 0));
  EXPECT_FALSE(readiness.degraded(now + kWindow, 0));
  EXPECT_EQ(readiness.mean(now + 1000 * kSecond), 0);
  readiness.waited(0, now + 1000 * kSecond);
  EXPECT_EQ(readiness.mean(now + 1000 * kSecond), 0);
}

TEST(ProxyReadiness, AQueueThatDoesNotMoveAtAllIsNotHealthy) {
  Readiness readiness(kLimit, kWindow);
  EXPECT_FALSE(readiness.degraded(100 * kSecond, kWindow - 1));
  EXPECT_TRUE(readiness.degraded(100 * kSecond, kWindow));
}

TEST(ProxyReadiness, ZeroSwitchesItOff) {
  Readiness readiness(0, kWindow);
  readiness.waited(100 * kSecond, kSecond);
  EXPECT_FALSE(readiness.degraded(kSecond, 100 * kSecond));
  readiness.set(kLimit, kWindow);
  EXPECT_EQ(readiness.mean(kSecond), 0) << "begins anew";
  readiness.waited(kSecond, kSecond);
  EXPECT_TRUE(readiness.degraded(kSecond, 0));
}

TEST(ProxyReadiness, NegativeWaitsAndTheShortestWindowDoNoHarm) {
  Readiness readiness(kLimit, 1);
  readiness.waited(-5, 7);
  EXPECT_EQ(readiness.mean(7), 0);
}

}  // namespace
}  // namespace sluice::proxy
