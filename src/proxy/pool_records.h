// What Pools remembers of a pool, a connection and a waiter. Private to pools*.cc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "proxy/connect_estimate.h"
#include "proxy/index_list.h"
#include "proxy/pool_actions.h"
#include "proxy/pool_options.h"
#include "proxy/recent_peak.h"

namespace sluice::proxy {

enum class ConnectionPhase : std::uint8_t {
  connecting,  // oldest attempt first
  idle,        // the last released first
  checking,    // idle for long: a round trip is under way; oldest first
  assigned,    // oldest lease first
  closing,     // until the owner says that it is gone
  free,        // the record is nobody's
};
inline constexpr std::size_t kConnectionPhases = 5;  // without `free`

struct ServerRecord {
  Link in_pool;  // the pool's list of this state
  Link in_idle;  // the list of all idle ones, the last released first
  PoolId pool = 0;
  std::uint32_t generation = 0;  // upper half of the ServerId
  std::uint32_t snapshot = 0;
  ConnectionPhase state = ConnectionPhase::free;
  bool pinned = false;
  bool retiring = false;  // closed with retire_reason instead of reused
  CloseReason retire_reason = CloseReason::retired;
  WaiterId waiter = 0;  // assigned
  Time since = 0;       // when the state began; an idle one that is checked keeps its time
  Time check_since = 0;
  Time retire_at = kNever;  // the end of its lifetime
};
using ServerList = IndexList<ServerRecord, &ServerRecord::in_pool>;
using IdleList = IndexList<ServerRecord, &ServerRecord::in_idle>;

struct WaiterRecord {
  Link in_pool;
  WaiterId id = 0;
  PoolId pool = 0;
  Time since = 0;
};
using WaiterList = IndexList<WaiterRecord, &WaiterRecord::in_pool>;

// Which list of pools that want a connection a pool is in.
enum class Wanting : std::uint8_t { no, first, more };

struct PoolRecord {
  PoolKey key;
  PoolOptions options;
  bool used = false;
  std::uint32_t attached = 0;  // clients
  std::array<ServerList, kConnectionPhases> servers;
  std::uint32_t pinned = 0;
  WaiterList waiters;  // oldest first

  Link in_wanting;
  Wanting wanting = Wanting::no;
  std::uint32_t want = 0;
  bool start_gated = false;    // the gate keeps the oldest waiter; until gate_changed(), or that one leaves
  bool connect_gated = false;  // the gate keeps the pool from connecting; until gate_changed()

  // What opening met with since it last succeeded.
  std::shared_ptr<const ConnectFailure> failure;
  bool newcomer = false;   // a client has come since the last attempt failed
  Time failing_since = 0;  // when the first of the attempts that failed in this way began
  Time failed_at = 0;
  Time retry_at = 0;

  ConnectHistory history;
  RecentPeak peak;             // of assigned connections
  std::uint32_t snapshot = 0;  // counts the server's sets of parameters
  Time progress_at = 0;        // when a connection was last assigned
  Time released_at = 0;        // when a lease last ended by itself
  Time busy_since = 0;         // since when the queue was never empty, or a connection was opened in that time
  Time upkeep_at = kNever;
  Time empty_since = 0;

  [[nodiscard]] const ServerList& in(ConnectionPhase state) const noexcept {
    return servers[static_cast<std::size_t>(state)];
  }
  // Connections that are open: logged in, and not being closed.
  [[nodiscard]] std::uint32_t open() const noexcept {
    return in(ConnectionPhase::idle).count() + in(ConnectionPhase::checking).count() +
           in(ConnectionPhase::assigned).count();
  }
  // Those that stay: open or to be opened.
  [[nodiscard]] std::uint32_t staying() const noexcept { return open() + in(ConnectionPhase::connecting).count(); }
  [[nodiscard]] std::uint32_t size() const noexcept { return staying() + in(ConnectionPhase::closing).count(); }
  [[nodiscard]] bool rejected() const noexcept { return failure && failure->kind == FailureKind::rejected; }
};
using WantingList = IndexList<PoolRecord, &PoolRecord::in_wanting>;

}  // namespace sluice::proxy
