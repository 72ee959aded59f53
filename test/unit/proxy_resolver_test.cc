#include "proxy/resolver.h"

#include <gtest/gtest.h>

#include <atomic>

#include "proxy/listener.h"

namespace sluice::proxy {
namespace {

// A name service that answers what a test says.
struct Names {
  std::mutex mutex;
  std::vector<Address> addresses;
  std::string error;
  std::atomic<int> asked = 0;

  void say(std::vector<Address> found, std::string why = {}) {
    std::lock_guard lock(mutex);
    addresses = std::move(found);
    error = std::move(why);
  }
  std::vector<Address> look_up(std::string& why) {
    std::lock_guard lock(mutex);
    asked++;
    why = error;
    return addresses;
  }
};

Address address(const char* text) { return *Address::parse(text, 5432); }

class ProxyResolver : public testing::Test {
 protected:
  void resolve(Time ttl, Time refresh) { resolver_.set({"db.example", 5432, ttl, refresh}); }
  // Turns the loop until an answer has come.
  void wait_for_answer() {
    int before = answers_;
    Timer wake(loop_, [] { FAIL() << "no answer came"; });
    wake.set(loop_.now() + 10 * kSecond);
    while (answers_ == before && !HasFatalFailure()) loop_.run_once(true);
  }

  Names names_;
  Loop loop_;
  int answers_ = 0;
  Resolver resolver_{loop_, [this](const std::vector<Address>&, const std::string&) { answers_++; },
                     [this](const std::string&, std::uint16_t, std::string& error) { return names_.look_up(error); }};
};

TEST_F(ProxyResolver, NumericAddressesAndSocketsAreKnownAtOnce) {
  resolver_.set({"127.0.0.1", 5432, kSecond, kSecond});
  EXPECT_EQ(resolver_.address(), address("127.0.0.1"));
  resolver_.set({"/run/postgresql", 5433, kSecond, kSecond});
  EXPECT_EQ(resolver_.address()->text(), unix_socket_path("/run/postgresql", 5433));
  EXPECT_EQ(names_.asked, 0);
}

TEST_F(ProxyResolver, ANameIsLookedUpInTheBackground) {
  names_.say({address("10.0.0.1")});
  resolve(60 * kSecond, 60 * kSecond);
  EXPECT_FALSE(resolver_.asked());
  wait_for_answer();
  EXPECT_TRUE(resolver_.asked());
  EXPECT_EQ(resolver_.address(), address("10.0.0.1"));
}

TEST_F(ProxyResolver, SeveralAddressesAreTakenInTurn) {
  names_.say({address("10.0.0.1"), address("10.0.0.2")});
  resolve(60 * kSecond, 60 * kSecond);
  wait_for_answer();
  std::optional<Address> first = resolver_.address();
  EXPECT_NE(resolver_.address(), first);
  EXPECT_EQ(resolver_.address(), first);
}

TEST_F(ProxyResolver, AFailedLookupKeepsTheLastAddress) {
  names_.say({address("10.0.0.1")});
  resolve(0, kSecond / 100);
  wait_for_answer();
  names_.say({}, "temporary failure");
  wait_for_answer();
  EXPECT_EQ(resolver_.error(), "temporary failure");
  EXPECT_EQ(resolver_.address(), address("10.0.0.1"));
  names_.say({address("10.0.0.9")});
  wait_for_answer();
  while (resolver_.address() != address("10.0.0.9")) wait_for_answer();
  EXPECT_TRUE(resolver_.error().empty());
}

TEST_F(ProxyResolver, AnUnknownNameIsKnownToBeUnknown) {
  names_.say({}, "no such host");
  resolve(60 * kSecond, 60 * kSecond);
  wait_for_answer();
  EXPECT_TRUE(resolver_.asked());
  EXPECT_FALSE(resolver_.address());
  EXPECT_EQ(resolver_.error(), "no such host");
}

TEST_F(ProxyResolver, TheSystemKnowsLocalhost) {
  Loop loop;
  bool answered = false;
  Resolver system(loop, [&](const std::vector<Address>& found, const std::string& error) {
    EXPECT_FALSE(found.empty()) << error;
    answered = true;
  });
  system.set({"localhost", 5432, kSecond, kSecond});
  Timer limit(loop, [] { GTEST_FAIL() << "no answer came"; });
  limit.set(loop.now() + 20 * kSecond);
  while (!answered) loop.run_once(true);
}

}  // namespace
}  // namespace sluice::proxy
