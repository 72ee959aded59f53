#include "proxy/notify.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "proxy/address.h"
#include "unit/proxy_certificates.h"

namespace sluice::proxy {
namespace {

class ProxyNotify : public testing::Test {
 protected:
  ~ProxyNotify() override {
    unsetenv("NOTIFY_SOCKET");
    if (descriptor >= 0) close(descriptor);
  }

  void listen(const std::string& path) {
    descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    Address address = *Address::parse(path, 0);
    ASSERT_EQ(bind(descriptor, address.data(), address.length()), 0);
    setenv("NOTIFY_SOCKET", path.c_str(), 1);
  }

  std::string received() {
    char text[256];
    ssize_t length = recv(descriptor, text, sizeof(text), 0);
    return length < 0 ? "" : std::string(text, static_cast<std::size_t>(length));
  }

  test::TemporaryFolder folder;
  int descriptor = -1;
};

TEST_F(ProxyNotify, TheManagerGetsOneDatagramAState) {
  listen(folder.file("notify"));
  EXPECT_TRUE(notify_supervisor("READY=1\nSTATUS=serving"));
  EXPECT_EQ(received(), "READY=1\nSTATUS=serving");
  EXPECT_TRUE(notify_reloading(1234567));
  EXPECT_EQ(received(), "RELOADING=1\nMONOTONIC_USEC=1234567");
}

TEST_F(ProxyNotify, AnAbstractSocketIsReachedToo) {
  listen("@sluice-notify-" + std::to_string(getpid()));
  EXPECT_TRUE(notify_supervisor("STOPPING=1"));
  EXPECT_EQ(received(), "STOPPING=1");
}

TEST_F(ProxyNotify, WithoutAManagerNothingHappens) {
  unsetenv("NOTIFY_SOCKET");
  EXPECT_FALSE(notify_supervisor("READY=1"));
  for (const char* path : {"", "relative", "127.0.0.1", "/no/such/socket"}) {
    setenv("NOTIFY_SOCKET", path, 1);
    EXPECT_FALSE(notify_supervisor("READY=1")) << path;
  }
}

}  // namespace
}  // namespace sluice::proxy
