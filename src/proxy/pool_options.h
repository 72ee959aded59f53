// What an operator decides about pools: one PoolOptions a pool, one PoolLimits for all pools of the process. Both may
// change at any time (Pools::set_options, Pools::set_limits); whatever exceeds a lowered limit goes as soon as it is
// idle.
#pragma once

#include <cstdint>

#include "proxy/profile.h"
#include "proxy/time.h"

namespace sluice::proxy {

inline constexpr std::uint32_t kNoPoolLimit = 0xFFFFFFFF;

struct PoolOptions {
  PoolMode mode = PoolMode::transaction;

  std::uint32_t max_size = 20;      // connections of the pool in any state, logins and closing ones included
  std::uint32_t max_waiters = 500;  // at least 1: also who waits for the first connection is a waiter
  Time wait_timeout = 30 * kSecond;

  // At most so many pools that differ in their startup options only; 0: any number. Only the strict profile has them.
  std::uint32_t max_startup_sets = 2;

  // Opening.
  Time connect_timeout = 5 * kSecond;  // from `open` to `opened`, over all phases of the login
  Time retry_interval = 100 * kMillisecond;
  // A server that could not be reached for this long, and of which no connection is open, fails its waiters at once. It
  // never applies to a server that answers: one that is full or starting is waited for.
  Time fail_early_after = 2 * kSecond;
  // What a new connection costs at least. The proxy measures the login alone; the server's fork and its cold caches are
  // paid on top, so a quick login is no reason to open many.
  Time least_connect_time = 50 * kMillisecond;
  // A queue that was not empty once for this long is lasting demand: one more connection, although each waiter by
  // itself is served soon. kNever: never for this reason.
  Time grow_after = 100 * kMillisecond;

  // Keeping.
  std::uint32_t max_idle = kNoPoolLimit;
  Time idle_timeout = 600 * kSecond;
  Time lifetime = 3600 * kSecond;
  Time lifetime_jitter = 360 * kSecond;  // up to so much is added, so that connections of one moment do not end in one
  Time surplus_after = 5 * kSecond;      // how long what exceeds the recent peak may be idle
  Time check_after = 30 * kSecond;       // idle longer than this: one round trip before it is assigned
  Time check_timeout = 2 * kSecond;
  Time gc_after = 300 * kSecond;  // how long a pool without clients and connections is remembered
};

struct PoolLimits {
  std::uint32_t max_total = 100;          // connections of all pools in any state, logins and closing ones included
  std::uint32_t max_connecting = 8;       // logins in progress over all pools
  std::uint32_t connects_per_second = 0;  // over all pools, with a burst of max_connecting; 0: any number
  std::uint32_t max_pools = 10000;
  // While max_total is reached: a pool without a connection whose oldest waiter has waited this long gets the next one
  // that another pool releases, even if that one's own clients wait.
  Time starved_after = 1 * kSecond;
};

}  // namespace sluice::proxy
