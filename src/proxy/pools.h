// The pools of server connections: who gets which connection, when one is opened, and when one is closed. All decisions
// and no I/O: the owner reports what happened, drains next_action() after every call, carries the actions out, and
// calls tick() when next_deadline() has come. Time never runs backwards.
//
//   client logs in      attach()                   leaves for good            detach()
//   has a message       acquire() → assign         gave up while waiting      leave()
//   is idle again       released()                 its connection broke       lost()
//
// A connection's life: open → opened() | open_failed(); assign … released(); check → checked(); close → lost(). It
// counts against max_size and max_total from `open` until lost() or open_failed(). Reports about a connection that is
// gone, or that Pools itself is closing, change nothing: what it closes is never taken for a failure of the server.
//
// A client that detaches neither waits nor has a connection any more.
//
// Waiters are served first come, first served within a pool. A pool's first connection goes before any other's second.
// One pool has one thread; nothing here locks. No allocation for a transaction once as many waiters and connections
// have been there before.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "proxy/connect_gate.h"
#include "proxy/deadline_heap.h"
#include "proxy/pool_records.h"

namespace sluice::proxy {

struct Attachment {
  PoolId pool = 0;
  std::optional<RefuseReason> refused;  // too_many_startup_sets or too_many_pools: there is no pool, do not detach
};

struct PoolStatus {
  std::uint32_t clients = 0;
  std::uint32_t waiting = 0;
  std::uint32_t connecting = 0;
  std::uint32_t idle = 0;  // those being checked included
  std::uint32_t active = 0;
  std::uint32_t closing = 0;
  std::uint32_t pinned = 0;
  Time oldest_wait = 0;
  const ConnectFailure* failure = nullptr;  // what opening meets with at present; valid until the next call
};

struct PoolTotals {
  std::uint32_t servers = 0;  // in any state
  std::uint32_t connecting = 0;
  std::uint32_t idle = 0;
  std::uint32_t closing = 0;
  std::uint32_t waiting = 0;
  std::uint32_t pools = 0;
};

class Pools {
 public:
  static constexpr Time kUpkeepInterval = 1 * kSecond;
  static constexpr std::uint32_t kMaxPoolsPerTick = 256;    // the rest is due at once again
  static constexpr std::uint32_t kMaxLeasesForecast = 256;  // more are not looked at for one decision
  static constexpr std::uint32_t kMaxServers = 0x00FFFFFF;
  static constexpr Time kOverdueConnectTimes = 2;  // a login that takes longer is not counted on

  // `seed`: of the jitter of lifetimes. The gate outlives this.
  Pools(const PoolLimits& limits, ConnectGate& gate, std::uint64_t seed);
  Pools(const Pools&) = delete;
  Pools& operator=(const Pools&) = delete;

  // Clients. A client attaches once its login has succeeded. The options of a pool that exists already stay as they
  // are.
  [[nodiscard]] Attachment attach(const PoolKey& key, const PoolOptions& options, Time now);
  void detach(PoolId pool, Time now);
  // Answered by one `assign` or one `refuse` for the waiter, now or later, unless it leaves. Nothing for one that waits
  // already.
  void acquire(PoolId pool, WaiterId waiter, Time now);
  // False: it does not wait (any more); what it was assigned is to be released.
  bool leave(WaiterId waiter, Time now);
  // The client keeps its connection over the end of its transactions. False: half of max_size is pinned already. In
  // PoolMode::session every connection may be. Ends with released() or lost().
  [[nodiscard]] bool pin(ServerId server);

  // Connections.
  void opened(ServerId server, Time now);
  void open_failed(ServerId server, ConnectFailure failure, Time now);
  void released(ServerId server, bool reusable, Time now);
  void checked(ServerId server, bool ok, Time now);
  void lost(ServerId server, Time now);

  // The parameters this connection reported are the pool's snapshot from now on: all connections opened before retire.
  void snapshot_moved(ServerId newest, Time now);
  // Never assigned again: closed when idle, or at its release.
  void retire(ServerId server, Time now);
  void retire_pool(PoolId pool, Time now);
  void retire_all(Time now);

  // The gate may answer otherwise than before.
  void gate_changed(PoolId pool, Time now);

  void set_limits(const PoolLimits& limits, Time now);
  void set_options(PoolId pool, const PoolOptions& options, Time now);

  [[nodiscard]] std::optional<PoolAction> next_action();
  [[nodiscard]] Time next_deadline() const noexcept;
  void tick(Time now);

  [[nodiscard]] PoolStatus status(PoolId pool, Time now) const;
  [[nodiscard]] PoolTotals totals() const noexcept;
  [[nodiscard]] const PoolKey& key_of(PoolId pool) const { return pools_[pool].key; }
  [[nodiscard]] const PoolOptions& options_of(PoolId pool) const { return pools_[pool].options; }
  // visit(PoolId) for every pool, in no particular order.
  template <typename Visit>
  void for_each_pool(Visit visit) const {
    for (PoolId pool = 0; pool < pools_.size(); pool++) {
      if (pools_[pool].used) visit(pool);
    }
  }

