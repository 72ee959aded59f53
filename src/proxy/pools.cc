#include "proxy/pools.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace sluice::proxy {

namespace {

constexpr std::uint32_t kGenerationShift = 32;

// splitmix64.
[[nodiscard]] std::uint64_t next_random(std::uint64_t& state) noexcept {
  state += 0x9E3779B97F4A7C15U;
  std::uint64_t value = state;
  value = (value ^ (value >> 30U)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27U)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31U);
}

[[nodiscard]] PoolKey family_of(const PoolKey& key) { return {key.user, key.database, {}}; }

}  // namespace

std::size_t Pools::KeyHash::operator()(const PoolKey& key) const noexcept {
  constexpr std::size_t kSpread = 0x9E3779B97F4A7C15U;
  const std::hash<std::string> hash;
  return (hash(key.user) * kSpread + hash(key.database)) * kSpread + hash(key.startup);
}

Pools::Pools(const PoolLimits& limits, ConnectGate& gate, std::uint64_t seed)
    : limits_(limits), gate_(gate), random_(seed), history_(ConnectHistory::assumed()), waiting_(&nodes_) {}

// --- Tables ------------------------------------------------------------------------------------------------------

std::uint32_t Pools::slot_of(ServerId server) const noexcept {
  const auto slot = static_cast<std::uint32_t>(server);
  if (slot >= servers_.size() || servers_[slot].state == ConnectionPhase::free) return kNoIndex;
  return id_of(slot) == server ? slot : kNoIndex;
}

ServerId Pools::id_of(std::uint32_t slot) const noexcept {
  return ServerId{servers_[slot].generation} << kGenerationShift | slot;
}

// From its list into another one, counts included. The time of a connection that is checked stays that of its idleness.
void Pools::move(std::uint32_t slot, ConnectionPhase state, Time now) {
  ServerRecord& server = servers_[slot];
  PoolRecord& pool = pools_[server.pool];
  if (server.state != ConnectionPhase::free) {
    pool.servers[static_cast<std::size_t>(server.state)].erase(servers_, slot);
    totals_[static_cast<std::size_t>(server.state)]--;
  }
  if (server.state == ConnectionPhase::idle) idle_.erase(servers_, slot);
  server.state = state;
  if (state == ConnectionPhase::checking) {
    server.check_since = now;
  } else {
    server.since = now;
  }
  if (state == ConnectionPhase::free) return;
  totals_[static_cast<std::size_t>(state)]++;
  ServerList& list = pool.servers[static_cast<std::size_t>(state)];
  if (state == ConnectionPhase::idle) {
    list.push_front(servers_, slot);
    idle_.push_front(servers_, slot);
  } else {
    list.push_back(servers_, slot);
  }
}

void Pools::free_server(std::uint32_t slot, Time now) {
  ServerRecord& server = servers_[slot];
  PoolRecord& pool = pools_[server.pool];
  if (server.pinned) pool.pinned--;
  move(slot, ConnectionPhase::free, now);
  const std::uint32_t generation = server.generation;
  server = {};
  server.generation = generation + 1;
  total_--;
  free_servers_.push_back(slot);
  if (pool.size() == 0) pool.empty_since = now;
}

std::uint32_t Pools::take_pool_slot() {
  if (!free_pools_.empty()) {
    const PoolId id = free_pools_.back();
    free_pools_.pop_back();
    return id;
  }
  pools_.emplace_back();
  deadlines_.resize(pools_.size());
  return static_cast<PoolId>(pools_.size() - 1);
}

void Pools::forget(PoolId id) {
  PoolRecord& pool = pools_[id];
  by_key_.erase(pool.key);
  const auto family = families_.find(family_of(pool.key));
  std::erase(family->second, id);
  if (family->second.empty()) families_.erase(family);
  deadlines_.set(id, kNever);
  pool = {};
  free_pools_.push_back(id);
  actions_.push_back({.kind = PoolActionKind::forget, .pool = id});
}

// Whether as many sets of startup options are in use as there may be. One that nobody uses any more keeps no new one
// out: its connections are closed instead.
bool Pools::family_full(const PoolKey& family, std::uint32_t max_sets, Time now) {
  const auto found = families_.find(family);
  if (max_sets == 0 || found == families_.end() || found->second.size() < max_sets) return false;
  const std::vector<PoolId> members = found->second;
  std::uint32_t in_use = 0;
  for (const PoolId id : members) {
    const PoolRecord& pool = pools_[id];
    if (pool.attached > 0 || pool.in(ConnectionPhase::assigned).count() > 0) {
      in_use++;
    } else if (pool.size() == 0) {
      forget(id);
    } else {
      retire_pool(id, now);
    }
  }
  return in_use >= max_sets;
}

