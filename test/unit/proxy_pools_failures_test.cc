// What waiters get to know when a connection cannot be opened, and how often it is tried.
#include "proxy_pools_fixture.h"

namespace sluice::proxy {
namespace {

using test::PoolsWorld;

// D23: a database that is not there; nobody waits for it, and nobody asks again.
TEST(ProxyPoolsFailures, ARejectionGoesToAllWaitersAtOnceWithoutARetry) {
  PoolsWorld world;
  const PoolId pool = world.pool("a");
  for (WaiterId waiter = 1; waiter <= 5; waiter++) world.acquire(pool, waiter);
  world.fail_next(FailureKind::rejected, "3D000");
  ASSERT_EQ(world.refused.size(), 5U);
  for (const auto& [waiter, action] : world.refused) {
    EXPECT_EQ(action.refuse_reason, RefuseReason::connect_failed);
    ASSERT_NE(action.failure, nullptr);
    EXPECT_EQ(action.failure->sqlstate, "3D000");
    EXPECT_EQ(action.failure->message, "said by the server");
  }
  world.pass(60 * kSecond);
  EXPECT_EQ(world.opens, 1U);
}

// E14: the cause is passed on, and once it is repaired the next client after the retry interval is served.
TEST(ProxyPoolsFailures, AfterARejectionTheCauseIsToldUntilTheRetryIntervalIsOver) {
  PoolsWorld world;
  const PoolId pool = world.pool("a");
  const PoolId other = world.pool("b");
  world.acquire(pool, 1);
  world.fail_next(FailureKind::rejected, "28000");
  world.pass(99 * kMillisecond);
  world.acquire(pool, 2);
  ASSERT_TRUE(world.refused.contains(2));
  EXPECT_EQ(world.refused.at(2).failure->sqlstate, "28000");
  EXPECT_TRUE(world.connecting.empty());
  world.acquire(other, 3);
  EXPECT_EQ(world.connecting.size(), 1U) << "other roles are not affected";
  world.open_next();
  world.pass(kMillisecond);
  world.acquire(pool, 4);
  EXPECT_EQ(world.connecting.size(), 1U);
  world.open_next();
  EXPECT_TRUE(world.holds(4));
  EXPECT_EQ(world.status(pool).failure, nullptr);
}

TEST(ProxyPoolsFailures, NewcomersWaitForTheOneThatAsksAgain) {
  PoolsWorld world;
  const PoolId pool = world.pool("a");
  world.acquire(pool, 1);
  world.fail_next(FailureKind::rejected, "28P01");
  world.pass(200 * kMillisecond);
  for (WaiterId waiter = 2; waiter <= 6; waiter++) world.acquire(pool, waiter);
  EXPECT_EQ(world.connecting.size(), 1U);
  world.fail_next(FailureKind::rejected, "28P01");
  EXPECT_EQ(world.refused.size(), 6U);
}

TEST(ProxyPoolsFailures, ARejectionTakesNothingFromThoseWhoHoldOrHopeForOpenConnections) {
  PoolsWorld world;
  const PoolId pool = world.pool("a");
  world.warm(pool, 1);
  world.acquire(pool, 1);
  world.acquire(pool, 2);
  world.pass(60 * kMillisecond);
  const std::uint32_t before = world.opens;
  world.fail_next(FailureKind::rejected, "42501");
  world.pass(5 * kSecond);
  EXPECT_EQ(world.opens, before) << "not asked again for the same waiters";
  EXPECT_TRUE(world.refused.empty());
  world.acquire(pool, 3);
  EXPECT_EQ(world.opens, before + 1) << "asked again for a new one";
  world.fail_next(FailureKind::rejected, "42501");
  world.release(1);
  EXPECT_TRUE(world.holds(2));
  EXPECT_EQ(world.closed.size(), 0U);
}

TEST(ProxyPoolsFailures, WaitersOfARejectedPoolAreToldWhenTheLastOpenConnectionGoes) {
  PoolsWorld world;
  const PoolId pool = world.pool("a");
  world.warm(pool, 1);
  world.acquire(pool, 1);
  world.acquire(pool, 2);
  world.pass(60 * kMillisecond);
  world.fail_next(FailureKind::rejected, "3D000");
  world.pools.lost(world.held.at(1), world.now);
  world.drain();
  ASSERT_TRUE(world.refused.contains(2));
  EXPECT_EQ(world.refused.at(2).failure->sqlstate, "3D000");
}

// E11 and B7: not now, for 2 s. One prober every 100 ms, and the clients see nothing of it.
TEST(ProxyPoolsFailures, AServerThatIsFullOrStartsIsAskedEvery100MsByOne) {
  for (const char* sqlstate : {"57P03", "53300"}) {
    PoolsWorld world;
    const PoolId pool = world.pool("a");
    world.fail_in(0, FailureKind::full, sqlstate);
    for (WaiterId waiter = 1; waiter <= 10; waiter++) world.acquire(pool, waiter);
    for (int i = 0; i < 200; i++) {
      world.pass(10 * kMillisecond);
      ASSERT_LE(world.connecting.size(), 1U);
    }
    EXPECT_GE(world.opens, 19U);
    EXPECT_LE(world.opens, 21U);
    EXPECT_TRUE(world.refused.empty());
    world.connect_in(5 * kMillisecond);
    world.hold_for(kMillisecond);
    world.pass(200 * kMillisecond);
    EXPECT_EQ(world.served.size(), 10U);
    EXPECT_TRUE(world.refused.empty());
  }
}

// A13: "full" closes nothing and gives nobody up.
TEST(ProxyPoolsFailures, AFullServerCostsNoEstablishedConnection) {
  PoolsWorld world;
  const PoolId pool = world.pool("a");
  world.warm(pool, 2);
  world.acquire(pool, 1);
  world.acquire(pool, 2);
  world.fail_in(kMillisecond, FailureKind::full, "53300");
  world.acquire(pool, 3);
  world.pass(20 * kSecond);
  EXPECT_TRUE(world.closed.empty());
  EXPECT_TRUE(world.refused.empty());
  ASSERT_NE(world.status(pool).failure, nullptr);
  EXPECT_EQ(world.status(pool).failure->kind, FailureKind::full);
  EXPECT_LE(world.opens, 2 + 201U);
  world.release(1);
  EXPECT_TRUE(world.holds(3));
}

TEST(ProxyPoolsFailures, TheOldestWaiterGetsTheLastErrorWhenItsTimeIsOver) {
  PoolsWorld world;
  PoolOptions options;
  options.wait_timeout = 3 * kSecond;
  const PoolId pool = world.pool("a", options);
  world.fail_in(kMillisecond, FailureKind::full, "57P03");
  world.acquire(pool, 1);
  world.pass(kSecond);
  world.acquire(pool, 2);
  world.fail_in(kMillisecond, FailureKind::full, "53300");
  world.pass(2 * kSecond);
  ASSERT_TRUE(world.refused.contains(1));
  EXPECT_EQ(world.refused.at(1).refuse_reason, RefuseReason::connect_failed);
  EXPECT_EQ(world.refused.at(1).failure->sqlstate, "53300");
  EXPECT_FALSE(world.refused.contains(2)) << "its own time is not over";
  const std::uint32_t before = world.opens;
  world.pass(10 * kSecond);
  EXPECT_LE(world.opens, before + 11) << "nobody asks for nobody";
}

// B9: one success, then the server is gone, five clients queue.
TEST(ProxyPoolsFailures, AnUnreachableServerFailsItsWaitersEarlyOnceNoConnectionIsOpen) {
  PoolsWorld world;
  const PoolId pool = world.pool("a");
  world.warm(pool, 1);
  world.acquire(pool, 0);
  world.fail_in(kMillisecond, FailureKind::unreachable, "08006");
  for (WaiterId waiter = 1; waiter <= 5; waiter++) world.acquire(pool, waiter);
  world.pass(8 * kSecond);
  EXPECT_TRUE(world.refused.empty()) << "not while one works";
  world.pools.lost(world.held.at(0), world.now);
  world.drain();
  world.pass(200 * kMillisecond);
  ASSERT_EQ(world.refused.size(), 5U);
  EXPECT_EQ(world.refused.at(1).refuse_reason, RefuseReason::connect_failed);
  EXPECT_EQ(world.refused.at(1).failure->sqlstate, "08006");
}

TEST(ProxyPoolsFailures, AShortAbsenceOfTheServerIsNotSeen) {
  PoolsWorld world;
  const PoolId pool = world.pool("a");
  world.fail_in(kMillisecond, FailureKind::unreachable, "08006");
  for (WaiterId waiter = 1; waiter <= 5; waiter++) world.acquire(pool, waiter);
  world.pass(1900 * kMillisecond);
  EXPECT_TRUE(world.refused.empty());
  world.connect_in(5 * kMillisecond);
  world.hold_for(kMillisecond);
  world.pass(200 * kMillisecond);
  EXPECT_EQ(world.served.size(), 5U);
}

TEST(ProxyPoolsFailures, WhileTheServerStaysAwayNewcomersFailWithinARetry) {
  PoolsWorld world;
  const PoolId pool = world.pool("a");
  world.fail_in(kMillisecond, FailureKind::unreachable, "08006");
  Time worst = 0;
  for (WaiterId waiter = 1; waiter <= 100; waiter++) {
    world.acquire(pool, waiter);
    world.pass(100 * kMillisecond);
  }
  world.pass(kSecond);
  for (const auto& [waiter, action] : world.refused) {
    if (waiter > 30) worst = std::max(worst, action.waited);
  }
  EXPECT_EQ(world.refused.size(), 100U);
  EXPECT_LE(worst, 210 * kMillisecond);
}

TEST(ProxyPoolsFailures, AnOldFailureIsNotTheBeginningOfANewOne) {
  PoolsWorld world;
  const PoolId pool = world.pool("a");
  world.fail_in(kMillisecond, FailureKind::unreachable, "08006");
  world.acquire(pool, 1);
  world.pass(10 * kSecond);
  ASSERT_TRUE(world.refused.contains(1));
  world.pass(3600 * kSecond);
  world.acquire(pool, 2);
  world.pass(kSecond);
  EXPECT_FALSE(world.refused.contains(2)) << "it has the whole time of grace";
  world.pass(2 * kSecond);
  EXPECT_TRUE(world.refused.contains(2));
}

TEST(ProxyPoolsFailures, AServerThatAnswersAgainThoughItIsStartingIsNotGivenUp) {
  PoolsWorld world;
  const PoolId pool = world.pool("a");
  world.fail_in(kMillisecond, FailureKind::unreachable, "08006");
  world.acquire(pool, 1);
  world.pass(1500 * kMillisecond);
  world.fail_in(kMillisecond, FailureKind::full, "57P03");
  world.pass(10 * kSecond);
  EXPECT_TRUE(world.refused.empty());
  world.connect_in(kMillisecond);
  world.pass(200 * kMillisecond);
  EXPECT_TRUE(world.holds(1));
}

TEST(ProxyPoolsFailures, ALoginWithoutAnEndIsCutOffAndCountsAsUnreachable) {
  PoolsWorld world;
  PoolOptions options;
  options.connect_timeout = kSecond;
  options.wait_timeout = 60 * kSecond;
  const PoolId pool = world.pool("a", options);
  world.acquire(pool, 1);
  world.pass(kSecond);
  EXPECT_GE(world.closed_for(CloseReason::connect_timeout), 1U);
  world.pass(10 * kSecond);
  ASSERT_TRUE(world.refused.contains(1));
  EXPECT_EQ(world.refused.at(1).failure->sqlstate, "08006");
  EXPECT_EQ(world.refused.at(1).failure->kind, FailureKind::unreachable);
}

// E8: what the proxy closes itself while it logs in is no failure of the server.
TEST(ProxyPoolsFailures, ALoginThatWasClosedFromHereIsNoFailure) {
  PoolsWorld world;
  world.answers_closes = false;
  const PoolId pool = world.pool("a");
  for (int round = 0; round < 20; round++) {
    for (WaiterId waiter = 1; waiter <= 5; waiter++) world.acquire(pool, waiter);
    world.pools.retire_pool(pool, world.now);
    world.drain();
    const std::vector<ServerId> closing = world.closed;
    world.closed.clear();
    for (const ServerId server : closing) {
      world.pools.open_failed(server, {FailureKind::rejected, "57P01", "closed"}, world.now);
      world.drain();
    }
    EXPECT_EQ(world.status(pool).closing, 0U);
    EXPECT_EQ(world.status(pool).failure, nullptr);
    EXPECT_EQ(world.status(pool).waiting, 5U);
    EXPECT_GE(world.connecting.size(), 1U) << "another one is opened at once";
    world.pass(100 * kMillisecond);
  }
  EXPECT_TRUE(world.refused.empty());
  while (!world.connecting.empty()) world.open_next();
  EXPECT_TRUE(world.holds(1));
}

// E12: every client leaves inside its transaction and costs a connection.
TEST(ProxyPoolsFailures, ConnectionsThatAreSpentAreReplacedWithinTheCap) {
  PoolLimits limits;
  limits.connects_per_second = 50;
  limits.max_connecting = 5;
  PoolsWorld world(limits);
  PoolOptions options;
  options.max_size = 5;
  const PoolId pool = world.pool("a", options);
  world.connect_in(10 * kMillisecond);
  world.on_assign = [&](WaiterId waiter) { world.after(kMillisecond, [&, waiter] { world.release(waiter, false); }); };
  for (WaiterId waiter = 0; waiter < 100; waiter++) world.acquire(pool, waiter);
  for (int i = 0; i < 300; i++) {
    world.pass(10 * kMillisecond);
    ASSERT_LE(world.pools.totals().servers, 5U);
    ASSERT_LE(world.opens, 5 + static_cast<std::uint32_t>(i + 1) / 2 + 1) << "at a bounded rate";
  }
  EXPECT_EQ(world.served.size(), 100U);
  EXPECT_TRUE(world.refused.empty());
}

TEST(ProxyPoolsFailures, ALostConnectionIsNoFailureOfTheServer) {
  PoolsWorld world;
  const PoolId pool = world.pool("a");
  world.warm(pool, 2);
  world.acquire(pool, 1);
  world.pools.lost(world.held.at(1), world.now);
  world.drain();
  EXPECT_EQ(world.status(pool).failure, nullptr);
  world.acquire(pool, 2);
  EXPECT_TRUE(world.holds(2));
}

}  // namespace
}  // namespace sluice::proxy
