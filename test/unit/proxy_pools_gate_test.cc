// The place where a pool asks before it connects and before a transaction starts.
#include <map>
#include <set>

#include "proxy_pools_fixture.h"

namespace sluice::proxy {
namespace {

using test::PoolsWorld;

class Gate final : public ConnectGate {
 public:
  GateAnswer may_connect(const PoolKey& key, Time) override {
    connects_asked++;
    return connect_closed.contains(key.user) ? GateAnswer::wait : GateAnswer::yes;
  }
  GateAnswer may_start(const PoolKey&, WaiterId waiter, Time) override {
    asked.push_back(waiter);
    return held_back.contains(waiter) ? GateAnswer::wait : GateAnswer::yes;
  }

  std::set<std::string> connect_closed;
  std::set<WaiterId> held_back;
  std::vector<WaiterId> asked;
  int connects_asked = 0;
};

class ProxyPoolsGate : public ::testing::Test {
 protected:
  ProxyPoolsGate() : world(gate) {}

  Gate gate;
  PoolsWorld world;
};

TEST_F(ProxyPoolsGate, NoConnectionIsOpenedBeforeTheGateSaysSo) {
  gate.connect_closed = {"a"};
  const PoolId a = world.pool("a");
  const PoolId b = world.pool("b");
  world.acquire(a, 1);
  world.acquire(b, 2);
  EXPECT_EQ(world.connecting.size(), 1U) << "another pool is not held up";
  world.open_next();
  EXPECT_TRUE(world.holds(2));
  const int asked = gate.connects_asked;
  world.pass(5 * kSecond);
  EXPECT_EQ(gate.connects_asked, asked) << "it is not asked again before it says that it changed";
  gate.connect_closed.clear();
  world.pools.gate_changed(a, world.now);
  world.drain();
  world.open_next();
  EXPECT_TRUE(world.holds(1));
}

TEST_F(ProxyPoolsGate, AWaiterTheGateKeepsStillHasItsDeadline) {
  gate.connect_closed = {"a"};
  PoolOptions options;
  options.wait_timeout = 2 * kSecond;
  const PoolId pool = world.pool("a", options);
  world.acquire(pool, 1);
  world.pass(2 * kSecond);
  EXPECT_TRUE(world.refused.contains(1));
  EXPECT_EQ(world.opens, 0U);
}

TEST_F(ProxyPoolsGate, ATransactionWaitsThoughAConnectionIsIdle) {
  const PoolId pool = world.pool("a");
  world.warm(pool, 2);
  gate.asked.clear();
  gate.held_back = {1};
  world.acquire(pool, 1);
  world.acquire(pool, 2);
  EXPECT_FALSE(world.holds(1));
  EXPECT_FALSE(world.holds(2)) << "nobody overtakes";
  EXPECT_EQ(gate.asked, std::vector<WaiterId>{1});
  world.pass(kSecond);
  EXPECT_EQ(world.opens, 2U) << "a connection would not help";
  gate.held_back.clear();
  world.pools.gate_changed(pool, world.now);
  world.drain();
  EXPECT_EQ(gate.asked, (std::vector<WaiterId>{1, 1, 2}));
  EXPECT_TRUE(world.holds(1));
  EXPECT_TRUE(world.holds(2));
}

TEST_F(ProxyPoolsGate, TheNextIsAskedForWhenTheFirstLeaves) {
  const PoolId pool = world.pool("a");
  world.warm(pool, 1);
  gate.held_back = {1, 3};
  for (WaiterId waiter = 1; waiter <= 4; waiter++) world.acquire(pool, waiter);
  world.pools.leave(1, world.now);
  world.drain();
  EXPECT_TRUE(world.holds(2));
  world.release(2);
  EXPECT_FALSE(world.holds(4));
  EXPECT_EQ(world.status(pool).idle, 1U);
  world.pass(30 * kSecond);
  EXPECT_TRUE(world.refused.contains(3));
  EXPECT_TRUE(world.refused.contains(4)) << "it waited as long";
}

TEST_F(ProxyPoolsGate, ANewcomerThatIsRefusedLeavesTheGateOpenForTheNext) {
  PoolOptions options;
  options.max_waiters = 1;
  const PoolId pool = world.pool("a", options);
  world.warm(pool, 1);
  gate.held_back = {1};
  world.acquire(pool, 1);
  world.acquire(pool, 2);
  EXPECT_TRUE(world.refused.contains(2));
  world.pools.leave(1, world.now);
  world.drain();
  world.acquire(pool, 3);
  EXPECT_TRUE(world.holds(3));
}

}  // namespace
}  // namespace sluice::proxy