  // Recomputes every count, list and promise from the records. Empty, or the first discrepancy in words.
  [[nodiscard]] std::string audit(Time now) const;

 private:
  struct KeyHash {
    std::size_t operator()(const PoolKey& key) const noexcept;
  };

  // Tables (pools.cc).
  [[nodiscard]] std::uint32_t slot_of(ServerId server) const noexcept;
  [[nodiscard]] ServerId id_of(std::uint32_t slot) const noexcept;
  void move(std::uint32_t slot, ConnectionPhase state, Time now);
  void free_server(std::uint32_t slot, Time now);
  [[nodiscard]] std::uint32_t take_pool_slot();
  void forget(PoolId id);
  [[nodiscard]] bool family_full(const PoolKey& family, std::uint32_t max_sets, Time now);

  // Serving (pools.cc).
  void assign(std::uint32_t slot, WaiterId waiter, AssignSource source, Time waited, Time now);
  void serve(PoolId id, AssignSource source, Time now);
  void place(std::uint32_t slot, AssignSource source, Time now);
  void close(std::uint32_t slot, CloseReason reason, Time now);
  [[nodiscard]] std::optional<CloseReason> reason_to_close(const ServerRecord& server, Time now) const noexcept;
  void drop_waiter(std::uint32_t slot);
  void refuse(std::uint32_t slot, RefuseReason reason, Time now);
  void refuse_all(PoolId id, RefuseReason reason, Time now);

  // Opening (pools_opening.cc).
  [[nodiscard]] Time connect_time(const PoolRecord& pool) const noexcept;
  [[nodiscard]] std::uint32_t overdue(const PoolRecord& pool, Time now) const noexcept;
  [[nodiscard]] std::uint32_t max_with_overdue() const noexcept;
  [[nodiscard]] bool hanging(const PoolRecord& pool, const ServiceForecast& forecast, Time now) const noexcept;
  [[nodiscard]] std::uint32_t unserved_openings(const PoolRecord& pool, Time now) const noexcept;
  [[nodiscard]] std::uint32_t wanted(const PoolRecord& pool, Time now) const noexcept;
  void set_want(PoolId id, std::uint32_t want);
  void consider(PoolId id, Time now);
  void serve_wanting(Time now);
  void evict_idle(Time now);
  void open_one(PoolId id, Time now);
  [[nodiscard]] bool starving_elsewhere(const PoolRecord& pool, Time now) const noexcept;
  [[nodiscard]] Time connect_allowed_at() const noexcept;
  void note_failure(PoolId id, ConnectFailure failure, Time started, Time now);
  void settle(PoolId id, Time now);

  // Upkeep (pools_upkeep.cc).
  [[nodiscard]] Time reconsider_at(const PoolRecord& pool) const noexcept;
  [[nodiscard]] Time must_wake_at(const PoolRecord& pool) const noexcept;
  [[nodiscard]] Time due(const PoolRecord& pool) const noexcept;
  void schedule(PoolId id, Time at);
  void wake(PoolId id, Time now);
  void expire(PoolId id, Time now);
  void upkeep(PoolId id, Time now);
  void retire_slot(std::uint32_t slot, CloseReason reason, Time now);
  void condemn_stale(std::uint32_t slot, Time now);
  void shrink(PoolId id, Time now);

  // Audits (pools_audit.cc).
  [[nodiscard]] std::string audit_servers() const;
  [[nodiscard]] std::string audit_pool(PoolId id, Time now) const;
  [[nodiscard]] std::string audit_waiters(PoolId id, Time now) const;
  [[nodiscard]] std::string audit_wanting() const;
  [[nodiscard]] std::string audit_maps() const;

  PoolLimits limits_;
  ConnectGate& gate_;
  std::uint64_t random_;
  ConnectHistory history_;  // of all pools

  std::vector<PoolRecord> pools_;
  std::vector<PoolId> free_pools_;
  std::unordered_map<PoolKey, PoolId, KeyHash> by_key_;
  std::unordered_map<PoolKey, std::vector<PoolId>, KeyHash> families_;  // the pools of a user and database

  std::vector<ServerRecord> servers_;
  std::vector<std::uint32_t> free_servers_;
  std::array<std::uint32_t, kConnectionPhases> totals_{};  // connections of all pools by state
  std::uint32_t total_ = 0;
  IdleList idle_;  // of all pools, the last released first

  // Freed nodes are kept by the resource and used again.
  std::pmr::unsynchronized_pool_resource nodes_;
  std::pmr::unordered_map<WaiterId, std::uint32_t> waiting_;
  std::vector<WaiterRecord> waiters_;
  std::vector<std::uint32_t> free_waiters_;

  WantingList wanting_first_;  // pools without any connection
  WantingList wanting_more_;
  std::uint32_t want_total_ = 0;
  Time paced_until_ = 0;         // where connects_per_second has come to: a virtual time that opening moves ahead
  Time pace_wakes_at_ = kNever;  // when it lets the next one through, if one waits for it

  DeadlineHeap deadlines_;  // of pools; may be early, never late
  std::vector<PoolAction> actions_;
  std::size_t next_action_ = 0;
};

}  // namespace sluice::proxy
