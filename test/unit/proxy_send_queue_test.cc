#include "proxy/send_queue.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice::proxy {
namespace {

std::string drain(SendQueue& queue, std::size_t at_once) {
  std::string sent;
  while (!queue.empty()) {
    wire::Bytes front = queue.front();
    std::size_t count = std::min(at_once, front.size());
    sent.append(wire::as_text(front.first(count)));
    queue.sent(count);
  }
  return sent;
}

TEST(ProxySendQueue, NeighboursBecomeOneSpanWithoutACopy) {
  std::string buffer = "abcdef";
  wire::Bytes bytes = wire::as_bytes(buffer);
  SendQueue queue;
  queue.add(bytes.first(2));
  queue.add(bytes.subspan(2, 3));
  EXPECT_EQ(queue.front().data(), bytes.data());
  EXPECT_EQ(queue.front().size(), 5U);
  EXPECT_EQ(queue.capacity(), 0U);
}

TEST(ProxySendQueue, BytesFromElsewhereKeepTheirOrder) {
  std::string first = "one ";
  std::string second = "two ";
  std::string third = "three";
  for (std::size_t at_once : {1U, 3U, 100U}) {
    SendQueue queue;
    queue.add(wire::as_bytes(first));
    queue.add(wire::as_bytes(second));
    queue.add(wire::as_bytes(third));
    EXPECT_EQ(queue.size(), 13U);
    EXPECT_EQ(drain(queue, at_once), "one two three");
  }
}

TEST(ProxySendQueue, WhatIsSettledOutlivesItsBuffer) {
  SendQueue queue;
  {
    std::vector<std::uint8_t> gone = {'x', 'y', 'z'};
    queue.add(gone);
    queue.sent(1);
    queue.settle();
    gone.assign(3, '!');
  }
  EXPECT_EQ(drain(queue, 1), "yz");
}

TEST(ProxySendQueue, HoldsNoMemoryOnceAllIsSent) {
  SendQueue queue;
  std::vector<std::uint8_t> bytes(100'000, 'b');
  queue.add(bytes);
  queue.settle();
  EXPECT_GE(queue.capacity(), bytes.size());
  (void)drain(queue, 4096);
  EXPECT_EQ(queue.capacity(), 0U);
  EXPECT_EQ(queue.size(), 0U);
}

TEST(ProxySendQueue, ASlowReaderCostsNoMoreThanWhatIsUnsentTwice) {
  SendQueue queue;
  std::vector<std::uint8_t> bytes(1000, 'b');
  for (int i = 0; i < 10'000; i++) {
    queue.add(bytes);
    queue.settle();
    if (queue.size() >= 10'000) queue.sent(1000);
    ASSERT_LE(queue.capacity(), 64'000U);
  }
}

TEST(ProxySendQueue, NothingIsAddedByNothing) {
  SendQueue queue;
  queue.add({});
  queue.settle();
  EXPECT_TRUE(queue.empty());
  EXPECT_TRUE(queue.front().empty());
}

}  // namespace
}  // namespace sluice::proxy
