#include "proxy/memory_meter.h"

#include <gtest/gtest.h>

#include <memory>

namespace sluice::proxy {
namespace {

TEST(ProxyMemoryMeter, IsFullAtTheLimitAndNotBelow) {
  MemoryMeter meter([] {});
  meter.set_limit(800);
  HeldMemory held(meter);
  held.set(799);
  EXPECT_FALSE(meter.full());
  held.set(800);
  EXPECT_TRUE(meter.full());
}

TEST(ProxyMemoryMeter, HasRoomAgainAnEighthBelowAndTellsItOnce) {
  int told = 0;
  MemoryMeter meter([&told] { told++; });
  meter.set_limit(800);
  HeldMemory first(meter);
  HeldMemory second(meter);
  first.set(500);
  second.set(300);
  second.set(200);
  EXPECT_TRUE(meter.full());
  EXPECT_EQ(told, 0);
  second.set(199);
  EXPECT_FALSE(meter.full());
  second.set(0);
  EXPECT_EQ(told, 1);
}

TEST(ProxyMemoryMeter, WhatIsDestroyedHoldsNothing) {
  int told = 0;
  MemoryMeter meter([&told] { told++; });
  meter.set_limit(100);
  auto held = std::make_unique<HeldMemory>(meter);
  held->set(5000);
  EXPECT_EQ(meter.held(), 5000U);
  held.reset();
  EXPECT_EQ(meter.held(), 0U);
  EXPECT_EQ(told, 1);
}

TEST(ProxyMemoryMeter, AHigherLimitIsRoomAndALowerOneTakesIt) {
  int told = 0;
  MemoryMeter meter([&told] { told++; });
  HeldMemory held(meter);
  held.set(1000);
  EXPECT_FALSE(meter.full());
  meter.set_limit(500);
  EXPECT_TRUE(meter.full());
  meter.set_limit(2000);
  EXPECT_FALSE(meter.full());
  EXPECT_EQ(told, 1);
}

}  // namespace
}  // namespace sluice::proxy
