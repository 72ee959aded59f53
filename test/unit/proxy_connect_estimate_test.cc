// What hold times and login times let a pool expect.
#include "proxy/connect_estimate.h"

#include <gtest/gtest.h>

namespace sluice::proxy {
namespace {

HoldHistogram holds_of(Time hold, int count) {
  HoldHistogram holds;
  for (int i = 0; i < count; i++) holds.add(hold);
  return holds;
}

ConnectHistory history_of(Time hold, Time connect) {
  ConnectHistory history;
  history.holds = holds_of(hold, 100);
  history.connects.add(connect);
  return history;
}

TEST(ProxyConnectEstimate, BucketsCoverEveryTimeWithoutGaps) {
  EXPECT_EQ(HoldHistogram::lower_bound(0), 0);
  for (std::size_t bucket = 1; bucket < HoldHistogram::kBuckets; bucket++) {
    const Time bound = HoldHistogram::lower_bound(bucket);
    EXPECT_EQ(HoldHistogram::bucket_of(bound), bucket);
    EXPECT_EQ(HoldHistogram::bucket_of(bound - 1), bucket - 1);
    EXPECT_GT(bound, HoldHistogram::lower_bound(bucket - 1));
  }
  EXPECT_EQ(HoldHistogram::bucket_of(-5), 0U);
  EXPECT_EQ(HoldHistogram::bucket_of(0), 0U);
  EXPECT_EQ(HoldHistogram::bucket_of(kNever), HoldHistogram::kBuckets - 1);
}

TEST(ProxyConnectEstimate, ALeaseOfUsualLengthEndsWithinAHorizonThatCoversIt) {
  const HoldHistogram holds = holds_of(2 * kMillisecond, 50);
  const HoldHistogram::Ending ending = holds.ending(0, 25 * kMillisecond);
  EXPECT_DOUBLE_EQ(ending.probability, 1);
  EXPECT_NEAR(ending.after, 2000, 200);
}

TEST(ProxyConnectEstimate, ALeaseDoesNotEndBeforeItsUsualLength) {
  const HoldHistogram holds = holds_of(kSecond, 50);
  EXPECT_DOUBLE_EQ(holds.ending(0, 25 * kMillisecond).probability, 0);
  EXPECT_DOUBLE_EQ(holds.ending(500 * kMillisecond, 25 * kMillisecond).probability, 0);
}

TEST(ProxyConnectEstimate, AnOverlongLeaseIsNotCountedOn) {
  HoldHistogram holds = holds_of(2 * kMillisecond, 240);
  EXPECT_DOUBLE_EQ(holds.ending(50 * kMillisecond, 25 * kMillisecond).probability, 0);
  // One hold in 241 that took longer is no reason to wait for the next.
  holds.add(60 * kMillisecond);
  EXPECT_DOUBLE_EQ(holds.ending(50 * kMillisecond, 25 * kMillisecond).probability, 0);
}

TEST(ProxyConnectEstimate, OfTwoKindsOfHoldsTheAgeTellsWhichItIs) {
  HoldHistogram holds;
  for (int i = 0; i < 50; i++) holds.add(2 * kMillisecond);
  for (int i = 0; i < 50; i++) holds.add(10 * kSecond);
  EXPECT_NEAR(holds.ending(0, 25 * kMillisecond).probability, 0.5, 0.01);
  EXPECT_DOUBLE_EQ(holds.ending(20 * kMillisecond, 25 * kMillisecond).probability, 0);
  EXPECT_GT(holds.ending(10 * kSecond, kSecond).probability, 0.5);
}

TEST(ProxyConnectEstimate, HoldsBeyondEveryBucketNeverEndInTime) {
  const HoldHistogram holds = holds_of(600 * kSecond, 50);
  EXPECT_DOUBLE_EQ(holds.ending(0, 60 * kSecond).probability, 0);
  EXPECT_DOUBLE_EQ(holds.ending(599 * kSecond, 60 * kSecond).probability, 0);
}

TEST(ProxyConnectEstimate, TheMeanIsCutOffAtTheLimit) {
  HoldHistogram holds;
  EXPECT_DOUBLE_EQ(holds.mean_within(25000), 25000) << "nothing is known";
  holds = holds_of(2 * kMillisecond, 50);
  holds.add(1000 * kSecond);
  EXPECT_LT(holds.mean_within(25 * kMillisecond), 2600);
  EXPECT_DOUBLE_EQ(holds_of(0, 5).mean_within(25 * kMillisecond), 32);
  EXPECT_GE(HoldHistogram().mean_within(0), 1);
}

TEST(ProxyConnectEstimate, WhatChangedIsForgotten) {
  HoldHistogram holds = holds_of(10 * kSecond, 1000);
  for (int i = 0; i < 1100; i++) holds.add(kMillisecond);
  EXPECT_GT(holds.ending(0, 25 * kMillisecond).probability, 0.95);
}

TEST(ProxyConnectEstimate, TheConnectTimeFollowsSlowlyAndMindsNoOutlier) {
  ConnectAverage average;
  EXPECT_EQ(average.value(), 50 * kMillisecond);
  EXPECT_FALSE(average.known());
  average.add(80 * kMillisecond);
  EXPECT_EQ(average.value(), 80 * kMillisecond);
  average.add(60 * kSecond);
  EXPECT_EQ(average.value(), 110 * kMillisecond);
  for (int i = 0; i < 100; i++) average.add(10 * kMillisecond);
  EXPECT_NEAR(static_cast<double>(average.value()), 10'000, 100);
  for (int i = 0; i < 100; i++) average.add(0);
  EXPECT_LT(average.value(), kMillisecond);
  for (int i = 0; i < 100; i++) average.add(90 * kMillisecond);
  EXPECT_NEAR(static_cast<double>(average.value()), 90'000, 1000) << "it must be able to grow from nothing";
}

TEST(ProxyConnectEstimate, AFreedConnectionServesAsManyAsFitIntoTheHorizon) {
  const ConnectHistory history = history_of(2 * kMillisecond, 50 * kMillisecond);
  const ServiceForecast forecast(history, history, 50 * kMillisecond);
  EXPECT_EQ(forecast.horizon(), 25 * kMillisecond);
  EXPECT_NEAR(forecast.by_lease(0), 11.5, 1);
  EXPECT_NEAR(forecast.by_opening(), 25, 2);
}

TEST(ProxyConnectEstimate, LongHoldsAreServedByOneConnectionEach) {
  const ConnectHistory history = history_of(10 * kSecond, 50 * kMillisecond);
  const ServiceForecast forecast(history, history, 0);
  EXPECT_DOUBLE_EQ(forecast.by_lease(0), 0);
  EXPECT_DOUBLE_EQ(forecast.by_opening(), 1);
  EXPECT_EQ(ServiceForecast::openings_for(20, forecast.by_opening()), 20U);
}

TEST(ProxyConnectEstimate, LessThanOneWaiterIsNoReasonToOpen) {
  EXPECT_EQ(ServiceForecast::openings_for(-3, 1), 0U);
  EXPECT_EQ(ServiceForecast::openings_for(0.99, 1), 0U);
  EXPECT_EQ(ServiceForecast::openings_for(1, 1), 1U);
  EXPECT_EQ(ServiceForecast::openings_for(1, 25), 1U);
  EXPECT_EQ(ServiceForecast::openings_for(26, 25), 2U);
  EXPECT_EQ(ServiceForecast::openings_for(5, 0), 5U);
}

TEST(ProxyConnectEstimate, APoolIsJudgedByAllPoolsUntilItHasSamplesOfItsOwn) {
  const ConnectHistory all = history_of(10 * kSecond, 80 * kMillisecond);
  ConnectHistory own;
  for (std::uint32_t i = 0; i < HoldHistogram::kEnoughSamples - 1; i++) own.holds.add(2 * kMillisecond);
  EXPECT_DOUBLE_EQ(ServiceForecast(own, all, 0).by_lease(0), 0);
  EXPECT_EQ(ServiceForecast(own, all, 0).connect_time(), 80 * kMillisecond);
  own.holds.add(2 * kMillisecond);
  own.connects.add(60 * kMillisecond);
  EXPECT_GT(ServiceForecast(own, all, 0).by_lease(0), 5);
  EXPECT_EQ(ServiceForecast(own, all, 0).connect_time(), 60 * kMillisecond);
}

TEST(ProxyConnectEstimate, AQuickLoginStillCostsTheLeastConnectTime) {
  const ConnectHistory history = history_of(2 * kMillisecond, 3 * kMillisecond);
  EXPECT_EQ(ServiceForecast(history, history, 50 * kMillisecond).connect_time(), 50 * kMillisecond);
  EXPECT_EQ(ServiceForecast(history, history, 0).connect_time(), 3 * kMillisecond);
}

TEST(ProxyConnectEstimate, AtFirstShortHoldsAreAssumed) {
  const ConnectHistory assumed = ConnectHistory::assumed();
  EXPECT_EQ(ServiceForecast::openings_for(20, ServiceForecast({}, assumed, 0).by_opening()), 1U);
}

}  // namespace
}  // namespace sluice::proxy
