// The one place where a pool asks whether it may connect and whether a transaction may start. Pools by themselves know
// limits of this process alone; whoever knows more of the server (its permits, the queues of its classes) stands behind
// this interface. An answer of "no" is followed by Pools::gate_changed() when asking again is worth it.
#pragma once

#include "proxy/pool_actions.h"
#include "proxy/time.h"

namespace sluice::proxy {

enum class GateAnswer : std::uint8_t { yes, wait };

class ConnectGate {
 public:
  virtual ~ConnectGate() = default;

  // Before every `open`, which follows at once if the answer is yes. A connection holds what it was given until lost().
  [[nodiscard]] virtual GateAnswer may_connect(const PoolKey& key, Time now) = 0;

  // Before every `assign`, for the oldest waiter of a pool and while a connection is free for it. Nobody behind it
  // is asked for before it has started or left.
  [[nodiscard]] virtual GateAnswer may_start(const PoolKey& key, WaiterId waiter, Time now) = 0;
};

class OpenGate final : public ConnectGate {
 public:
  [[nodiscard]] GateAnswer may_connect(const PoolKey&, Time) override { return GateAnswer::yes; }
  [[nodiscard]] GateAnswer may_start(const PoolKey&, WaiterId, Time) override { return GateAnswer::yes; }
};

}  // namespace sluice::proxy
