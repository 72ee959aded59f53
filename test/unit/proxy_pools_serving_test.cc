// Who gets which connection.
#include "proxy_pools_fixture.h"

namespace sluice::proxy {
namespace {

using test::PoolsWorld;

PoolOptions small(std::uint32_t max_size) {
  PoolOptions options;
  options.max_size = max_size;
  return options;
}

TEST(ProxyPoolsServing, AnIdleConnectionIsAssignedAtOnceTheLastReleasedFirst) {
  PoolsWorld world;
  const PoolId pool = world.pool("a");
  world.warm(pool, 3);
  world.acquire(pool, 1);
  world.acquire(pool, 2);
  const ServerId last = world.held.at(1);
  world.release(2);
  world.release(1);
  world.acquire(pool, 3);
  EXPECT_EQ(world.held.at(3), last);
  EXPECT_EQ(world.assigned.at(3).source, AssignSource::idle);
  EXPECT_EQ(world.assigned.at(3).waited, 0);
  EXPECT_EQ(world.opens, 3U);
}

TEST(ProxyPoolsServing, TheOldestWaiterGetsWhatIsReleased) {
  PoolsWorld world;
  const PoolId pool = world.pool("a", small(1));
  world.warm(pool, 1);
  for (WaiterId waiter = 1; waiter <= 5; waiter++) world.acquire(pool, waiter);
  for (WaiterId waiter = 1; waiter <= 4; waiter++) {
    world.pass(kMillisecond);
    world.release(waiter);
    ASSERT_TRUE(world.holds(waiter + 1));
    EXPECT_EQ(world.assigned.at(waiter + 1).source, AssignSource::released);
    EXPECT_EQ(world.assigned.at(waiter + 1).waited, static_cast<Time>(waiter) * kMillisecond);
  }
}

// B11: 10 permits, 100 loops that hold 200 ms; nobody waits twice the ideal.
TEST(ProxyPoolsServing, ANewcomerNeverOvertakesWhoWaits) {
  PoolsWorld world;
  const PoolId pool = world.pool("a", small(10));
  world.warm(pool, 10);
  world.served.clear();
  world.hold_for(200 * kMillisecond);
  Time worst = 0;
  std::function<void(WaiterId)> loop = [&](WaiterId client) {
    const auto found = world.assigned.find(client);
    if (found != world.assigned.end()) worst = std::max(worst, found->second.waited);
    world.acquire(pool, client);
    world.after(2 * kSecond, [&, client] { loop(client); });
  };
  for (WaiterId client = 0; client < 100; client++) loop(client);
  world.pass(20 * kSecond);
  EXPECT_LT(worst, 2 * 1800 * kMillisecond);
  for (std::size_t i = 100; i < world.served.size(); i++) {
    ASSERT_EQ(world.served[i], world.served[i - 100]) << "everybody in turn";
  }
  EXPECT_TRUE(world.refused.empty());
}

TEST(ProxyPoolsServing, WhoLeftIsPassedOver) {
  PoolsWorld world;
  const PoolId pool = world.pool("a", small(1));
  world.warm(pool, 1);
  for (WaiterId waiter = 1; waiter <= 4; waiter++) world.acquire(pool, waiter);
  EXPECT_TRUE(world.pools.leave(2, world.now));
  EXPECT_TRUE(world.pools.leave(4, world.now));
  world.drain();
  EXPECT_FALSE(world.pools.leave(2, world.now)) << "it waits no more";
  EXPECT_FALSE(world.pools.leave(1, world.now)) << "it has a connection";
  world.release(1);
  EXPECT_TRUE(world.holds(3));
  world.release(3);
  EXPECT_EQ(world.status(pool).idle, 1U);
}

TEST(ProxyPoolsServing, AskingTwiceIsAskingOnce) {
  PoolsWorld world;
  const PoolId pool = world.pool("a", small(1));
  world.acquire(pool, 1);
  world.acquire(pool, 1);
  EXPECT_EQ(world.status(pool).waiting, 1U);
}

TEST(ProxyPoolsServing, TheQueueHasAnEnd) {
  PoolsWorld world;
  PoolOptions options = small(1);
  options.max_waiters = 3;
  const PoolId pool = world.pool("a", options);
  world.warm(pool, 1);
  for (WaiterId waiter = 1; waiter <= 5; waiter++) world.acquire(pool, waiter);
  EXPECT_EQ(world.status(pool).waiting, 3U);
  ASSERT_EQ(world.refused.size(), 1U);
  EXPECT_EQ(world.refused.at(5).refuse_reason, RefuseReason::too_many_waiters);
  world.release(1);
  world.acquire(pool, 6);
  EXPECT_FALSE(world.refused.contains(6)) << "there is room again";
}

TEST(ProxyPoolsServing, AWaitEndsAfterItsTimeAndNotBefore) {
  PoolsWorld world;
  PoolOptions options = small(1);
  options.wait_timeout = 2 * kSecond;
  const PoolId pool = world.pool("a", options);
  world.warm(pool, 1);
  world.acquire(pool, 1);
  world.acquire(pool, 2);
  world.pass(500 * kMillisecond);
  world.acquire(pool, 3);
  world.pass(1499 * kMillisecond);
  EXPECT_TRUE(world.refused.empty());
  world.pass(kMillisecond);
  ASSERT_TRUE(world.refused.contains(2));
  EXPECT_EQ(world.refused.at(2).refuse_reason, RefuseReason::wait_timeout);
  EXPECT_EQ(world.refused.at(2).waited, 2 * kSecond);
  EXPECT_EQ(world.refused.at(2).failure, nullptr);
  EXPECT_FALSE(world.refused.contains(3));
  world.release(1);
  EXPECT_TRUE(world.holds(3));
}

TEST(ProxyPoolsServing, AShorterWaitTimeoutHoldsForThoseWhoWaitAlready) {
  PoolsWorld world;
  PoolOptions options = small(1);
  const PoolId pool = world.pool("a", options);
  world.warm(pool, 1);
  world.acquire(pool, 1);
  world.acquire(pool, 2);
  world.pass(kSecond);
  options.wait_timeout = 1500 * kMillisecond;
  world.pools.set_options(pool, options, world.now);
  world.drain();
  world.pass(500 * kMillisecond);
  EXPECT_TRUE(world.refused.contains(2));
}

TEST(ProxyPoolsServing, ALongIdleConnectionIsCheckedBeforeItIsAssigned) {
  PoolsWorld world;
  const PoolId pool = world.pool("a");
  world.warm(pool, 1);
  world.pass(29 * kSecond);
  world.acquire(pool, 1);
  EXPECT_TRUE(world.checks.empty());
  world.release(1);
  world.pass(30 * kSecond);
  world.acquire(pool, 2);
  EXPECT_FALSE(world.holds(2));
  ASSERT_EQ(world.checks.size(), 1U);
  EXPECT_EQ(world.connecting.size(), 0U) << "a round trip is shorter than a login";
  world.pools.checked(world.checks[0], true, world.now);
  world.drain();
  EXPECT_TRUE(world.holds(2));
}

TEST(ProxyPoolsServing, ACheckedConnectionGoesToWhoWaitsLongest) {
  PoolsWorld world;
  const PoolId pool = world.pool("a", small(1));
  world.warm(pool, 1);
  world.pass(30 * kSecond);
  world.acquire(pool, 1);
  world.acquire(pool, 2);
  world.pools.leave(1, world.now);
  world.pools.checked(world.checks.at(0), true, world.now);
  world.drain();
  EXPECT_TRUE(world.holds(2));
  EXPECT_EQ(world.checks.size(), 1U);
}

TEST(ProxyPoolsServing, AFailedCheckCondemnsAllThatWereIdleAsLong) {
  PoolsWorld world;
  PoolOptions options;
  options.surplus_after = kNever;
  const PoolId pool = world.pool("a", options);
  world.warm(pool, 4);
  world.pass(31 * kSecond);
  world.acquire(pool, 1);
  ASSERT_EQ(world.checks.size(), 1U);
  world.pools.checked(world.checks[0], false, world.now);
  world.drain();
  EXPECT_EQ(world.closed_for(CloseReason::check_failed), 4U);
  ASSERT_EQ(world.connecting.size(), 1U);
  world.open_next();
  EXPECT_TRUE(world.holds(1));
}

TEST(ProxyPoolsServing, ACheckWithoutAnAnswerFails) {
  PoolsWorld world;
  PoolOptions options;
  options.check_timeout = 500 * kMillisecond;
  const PoolId pool = world.pool("a", options);
  world.warm(pool, 1);
  world.pass(30 * kSecond);
  world.acquire(pool, 1);
  world.pass(100 * kMillisecond);
  EXPECT_EQ(world.connecting.size(), 1U) << "a check that hangs holds nobody up";
  world.open_next();
  EXPECT_TRUE(world.holds(1));
  world.pass(kSecond);
  EXPECT_EQ(world.closed_for(CloseReason::check_failed), 1U);
  world.pools.checked(world.checks.at(0), true, world.now);
  world.drain();
  EXPECT_EQ(world.status(pool).idle, 0U) << "the answer came too late";
}

TEST(ProxyPoolsServing, HalfOfAPoolMayBePinnedAndAllOfASessionPool) {
  for (const PoolMode mode : {PoolMode::transaction, PoolMode::session}) {
    PoolsWorld world;
    PoolOptions options = small(5);
    options.mode = mode;
    const PoolId pool = world.pool("a", options);
    world.warm(pool, 5);
    std::uint32_t pinned = 0;
    for (WaiterId waiter = 1; waiter <= 5; waiter++) {
      world.acquire(pool, waiter);
      if (world.pools.pin(world.held.at(waiter))) pinned++;
      world.drain();
    }
    EXPECT_EQ(pinned, mode == PoolMode::session ? 5U : 2U);
    EXPECT_EQ(world.status(pool).pinned, pinned);
    EXPECT_TRUE(world.pools.pin(world.held.at(1))) << "pinning again changes nothing";
    for (WaiterId waiter = 1; waiter <= 5; waiter++) world.release(waiter);
    EXPECT_EQ(world.status(pool).pinned, 0U);
    EXPECT_EQ(world.status(pool).idle, 5U);
  }
}

TEST(ProxyPoolsServing, OnlyAnAssignedConnectionCanBePinned) {
  PoolsWorld world;
  const PoolId pool = world.pool("a", small(4));
  world.acquire(pool, 1);
  const ServerId server = world.connecting.at(0);
  EXPECT_FALSE(world.pools.pin(server));
  world.open_next();
  world.release(1);
  EXPECT_FALSE(world.pools.pin(server));
  EXPECT_FALSE(world.pools.pin(0));
  EXPECT_FALSE(world.pools.pin(~ServerId{0}));
}

TEST(ProxyPoolsServing, ReportsAboutConnectionsThatAreGoneChangeNothing) {
  PoolsWorld world;
  const PoolId pool = world.pool("a", small(2));
  world.warm(pool, 1);
  world.acquire(pool, 1);
  const ServerId gone = world.held.at(1);
  world.pools.lost(gone, world.now);
  world.drain();
  world.acquire(pool, 2);
  const ServerId next = world.connecting.at(0);
  EXPECT_NE(next, gone);
  for (const ServerId server : {gone, ServerId{0}, ~ServerId{0}}) {
    world.pools.opened(server, world.now);
    world.pools.open_failed(server, {FailureKind::rejected, "3D000", ""}, world.now);
    world.pools.released(server, true, world.now);
    world.pools.checked(server, false, world.now);
    world.pools.lost(server, world.now);
    world.pools.retire(server, world.now);
    world.pools.snapshot_moved(server, world.now);
    world.drain();
  }
  EXPECT_EQ(world.status(pool).connecting, 1U);
  EXPECT_EQ(world.status(pool).waiting, 1U);
  EXPECT_TRUE(world.refused.empty());
  // And reports that do not fit the state it is in.
  world.pools.released(next, true, world.now);
  world.pools.checked(next, true, world.now);
  world.drain();
  EXPECT_EQ(world.status(pool).connecting, 1U);
  world.open_next();
  world.pools.opened(next, world.now);
  world.pools.open_failed(next, {FailureKind::rejected, "3D000", ""}, world.now);
  world.drain();
  EXPECT_TRUE(world.holds(2));
  EXPECT_EQ(world.status(pool).active, 1U);
}

TEST(ProxyPoolsServing, AnAuditSaysWhatIsWrong) {
  OpenGate gate;
  Pools pools({}, gate, 1);
  PoolOptions options;
  options.max_size = 1;
  const PoolId pool = pools.attach({"a", "app", ""}, options, 0).pool;
  pools.acquire(pool, 1, 5 * kSecond);
  EXPECT_EQ(pools.audit(5 * kSecond), "");
  // Time that runs backwards puts a younger waiter before an older one.
  pools.acquire(pool, 2, 1 * kSecond);
  EXPECT_EQ(pools.audit(5 * kSecond), "the waiters are out of order in pool 0");
}

}  // namespace
}  // namespace sluice::proxy
