// What time and the operator do to pools: waits that end, connections that have become too old or too many, reloads.
#include <algorithm>
#include <string>

#include "proxy/pools.h"

namespace sluice::proxy {

namespace {

[[nodiscard]] Time after(Time since, Time span) noexcept { return span == kNever ? kNever : since + span; }

}  // namespace

// When those who wait may need a connection that did not seem necessary before. While the pool wants one already it
// hears from those that end; nothing is due then, or it would be due again and again.
Time Pools::reconsider_at(const PoolRecord& pool) const noexcept {
  if (pool.want > 0 || pool.start_gated || pool.connect_gated) return kNever;
  if (pool.size() >= pool.options.max_size) return kNever;
  const ServerList& connecting = pool.in(ConnectionPhase::connecting);
  const Time connect_time = this->connect_time(pool);
  Time again = std::max(pool.progress_at, waiters_[pool.waiters.front()].since) + connect_time / 2;
  again = std::min(again, after(pool.busy_since, pool.options.grow_after));
  if (pool.failure) {
    if (!connecting.empty()) return kNever;
    if (pool.rejected() && pool.open() > 0 && !pool.newcomer) return kNever;
    return pool.open() == 0 ? pool.retry_at : std::max(again, pool.retry_at);
  }
  if (connecting.empty()) return again;
  if (connecting.count() >= max_with_overdue()) return kNever;
  return std::max(again, servers_[connecting.back()].since + kOverdueConnectTimes * connect_time);
}

// When something of the pool ends by itself.
Time Pools::must_wake_at(const PoolRecord& pool) const noexcept {
  Time at = pool.upkeep_at;
  const ServerList& connecting = pool.in(ConnectionPhase::connecting);
  const ServerList& checking = pool.in(ConnectionPhase::checking);
  if (!connecting.empty()) at = std::min(at, after(servers_[connecting.front()].since, pool.options.connect_timeout));
  if (!checking.empty()) at = std::min(at, after(servers_[checking.front()].check_since, pool.options.check_timeout));
  if (pool.attached == 0 && pool.size() == 0) at = std::min(at, after(pool.empty_since, pool.options.gc_after));
  if (!pool.waiters.empty()) at = std::min(at, after(waiters_[pool.waiters.front()].since, pool.options.wait_timeout));
  return at;
}

Time Pools::due(const PoolRecord& pool) const noexcept {
  return pool.waiters.empty() ? must_wake_at(pool) : std::min(must_wake_at(pool), reconsider_at(pool));
}

void Pools::schedule(PoolId id, Time at) {
  if (at < deadlines_.time_of(id)) deadlines_.set(id, at);
}

void Pools::tick(Time now) {
  for (std::uint32_t pools = 0; pools < kMaxPoolsPerTick && deadlines_.next() <= now; pools++) {
    const PoolId id = deadlines_.top();
    deadlines_.set(id, kNever);
    wake(id, now);
  }
  serve_wanting(now);
}

void Pools::wake(PoolId id, Time now) {
  PoolRecord& pool = pools_[id];
  if (pool.attached == 0 && pool.size() == 0 && pool.waiters.empty() &&
      now >= after(pool.empty_since, pool.options.gc_after)) {
    set_want(id, 0);
    forget(id);
    return;
  }
  expire(id, now);
  if (now >= pool.upkeep_at) upkeep(id, now);
  settle(id, now);
}

void Pools::expire(PoolId id, Time now) {
  PoolRecord& pool = pools_[id];
  while (!pool.waiters.empty() && now >= after(waiters_[pool.waiters.front()].since, pool.options.wait_timeout)) {
    const bool none_opens = pool.failure && pool.open() == 0;
    refuse(pool.waiters.front(), none_opens ? RefuseReason::connect_failed : RefuseReason::wait_timeout, now);
  }
  const ServerList& connecting = pool.in(ConnectionPhase::connecting);
  while (!connecting.empty() && now >= after(servers_[connecting.front()].since, pool.options.connect_timeout)) {
    const std::uint32_t slot = connecting.front();
    const Time started = servers_[slot].since;
    close(slot, CloseReason::connect_timeout, now);
    note_failure(id, {FailureKind::unreachable, "08006", "the server did not complete the login in time"}, started,
                 now);
  }
  const ServerList& checking = pool.in(ConnectionPhase::checking);
  while (!checking.empty() && now >= after(servers_[checking.front()].check_since, pool.options.check_timeout)) {
    condemn_stale(checking.front(), now);
  }
}

// A check that failed speaks for all that have been idle at least as long: a network that forgot one forgot them too.
void Pools::condemn_stale(std::uint32_t slot, Time now) {
  const PoolRecord& pool = pools_[servers_[slot].pool];
  const Time idle_since = servers_[slot].since;
  close(slot, CloseReason::check_failed, now);
  const ServerList& idle = pool.in(ConnectionPhase::idle);
  while (!idle.empty() && servers_[idle.back()].since <= idle_since &&
         now - servers_[idle.back()].since >= pool.options.check_after) {
    close(idle.back(), CloseReason::check_failed, now);
  }
}

// Once a second while connections are idle, from the one that has been so longest.
void Pools::upkeep(PoolId id, Time now) {
  PoolRecord& pool = pools_[id];
  const ServerList& idle = pool.in(ConnectionPhase::idle);
  pool.peak.note(pool.in(ConnectionPhase::assigned).count(), now);
  const std::uint32_t peak = pool.peak.value(now);
  std::uint32_t slot = idle.back();
  while (slot != kNoIndex) {
    const ServerRecord& server = servers_[slot];
    const std::uint32_t newer = server.in_pool.previous;
    if (now >= after(server.since, pool.options.idle_timeout)) {
      close(slot, CloseReason::idle_timeout, now);
    } else if (now >= server.retire_at) {
      close(slot, CloseReason::lifetime, now);
    } else if (idle.count() > pool.options.max_idle ||
               (pool.staying() > peak && now >= after(server.since, pool.options.surplus_after))) {
      close(slot, CloseReason::surplus, now);
    }
    slot = newer;
  }
  pool.upkeep_at = idle.empty() ? kNever : now + kUpkeepInterval;
}

// --- Retiring ----------------------------------------------------------------------------------------------------

void Pools::retire_slot(std::uint32_t slot, CloseReason reason, Time now) {
  ServerRecord& server = servers_[slot];
  switch (server.state) {
    case ConnectionPhase::connecting:
    case ConnectionPhase::idle:
    case ConnectionPhase::checking:
      close(slot, reason, now);
      break;
    case ConnectionPhase::assigned:
      if (!server.retiring) server.retire_reason = reason;
      server.retiring = true;
      break;
    case ConnectionPhase::closing:
    case ConnectionPhase::free:
      break;
  }
}

void Pools::retire(ServerId server, Time now) {
  const std::uint32_t slot = slot_of(server);
  if (slot == kNoIndex) return;
  const PoolId id = servers_[slot].pool;
  retire_slot(slot, CloseReason::retired, now);
  settle(id, now);
}

void Pools::retire_pool(PoolId id, Time now) {
  for (const ConnectionPhase state :
       {ConnectionPhase::connecting, ConnectionPhase::idle, ConnectionPhase::checking, ConnectionPhase::assigned}) {
    std::uint32_t slot = pools_[id].in(state).front();
    while (slot != kNoIndex) {
      const std::uint32_t next = servers_[slot].in_pool.next;
      retire_slot(slot, CloseReason::retired, now);
      slot = next;
    }
  }
  settle(id, now);
}

void Pools::retire_all(Time now) {
  for_each_pool([&](PoolId id) { retire_pool(id, now); });
}

void Pools::snapshot_moved(ServerId newest, Time now) {
  const std::uint32_t newest_slot = slot_of(newest);
  if (newest_slot == kNoIndex) return;
  const PoolId id = servers_[newest_slot].pool;
  PoolRecord& pool = pools_[id];
  pool.snapshot++;
  servers_[newest_slot].snapshot = pool.snapshot;
  // Those that are still connecting will be compared with the new one.
  for (const ConnectionPhase state : {ConnectionPhase::idle, ConnectionPhase::checking, ConnectionPhase::assigned}) {
    std::uint32_t slot = pool.in(state).front();
    while (slot != kNoIndex) {
      const std::uint32_t next = servers_[slot].in_pool.next;
      if (servers_[slot].snapshot != pool.snapshot) retire_slot(slot, CloseReason::snapshot_moved, now);
      slot = next;
    }
  }
  settle(id, now);
}

// --- Changes of the configuration and of the gate ----------------------------------------------------------------

void Pools::gate_changed(PoolId id, Time now) {
  pools_[id].start_gated = false;
  pools_[id].connect_gated = false;
  settle(id, now);
}

// Down to max_size: idle ones at once, then those that are being opened. Those in use go when they are released.
void Pools::shrink(PoolId id, Time now) {
  const PoolRecord& pool = pools_[id];
  for (const ConnectionPhase state : {ConnectionPhase::idle, ConnectionPhase::connecting}) {
    const ServerList& list = pool.in(state);
    while (!list.empty() && pool.staying() > pool.options.max_size) close(list.back(), CloseReason::over_limit, now);
  }
}

void Pools::set_options(PoolId id, const PoolOptions& options, Time now) {
  PoolRecord& pool = pools_[id];
  pool.options = options;
  shrink(id, now);
  // What was due in a second may be due now.
  if (pool.upkeep_at != kNever) upkeep(id, now);
  settle(id, now);
}

void Pools::set_limits(const PoolLimits& limits, Time now) {
  limits_ = limits;
  paced_until_ = std::min(paced_until_, now);
  const auto staying = [this] { return total_ - totals_[static_cast<std::size_t>(ConnectionPhase::closing)]; };
  while (!idle_.empty() && staying() > limits_.max_total) close(idle_.back(), CloseReason::over_limit, now);
  for_each_pool([&](PoolId id) {
    const ServerList& connecting = pools_[id].in(ConnectionPhase::connecting);
    while (!connecting.empty() && staying() > limits_.max_total) {
      close(connecting.back(), CloseReason::over_limit, now);
    }
    settle(id, now);
  });
  serve_wanting(now);
}

}  // namespace sluice::proxy