// --- Clients -----------------------------------------------------------------------------------------------------

Attachment Pools::attach(const PoolKey& key, const PoolOptions& options, Time now) {
  if (const auto found = by_key_.find(key); found != by_key_.end()) {
    pools_[found->second].attached++;
    return {.pool = found->second, .refused = std::nullopt};
  }
  const PoolKey family = family_of(key);
  // Taken before another pool may go: an id whose end the owner has not yet heard of must not come back meanwhile.
  const PoolId id = take_pool_slot();
  std::optional<RefuseReason> refused;
  if (family_full(family, options.max_startup_sets, now)) refused = RefuseReason::too_many_startup_sets;
  if (by_key_.size() >= limits_.max_pools) refused = RefuseReason::too_many_pools;
  if (refused) {
    free_pools_.push_back(id);
    return {.pool = 0, .refused = refused};
  }
  PoolRecord& pool = pools_[id];
  pool.key = key;
  pool.options = options;
  pool.used = true;
  pool.attached = 1;
  pool.progress_at = pool.empty_since = now;
  by_key_.emplace(key, id);
  families_[family].push_back(id);
  return {.pool = id, .refused = std::nullopt};
}

void Pools::detach(PoolId id, Time now) {
  PoolRecord& pool = pools_[id];
  if (pool.attached == 0) return;
  pool.attached--;
  if (pool.attached > 0) return;
  pool.empty_since = now;
  schedule(id, due(pool));
}

void Pools::acquire(PoolId id, WaiterId waiter, Time now) {
  PoolRecord& pool = pools_[id];
  if (pool.waiters.empty()) {
    const std::uint32_t newest = pool.in(ConnectionPhase::idle).front();
    if (newest != kNoIndex && now - servers_[newest].since < pool.options.check_after) {
      if (gate_.may_start(pool.key, waiter, now) == GateAnswer::yes) {
        assign(newest, waiter, AssignSource::idle, 0, now);
        return;
      }
      pool.start_gated = true;
    }
  }
  if (waiting_.contains(waiter)) return;
  const bool known_rejection = pool.rejected() && pool.staying() == 0 && now < pool.retry_at;
  if (known_rejection || pool.waiters.count() >= pool.options.max_waiters) {
    actions_.push_back(
        {.kind = PoolActionKind::refuse,
         .pool = id,
         .waiter = waiter,
         .refuse_reason = known_rejection ? RefuseReason::connect_failed : RefuseReason::too_many_waiters,
         .failure = known_rejection ? pool.failure : nullptr});
    if (pool.waiters.empty()) pool.start_gated = false;
    return;
  }
  std::uint32_t slot = static_cast<std::uint32_t>(waiters_.size());
  if (free_waiters_.empty()) {
    waiters_.emplace_back();
  } else {
    slot = free_waiters_.back();
    free_waiters_.pop_back();
  }
  waiters_[slot].id = waiter;
  waiters_[slot].pool = id;
  waiters_[slot].since = now;
  if (pool.waiters.empty()) pool.busy_since = now;
  pool.waiters.push_back(waiters_, slot);
  pool.newcomer = true;
  waiting_.emplace(waiter, slot);
  settle(id, now);
}

bool Pools::leave(WaiterId waiter, Time now) {
  const auto found = waiting_.find(waiter);
  if (found == waiting_.end()) return false;
  const PoolId id = waiters_[found->second].pool;
  drop_waiter(found->second);
  settle(id, now);
  return true;
}

bool Pools::pin(ServerId id) {
  const std::uint32_t slot = slot_of(id);
  if (slot == kNoIndex || servers_[slot].state != ConnectionPhase::assigned) return false;
  if (servers_[slot].pinned) return true;
  PoolRecord& pool = pools_[servers_[slot].pool];
  if (pool.options.mode != PoolMode::session && pool.pinned >= pool.options.max_size / 2) return false;
  servers_[slot].pinned = true;
  pool.pinned++;
  return true;
}

// --- Serving -----------------------------------------------------------------------------------------------------

