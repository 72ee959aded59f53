#include "proxysim/oracle.h"

#include <algorithm>

namespace sluice::proxysim {

using proxy::CloseReason;
using proxy::FailureKind;
using proxy::GateAnswer;
using proxy::kSecond;
using proxy::PoolActionKind;
using proxy::RefuseReason;

namespace {

[[nodiscard]] std::string about(const std::string& what, std::uint64_t which) {
  return what + " " + std::to_string(which);
}

}  // namespace

GateAnswer Oracle::may_connect(const proxy::PoolKey& key, Time) {
  return connect_closed.contains(key.user) ? GateAnswer::wait : GateAnswer::yes;
}

GateAnswer Oracle::may_start(const proxy::PoolKey& key, WaiterId waiter, Time) {
  for (const auto& [id, pool] : pools) {
    const bool waits = std::ranges::any_of(pool.queue, [&](const auto& entry) { return entry.first == waiter; });
    if (!waits) continue;
    asked_this_turn_.emplace_back(id, waiter);
    if (pool.user != key.user) gate_problem = about("the gate was asked with another pool's key for", waiter);
  }
  return held_back.contains(waiter) ? GateAnswer::wait : GateAnswer::yes;
}

// Whoever the gate was asked for has either been served or refused by now, in its turn, or is the oldest still.
void Oracle::turn_ends() {
  for (const auto& [id, waiter] : asked_this_turn_) {
    if (!pools.contains(id)) continue;
    const auto& queue = pools.at(id).queue;
    const auto found = std::ranges::find_if(queue, [&](const auto& entry) { return entry.first == waiter; });
    if (found != queue.end() && found != queue.begin())
      gate_problem = about("the gate was asked for one who is not the oldest:", waiter);
  }
  asked_this_turn_.clear();
  gone_this_turn_ = 0;
}

// --- What the world does -----------------------------------------------------------------------------------------

void Oracle::set_limits(const proxy::PoolLimits& limits) {
  limits_ = limits;
  opens_.clear();  // the pace begins anew
}

void Oracle::asks(PoolId pool, WaiterId waiter, Time now) { pools.at(pool).queue.emplace_back(waiter, now); }

void Oracle::leaves(PoolId pool, WaiterId waiter) {
  std::erase_if(pools.at(pool).queue, [&](const auto& entry) { return entry.first == waiter; });
}

void Oracle::opened(ServerId server, Time now) {
  ModelServer& model = servers.at(server);
  model.state = ModelState::idle;
  model.since = now;
  pools.at(model.pool).failing = false;
}

void Oracle::failed(ServerId server, FailureKind kind, Time now) {
  const ModelServer model = servers.at(server);
  servers.erase(server);
  if (model.state != ModelState::connecting) return;
  note_failure(pools.at(model.pool), kind, model.since, now);
}

void Oracle::note_failure(ModelPool& pool, FailureKind kind, Time started, Time now) {
  if (!pool.failing || pool.failure != kind) pool.failing_since = started;
  pool.failing = true;
  pool.failure = kind;
  pool.failed_at = now;
}

void Oracle::checked(ServerId server, bool ok, Time now) {
  ModelServer& model = servers.at(server);
  if (model.state != ModelState::checking) return;
  if (!ok) {
    model.retired = true;
    return;
  }
  model.state = ModelState::idle;
  model.since = now;
}

void Oracle::released(ServerId server, bool reusable, Time now) {
  ModelServer& model = servers.at(server);
  model.state = ModelState::idle;
  model.since = now;
  model.holder = 0;
  model.pinned = false;
  if (!reusable) model.retired = true;
}

void Oracle::gone(ServerId server) {
  servers.erase(server);
  gone_this_turn_++;
}

void Oracle::retire(ServerId server) { servers.at(server).retired = true; }

void Oracle::retire_pool(PoolId pool) {
  for (auto& [id, server] : servers) {
    if (server.pool == pool) server.retired = true;
  }
}

void Oracle::snapshot_moved(ServerId newest) {
  for (auto& [id, server] : servers) {
    if (server.pool == servers.at(newest).pool && id != newest && server.state != ModelState::connecting)
      server.retired = true;
  }
}

// --- What the pools answer ---------------------------------------------------------------------------------------

std::string Oracle::judge(const PoolAction& action, Time now) {
  switch (action.kind) {
    case PoolActionKind::open:
      return judge_open(action, now);
    case PoolActionKind::assign:
      return judge_assign(action, now);
    case PoolActionKind::check: {
      ModelServer& server = servers.at(action.server);
      if (server.state != ModelState::idle) return about("checks one that is not idle:", action.server);
      if (now - server.since < pools.at(action.pool).options.check_after)
        return about("checks one that was idle for a short time only:", action.server);
      server.state = ModelState::checking;
      return {};
    }
    case PoolActionKind::close:
      return judge_close(action, now);
    case PoolActionKind::refuse:
      return judge_refuse(action, now);
    case PoolActionKind::forget:
      if (pools.at(action.pool).clients > 0) return about("forgets a pool that has clients:", action.pool);
      if (all_in(action.pool) > 0) return about("forgets a pool that has connections:", action.pool);
      pools.erase(action.pool);
      return {};
  }
  return "an action of no kind";
}

std::string Oracle::judge_open(const PoolAction& action, Time now) {
  const ModelPool& pool = pools.at(action.pool);
  if (action.server == 0 || !known_.insert(action.server).second) return about("opens under a used id:", action.server);
  if (pool.queue.empty()) return about("opens for nobody in pool", action.pool);
  if (connect_closed.contains(pool.user)) return about("opens although the gate is closed for pool", action.pool);
  if (pool.failing) {
    if (count(action.pool, ModelState::connecting) > 0) return about("more than one asks again in pool", action.pool);
    if (now < pool.failed_at + pool.options.retry_interval) return about("asks again too soon in pool", action.pool);
  }
  servers[action.server] = {.pool = action.pool, .state = ModelState::connecting, .since = now};
  if (all_in(action.pool) > pool.options.max_size) return about("beyond max_size in pool", action.pool);
  if (servers.size() > limits_.max_total) return about("beyond max_total:", servers.size());
  if (count(ModelState::connecting) > limits_.max_connecting) return "beyond max_connecting";
  if (limits_.connects_per_second > 0) {
    opens_.push_back(now);
    while (opens_.front() <= now - kSecond) opens_.pop_front();
    if (opens_.size() > limits_.connects_per_second + std::max(limits_.max_connecting, 1U))
      return "beyond the pace of connects";
  }
  return {};
}

std::string Oracle::judge_assign(const PoolAction& action, Time now) {
  ModelPool& pool = pools.at(action.pool);
  const auto found = servers.find(action.server);
  if (found == servers.end() || found->second.pool != action.pool)
    return about("assigns what is not there:", action.server);
  ModelServer& server = found->second;
  if (server.state != ModelState::idle) return about("assigns what is not free:", action.server);
  if (server.retired) return about("assigns what has retired:", action.server);
  if (pool.queue.empty() || pool.queue.front().first != action.waiter)
    return about("does not assign to the oldest waiter but to", action.waiter);
  if (action.waited != now - pool.queue.front().second) return about("misjudges the wait of", action.waiter);
  if (held_back.contains(action.waiter)) return about("starts although the gate is closed for", action.waiter);
  if (now - server.since >= pool.options.check_after) return about("assigns without a check:", action.server);
  pool.queue.pop_front();
  server.state = ModelState::held;
  server.holder = action.waiter;
  server.since = now;
  return {};
}

std::string Oracle::judge_close(const PoolAction& action, Time now) {
  const auto found = servers.find(action.server);
  if (found == servers.end()) return about("closes what is not there:", action.server);
  ModelServer& server = found->second;
  ModelPool& pool = pools.at(action.pool);
  if (server.state == ModelState::held) return about("closes under a client:", action.server);
  if (server.state == ModelState::closing) return about("closes twice:", action.server);
  const Time age = now - server.since;
  if (action.close_reason == CloseReason::idle_timeout && age < pool.options.idle_timeout)
    return about("idle for a short time only:", action.server);
  if (action.close_reason == CloseReason::evicted && servers.size() + gone_this_turn_ < limits_.max_total)
    return about("evicted although there was room:", action.server);
  if (action.close_reason == CloseReason::connect_timeout) {
    if (server.state != ModelState::connecting || age < pool.options.connect_timeout)
      return about("a login cut off too soon:", action.server);
    note_failure(pool, FailureKind::unreachable, server.since, now);
  }
  server.state = ModelState::closing;
  return {};
}

std::string Oracle::judge_refuse(const PoolAction& action, Time now) {
  ModelPool& pool = pools.at(action.pool);
  const auto found = std::ranges::find_if(pool.queue, [&](const auto& entry) { return entry.first == action.waiter; });
  if (found == pool.queue.end()) return about("refuses one who does not wait:", action.waiter);
  const bool in_time = now - found->second < pool.options.wait_timeout;
  const bool oldest = found == pool.queue.begin();
  const std::size_t waiting = pool.queue.size();
  pool.queue.erase(found);
  switch (action.refuse_reason) {
    case RefuseReason::too_many_waiters:
      return waiting > pool.options.max_waiters ? "" : about("refuses although the queue has room:", action.waiter);
    case RefuseReason::wait_timeout:
      if (in_time || !oldest) return about("refuses before the time is over:", action.waiter);
      return {};
    case RefuseReason::connect_failed:
      if (!action.failure || !pool.failing) return about("refuses for a failure that was none:", action.waiter);
      if (open_in(action.pool) > 0) return about("refuses although a connection is open:", action.waiter);
      if (in_time && pool.failure == FailureKind::full)
        return about("gives up a server that is only full:", action.waiter);
      if (in_time && pool.failure == FailureKind::unreachable &&
          now - pool.failing_since < pool.options.fail_early_after)
        return about("gives up too early:", action.waiter);
      return {};
    case RefuseReason::too_many_startup_sets:
    case RefuseReason::too_many_pools:
      return about("refuses a waiter as if it logged in:", action.waiter);
  }
  return "a refusal of no kind";
}

std::string Oracle::at_rest(const proxy::Pools& real, Time now) const {
  if (!gate_problem.empty()) return gate_problem;
  for (const auto& [id, pool] : pools) {
    const proxy::PoolStatus status = real.status(id, now);
    if (status.waiting != pool.queue.size()) return about("waiters otherwise counted in pool", id);
    if (status.connecting != count(id, ModelState::connecting)) return about("logins otherwise counted in pool", id);
    if (status.active != count(id, ModelState::held)) return about("leases otherwise counted in pool", id);
    if (status.closing != count(id, ModelState::closing)) return about("closing ones otherwise counted in pool", id);
    if (status.idle != count(id, ModelState::idle) + count(id, ModelState::checking))
      return about("idle ones otherwise counted in pool", id);
    if ((status.failure != nullptr) != pool.failing) return about("failures otherwise seen in pool", id);
    if (pool.queue.empty()) continue;
    if (now - pool.queue.front().second >= pool.options.wait_timeout) return about("a wait without an end in pool", id);
    const bool gated = held_back.contains(pool.queue.front().first);
    if (!gated && count(id, ModelState::idle) > 0 && count(id, ModelState::checking) < pool.queue.size())
      return about("somebody waits beside an idle connection in pool", id);
  }
  if (real.totals().servers != servers.size()) return about("connections otherwise counted:", servers.size());
  return {};
}

std::uint32_t Oracle::count(ModelState state) const {
  std::uint32_t found = 0;
  for (const auto& [id, server] : servers) found += server.state == state ? 1 : 0;
  return found;
}

std::uint32_t Oracle::count(PoolId pool, ModelState state) const {
  std::uint32_t found = 0;
  for (const auto& [id, server] : servers) found += server.pool == pool && server.state == state ? 1 : 0;
  return found;
}

std::uint32_t Oracle::open_in(PoolId pool) const {
  return count(pool, ModelState::idle) + count(pool, ModelState::checking) + count(pool, ModelState::held);
}

std::uint32_t Oracle::all_in(PoolId pool) const {
  std::uint32_t found = 0;
  for (const auto& [id, server] : servers) found += server.pool == pool ? 1 : 0;
  return found;
}

}  // namespace sluice::proxysim
