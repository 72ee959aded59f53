// Two connected streams on loopback, and what a test does with them again and again.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>
#include <utility>

#include "proxy/stream.h"
#include "proxy/tls_context.h"

namespace sluice::proxy::test {

// Two ends of one TCP connection on loopback; small buffers make them fill soon.
inline std::pair<int, int> tcp_pair(int buffer_bytes = 0) {
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  EXPECT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(listen(listener, 1), 0);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  int first = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  for (int name : {SO_SNDBUF, SO_RCVBUF}) {
    if (buffer_bytes == 0) break;
    setsockopt(first, SOL_SOCKET, name, &buffer_bytes, sizeof(buffer_bytes));
    setsockopt(listener, SOL_SOCKET, name, &buffer_bytes, sizeof(buffer_bytes));
  }
  EXPECT_EQ(connect(first, reinterpret_cast<sockaddr*>(&address), length), 0);
  int second = accept(listener, nullptr, nullptr);
  EXPECT_GE(second, 0);
  close(listener);
  return {first, second};
}

struct StreamPair {
  explicit StreamPair(int buffer_bytes = 0) : StreamPair(tcp_pair(buffer_bytes)) {}
  explicit StreamPair(std::pair<int, int> ends) : client(ends.first), server(ends.second) {
    client.set_options({});
    server.set_options({});
  }

  Stream client;
  Stream server;
};

// Loopback needs no more than a moment; a test that would wait for ever fails instead.
inline bool wait_for(const Stream& stream, bool readable, bool writable) {
  Interest interest = stream.poll_interest(readable, writable);
  pollfd watched{stream.descriptor(),
                 static_cast<short>((interest.readable ? POLLIN : 0) | (interest.writable ? POLLOUT : 0)), 0};
  return poll(&watched, 1, 10'000) == 1;
}

// Both handshakes, as far as they go.
inline std::pair<StreamStatus, StreamStatus> shake_hands(Stream& client, Stream& server) {
  StreamStatus first = StreamStatus::would_block;
  StreamStatus second = StreamStatus::would_block;
  for (int i = 0; i < 1000; i++) {
    if (first == StreamStatus::would_block) first = client.handshake();
    if (second == StreamStatus::would_block) second = server.handshake();
    if (first != StreamStatus::would_block && second != StreamStatus::would_block) break;
    usleep(200);
  }
  return {first, second};
}

// Reads until `bytes` are there or the stream ends.
inline std::string read_all(Stream& stream, std::size_t bytes, StreamStatus* end = nullptr) {
  std::string result;
  std::array<std::uint8_t, 4096> room{};
  while (result.size() < bytes) {
    Moved moved = stream.read(room);
    if (moved.status == StreamStatus::done) {
      result.append(reinterpret_cast<const char*>(room.data()), moved.bytes);
      continue;
    }
    if (moved.status != StreamStatus::would_block) {
      if (end != nullptr) *end = moved.status;
      break;
    }
    if (!wait_for(stream, true, false)) {
      ADD_FAILURE() << "nothing came";
      break;
    }
  }
  return result;
}

// What is there already.
inline std::string read_some(Stream& stream) {
  std::string result;
  std::array<std::uint8_t, 4096> room{};
  for (Moved moved = stream.read(room); moved.status == StreamStatus::done; moved = stream.read(room)) {
    result.append(reinterpret_cast<const char*>(room.data()), moved.bytes);
  }
  return result;
}

inline bool write_all(Stream& stream, std::string_view text) {
  while (!text.empty()) {
    Moved moved = stream.write(wire::as_bytes(text));
    if (moved.status == StreamStatus::done) {
      text.remove_prefix(moved.bytes);
    } else if (moved.status != StreamStatus::would_block || !wait_for(stream, false, true)) {
      return false;
    }
  }
  return true;
}

// How a stream ends once everything was read.
inline StreamStatus end_of(Stream& stream) {
  StreamStatus end = StreamStatus::done;
  (void)read_all(stream, SIZE_MAX, &end);
  return end;
}

}  // namespace sluice::proxy::test
