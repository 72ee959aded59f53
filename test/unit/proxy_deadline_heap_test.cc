#include "proxy/deadline_heap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace sluice::proxy {
namespace {

TEST(ProxyDeadlineHeap, WhatIsEmptyIsNeverDue) {
  DeadlineHeap heap;
  heap.resize(3);
  EXPECT_EQ(heap.next(), kNever);
  EXPECT_EQ(heap.top(), kNoIndex);
  EXPECT_EQ(heap.time_of(2), kNever);
  heap.set(2, kNever);
  EXPECT_EQ(heap.next(), kNever);
}

TEST(ProxyDeadlineHeap, TheEarliestIsOnTopAfterEveryChange) {
  constexpr std::uint32_t kCount = 60;
  std::mt19937 random(11);
  std::vector<Time> times(kCount, kNever);
  DeadlineHeap heap;
  heap.resize(kCount);
  for (int step = 0; step < 20000; step++) {
    const std::uint32_t index = random() % kCount;
    times[index] = random() % 4 == 0 ? kNever : static_cast<Time>(random() % 1000);
    heap.set(index, times[index]);
    const Time least = *std::min_element(times.begin(), times.end());
    ASSERT_EQ(heap.next(), least);
    ASSERT_TRUE(heap.consistent());
    if (least != kNever) {
      ASSERT_EQ(times[heap.top()], least);
    }
    ASSERT_EQ(heap.time_of(index), times[index]);
  }
}

TEST(ProxyDeadlineHeap, GrowingKeepsWhatIsSet) {
  DeadlineHeap heap;
  heap.resize(1);
  heap.set(0, 50);
  heap.resize(100);
  heap.set(99, 40);
  EXPECT_EQ(heap.top(), 99U);
  heap.set(99, kNever);
  EXPECT_EQ(heap.top(), 0U);
  heap.resize(5);
  EXPECT_EQ(heap.time_of(99), kNever);
}

}  // namespace
}  // namespace sluice::proxy