void Pools::assign(std::uint32_t slot, WaiterId waiter, AssignSource source, Time waited, Time now) {
  ServerRecord& server = servers_[slot];
  PoolRecord& pool = pools_[server.pool];
  move(slot, ConnectionPhase::assigned, now);
  server.waiter = waiter;
  pool.progress_at = now;
  pool.peak.note(pool.in(ConnectionPhase::assigned).count(), now);
  actions_.push_back({.kind = PoolActionKind::assign,
                      .pool = server.pool,
                      .server = id_of(slot),
                      .waiter = waiter,
                      .source = source,
                      .waited = waited});
}

// Idle connections to the oldest waiters. One that has been idle for long is checked first, one for each waiter at
// most.
void Pools::serve(PoolId id, AssignSource source, Time now) {
  PoolRecord& pool = pools_[id];
  while (!pool.waiters.empty() && !pool.start_gated) {
    const std::uint32_t newest = pool.in(ConnectionPhase::idle).front();
    if (newest == kNoIndex) return;
    if (now - servers_[newest].since >= pool.options.check_after) {
      if (pool.in(ConnectionPhase::checking).count() >= pool.waiters.count()) return;
      move(newest, ConnectionPhase::checking, now);
      actions_.push_back({.kind = PoolActionKind::check, .pool = id, .server = id_of(newest)});
      continue;
    }
    const std::uint32_t oldest = pool.waiters.front();
    const WaiterRecord waiter = waiters_[oldest];
    if (gate_.may_start(pool.key, waiter.id, now) != GateAnswer::yes) {
      pool.start_gated = true;
      return;
    }
    drop_waiter(oldest);
    assign(newest, waiter.id, source, now - waiter.since, now);
  }
}

std::optional<CloseReason> Pools::reason_to_close(const ServerRecord& server, Time now) const noexcept {
  const PoolRecord& pool = pools_[server.pool];
  if (server.retiring) return server.retire_reason;
  if (now >= server.retire_at) return CloseReason::lifetime;
  if (pool.staying() > pool.options.max_size) return CloseReason::over_limit;
  if (total_ - totals_[static_cast<std::size_t>(ConnectionPhase::closing)] > limits_.max_total)
    return CloseReason::over_limit;
  return std::nullopt;
}

// A connection has become free: to the oldest waiter, or idle, or closed.
void Pools::place(std::uint32_t slot, AssignSource source, Time now) {
  const PoolId id = servers_[slot].pool;
  PoolRecord& pool = pools_[id];
  std::optional<CloseReason> reason = reason_to_close(servers_[slot], now);
  if (!reason && source == AssignSource::released && starving_elsewhere(pool, now)) reason = CloseReason::evicted;
  if (reason) {
    close(slot, *reason, now);
    return;
  }
  move(slot, ConnectionPhase::idle, now);
  serve(id, source, now);
  const ServerList& idle = pool.in(ConnectionPhase::idle);
  if (idle.empty()) return;
  if (idle.count() > pool.options.max_idle) close(idle.back(), CloseReason::surplus, now);
  if (pool.upkeep_at == kNever) {
    pool.upkeep_at = now + kUpkeepInterval;
    schedule(id, pool.upkeep_at);
  }
}

void Pools::close(std::uint32_t slot, CloseReason reason, Time now) {
  ServerRecord& server = servers_[slot];
  if (server.pinned) {
    server.pinned = false;
    pools_[server.pool].pinned--;
  }
  server.waiter = 0;
  move(slot, ConnectionPhase::closing, now);
  actions_.push_back(
      {.kind = PoolActionKind::close, .pool = server.pool, .server = id_of(slot), .close_reason = reason});
}

void Pools::drop_waiter(std::uint32_t slot) {
  const PoolId id = waiters_[slot].pool;
  PoolRecord& pool = pools_[id];
  if (pool.waiters.front() == slot) pool.start_gated = false;
  waiting_.erase(waiters_[slot].id);
  pool.waiters.erase(waiters_, slot);
  free_waiters_.push_back(slot);
  if (pool.want > pool.waiters.count()) set_want(id, pool.waiters.count());
}

void Pools::refuse(std::uint32_t slot, RefuseReason reason, Time now) {
  const WaiterRecord waiter = waiters_[slot];
  drop_waiter(slot);
  actions_.push_back({.kind = PoolActionKind::refuse,
                      .pool = waiter.pool,
                      .waiter = waiter.id,
                      .waited = now - waiter.since,
                      .refuse_reason = reason,
                      .failure = pools_[waiter.pool].failure});
}

void Pools::refuse_all(PoolId id, RefuseReason reason, Time now) {
  while (!pools_[id].waiters.empty()) refuse(pools_[id].waiters.front(), reason, now);
}

// --- Connections -------------------------------------------------------------------------------------------------

