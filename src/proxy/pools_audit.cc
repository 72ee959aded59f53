// The pools' books, done again from the records alone.
#include <algorithm>
#include <set>
#include <string>

#include "proxy/pools.h"

namespace sluice::proxy {

namespace {

constexpr Time kLateReconsideration = 1 * kSecond;  // averages of other pools may have moved what was due

[[nodiscard]] std::string at(const char* what, std::uint64_t where) {
  return std::string(what) + ' ' + std::to_string(where);
}

[[nodiscard]] std::string state_name(std::size_t state) {
  constexpr const char* kNames[kConnectionPhases] = {"connecting", "idle", "checking", "assigned", "closing"};
  return kNames[state];
}

}  // namespace

std::string Pools::audit_servers() const {
  std::array<std::uint32_t, kConnectionPhases> counts{};
  std::uint32_t total = 0;
  for (std::uint32_t slot = 0; slot < servers_.size(); slot++) {
    const ServerRecord& server = servers_[slot];
    if (server.state == ConnectionPhase::free) continue;
    if (server.pool >= pools_.size() || !pools_[server.pool].used) return at("a connection of no pool at", slot);
    if (server.pinned && server.state != ConnectionPhase::assigned) return at("pinned, but nobody's:", slot);
    counts[static_cast<std::size_t>(server.state)]++;
    total++;
  }
  if (total != total_) return at("connections in all:", total) + at(", counted", total_);
  if (free_servers_.size() + total != servers_.size()) return at("free records of connections:", free_servers_.size());
  for (std::size_t state = 0; state < kConnectionPhases; state++) {
    if (counts[state] != totals_[state])
      return state_name(state) + at(" in all:", counts[state]) + at(", counted", totals_[state]);
  }
  std::uint32_t idle = 0;
  for (std::uint32_t slot = idle_.front(); slot != kNoIndex; slot = servers_[slot].in_idle.next) {
    const ServerRecord& server = servers_[slot];
    if (server.state != ConnectionPhase::idle) return at("not idle, but in the list of idle ones:", slot);
    if (server.in_idle.next != kNoIndex && servers_[server.in_idle.next].since > server.since)
      return at("the idle ones are out of order at", slot);
    if (++idle > total) return "the list of idle ones does not end";
  }
  if (idle != counts[static_cast<std::size_t>(ConnectionPhase::idle)]) return at("listed as idle:", idle);
  return {};
}

std::string Pools::audit_pool(PoolId id, Time now) const {
  const PoolRecord& pool = pools_[id];
  std::uint32_t pinned = 0;
  for (std::size_t state = 0; state < kConnectionPhases; state++) {
    std::uint32_t count = 0;
    Time before = 0;
    const bool newest_first = static_cast<ConnectionPhase>(state) == ConnectionPhase::idle;
    for (std::uint32_t slot = pool.servers[state].front(); slot != kNoIndex; slot = servers_[slot].in_pool.next) {
      const ServerRecord& server = servers_[slot];
      if (server.pool != id || static_cast<std::size_t>(server.state) != state)
        return at("in a wrong list of pool", id) + at(": connection", slot);
      const Time since = server.state == ConnectionPhase::checking ? server.check_since : server.since;
      if (count > 0 && (newest_first ? since > before : since < before))
        return state_name(state) + at(" ones are out of order in pool", id);
      if (server.state == ConnectionPhase::idle && server.retiring) return at("idle although it retires:", slot);
      before = since;
      pinned += server.pinned ? 1 : 0;
      if (++count > total_) return state_name(state) + " list does not end";
    }
    if (count != pool.servers[state].count()) return state_name(state) + at(" ones of pool", id) + at(":", count);
  }
  if (pinned != pool.pinned) return at("pinned in pool", id) + at(":", pinned);
  const std::uint32_t idle = pool.in(ConnectionPhase::idle).count();
  if (idle > 0 && pool.upkeep_at == kNever) return at("idle ones without upkeep in pool", id);
  if (idle > 0 && !pool.start_gated && pool.in(ConnectionPhase::checking).count() < pool.waiters.count())
    return at("waiters although a connection is idle in pool", id);
  const Time scheduled = deadlines_.time_of(id);
  if (scheduled > must_wake_at(pool)) return at("nothing wakes pool", id) + " in time";
  if (!pool.waiters.empty()) {
    const Time again = reconsider_at(pool);
    if (again != kNever && scheduled > std::max(again, now) + kLateReconsideration)
      return at("the waiters are forgotten in pool", id);
  }
  return audit_waiters(id, now);
}

std::string Pools::audit_waiters(PoolId id, Time now) const {
  const PoolRecord& pool = pools_[id];
  std::uint32_t count = 0;
  Time before = 0;
  for (std::uint32_t slot = pool.waiters.front(); slot != kNoIndex; slot = waiters_[slot].in_pool.next) {
    const WaiterRecord& waiter = waiters_[slot];
    if (waiter.pool != id) return at("waits in another pool than", id);
    if (waiter.since < before || waiter.since > now) return at("the waiters are out of order in pool", id);
    const auto found = waiting_.find(waiter.id);
    if (found == waiting_.end() || found->second != slot) return at("a waiter that cannot be found:", waiter.id);
    before = waiter.since;
    if (++count > waiting_.size()) return at("more waiters than are known in pool", id);
  }
  if (count != pool.waiters.count()) return at("waiters of pool", id) + at(":", count);
  if (pool.waiters.empty() && (pool.start_gated || pool.want > 0)) return at("nobody waits, yet it asks: pool", id);
  return {};
}

std::string Pools::audit_wanting() const {
  std::uint32_t listed = 0;
  for (const Wanting kind : {Wanting::first, Wanting::more}) {
    const WantingList& list = kind == Wanting::first ? wanting_first_ : wanting_more_;
    std::uint32_t count = 0;
    for (PoolId id = list.front(); id != kNoIndex; id = pools_[id].in_wanting.next) {
      if (pools_[id].wanting != kind || pools_[id].want == 0)
        return at("in the wrong list of those that want: pool", id);
      if (++count > pools_.size()) return "a list of pools that want does not end";
    }
    if (count != list.count()) return at("pools that want:", count);
    listed += count;
  }
  std::uint32_t want = 0;
  std::uint32_t wanting = 0;
  for (const PoolRecord& pool : pools_) {
    want += pool.want;
    wanting += pool.want > 0 ? 1 : 0;
    if (pool.want > 0 && !pool.used) return "a pool that ended wants a connection";
  }
  if (wanting != listed || want != want_total_) return at("connections wanted:", want) + at(", counted", want_total_);
  const bool room = totals_[static_cast<std::size_t>(ConnectionPhase::connecting)] < limits_.max_connecting &&
                    total_ < limits_.max_total && pace_wakes_at_ == kNever;
  if (want > 0 && room) return at("nothing keeps them from opening, yet they wait:", want);
  return {};
}

std::string Pools::audit_maps() const {
  std::size_t used = 0;
  std::size_t in_families = 0;
  std::size_t waiting = 0;
  for (PoolId id = 0; id < pools_.size(); id++) {
    const PoolRecord& pool = pools_[id];
    if (!pool.used) continue;
    used++;
    waiting += pool.waiters.count();
    const auto found = by_key_.find(pool.key);
    if (found == by_key_.end() || found->second != id) return at("cannot be found by its key: pool", id);
  }
  for (const auto& [key, members] : families_) {
    if (std::set<PoolId>(members.begin(), members.end()).size() != members.size())
      return "a family counts a pool twice";
    for (const PoolId id : members) {
      if (!pools_[id].used || pools_[id].key.user != key.user || pools_[id].key.database != key.database)
        return at("in a wrong family: pool", id);
    }
    in_families += members.size();
  }
  if (used != by_key_.size() || used != in_families) return at("pools in use:", used) + at(", by key", by_key_.size());
  if (used + free_pools_.size() != pools_.size()) return at("free records of pools:", free_pools_.size());
  if (waiting != waiting_.size() || waiting + free_waiters_.size() != waiters_.size())
    return at("clients that wait:", waiting) + at(", counted", waiting_.size());
  if (!deadlines_.consistent()) return "the deadlines are out of order";
  return {};
}

std::string Pools::audit(Time now) const {
  std::string found = audit_servers();
  for (PoolId id = 0; id < pools_.size() && found.empty(); id++) {
    if (pools_[id].used) found = audit_pool(id, now);
  }
  if (found.empty()) found = audit_wanting();
  if (found.empty()) found = audit_maps();
  return found;
}

}  // namespace sluice::proxy
