#include "proxy/recent_peak.h"

#include <gtest/gtest.h>

namespace sluice::proxy {
namespace {

TEST(ProxyRecentPeak, AHighValueIsRemembered30SecondsAndForgottenBy35) {
  for (const Time start : {Time{0}, 2 * kSecond, 4999 * kMillisecond, 12345 * kSecond}) {
    RecentPeak peak;
    peak.note(9, start);
    peak.note(3, start + kSecond);
    EXPECT_EQ(peak.value(start + kSecond), 9U);
    EXPECT_EQ(peak.value(start + 30 * kSecond), 9U);
    EXPECT_EQ(peak.value(start + 36 * kSecond + 1), 0U);
  }
}

TEST(ProxyRecentPeak, WhatComesLaterStaysWhenTheHigherGoes) {
  RecentPeak peak;
  peak.note(9, 0);
  peak.note(4, 20 * kSecond);
  peak.note(5, 21 * kSecond);
  EXPECT_EQ(peak.value(40 * kSecond), 5U);
}

TEST(ProxyRecentPeak, NothingNotedIsNothing) { EXPECT_EQ(RecentPeak().value(100 * kSecond), 0U); }

}  // namespace
}  // namespace sluice::proxy
