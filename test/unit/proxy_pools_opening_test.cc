// When a connection is opened, and whose turn it is.
#include "proxy_pools_fixture.h"

namespace sluice::proxy {
namespace {

using test::PoolsWorld;

PoolOptions small(std::uint32_t max_size) {
  PoolOptions options;
  options.max_size = max_size;
  return options;
}

// L32: 20 queries of 2 ms open one or two connections, not 20; at whatever speed the server lets one in.
TEST(ProxyPoolsOpening, TwentyShortQueriesOpenOneOrTwoConnections) {
  for (const Time connect : {3 * kMillisecond, 10 * kMillisecond, 50 * kMillisecond, 120 * kMillisecond}) {
    for (const Time hold : {1500, 2000, 2400}) {
      PoolsWorld world;
      world.connect_in(connect);
      world.hold_for(hold);
      const PoolId pool = world.pool("a");
      for (int burst = 0; burst < 20; burst++) {
        for (WaiterId waiter = 0; waiter < 20; waiter++) world.acquire(pool, waiter);
        world.pass(kSecond);
        ASSERT_TRUE(world.held.empty());
      }
      EXPECT_EQ(world.served.size(), 400U);
      EXPECT_GE(world.opens, 1U) << "connect " << connect << " hold " << hold;
      EXPECT_LE(world.opens, 2U) << "connect " << connect << " hold " << hold;
    }
  }
}

TEST(ProxyPoolsOpening, TwentyShortQueriesThatTrickleInOpenOneOrTwoConnections) {
  PoolsWorld world;
  world.connect_in(20 * kMillisecond);
  world.hold_for(2 * kMillisecond);
  const PoolId pool = world.pool("a");
  for (WaiterId waiter = 0; waiter < 20; waiter++) {
    world.after(static_cast<Time>(waiter) * 700, [&world, pool, waiter] { world.acquire(pool, waiter); });
  }
  world.pass(kSecond);
  EXPECT_EQ(world.served.size(), 20U);
  EXPECT_LE(world.opens, 2U);
}

// The other side of it: who would wait long gets a connection of its own, and soon.
TEST(ProxyPoolsOpening, LongQueriesGetAConnectionEachWithinAConnectTimeOrTwo) {
  PoolsWorld world;
  world.connect_in(20 * kMillisecond);
  world.hold_for(10 * kSecond);
  const PoolId pool = world.pool("a");
  for (WaiterId waiter = 0; waiter < 20; waiter++) world.acquire(pool, waiter);
  world.pass(150 * kMillisecond);
  EXPECT_EQ(world.status(pool).active, 20U);
  world.pass(20 * kSecond);
  // Now it is known how long they take.
  world.pools.retire_pool(pool, world.now);
  world.drain();
  const std::uint32_t before = world.opens;
  for (WaiterId waiter = 100; waiter < 120; waiter++) world.acquire(pool, waiter);
  EXPECT_EQ(world.opens - before, 8U) << "as many at once as may connect at a time";
  world.pass(70 * kMillisecond);
  EXPECT_EQ(world.status(pool).active, 20U);
}

TEST(ProxyPoolsOpening, APoolOfShortQueriesNoticesThatTheyHaveBecomeLong) {
  PoolsWorld world;
  world.connect_in(20 * kMillisecond);
  world.hold_for(2 * kMillisecond);
  const PoolId pool = world.pool("a");
  for (WaiterId waiter = 0; waiter < 100; waiter++) {
    world.acquire(pool, waiter);
    world.pass(5 * kMillisecond);
  }
  world.hold_for(60 * kSecond);
  for (WaiterId waiter = 1000; waiter < 1020; waiter++) world.acquire(pool, waiter);
  world.pass(250 * kMillisecond);
  EXPECT_EQ(world.status(pool).active, 20U);
}

TEST(ProxyPoolsOpening, AnOverlongLeaseIsNotCountedOn) {
  PoolsWorld world;
  const PoolId pool = world.pool("a");
  world.warm(pool, 1);
  world.hold_for(2 * kMillisecond);
  for (WaiterId waiter = 0; waiter < 200; waiter++) {
    world.acquire(pool, waiter);
    world.pass(5 * kMillisecond);
  }
  world.on_assign = nullptr;
  world.acquire(pool, 1000);
  world.acquire(pool, 1001);
  EXPECT_EQ(world.connecting.size(), 0U) << "the lease is young, and leases end soon here";
  world.pass(100 * kMillisecond);
  EXPECT_EQ(world.connecting.size(), 1U);
  world.open_next();
  world.acquire(pool, 1002);
  EXPECT_EQ(world.connecting.size(), 0U) << "the second lease is young";
  world.pools.leave(1002, world.now);
  world.pass(50 * kMillisecond);
  world.acquire(pool, 1003);
  EXPECT_EQ(world.connecting.size(), 1U) << "both are overlong: at once";
}

TEST(ProxyPoolsOpening, HowLongSessionsLastTeachesOtherPoolsNothing) {
  for (const PoolMode mode : {PoolMode::transaction, PoolMode::session}) {
    PoolsWorld world;
    PoolOptions options;
    options.mode = mode;
    const PoolId sessions = world.pool("sessions", options);
    for (WaiterId waiter = 0; waiter < 300; waiter++) {
      world.acquire(sessions, waiter);
      while (!world.connecting.empty()) world.open_next();
      world.pass(10 * kSecond);
      world.release(waiter);
    }
    const PoolId pool = world.pool("a");
    for (WaiterId waiter = 1000; waiter < 1005; waiter++) world.acquire(pool, waiter);
    if (mode == PoolMode::session) {
      EXPECT_EQ(world.connecting.size(), 1U) << "short holds are assumed as before";
    } else {
      EXPECT_GE(world.connecting.size(), 4U);
    }
  }
}

TEST(ProxyPoolsOpening, APinnedLeaseIsNotCountedOn) {
  PoolsWorld world;
  const PoolId pool = world.pool("a");
  world.warm(pool, 1);
  world.hold_for(2 * kMillisecond);
  for (WaiterId waiter = 0; waiter < 50; waiter++) {
    world.acquire(pool, waiter);
    world.pass(5 * kMillisecond);
  }
  world.on_assign = nullptr;
  world.acquire(pool, 1000);
  ASSERT_TRUE(world.pools.pin(world.held.at(1000)));
  world.acquire(pool, 1001);
  EXPECT_EQ(world.connecting.size(), 1U);
}

TEST(ProxyPoolsOpening, AQueueThatNeverEmptiesGrowsThePool) {
  for (const bool grows : {true, false}) {
    PoolsWorld world;
    PoolOptions options = small(6);
    if (!grows) options.grow_after = kNever;
    world.connect_in(5 * kMillisecond);
    const PoolId pool = world.pool("a", options);
    // Eight clients that ask again as soon as they are served: each waits a moment only, but always.
    world.on_assign = [&](WaiterId waiter) {
      world.after(kMillisecond, [&, waiter] {
        world.release(waiter);
        world.acquire(pool, waiter);
      });
    };
    for (WaiterId waiter = 0; waiter < 8; waiter++) world.acquire(pool, waiter);
    world.pass(2 * kSecond);
    EXPECT_EQ(world.opens, grows ? 6U : 1U);
  }
}

TEST(ProxyPoolsOpening, ConnectionsAreNeverMoreThanMaxSizeInAnyState) {
  PoolsWorld world;
  world.answers_closes = false;
  const PoolId pool = world.pool("a", small(3));
  for (WaiterId waiter = 0; waiter < 10; waiter++) world.acquire(pool, waiter);
  while (!world.connecting.empty()) {
    world.open_next();
    world.pass(200 * kMillisecond);
  }
  EXPECT_EQ(world.opens, 3U);
  world.release(0, false);
  world.pass(kSecond);
  EXPECT_EQ(world.opens, 3U) << "it counts until it is gone";
  world.pools.lost(world.closed.at(0), world.now);
  world.drain();
  EXPECT_EQ(world.opens, 4U);
}

TEST(ProxyPoolsOpening, LoginsInProgressAreBoundedOverAllPools) {
  PoolLimits limits;
  limits.max_connecting = 3;
  PoolsWorld world(limits);
  std::vector<PoolId> pools;
  for (int i = 0; i < 10; i++) pools.push_back(world.pool("user" + std::to_string(i)));
  for (WaiterId i = 0; i < 10; i++) world.acquire(pools[i], i);
  EXPECT_EQ(world.connecting.size(), 3U);
  for (int i = 0; i < 10; i++) {
    ASSERT_LE(world.connecting.size(), 3U);
    world.open_next();
  }
  EXPECT_EQ(world.served, (std::vector<WaiterId>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9})) << "in turn";
}

TEST(ProxyPoolsOpening, AFirstConnectionGoesBeforeAnotherPoolsSecond) {
  PoolLimits limits;
  limits.max_connecting = 1;
  PoolsWorld world(limits);
  world.hold_for(10 * kSecond);
  const PoolId greedy = world.pool("greedy");
  const PoolId modest = world.pool("modest");
  for (WaiterId waiter = 0; waiter < 10; waiter++) world.acquire(greedy, waiter);
  world.open_next();
  world.pass(60 * kMillisecond);
  EXPECT_EQ(world.connecting.size(), 1U) << "the second of the greedy one";
  world.acquire(modest, 100);
  world.open_next();
  ASSERT_EQ(world.connecting.size(), 1U);
  world.open_next();
  EXPECT_TRUE(world.holds(100));
}

TEST(ProxyPoolsOpening, ConnectsPerSecondAreBounded) {
  PoolLimits limits;
  limits.max_connecting = 4;
  limits.connects_per_second = 10;
  PoolsWorld world(limits);
  world.fail_in(kMillisecond, FailureKind::rejected, "3D000");
  const PoolId pool = world.pool("a");
  WaiterId next = 0;
  // A4: 25 loops that connect, are refused, and come again at once.
  for (Time t = 0; t < 10 * kSecond; t += kMillisecond) {
    for (int i = 0; i < 25; i++) world.acquire(pool, next++);
    world.pass(kMillisecond);
  }
  EXPECT_GE(world.opens, 90U);
  EXPECT_LE(world.opens, 104U);
  EXPECT_EQ(world.refused.size() + world.status(pool).waiting, next);
}

TEST(ProxyPoolsOpening, ABurstMayConnectAtOnceThenThePaceHolds) {
  PoolLimits limits;
  limits.max_connecting = 4;
  limits.connects_per_second = 10;
  PoolsWorld world(limits);
  world.connect_in(kMillisecond);
  for (int i = 0; i < 20; i++) world.acquire(world.pool("user" + std::to_string(i)), static_cast<WaiterId>(i));
  EXPECT_EQ(world.opens, 4U);
  world.pass(50 * kMillisecond);
  EXPECT_EQ(world.opens, 4U);
  world.pass(50 * kMillisecond);
  EXPECT_EQ(world.opens, 5U);
  world.pass(1501 * kMillisecond);
  EXPECT_EQ(world.served.size(), 20U);
}

// B14: 200 clients of many users, and never more than the cap in any state.
TEST(ProxyPoolsOpening, AllPoolsTogetherStayWithinMaxTotalLoginsIncluded) {
  PoolLimits limits;
  limits.max_total = 20;
  limits.max_connecting = 50;
  PoolsWorld world(limits);
  world.connect_in(40 * kMillisecond);
  world.hold_for(30 * kMillisecond);
  for (WaiterId waiter = 0; waiter < 200; waiter++) {
    world.acquire(world.pool("user" + std::to_string(waiter % 40)), waiter);
    ASSERT_LE(world.pools.totals().servers, 20U);
  }
  for (int i = 0; i < 1000; i++) {
    world.pass(5 * kMillisecond);
    ASSERT_LE(world.pools.totals().servers, 20U);
  }
  EXPECT_EQ(world.served.size(), 200U);
  EXPECT_TRUE(world.refused.empty());
}

TEST(ProxyPoolsOpening, TheLongestIdleOfAnotherPoolMakesRoom) {
  PoolLimits limits;
  limits.max_total = 3;
  PoolsWorld world(limits);
  const PoolId a = world.pool("a");
  const PoolId b = world.pool("b");
  const PoolId c = world.pool("c");
  world.acquire(a, 1);
  world.open_next();
  const ServerId oldest = world.held.at(1);
  world.release(1);
  world.pass(kMillisecond);
  world.acquire(b, 2);
  world.open_next();
  world.acquire(b, 3);
  world.pass(100 * kMillisecond);
  world.open_next();
  world.release(2);
  world.release(3);
  world.acquire(c, 4);
  ASSERT_EQ(world.closed, std::vector<ServerId>{oldest});
  EXPECT_EQ(world.closed_for(CloseReason::evicted), 1U);
  world.open_next();
  EXPECT_TRUE(world.holds(4));
  EXPECT_EQ(world.status(b).idle, 2U);
}

TEST(ProxyPoolsOpening, WhatGoesIdleWhileAClientWaitsMakesRoomToo) {
  PoolLimits limits;
  limits.max_total = 1;
  PoolsWorld world(limits);
  const PoolId a = world.pool("a");
  const PoolId b = world.pool("b");
  world.acquire(a, 1);
  world.open_next();
  world.acquire(b, 2);
  EXPECT_TRUE(world.connecting.empty());
  world.pass(100 * kMillisecond);
  world.release(1);
  ASSERT_EQ(world.connecting.size(), 1U);
  world.open_next();
  EXPECT_TRUE(world.holds(2));
}

TEST(ProxyPoolsOpening, NoMoreAreEvictedThanAreNeeded) {
  PoolLimits limits;
  limits.max_total = 10;
  PoolsWorld world(limits);
  world.answers_closes = false;
  const PoolId a = world.pool("a");
  world.warm(a, 10);
  const PoolId b = world.pool("b");
  world.acquire(b, 1);
  world.acquire(b, 2);
  world.pass(10 * kMillisecond);
  EXPECT_EQ(world.closed.size(), 1U) << "one serves both, and one is on its way out already";
  EXPECT_TRUE(world.connecting.empty()) << "it counts until it is gone";
  world.pools.lost(world.closed[0], world.now);
  world.drain();
  EXPECT_EQ(world.connecting.size(), 1U);
}

TEST(ProxyPoolsOpening, APoolWithNothingIsNotStarvedByOneThatNeverGoesIdle) {
  PoolLimits limits;
  limits.max_total = 4;
  PoolsWorld world(limits);
  world.connect_in(5 * kMillisecond);
  const PoolId busy = world.pool("busy");
  const PoolId quiet = world.pool("quiet");
  std::uint32_t turns = 0;
  world.on_assign = [&](WaiterId waiter) {
    world.after(20 * kMillisecond, [&, waiter] {
      world.release(waiter);
      if (waiter < 20) {
        turns++;
        world.acquire(busy, waiter);
      }
    });
  };
  for (WaiterId waiter = 0; waiter < 20; waiter++) world.acquire(busy, waiter);
  world.pass(kSecond);
  ASSERT_EQ(world.status(busy).active, 4U);
  world.acquire(quiet, 100);
  world.pass(900 * kMillisecond);
  EXPECT_FALSE(world.assigned.contains(100)) << "those before it have their turn";
  world.pass(200 * kMillisecond);
  EXPECT_TRUE(world.assigned.contains(100));
  EXPECT_EQ(world.closed_for(CloseReason::evicted), 2U) << "one for it, and its own once the busy ones wait again";
  turns = 0;
  world.pass(kSecond);
  EXPECT_GT(turns, 150U);
}

TEST(ProxyPoolsOpening, TheLastConnectionOfAPoolIsNotTakenFromItsWaiters) {
  PoolLimits limits;
  limits.max_total = 1;
  PoolsWorld world(limits);
  const PoolId a = world.pool("a");
  const PoolId b = world.pool("b");
  world.acquire(a, 1);
  world.open_next();
  world.acquire(a, 2);
  world.acquire(b, 3);
  world.pass(2 * kSecond);
  world.release(1);
  EXPECT_TRUE(world.holds(2));
  world.release(2);
  EXPECT_EQ(world.connecting.size(), 1U);
}

// B6: the first login hangs for 5 s, 10 clients queue, a busy connection is released after 100 ms.
TEST(ProxyPoolsOpening, NobodyWaitsBehindALoginThatHangs) {
  PoolsWorld world;
  const PoolId pool = world.pool("a");
  world.warm(pool, 1);
  world.acquire(pool, 0);
  world.pass(kSecond);
  for (WaiterId waiter = 1; waiter <= 10; waiter++) world.acquire(pool, waiter);
  EXPECT_GE(world.connecting.size(), 2U) << "several in parallel";
  EXPECT_LE(world.connecting.size(), PoolLimits().max_connecting) << "up to a bound";
  world.pass(100 * kMillisecond);
  EXPECT_LE(world.connecting.size(), PoolLimits().max_connecting);
  world.hold_for(kMillisecond);
  world.release(0);
  world.pass(20 * kMillisecond);
  EXPECT_EQ(world.served.size(), 1 + 1 + 10U);
  EXPECT_TRUE(world.refused.empty());
}

TEST(ProxyPoolsOpening, ALoginThatTakesTwiceTheUsualTimeIsNotCountedOn) {
  PoolsWorld world;
  const PoolId pool = world.pool("a");
  for (WaiterId waiter = 0; waiter < 5; waiter++) world.acquire(pool, waiter);
  world.pass(99 * kMillisecond);
  EXPECT_EQ(world.connecting.size(), 1U);
  world.pass(kMillisecond);
  ASSERT_EQ(world.connecting.size(), 2U);
  world.opened(world.connecting[1]);
  EXPECT_TRUE(world.holds(0));
}

TEST(ProxyPoolsOpening, LoginsThatHangLeaveRoomForOtherPools) {
  PoolLimits limits;
  limits.max_connecting = 8;
  PoolsWorld world(limits);
  PoolOptions options;
  options.connect_timeout = 5 * kSecond;
  const PoolId pool = world.pool("a", options);
  for (WaiterId waiter = 1; waiter <= 100; waiter++) world.acquire(pool, waiter);
  world.pass(4 * kSecond);
  EXPECT_GE(world.connecting.size(), 2U);
  EXPECT_LE(world.connecting.size(), 6U);
  world.acquire(world.pool("b"), 1000);
  world.opened(world.connecting.back());
  EXPECT_TRUE(world.holds(1000));
}

TEST(ProxyPoolsOpening, NothingIsOpenedForNobody) {
  PoolsWorld world;
  const PoolId pool = world.pool("a");
  world.pass(3600 * kSecond);
  EXPECT_EQ(world.opens, 0U);
  world.acquire(pool, 1);
  world.pools.leave(1, world.now);
  world.open_next();
  EXPECT_EQ(world.status(pool).idle, 1U) << "a login that is no longer needed is kept for the next";
  world.acquire(pool, 2);
  EXPECT_TRUE(world.holds(2));
}

}  // namespace
}  // namespace sluice::proxy
