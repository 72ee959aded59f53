#include "proxy/listener.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "proxy/stream.h"
#include "unit/proxy_certificates.h"

namespace sluice::proxy {
namespace {

using test::TemporaryFolder;

class ProxyListener : public testing::Test {
 protected:
  ~ProxyListener() override {
    for (AcceptedClient& client : accepted) close(client.descriptor);
  }

  void open(AcceptLimits limits, ListenOptions options = {}) {
    counts.set_limits(limits);
    options.port = port;
    ASSERT_EQ(listener.open(options), "");
  }

  Stream connect() { return Stream::connect(listener.addresses().at(0), {}); }

  void turn(int turns = 3) {
    for (int i = 0; i < turns; i++) loop.run_once(false);
  }

  void turn_slowly() {
    usleep(1000);
    loop.run_once(false);
  }

  std::uint16_t port = 0;
  Loop loop;
  ClientCounts counts{AcceptLimits{}};
  std::vector<AcceptedClient> accepted;
  std::vector<std::string> pauses;
  Listener listener{loop,
                    counts,
                    {[this](AcceptedClient client) { accepted.push_back(std::move(client)); },
                     [this](const std::string& reason) { pauses.push_back(reason); }}};
};

TEST_F(ProxyListener, ClientsAreAcceptedNonBlockingAndWithTheirAddress) {
  open({});
  Stream client = connect();
  turn();
  ASSERT_EQ(accepted.size(), 1U);
  EXPECT_EQ(accepted[0].admitted, Admitted::yes);
  EXPECT_EQ(accepted[0].address, Address::of_descriptor(client.descriptor()));
  EXPECT_NE(fcntl(accepted[0].descriptor, F_GETFL) & O_NONBLOCK, 0);
  EXPECT_NE(fcntl(accepted[0].descriptor, F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(counts.total(), 1U);
  EXPECT_EQ(counts.of_peer("127.0.0.1"), 1U);
}

TEST_F(ProxyListener, TheCapInTotalHandsOnTheRestAndCountsItNowhere) {
  open({.max_clients = 3});
  std::vector<Stream> clients;
  for (int i = 0; i < 5; i++) clients.push_back(connect());
  turn();
  ASSERT_EQ(accepted.size(), 5U);
  EXPECT_EQ(accepted[2].admitted, Admitted::yes);
  EXPECT_EQ(accepted[3].admitted, Admitted::too_many_clients);
  EXPECT_EQ(counts.total(), 3U);
  accepted[0].slot.release();
  accepted[0].slot.release();
  accepted[4].slot.release();
  EXPECT_EQ(counts.total(), 2U);
  clients.push_back(connect());
  turn();
  EXPECT_EQ(accepted.back().admitted, Admitted::yes);
}

TEST_F(ProxyListener, ASlotIsReleasedOnceHoweverItIsMoved) {
  ClientCounts own{AcceptLimits{}};
  {
    EXPECT_EQ(own.admit("a", 0), Admitted::yes);
    ClientSlot first(own, "a");
    ClientSlot second(std::move(first));
    ClientSlot third;
    third = std::move(second);
    EXPECT_EQ(own.total(), 1U);
    EXPECT_EQ(own.admit("b", 0), Admitted::yes);
    third = ClientSlot(own, "b");
    EXPECT_EQ(own.of_peer("a"), 0U);
    EXPECT_EQ(own.total(), 1U);
  }
  EXPECT_EQ(own.total(), 0U);
}

TEST_F(ProxyListener, OneAddressCannotTakeAllPlaces) {
  ClientCounts own{AcceptLimits{.max_clients = 4, .max_clients_per_address = 2, .accept_rate = 0}};
  EXPECT_EQ(own.admit("a", 0), Admitted::yes);
  EXPECT_EQ(own.admit("a", 0), Admitted::yes);
  EXPECT_EQ(own.admit("a", 0), Admitted::too_many_of_address);
  EXPECT_EQ(own.admit("b", 0), Admitted::yes);
  own.leave("a");
  own.leave("nobody");
  EXPECT_EQ(own.admit("a", 0), Admitted::yes);
  EXPECT_EQ(own.admit("c", 0), Admitted::yes);
  EXPECT_EQ(own.admit("d", 0), Admitted::too_many_clients);
}

TEST_F(ProxyListener, TheRateAllowsASecondsWorthAtOnceAndThenItsShare) {
  ClientCounts own{AcceptLimits{.max_clients = 0, .max_clients_per_address = 0, .accept_rate = 10}};
  auto admitted_at = [&](Time now, int attempts) {
    int count = 0;
    for (int i = 0; i < attempts; i++) count += own.admit("a", now) == Admitted::yes ? 1 : 0;
    return count;
  };
  Time now = 5 * kSecond;
  EXPECT_EQ(admitted_at(now, 50), 10);
  EXPECT_EQ(admitted_at(now, 50), 0) << "attempts that came too fast do not push the clock";
  EXPECT_EQ(admitted_at(now + 100 * kMillisecond, 50), 1);
  EXPECT_EQ(admitted_at(now + 600 * kMillisecond, 50), 5);
  EXPECT_EQ(admitted_at(now + 60 * kSecond, 50), 10) << "no more than a second's worth is saved up";
  int total = 0;
  for (int i = 1; i <= 1000; i++) total += admitted_at(now + 60 * kSecond + i * kMillisecond * 10, 3);
  EXPECT_EQ(total, 100);
}

TEST_F(ProxyListener, ABatchIsBoundedAndTheRestComesInTheNextTurn) {
  open({});
  std::vector<Stream> clients;
  for (int i = 0; i < kMaxAcceptsPerTurn + 10; i++) clients.push_back(connect());
  usleep(1000);
  loop.run_once(false);
  loop.run_once(false);
  EXPECT_LE(accepted.size(), static_cast<std::size_t>(2 * kMaxAcceptsPerTurn));
  turn();
  EXPECT_EQ(accepted.size(), static_cast<std::size_t>(kMaxAcceptsPerTurn + 10));
}

TEST_F(ProxyListener, WithoutDescriptorsAcceptingRestsIsToldOnceAndGoesOn) {
  open({});
  std::vector<Stream> clients;
  for (int i = 0; i < 4; i++) clients.push_back(connect());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  int highest = dup(0);
  close(highest);
  rlimit none{static_cast<rlim_t>(highest), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  for (int i = 0; i < 200; i++) loop.run_once(false);
  std::size_t during = accepted.size();
  Time start = loop.now();
  // Long enough for one more attempt that fails.
  while (loop.now() < start + kAcceptPause + 100 * kMillisecond) turn_slowly();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(during, 0U);
  EXPECT_EQ(pauses.size(), 1U);
  start = loop.now();
  while (accepted.size() < 4 && loop.now() < start + 10 * kSecond) turn_slowly();
  EXPECT_EQ(accepted.size(), 4U);
}

TEST_F(ProxyListener, AfterCloseNobodyGetsInAndThePlacesOfClientsStay) {
  open({});
  Address address = listener.addresses().at(0);
  Stream client = connect();
  turn();
  listener.close();
  EXPECT_TRUE(listener.addresses().empty());
  Stream late = Stream::connect(address, {});
  turn();
  EXPECT_TRUE(!late.valid() || late.finish_connect() == StreamStatus::failed);
  EXPECT_EQ(counts.total(), 1U);
}

TEST_F(ProxyListener, TheReceiverMayCloseTheListener) {
  Listener closing(loop, counts,
                   {[&](AcceptedClient client) {
                      ::close(client.descriptor);
                      closing.close();
                    },
                    {}});
  ListenOptions options;
  options.port = 0;
  ASSERT_EQ(closing.open(options), "");
  Address address = closing.addresses().at(0);
  std::vector<Stream> clients;
  for (int i = 0; i < 3; i++) clients.push_back(Stream::connect(address, {}));
  turn();
  EXPECT_TRUE(closing.addresses().empty());
}

TEST_F(ProxyListener, AnAddressInUseIsNamedAndNothingStaysOpen) {
  open({});
  Listener second(loop, counts, {});
  ListenOptions options;
  options.port = listener.addresses().at(0).port();
  std::string reason = second.open(options);
  EXPECT_NE(reason.find("127.0.0.1:" + std::to_string(options.port)), std::string::npos) << reason;
  EXPECT_NE(reason.find("in use"), std::string::npos) << reason;
  options.addresses = {"127.0.0.2", "no.such.address"};
  EXPECT_NE(second.open(options), "");
  EXPECT_TRUE(second.addresses().empty());
}

TEST_F(ProxyListener, SeveralProcessesMayShareAPortWhenAsked) {
  ListenOptions options;
  options.reuse_port = true;
  open({}, options);
  options.port = listener.addresses().at(0).port();
  Listener second(loop, counts, {});
  EXPECT_EQ(second.open(options), "");
}

TEST_F(ProxyListener, BothFamiliesAndAUnixSocketListenAtOnce) {
  TemporaryFolder folder;
  ListenOptions options;
  options.addresses = {"127.0.0.1", "::1", folder.path};
  options.unix_mode = 0700;
  open({}, options);
  std::vector<Address> addresses = listener.addresses();
  ASSERT_EQ(addresses.size(), 3U);
  std::vector<Stream> clients;
  for (const Address& address : addresses) clients.push_back(Stream::connect(address, {}));
  turn();
  EXPECT_EQ(accepted.size(), 3U);
  EXPECT_EQ(counts.of_peer("(unix)"), 1U);
  struct stat status {};
  ASSERT_EQ(stat(unix_socket_path(folder.path, 0).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0700U);
}

TEST_F(ProxyListener, AUnixSocketThatIsInUseIsLeftAloneAndADeadOneReplaced) {
  TemporaryFolder folder;
  ListenOptions options;
  options.addresses = {folder.path};
  options.port = 7;
  std::string path = unix_socket_path(folder.path, 7);
  {
    Listener first(loop, counts, {});
    ASSERT_EQ(first.open(options), "");
    Listener second(loop, counts, {});
    EXPECT_NE(second.open(options).find("another process"), std::string::npos);
    EXPECT_TRUE(std::filesystem::exists(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  // A socket that nobody listens on any more.
  int dead = socket(AF_UNIX, SOCK_STREAM, 0);
  std::optional<Address> address = Address::parse(path, 0);
  ASSERT_EQ(bind(dead, address->data(), address->length()), 0);
  close(dead);
  ASSERT_TRUE(std::filesystem::exists(path));
  Listener third(loop, counts, {});
  EXPECT_EQ(third.open(options), "");
  third.close();
  // A file that is no socket is never removed.
  std::ofstream(path) << "precious";
  EXPECT_NE(third.open(options).find("no socket"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace sluice::proxy
