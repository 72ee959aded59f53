// The floor that a proxy can be measured against: bytes from one socket to another with epoll, one server connection
// for each client, nothing parsed, nothing pooled. Usage: sluice-bare-relay LISTEN_PORT SERVER_PORT, on the loopback.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

namespace {

constexpr int kEvents = 64;

struct Side {
  explicit Side(int descriptor, Side* other = nullptr) : descriptor(descriptor), other(other) {}

  int descriptor;
  Side* other;
  std::vector<char> unsent;  // of what the other side sent
};

sockaddr_in loopback(const char* port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(port)));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void watch(int loop, int operation, Side& side, std::uint32_t events) {
  epoll_event event = {};
  event.events = events;
  event.data.ptr = &side;
  epoll_ctl(loop, operation, side.descriptor, &event);
}

int connect_to(const sockaddr_in& address) {
  int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return descriptor;
  close(descriptor);
  return -1;
}

void accept_one(int loop, int listener, const sockaddr_in& server) {
  int client = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (client < 0) return;
  int upstream = connect_to(server);
  if (upstream < 0) {
    close(client);
    return;
  }
  auto* near = new Side(client);
  auto* far = new Side(upstream, near);
  near->other = far;
  int on = 1;
  for (Side* side : {near, far}) {
    setsockopt(side->descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    watch(loop, EPOLL_CTL_ADD, *side, EPOLLIN);
  }
}

void end(Side& side) {
  for (Side* one : {side.other, &side}) {
    close(one->descriptor);
    one->descriptor = -1;
  }
}

void flush(int loop, Side& side) {
  ssize_t sent = send(side.descriptor, side.unsent.data(), side.unsent.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent > 0) side.unsent.erase(side.unsent.begin(), side.unsent.begin() + sent);
  watch(loop, EPOLL_CTL_MOD, side, side.unsent.empty() ? EPOLLIN : EPOLLOUT);
  if (side.unsent.empty()) watch(loop, EPOLL_CTL_MOD, *side.other, EPOLLIN);
}

void relay(int loop, Side& side, std::vector<char>& buffer) {
  ssize_t got = recv(side.descriptor, buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (got < 0 && errno == EAGAIN) return;
  if (got <= 0) {
    end(side);
    return;
  }
  Side& other = *side.other;
  ssize_t sent = send(other.descriptor, buffer.data(), static_cast<std::size_t>(got), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent == got) return;
  other.unsent.assign(buffer.begin() + (sent > 0 ? sent : 0), buffer.begin() + got);
  watch(loop, EPOLL_CTL_MOD, other, EPOLLOUT);
  watch(loop, EPOLL_CTL_MOD, side, 0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: sluice-bare-relay LISTEN_PORT SERVER_PORT\n");
    return 2;
  }
  const sockaddr_in here = loopback(argv[1]);
  const sockaddr_in server = loopback(argv[2]);
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener, reinterpret_cast<const sockaddr*>(&here), sizeof here) != 0 || listen(listener, 512) != 0) {
    std::perror("listen");
    return 1;
  }
  int loop = epoll_create1(EPOLL_CLOEXEC);
  Side door(listener);
  watch(loop, EPOLL_CTL_ADD, door, EPOLLIN);
  std::vector<char> buffer(64 * 1024);
  std::array<epoll_event, kEvents> events;
  while (true) {
    int count = epoll_wait(loop, events.data(), kEvents, -1);
    for (int i = 0; i < count; i++) {
      Side& side = *static_cast<Side*>(events[static_cast<std::size_t>(i)].data.ptr);
      if (&side == &door) {
        accept_one(loop, listener, server);
      } else if (side.descriptor >= 0) {
        // A pair that ended may be named once more by this batch; it is a few bytes that are never given back.
        if ((events[static_cast<std::size_t>(i)].events & EPOLLOUT) != 0) {
          flush(loop, side);
        } else {
          relay(loop, side, buffer);
        }
      }
    }
  }
}
