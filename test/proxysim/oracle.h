// What the pools must answer, judged from outside: a second, simpler set of books that follows the calls and the
// actions and knows none of the pools' own records. It is their gate as well, and sees who is asked for.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proxy/pools.h"

namespace sluice::proxysim {

using proxy::PoolAction;
using proxy::PoolId;
using proxy::ServerId;
using proxy::Time;
using proxy::WaiterId;

enum class ModelState : std::uint8_t { connecting, idle, checking, held, closing };

struct ModelServer {
  PoolId pool = 0;
  ModelState state = ModelState::connecting;
  Time since = 0;
  WaiterId holder = 0;
  bool retired = false;  // must not be assigned again
  bool pinned = false;
};

struct ModelPool {
  proxy::PoolOptions options;
  std::string user;
  std::deque<std::pair<WaiterId, Time>> queue;
  // Of attempts that truly failed since one last succeeded.
  bool failing = false;
  proxy::FailureKind failure = proxy::FailureKind::full;
  Time failing_since = 0;
  Time failed_at = 0;
  std::uint32_t clients = 0;
};

class Oracle final : public proxy::ConnectGate {
 public:
  explicit Oracle(const proxy::PoolLimits& limits) : limits_(limits) {}

  [[nodiscard]] proxy::GateAnswer may_connect(const proxy::PoolKey& key, Time now) override;
  [[nodiscard]] proxy::GateAnswer may_start(const proxy::PoolKey& key, WaiterId waiter, Time now) override;

  // What the world does, told before it does it.
  void set_limits(const proxy::PoolLimits& limits);
  void asks(PoolId pool, WaiterId waiter, Time now);
  void leaves(PoolId pool, WaiterId waiter);
  void opened(ServerId server, Time now);
  void failed(ServerId server, proxy::FailureKind kind, Time now);
  void checked(ServerId server, bool ok, Time now);
  void released(ServerId server, bool reusable, Time now);
  void gone(ServerId server);
  void retire(ServerId server);
  void retire_pool(PoolId pool);
  void snapshot_moved(ServerId newest);
  void turn_ends();

  // What the pools answer. Empty, or what is wrong with it.
  [[nodiscard]] std::string judge(const PoolAction& action, Time now);
  // What must hold whenever nothing is left to be drained.
  [[nodiscard]] std::string at_rest(const proxy::Pools& pools, Time now) const;

  std::map<PoolId, ModelPool> pools;
  std::map<ServerId, ModelServer> servers;
  std::set<std::string> connect_closed;  // users whose pools may not connect
  std::set<WaiterId> held_back;          // clients whose transactions may not start
  std::string gate_problem;

 private:
  void note_failure(ModelPool& pool, proxy::FailureKind kind, Time started, Time now);
  [[nodiscard]] std::string judge_open(const PoolAction& action, Time now);
  [[nodiscard]] std::string judge_assign(const PoolAction& action, Time now);
  [[nodiscard]] std::string judge_close(const PoolAction& action, Time now);
  [[nodiscard]] std::string judge_refuse(const PoolAction& action, Time now);
  [[nodiscard]] std::uint32_t count(ModelState state) const;
  [[nodiscard]] std::uint32_t count(PoolId pool, ModelState state) const;
  [[nodiscard]] std::uint32_t open_in(PoolId pool) const;
  [[nodiscard]] std::uint32_t all_in(PoolId pool) const;

  proxy::PoolLimits limits_;
  std::deque<Time> opens_;  // of the last second
  std::size_t gone_this_turn_ = 0;
  std::vector<std::pair<PoolId, WaiterId>> asked_this_turn_;
  std::set<ServerId> known_;  // every id ever given out
};

}  // namespace sluice::proxysim
