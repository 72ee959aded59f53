// When pools open connections, which pool is next, and what follows when it does not work.
#include <algorithm>
#include <utility>

#include "proxy/pools.h"

namespace sluice::proxy {

Time Pools::connect_time(const PoolRecord& pool) const noexcept {
  return ServiceForecast::connect_time_of(pool.history, history_, pool.options.least_connect_time);
}

// How many logins take so long that nobody should count on them. The oldest are in front.
std::uint32_t Pools::overdue(const PoolRecord& pool, Time now) const noexcept {
  const ServerList& connecting = pool.in(ConnectionPhase::connecting);
  if (connecting.empty()) return 0;
  const Time latest = now - kOverdueConnectTimes * connect_time(pool);
  std::uint32_t count = 0;
  for (std::uint32_t slot = connecting.front(); slot != kNoIndex && servers_[slot].since <= latest;) {
    count++;
    slot = servers_[slot].in_pool.next;
  }
  return count;
}

// A pool whose logins hang tries a few more, and leaves the others' share of max_connecting alone.
std::uint32_t Pools::max_with_overdue() const noexcept { return std::max(2U, limits_.max_connecting / 2); }

// Whether the leases of the moment are unlike those of the past: overlong, and none has ended since. The oldest are in
// front.
bool Pools::hanging(const PoolRecord& pool, const ServiceForecast& forecast, Time now) const noexcept {
  std::uint32_t missing = pool.history.holds.has_enough() ? 2 : 1;
  std::uint32_t slot = pool.in(ConnectionPhase::assigned).front();
  for (std::uint32_t seen = 0; slot != kNoIndex && seen < kMaxLeasesForecast; seen++) {
    const ServerRecord& server = servers_[slot];
    slot = server.in_pool.next;
    if (server.pinned) continue;
    if (pool.released_at > server.since || forecast.by_lease(now - server.since) > 0) return false;
    if (--missing == 0) return true;
  }
  return false;
}

// How many connections the waiters need whom nothing that is under way would serve in time.
std::uint32_t Pools::unserved_openings(const PoolRecord& pool, Time now) const noexcept {
  const ServiceForecast forecast(pool.history, history_, pool.options.least_connect_time);
  const std::uint32_t coming =
      pool.in(ConnectionPhase::connecting).count() - overdue(pool, now) + pool.in(ConnectionPhase::checking).count();
  const double waiting = pool.waiters.count();
  if (hanging(pool, forecast, now)) return ServiceForecast::openings_for(waiting - coming, 1);
  double served = coming * forecast.by_opening();
  std::uint32_t slot = pool.in(ConnectionPhase::assigned).front();
  for (std::uint32_t seen = 0; slot != kNoIndex && served < waiting && seen < kMaxLeasesForecast; seen++) {
    const ServerRecord& server = servers_[slot];
    if (!server.pinned && !server.retiring) served += forecast.by_lease(now - server.since);
    slot = server.in_pool.next;
  }
  return ServiceForecast::openings_for(waiting - served, forecast.by_opening());
}

// How many connections the pool would open now, if only its own limits counted.
std::uint32_t Pools::wanted(const PoolRecord& pool, Time now) const noexcept {
  if (pool.waiters.empty() || pool.start_gated || pool.connect_gated) return 0;
  if (pool.size() >= pool.options.max_size) return 0;
  const std::uint32_t connecting = pool.in(ConnectionPhase::connecting).count();
  const std::uint32_t late = overdue(pool, now);
  if (late > 0 && connecting >= max_with_overdue()) return 0;
  if (pool.failure) {
    // One attempt at a time finds out whether it works again. What was rejected is only asked again for somebody new,
    // as long as there are connections that those who wait may hope for.
    if (connecting > 0 || now < pool.retry_at) return 0;
    if (pool.rejected() && pool.open() > 0 && !pool.newcomer) return 0;
  }
  std::uint32_t want = unserved_openings(pool, now);
  if (connecting == late) {
    const Time waiting_since = std::max(pool.progress_at, waiters_[pool.waiters.front()].since);
    const bool stalled = now - waiting_since >= connect_time(pool) / 2;
    const bool lasting = pool.options.grow_after != kNever && now - pool.busy_since >= pool.options.grow_after;
    if (pool.open() == 0 || stalled || lasting) want = std::max(want, 1U);
  }
  if (pool.failure) want = std::min(want, 1U);
  return std::min({want, pool.options.max_size - pool.size(), pool.waiters.count()});
}

void Pools::set_want(PoolId id, std::uint32_t want) {
  PoolRecord& pool = pools_[id];
  want_total_ = want_total_ - pool.want + want;
  pool.want = want;
  Wanting wanting = Wanting::no;
  if (want > 0) wanting = pool.staying() == 0 ? Wanting::first : Wanting::more;
  if (wanting == pool.wanting) return;
  if (pool.wanting == Wanting::first) wanting_first_.erase(pools_, id);
  if (pool.wanting == Wanting::more) wanting_more_.erase(pools_, id);
  if (wanting == Wanting::first) wanting_first_.push_back(pools_, id);
  if (wanting == Wanting::more) wanting_more_.push_back(pools_, id);
  pool.wanting = wanting;
}

void Pools::consider(PoolId id, Time now) {
  PoolRecord& pool = pools_[id];
  if (pool.rejected() && pool.staying() == 0 && now < pool.retry_at) {
    refuse_all(id, RefuseReason::connect_failed, now);
  }
  set_want(id, wanted(pool, now));
}

// Opens what pools want as far as the limits of the process allow. Every round opens a connection, or takes a pool out
// of the lists, or is the last.
void Pools::serve_wanting(Time now) {
  pace_wakes_at_ = kNever;
  while (want_total_ > 0 && totals_[static_cast<std::size_t>(ConnectionPhase::connecting)] < limits_.max_connecting) {
    if (const Time allowed = connect_allowed_at(); allowed > now) {
      pace_wakes_at_ = allowed;
      return;
    }
    const PoolId id = wanting_first_.empty() ? wanting_more_.front() : wanting_first_.front();
    PoolRecord& pool = pools_[id];
    // Much may have been released since it asked.
    consider(id, now);
    if (pool.want == 0) {
      schedule(id, due(pool));
      continue;
    }
    if (total_ >= limits_.max_total || total_ >= kMaxServers) {
      evict_idle(now);
      return;
    }
    if (gate_.may_connect(pool.key, now) != GateAnswer::yes) {
      pool.connect_gated = true;
      set_want(id, 0);
      continue;
    }
    open_one(id, now);
    const std::uint32_t left = pool.want - 1;
    // To the end of the list: pools take turns.
    set_want(id, 0);
    set_want(id, left);
    schedule(id, due(pool));
  }
}

// As many of the longest idle as the pools that want one could open now; those under way out are counted.
void Pools::evict_idle(Time now) {
  const std::uint32_t connecting = totals_[static_cast<std::size_t>(ConnectionPhase::connecting)];
  const std::uint32_t needed = std::min(want_total_, limits_.max_connecting - connecting);
  const std::uint32_t over = total_ - std::min(total_, limits_.max_total);
  while (!idle_.empty() && totals_[static_cast<std::size_t>(ConnectionPhase::closing)] < needed + over) {
    close(idle_.back(), CloseReason::evicted, now);
  }
}

void Pools::open_one(PoolId id, Time now) {
  std::uint32_t slot = static_cast<std::uint32_t>(servers_.size());
  if (free_servers_.empty()) {
    servers_.emplace_back();
    servers_[slot].generation = 1;
  } else {
    slot = free_servers_.back();
    free_servers_.pop_back();
  }
  servers_[slot].pool = id;
  total_++;
  move(slot, ConnectionPhase::connecting, now);
  if (limits_.connects_per_second > 0)
    paced_until_ = std::max(paced_until_, now) + kSecond / limits_.connects_per_second;
  actions_.push_back({.kind = PoolActionKind::open, .pool = id, .server = id_of(slot)});
}

Time Pools::connect_allowed_at() const noexcept {
  if (limits_.connects_per_second == 0) return 0;
  const Time interval = kSecond / limits_.connects_per_second;
  return paced_until_ - interval * static_cast<Time>(std::max(limits_.max_connecting, 1U) - 1);
}

// Whether the connection that this pool is about to hand on belongs to one that has none, and waited long enough.
bool Pools::starving_elsewhere(const PoolRecord& pool, Time now) const noexcept {
  if (wanting_first_.empty() || total_ < limits_.max_total || pool.staying() < 2) return false;
  if (totals_[static_cast<std::size_t>(ConnectionPhase::closing)] >= wanting_first_.count()) return false;
  if (totals_[static_cast<std::size_t>(ConnectionPhase::connecting)] >= limits_.max_connecting) return false;
  const PoolRecord& starved = pools_[wanting_first_.front()];
  return !starved.waiters.empty() && now - waiters_[starved.waiters.front()].since >= limits_.starved_after;
}

// --- Failures ----------------------------------------------------------------------------------------------------

void Pools::open_failed(ServerId server, ConnectFailure failure, Time now) {
  const std::uint32_t slot = slot_of(server);
  if (slot == kNoIndex) return;
  if (servers_[slot].state != ConnectionPhase::connecting) {
    // It was closed from here meanwhile, which says nothing about the server.
    if (servers_[slot].state == ConnectionPhase::closing) lost(server, now);
    return;
  }
  const PoolId id = servers_[slot].pool;
  const Time started = servers_[slot].since;
  free_server(slot, now);
  note_failure(id, std::move(failure), started, now);
  settle(id, now);
}

void Pools::note_failure(PoolId id, ConnectFailure failure, Time started, Time now) {
  PoolRecord& pool = pools_[id];
  // Without anybody who waits nobody asks, so an old failure is not the beginning of this one.
  const bool goes_on = pool.failure && pool.failure->kind == failure.kind &&
                       started - pool.failed_at <= std::max(pool.options.fail_early_after, pool.options.retry_interval);
  if (!goes_on) pool.failing_since = started;
  pool.failed_at = now;
  pool.retry_at = now + pool.options.retry_interval;
  pool.newcomer = false;
  pool.failure = std::make_shared<const ConnectFailure>(std::move(failure));
  if (pool.open() > 0) return;
  switch (pool.failure->kind) {
    case FailureKind::full:
      break;
    case FailureKind::rejected:
      refuse_all(id, RefuseReason::connect_failed, now);
      break;
    case FailureKind::unreachable:
      if (pool.in(ConnectionPhase::connecting).empty() && now - pool.failing_since >= pool.options.fail_early_after) {
        refuse_all(id, RefuseReason::connect_failed, now);
      }
      break;
  }
}

// After anything that changed who waits or what is there to serve them.
void Pools::settle(PoolId id, Time now) {
  serve(id, AssignSource::idle, now);
  consider(id, now);
  serve_wanting(now);
  if (pools_[id].used) schedule(id, due(pools_[id]));
}

}  // namespace sluice::proxy