void Pools::opened(ServerId server, Time now) {
  const std::uint32_t slot = slot_of(server);
  if (slot == kNoIndex || servers_[slot].state != ConnectionPhase::connecting) return;
  ServerRecord& record = servers_[slot];
  PoolRecord& pool = pools_[record.pool];
  pool.history.connects.add(now - record.since);
  history_.connects.add(now - record.since);
  pool.failure = nullptr;
  pool.busy_since = now;
  record.snapshot = pool.snapshot;
  record.retire_at = kNever;
  if (pool.options.lifetime != kNever) {
    const auto jitter = static_cast<std::uint64_t>(std::max<Time>(pool.options.lifetime_jitter, 0));
    record.retire_at = now + pool.options.lifetime + static_cast<Time>(next_random(random_) % (jitter + 1));
  }
  const PoolId id = record.pool;
  place(slot, AssignSource::opened, now);
  settle(id, now);
}

void Pools::released(ServerId server, bool reusable, Time now) {
  const std::uint32_t slot = slot_of(server);
  if (slot == kNoIndex || servers_[slot].state != ConnectionPhase::assigned) return;
  ServerRecord& record = servers_[slot];
  const PoolId id = record.pool;
  PoolRecord& pool = pools_[id];
  pool.peak.note(pool.in(ConnectionPhase::assigned).count(), now);
  if (record.pinned) {
    record.pinned = false;
    pool.pinned--;
  } else {
    pool.history.holds.add(now - record.since);
    // How long sessions last says nothing about the transactions of other pools.
    if (pool.options.mode == PoolMode::transaction) history_.holds.add(now - record.since);
    pool.released_at = now;
  }
  record.waiter = 0;
  if (reusable) {
    place(slot, AssignSource::released, now);
  } else {
    close(slot, CloseReason::not_reusable, now);
  }
  // Handed on or idle, nothing is short of what it was before; only what is closed leaves a gap.
  if (servers_[slot].state == ConnectionPhase::closing) {
    settle(id, now);
  } else {
    serve_wanting(now);
  }
}

void Pools::checked(ServerId server, bool ok, Time now) {
  const std::uint32_t slot = slot_of(server);
  if (slot == kNoIndex || servers_[slot].state != ConnectionPhase::checking) return;
  const PoolId id = servers_[slot].pool;
  if (ok) {
    place(slot, AssignSource::idle, now);
  } else {
    condemn_stale(slot, now);
  }
  settle(id, now);
}

void Pools::lost(ServerId server, Time now) {
  const std::uint32_t slot = slot_of(server);
  if (slot == kNoIndex) return;
  const PoolId id = servers_[slot].pool;
  free_server(slot, now);
  settle(id, now);
}

// --- What can be asked -------------------------------------------------------------------------------------------

std::optional<PoolAction> Pools::next_action() {
  if (next_action_ == actions_.size()) {
    actions_.clear();
    next_action_ = 0;
    return std::nullopt;
  }
  return std::move(actions_[next_action_++]);
}

Time Pools::next_deadline() const noexcept { return std::min(deadlines_.next(), pace_wakes_at_); }

PoolStatus Pools::status(PoolId id, Time now) const {
  const PoolRecord& pool = pools_[id];
  PoolStatus status;
  status.clients = pool.attached;
  status.waiting = pool.waiters.count();
  status.connecting = pool.in(ConnectionPhase::connecting).count();
  status.idle = pool.in(ConnectionPhase::idle).count() + pool.in(ConnectionPhase::checking).count();
  status.active = pool.in(ConnectionPhase::assigned).count();
  status.closing = pool.in(ConnectionPhase::closing).count();
  status.pinned = pool.pinned;
  if (!pool.waiters.empty()) status.oldest_wait = now - waiters_[pool.waiters.front()].since;
  status.failure = pool.failure.get();
  return status;
}

PoolTotals Pools::totals() const noexcept {
  PoolTotals totals;
  totals.servers = total_;
  totals.connecting = totals_[static_cast<std::size_t>(ConnectionPhase::connecting)];
  totals.idle = totals_[static_cast<std::size_t>(ConnectionPhase::idle)] +
                totals_[static_cast<std::size_t>(ConnectionPhase::checking)];
  totals.closing = totals_[static_cast<std::size_t>(ConnectionPhase::closing)];
  totals.waiting = static_cast<std::uint32_t>(waiting_.size());
  totals.pools = static_cast<std::uint32_t>(by_key_.size());
  return totals;
}

}  // namespace sluice::proxy
