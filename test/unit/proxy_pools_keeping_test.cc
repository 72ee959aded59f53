// How long connections and pools are kept, and what a reload does to them.
#include "proxy_pools_fixture.h"

namespace sluice::proxy {
namespace {

using test::PoolsWorld;

PoolOptions lasting() {
  PoolOptions options;
  options.surplus_after = kNever;
  options.idle_timeout = kNever;
  options.lifetime = kNever;
  return options;
}

TEST(ProxyPoolsKeeping, AnIdleConnectionIsClosedAfterItsTime) {
  PoolsWorld world;
  PoolOptions options = lasting();
  options.idle_timeout = 60 * kSecond;
  const PoolId pool = world.pool("a", options);
  world.warm(pool, 3);
  world.pass(59 * kSecond);
  EXPECT_EQ(world.status(pool).idle, 3U);
  world.pass(2 * kSecond);
  EXPECT_EQ(world.closed_for(CloseReason::idle_timeout), 3U);
  EXPECT_EQ(world.pools.totals().servers, 0U) << "no minimum is kept";
}

TEST(ProxyPoolsKeeping, ALifetimeEndsWithItsJitterAndNeverUnderAClient) {
  PoolsWorld world;
  PoolOptions options = lasting();
  options.lifetime = 100 * kSecond;
  options.lifetime_jitter = 100 * kSecond;
  options.check_after = kNever;
  const PoolId pool = world.pool("a", options);
  world.warm(pool, 20);
  world.acquire(pool, 1);
  world.pass(99 * kSecond);
  EXPECT_TRUE(world.closed.empty());
  world.pass(50 * kSecond);
  const std::size_t half = world.closed_for(CloseReason::lifetime);
  EXPECT_GE(half, 4U);
  EXPECT_LE(half, 16U) << "not all at one moment";
  world.pass(60 * kSecond);
  EXPECT_EQ(world.closed_for(CloseReason::lifetime), 19U);
  EXPECT_TRUE(world.holds(1));
  world.release(1);
  EXPECT_EQ(world.closed_for(CloseReason::lifetime), 20U);
}

TEST(ProxyPoolsKeeping, TheJitterFollowsFromTheSeed) {
  std::vector<Time> ends[2];
  for (std::vector<Time>& times : ends) {
    PoolsWorld world;
    PoolOptions options = lasting();
    options.lifetime = 10 * kSecond;
    const PoolId pool = world.pool("a", options);
    world.warm(pool, 5);
    for (int i = 0; i < 500; i++) {
      const std::size_t before = world.closed.size();
      world.pass(kSecond);
      for (std::size_t n = before; n < world.closed.size(); n++) times.push_back(world.now);
    }
  }
  EXPECT_EQ(ends[0].size(), 5U);
  EXPECT_EQ(ends[0], ends[1]);
}

TEST(ProxyPoolsKeeping, NoMoreThanMaxIdleAreKept) {
  PoolsWorld world;
  PoolOptions options = lasting();
  options.max_idle = 2;
  const PoolId pool = world.pool("a", options);
  for (WaiterId waiter = 1; waiter <= 5; waiter++) {
    world.acquire(pool, waiter);
    world.pass(30 * kMillisecond);
    while (!world.connecting.empty()) world.open_next();
  }
  const ServerId last = world.held.at(5);
  for (WaiterId waiter = 1; waiter <= 5; waiter++) world.release(waiter);
  EXPECT_EQ(world.status(pool).idle, 2U);
  EXPECT_EQ(world.closed_for(CloseReason::surplus), 3U);
  world.acquire(pool, 6);
  EXPECT_EQ(world.held.at(6), last) << "the longest idle went";
}

TEST(ProxyPoolsKeeping, WhatThePeakOf30SecondsDidNotNeedIsClosedAfter5SecondsIdle) {
  PoolsWorld world;
  PoolOptions options = lasting();
  options.surplus_after = 5 * kSecond;
  const PoolId pool = world.pool("a", options);
  world.warm(pool, 10);
  // From now on two at a time, all the time.
  for (int i = 0; i < 28; i++) {
    world.acquire(pool, 1);
    world.acquire(pool, 2);
    world.pass(kSecond);
    world.release(1);
    world.release(2);
  }
  EXPECT_EQ(world.status(pool).idle, 10U) << "the peak is not old enough";
  for (int i = 0; i < 9; i++) {
    world.acquire(pool, 1);
    world.acquire(pool, 2);
    world.pass(kSecond);
    world.release(1);
    world.release(2);
  }
  EXPECT_EQ(world.status(pool).idle, 2U);
  EXPECT_EQ(world.closed_for(CloseReason::surplus), 8U);
}

TEST(ProxyPoolsKeeping, ALongLeaseCountsForThePeakAsLongAsItLasts) {
  PoolsWorld world;
  PoolOptions options = lasting();
  options.surplus_after = 5 * kSecond;
  options.check_after = kNever;
  const PoolId pool = world.pool("a", options);
  world.warm(pool, 2);
  world.acquire(pool, 1);
  world.acquire(pool, 2);
  world.pass(300 * kSecond);
  world.release(1);
  world.pass(20 * kSecond);
  EXPECT_EQ(world.status(pool).idle, 1U) << "two were in use 20 s ago";
  world.pass(20 * kSecond);
  EXPECT_EQ(world.status(pool).idle, 0U);
}

TEST(ProxyPoolsKeeping, APoolWithoutClientsAndConnectionsIsForgotten) {
  PoolsWorld world;
  PoolOptions options = lasting();
  options.idle_timeout = 10 * kSecond;
  options.gc_after = 60 * kSecond;
  const PoolId pool = world.pool("a", options);
  world.warm(pool, 1);
  world.pass(200 * kSecond);
  EXPECT_TRUE(world.forgotten.empty()) << "a client is attached";
  world.pools.detach(pool, world.now);
  world.drain();
  world.pass(59 * kSecond);
  EXPECT_TRUE(world.forgotten.empty());
  world.pass(kSecond);
  EXPECT_EQ(world.forgotten, std::vector<PoolId>{pool});
  EXPECT_EQ(world.pools.totals().pools, 0U);
  EXPECT_EQ(world.pools.next_deadline(), kNever);
}

TEST(ProxyPoolsKeeping, AClientThatComesBackInTimeFindsItsPool) {
  PoolsWorld world;
  PoolOptions options = lasting();
  options.gc_after = 60 * kSecond;
  const PoolId pool = world.pool("a", options);
  world.warm(pool, 1);
  world.pools.detach(pool, world.now);
  world.pass(3600 * kSecond);
  EXPECT_EQ(world.status(pool).idle, 1U) << "its connections end by their own rules";
  EXPECT_EQ(world.pool("a", options), pool);
  EXPECT_TRUE(world.forgotten.empty());
}

TEST(ProxyPoolsKeeping, PoolsAreBounded) {
  PoolLimits limits;
  limits.max_pools = 2;
  PoolsWorld world(limits);
  world.pool("a");
  world.pool("b");
  EXPECT_EQ(world.pools.attach({"c", "app", ""}, {}, world.now).refused, RefuseReason::too_many_pools);
  EXPECT_FALSE(world.pools.attach({"a", "app", ""}, {}, world.now).refused.has_value());
  world.drain();
}

// L28.
TEST(ProxyPoolsKeeping, AThirdSetOfStartupOptionsIsRefused) {
  PoolsWorld world;
  PoolOptions options = lasting();
  options.max_startup_sets = 2;
  const PoolId first = world.pool("a", options, "");
  const PoolId second = world.pool("a", options, "work_mem=1MB");
  EXPECT_NE(first, second);
  EXPECT_EQ(world.pools.attach({"a", "app", "work_mem=2MB"}, options, world.now).refused,
            RefuseReason::too_many_startup_sets);
  world.drain();
  EXPECT_EQ(world.pool("a", options, "work_mem=1MB"), second);
  EXPECT_FALSE(world.pools.attach({"a", "other", "work_mem=2MB"}, options, world.now).refused.has_value())
      << "another database";
  EXPECT_FALSE(world.pools.attach({"b", "app", "work_mem=2MB"}, options, world.now).refused.has_value())
      << "another user";
  world.drain();
}

TEST(ProxyPoolsKeeping, ASetThatNobodyUsesMakesRoomForAnother) {
  PoolsWorld world;
  PoolOptions options = lasting();
  options.max_startup_sets = 2;
  const PoolId first = world.pool("a", options, "");
  world.pool("a", options, "x=1");
  world.warm(first, 2);
  world.pools.detach(first, world.now);
  const PoolId third = world.pool("a", options, "x=2");
  EXPECT_NE(third, first) << "the owner has yet to hear that the first ended";
  EXPECT_EQ(world.status(third).clients, 1U);
  EXPECT_EQ(world.closed_for(CloseReason::retired), 2U);
}

// B17 and the reload of max_size: 5 → 2 with 3 idle and 2 active.
TEST(ProxyPoolsKeeping, ALowerMaxSizeClosesIdleOnesAndLetsActiveOnesDrain) {
  PoolsWorld world;
  PoolOptions options = lasting();
  options.max_size = 5;
  const PoolId pool = world.pool("a", options);
  world.warm(pool, 5);
  world.acquire(pool, 1);
  world.acquire(pool, 2);
  world.acquire(pool, 3);
  options.max_size = 2;
  world.pools.set_options(pool, options, world.now);
  world.drain();
  EXPECT_EQ(world.status(pool).idle, 0U);
  EXPECT_EQ(world.status(pool).active, 3U);
  world.acquire(pool, 4);
  world.release(1);
  EXPECT_FALSE(world.holds(4)) << "nobody new until it fits";
  EXPECT_EQ(world.closed_for(CloseReason::over_limit), 3U);
  world.release(2);
  EXPECT_TRUE(world.holds(4));
  world.pass(kSecond);
  EXPECT_LE(world.pools.totals().servers, 2U);
}

TEST(ProxyPoolsKeeping, ALowerMaxSizeEndsLoginsWithoutAFailure) {
  PoolsWorld world;
  PoolOptions options = lasting();
  const PoolId pool = world.pool("a", options);
  world.warm(pool, 1);
  world.acquire(pool, 1);
  world.pass(kSecond);
  for (WaiterId waiter = 2; waiter <= 6; waiter++) world.acquire(pool, waiter);
  ASSERT_GE(world.connecting.size(), 2U);
  options.max_size = 2;
  world.pools.set_options(pool, options, world.now);
  world.drain();
  EXPECT_EQ(world.connecting.size(), 1U);
  EXPECT_EQ(world.status(pool).failure, nullptr);
  world.open_next();
  EXPECT_TRUE(world.holds(2));
}

TEST(ProxyPoolsKeeping, AHigherMaxSizeServesThoseWhoWaitAtOnce) {
  PoolsWorld world;
  PoolOptions options = lasting();
  options.max_size = 1;
  const PoolId pool = world.pool("a", options);
  world.warm(pool, 1);
  world.acquire(pool, 1);
  world.acquire(pool, 2);
  world.pass(kSecond);
  ASSERT_TRUE(world.connecting.empty());
  options.max_size = 2;
  world.pools.set_options(pool, options, world.now);
  world.drain();
  EXPECT_EQ(world.connecting.size(), 1U);
}

TEST(ProxyPoolsKeeping, LowerLimitsOfTheProcessActOnAllPools) {
  PoolsWorld world;
  std::vector<PoolId> pools;
  for (int i = 0; i < 4; i++) pools.push_back(world.pool("user" + std::to_string(i), lasting()));
  for (const PoolId pool : pools) world.warm(pool, 3);
  world.acquire(pools[0], 1);
  world.acquire(pools[1], 2);
  PoolLimits limits;
  limits.max_total = 1;
  world.pools.set_limits(limits, world.now);
  world.drain();
  EXPECT_EQ(world.pools.totals().idle, 0U);
  EXPECT_EQ(world.pools.totals().servers, 2U);
  world.release(1);
  EXPECT_EQ(world.pools.totals().servers, 1U);
  world.release(2);
  EXPECT_EQ(world.pools.totals().servers, 1U) << "the last one fits";
}

TEST(ProxyPoolsKeeping, HigherLimitsOfTheProcessServeThoseWhoWaitAtOnce) {
  PoolLimits limits;
  limits.max_total = 1;
  PoolsWorld world(limits);
  const PoolId a = world.pool("a");
  const PoolId b = world.pool("b");
  world.acquire(a, 1);
  world.open_next();
  world.acquire(b, 2);
  ASSERT_TRUE(world.connecting.empty());
  limits.max_total = 2;
  world.pools.set_limits(limits, world.now);
  world.drain();
  EXPECT_EQ(world.connecting.size(), 1U);
}

// L34 and E10.
TEST(ProxyPoolsKeeping, ANewSnapshotRetiresWhatIsOlder) {
  PoolsWorld world;
  const PoolId pool = world.pool("a", lasting());
  world.warm(pool, 3);
  world.acquire(pool, 1);
  world.acquire(pool, 2);
  world.acquire(pool, 3);
  world.acquire(pool, 4);
  world.pass(200 * kMillisecond);
  world.release(3);
  ASSERT_TRUE(world.holds(4));
  world.release(4);
  ASSERT_FALSE(world.connecting.empty());
  const ServerId newest = world.connecting[0];
  world.open_next();
  world.pools.snapshot_moved(newest, world.now);
  world.drain();
  EXPECT_EQ(world.closed_for(CloseReason::snapshot_moved), 1U) << "the idle one";
  EXPECT_TRUE(world.holds(1));
  world.release(1);
  world.release(2);
  EXPECT_EQ(world.closed_for(CloseReason::snapshot_moved), 3U);
  world.acquire(pool, 5);
  EXPECT_EQ(world.held.at(5), newest);
  world.release(5);
  EXPECT_EQ(world.status(pool).idle, 1U) << "what comes after is kept";
}

TEST(ProxyPoolsKeeping, WhatConnectsWhileTheSnapshotMovesIsComparedAfterwards) {
  PoolsWorld world;
  const PoolId pool = world.pool("a", lasting());
  world.warm(pool, 1);
  world.acquire(pool, 1);
  world.pass(kSecond);
  for (WaiterId waiter = 2; waiter <= 4; waiter++) world.acquire(pool, waiter);
  ASSERT_GE(world.connecting.size(), 2U);
  const ServerId first = world.connecting[0];
  world.open_next();
  world.pools.snapshot_moved(first, world.now);
  world.drain();
  EXPECT_EQ(world.closed.size(), 0U);
  const ServerId second = world.connecting[0];
  world.open_next();
  world.release(3);
  EXPECT_EQ(world.closed.size(), 0U) << "it belongs to the new snapshot unless it is said to be newer still";
  world.pools.snapshot_moved(second, world.now);
  world.drain();
  world.release(2);
  EXPECT_EQ(world.closed, std::vector<ServerId>{first});
}

TEST(ProxyPoolsKeeping, ARetiredConnectionIsNeverAssignedAgain) {
  PoolsWorld world;
  const PoolId pool = world.pool("a", lasting());
  world.warm(pool, 2);
  world.acquire(pool, 1);
  const ServerId busy = world.held.at(1);
  world.pools.retire(busy, world.now);
  world.drain();
  EXPECT_TRUE(world.closed.empty());
  world.acquire(pool, 2);
  world.acquire(pool, 3);
  world.release(1);
  EXPECT_EQ(world.closed, std::vector<ServerId>{busy});
  EXPECT_FALSE(world.holds(3));
  EXPECT_EQ(world.closed_for(CloseReason::retired), 1U);
}

TEST(ProxyPoolsKeeping, RetiringAllLeavesOnlyThoseInUse) {
  PoolsWorld world;
  const PoolId a = world.pool("a", lasting());
  const PoolId b = world.pool("b", lasting());
  world.warm(a, 3);
  world.warm(b, 3);
  world.acquire(a, 1);
  world.pass(31 * kSecond);
  world.acquire(b, 2);
  ASSERT_EQ(world.status(b).waiting, 1U) << "a check is under way";
  world.pools.retire_all(world.now);
  world.drain();
  EXPECT_EQ(world.pools.totals().servers, 1U + 1U) << "in use, and a new one for who waits";
  world.pools.checked(world.checks.at(0), true, world.now);
  world.drain();
  EXPECT_FALSE(world.holds(2));
  world.open_next();
  EXPECT_TRUE(world.holds(2));
  world.release(1);
  EXPECT_EQ(world.pools.totals().servers, 1U);
}

TEST(ProxyPoolsKeeping, AThousandPoolsThatRestWakeNobodyInVain) {
  PoolLimits limits;
  limits.max_total = 2000;
  limits.max_connecting = 2000;
  PoolsWorld world(limits);
  PoolOptions options;
  options.idle_timeout = 30 * kSecond;
  std::vector<PoolId> pools;
  for (int i = 0; i < 1000; i++) {
    const Attachment attachment = world.pools.attach({"user" + std::to_string(i), "app", ""}, options, world.now);
    pools.push_back(attachment.pool);
    world.pools.acquire(attachment.pool, static_cast<WaiterId>(i), world.now);
  }
  world.drain();
  for (const ServerId server : world.connecting) world.pools.opened(server, world.now);
  world.connecting.clear();
  world.drain();
  ASSERT_EQ(world.held.size(), 1000U);
  world.pass(10 * kSecond);
  EXPECT_GT(world.pools.next_deadline(), world.now + 3600 * kSecond) << "in use, nobody waits: nothing is due";
  for (const auto& [waiter, server] : world.held) world.pools.released(server, true, world.now);
  world.held.clear();
  world.drain();
  world.pass(40 * kSecond);
  EXPECT_EQ(world.pools.totals().servers, 0U);
  EXPECT_EQ(world.pools.next_deadline(), kNever) << "clients are attached, so the pools stay";
}

}  // namespace
}  // namespace sluice::proxy
