#include "proxy/channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "proxy_streams.h"

namespace sluice::proxy {
namespace {

// Notes what a channel tells, and does what the test wants with it.
class Notes final : public ChannelHandler {
 public:
  std::string received;
  std::vector<StreamStatus> ends;
  int drained = 0;
  int steps = 0;
  std::function<void(Channel&, wire::Bytes)> on_received;

 private:
  void channel_received(Channel& channel, wire::Bytes bytes) override {
    received.append(bytes.begin(), bytes.end());
    if (on_received) on_received(channel, bytes);
  }
  void channel_step(Channel&) override { steps++; }
  void channel_ended(Channel&, StreamStatus how) override { ends.push_back(how); }
  void channel_drained(Channel&) override { drained++; }
};

class ProxyChannel : public testing::Test {
 protected:
  explicit ProxyChannel(std::pair<int, int> ends = test::tcp_pair(4096))
      : peer_(ends.first), channel_(hub_, Stream(ends.second), notes_) {}
  ~ProxyChannel() override { close(peer_); }

  void say(const std::string& text) {
    ASSERT_EQ(::send(peer_, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  // Loopback needs few turns; what is to come has come by then, or the caller's expectation fails.
  void turn(const std::function<bool()>& until) {
    for (int i = 0; i < 2000 && !until(); i++) {
      loop_.run_once(false);
      if (!until()) usleep(1000);
    }
  }
  void turns(int count) {
    for (int i = 0; i < count; i++) loop_.run_once(false);
  }
  // Reads until `count` bytes came.
  std::string take(std::size_t count) {
    std::string taken;
    std::vector<char> room(1 << 16);
    turn([&] {
      ssize_t got = recv(peer_, room.data(), room.size(), MSG_DONTWAIT);
      if (got > 0) taken.append(room.data(), static_cast<std::size_t>(got));
      return taken.size() >= count;
    });
    return taken;
  }
  static wire::Bytes bytes(const std::string& text) {
    return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
  }

  Loop loop_;
  ChannelHub hub_{loop_};
  Notes notes_;
  int peer_;
  Channel channel_;
};

TEST_F(ProxyChannel, WhatThePeerDoesNotTakeWaitsAndCountsAsHeld) {
  std::string much(1 << 20, 'm');
  channel_.send(bytes(much));
  turns(3);
  EXPECT_GT(channel_.unsent(), 0U);
  EXPECT_TRUE(channel_.backed_up(0));
  EXPECT_FALSE(channel_.backed_up(much.size()));
  EXPECT_GE(hub_.memory().held(), channel_.unsent());
  EXPECT_EQ(take(much.size()), much);
  EXPECT_EQ(notes_.drained, 1);
  EXPECT_EQ(hub_.memory().held(), 0U);
  EXPECT_FALSE(channel_.backed_up(0));
}

TEST_F(ProxyChannel, NothingIsBackedUpBeforeItWasOffered) {
  channel_.send(bytes("a few"));
  EXPECT_EQ(channel_.unsent(), 5U);
  EXPECT_FALSE(channel_.backed_up(0));
  EXPECT_EQ(take(5), "a few");
  EXPECT_EQ(notes_.drained, 0);
}

TEST_F(ProxyChannel, AnEchoLeavesTheReadBufferBeforeItIsUsedAgain) {
  notes_.on_received = [](Channel& channel, wire::Bytes received) { channel.send(received); };
  std::string sent;
  std::string back;
  for (int i = 0; i < 50; i++) {
    std::string piece(1000, static_cast<char>('a' + i % 26));
    say(piece);
    sent += piece;
    back += take(1000);
  }
  EXPECT_EQ(back, sent);
}

TEST_F(ProxyChannel, AFullMemoryLeavesThoseUnreadThatYield) {
  channel_.yield_memory(true);
  HeldMemory other(hub_.memory());
  hub_.memory().set_limit(1000);
  other.set(1000);
  say("hello");
  turns(20);
  EXPECT_EQ(notes_.received, "");
  other.set(0);
  turn([this] { return notes_.received == "hello"; });
  EXPECT_EQ(notes_.received, "hello");
}

TEST_F(ProxyChannel, WhoYieldsNoLongerIsReadAlthoughMemoryIsFull) {
  channel_.yield_memory(true);
  HeldMemory other(hub_.memory());
  hub_.memory().set_limit(1000);
  other.set(1000);
  say("hello");
  turns(20);
  EXPECT_EQ(notes_.received, "");
  channel_.yield_memory(false);
  turn([this] { return notes_.received == "hello"; });
  EXPECT_EQ(notes_.received, "hello");
}

TEST_F(ProxyChannel, AClosedOneIsNotReadAgainWhenMemoryIsThere) {
  channel_.yield_memory(true);
  HeldMemory other(hub_.memory());
  hub_.memory().set_limit(1000);
  other.set(1000);
  say("hello");
  turns(20);
  channel_.close();
  other.set(0);
  turns(20);
  EXPECT_EQ(notes_.received, "");
  EXPECT_TRUE(notes_.ends.empty());
}

TEST_F(ProxyChannel, AResetIsToldOnceAlsoWhileNothingIsRead) {
  channel_.read(false);
  say("unread");
  turns(3);
  linger at_once{1, 0};
  setsockopt(peer_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  close(peer_);
  peer_ = -1;
  turn([this] { return !notes_.ends.empty(); });
  ASSERT_EQ(notes_.ends.size(), 1U);
  EXPECT_EQ(notes_.ends[0], StreamStatus::reset);
  turns(5);
  EXPECT_EQ(notes_.ends.size(), 1U);
}

TEST_F(ProxyChannel, AfterTheEndOfTheInputAnswersStillGoOut) {
  ASSERT_EQ(shutdown(peer_, SHUT_WR), 0);
  turn([this] { return !notes_.ends.empty(); });
  ASSERT_EQ(notes_.ends.size(), 1U);
  EXPECT_EQ(notes_.ends[0], StreamStatus::end);
  channel_.send(bytes("still"));
  EXPECT_EQ(take(5), "still");
}

TEST_F(ProxyChannel, AStepHoldsReadingAndSendingBack) {
  channel_.begin_step(false);
  say("x");
  turn([this] { return notes_.steps > 0; });
  EXPECT_GT(notes_.steps, 0);
  EXPECT_EQ(notes_.received, "");
  channel_.end_step();
  turn([this] { return notes_.received == "x"; });
  EXPECT_EQ(notes_.received, "x");
}

}  // namespace
}  // namespace sluice::proxy
