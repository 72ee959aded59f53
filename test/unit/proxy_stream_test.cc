#include "proxy/stream.h"

#include <gtest/gtest.h>
#include <netinet/tcp.h>

#include <vector>

#include "unit/proxy_streams.h"

namespace sluice::proxy {
namespace {

using test::end_of;
using test::read_all;
using test::StreamPair;
using test::wait_for;
using test::write_all;

int number_of(const Stream& stream, int level, int name) {
  int value = -1;
  socklen_t length = sizeof(value);
  getsockopt(stream.descriptor(), level, name, &value, &length);
  return value;
}

TEST(ProxyStream, BytesGoBothWaysAndNothingIsWouldBlock) {
  StreamPair pair;
  std::array<std::uint8_t, 16> room{};
  EXPECT_EQ(pair.server.read(room).status, StreamStatus::would_block);
  EXPECT_TRUE(write_all(pair.client, "hello"));
  EXPECT_EQ(read_all(pair.server, 5), "hello");
  EXPECT_TRUE(write_all(pair.server, "world"));
  EXPECT_EQ(read_all(pair.client, 5), "world");
  EXPECT_EQ(pair.server.read(room).status, StreamStatus::would_block);
}

TEST(ProxyStream, RoomThatWasFilledMayHaveMoreBehindIt) {
  StreamPair pair;
  EXPECT_TRUE(write_all(pair.client, "abcd"));
  ASSERT_TRUE(wait_for(pair.server, true, false));
  std::array<std::uint8_t, 4> room{};
  Moved moved = pair.server.read(std::span(room).first(2));
  EXPECT_EQ(moved.bytes, 2U);
  EXPECT_TRUE(moved.more);
  moved = pair.server.read(room);
  EXPECT_EQ(moved.bytes, 2U);
  EXPECT_FALSE(moved.more);
  EXPECT_EQ(pair.server.read({}).bytes, 0U);
}

TEST(ProxyStream, PeekingLeavesTheBytes) {
  StreamPair pair;
  std::array<std::uint8_t, 8> room{};
  EXPECT_EQ(pair.server.peek(room).status, StreamStatus::would_block);
  EXPECT_TRUE(write_all(pair.client, "abc"));
  ASSERT_TRUE(wait_for(pair.server, true, false));
  for (int i = 0; i < 3; i++) EXPECT_EQ(pair.server.peek(room).bytes, 3U);
  EXPECT_EQ(read_all(pair.server, 3), "abc");
  pair.client.shut_down();
  ASSERT_TRUE(wait_for(pair.server, true, false));
  EXPECT_EQ(pair.server.peek(room).status, StreamStatus::end);
  EXPECT_EQ(pair.server.read(room).status, StreamStatus::end);
}

TEST(ProxyStream, AFinIsAnEndAndTheOtherDirectionGoesOn) {
  StreamPair pair;
  EXPECT_TRUE(write_all(pair.client, "last"));
  pair.client.shut_down();
  EXPECT_EQ(read_all(pair.server, 4), "last");
  EXPECT_EQ(end_of(pair.server), StreamStatus::end);
  EXPECT_EQ(end_of(pair.server), StreamStatus::end) << "it stays so";
  EXPECT_TRUE(write_all(pair.server, "answer"));
  EXPECT_EQ(read_all(pair.client, 6), "answer");
}

TEST(ProxyStream, AResetIsToldAsOne) {
  StreamPair pair;
  pair.client.reset_on_close();
  pair.client.close();
  EXPECT_FALSE(pair.client.valid());
  ASSERT_TRUE(wait_for(pair.server, true, false));
  EXPECT_EQ(end_of(pair.server), StreamStatus::reset);
  EXPECT_EQ(pair.server.error(), "recv: Connection reset by peer");
  std::string bytes(10, 'x');
  EXPECT_EQ(pair.server.write(wire::as_bytes(bytes)).status, StreamStatus::reset);
}

TEST(ProxyStream, AResetIsSeenWithoutReading) {
  StreamPair pair;
  EXPECT_EQ(pair.server.pending_error(), StreamStatus::done);
  EXPECT_TRUE(write_all(pair.client, "unread"));
  pair.client.reset_on_close();
  pair.client.close();
  ASSERT_TRUE(wait_for(pair.server, true, false));
  EXPECT_EQ(pair.server.pending_error(), StreamStatus::reset);
}

TEST(ProxyStream, APeerThatDoesNotReadIsWouldBlockAndNothingIsLost) {
  StreamPair pair(4096);
  std::string sent;
  for (int i = 0; i < 2'000'000; i++) sent += static_cast<char>('a' + i % 23);
  std::string_view left = sent;
  std::string received;
  bool blocked = false;
  while (!left.empty()) {
    Moved moved = pair.server.write(wire::as_bytes(left));
    if (moved.status == StreamStatus::would_block) {
      blocked = true;
      EXPECT_EQ(pair.server.poll_interest(false, true), (Interest{false, true, false}));
      received += test::read_some(pair.client);
      continue;
    }
    ASSERT_EQ(moved.status, StreamStatus::done);
    left.remove_prefix(moved.bytes);
  }
  received += read_all(pair.client, sent.size() - received.size());
  EXPECT_TRUE(blocked);
  EXPECT_TRUE(received == sent);
}

TEST(ProxyStream, OptionsAreSetOnTcpAndIgnoredOnUnixSockets) {
  StreamPair pair;
  pair.server.set_options({30, 7, 4, 12'000});
  EXPECT_EQ(number_of(pair.server, IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_EQ(number_of(pair.server, SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_EQ(number_of(pair.server, IPPROTO_TCP, TCP_KEEPIDLE), 30);
  EXPECT_EQ(number_of(pair.server, IPPROTO_TCP, TCP_KEEPINTVL), 7);
  EXPECT_EQ(number_of(pair.server, IPPROTO_TCP, TCP_KEEPCNT), 4);
  EXPECT_EQ(number_of(pair.server, IPPROTO_TCP, TCP_USER_TIMEOUT), 12'000);
  pair.client.set_options({});
  EXPECT_EQ(number_of(pair.client, SOL_SOCKET, SO_KEEPALIVE), 0);
  EXPECT_EQ(number_of(pair.client, IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  StreamPair local(std::pair(ends[0], ends[1]));
  local.client.set_options({30, 7, 4, 12'000});
  EXPECT_TRUE(write_all(local.client, "x"));
}

TEST(ProxyStream, ConnectingEndsInAConnectionOrWithTheReason) {
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  Address any = *Address::parse("127.0.0.1", 0);
  ASSERT_EQ(bind(listener, any.data(), any.length()), 0);
  ASSERT_EQ(listen(listener, 8), 0);
  Address address = Address::of_descriptor(listener);
  Stream good = Stream::connect(address, {60, 10, 3, 0});
  ASSERT_TRUE(good.valid()) << good.error();
  ASSERT_TRUE(wait_for(good, false, true));
  EXPECT_EQ(good.finish_connect(), StreamStatus::done);
  EXPECT_EQ(number_of(good, IPPROTO_TCP, TCP_NODELAY), 1);
  close(listener);
  Stream refused = Stream::connect(address, {});
  if (refused.valid()) {
    ASSERT_TRUE(wait_for(refused, false, true));
    EXPECT_EQ(refused.finish_connect(), StreamStatus::failed);
  }
  EXPECT_EQ(refused.error(), "Connection refused");
  Stream nowhere = Stream::connect(*Address::parse("/no/such/.s.PGSQL.5432", 0), {});
  EXPECT_FALSE(nowhere.valid());
  EXPECT_EQ(nowhere.error(), "No such file or directory");
  std::array<std::uint8_t, 4> room{};
  EXPECT_EQ(nowhere.read(room).status, StreamStatus::failed);
  EXPECT_EQ(nowhere.write(room).status, StreamStatus::failed);
}

TEST(ProxyStream, MovingAStreamLeavesNothingBehind) {
  StreamPair pair;
  int descriptor = pair.server.descriptor();
  Stream moved(std::move(pair.server));
  EXPECT_EQ(moved.descriptor(), descriptor);
  pair.server = std::move(moved);
  EXPECT_TRUE(write_all(pair.server, "x"));
  EXPECT_EQ(read_all(pair.client, 1), "x");
  pair.server.close();
  pair.server.close();
  EXPECT_EQ(end_of(pair.client), StreamStatus::end);
}

TEST(ProxyStream, WithoutTlsThereIsNoCertificateAndNothingHidden) {
  StreamPair pair;
  EXPECT_FALSE(pair.server.tls());
  EXPECT_EQ(pair.server.own_certificate(), nullptr);
  EXPECT_EQ(pair.server.peer_certificate(), nullptr);
  EXPECT_EQ(pair.server.tls_description(), "");
  EXPECT_FALSE(pair.server.has_pending());
  EXPECT_EQ(pair.server.handshake(), StreamStatus::failed);
}

}  // namespace
}  // namespace sluice::proxy
