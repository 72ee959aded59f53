// What pools are named by and what they ask their owner to do.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "proxy/time.h"

namespace sluice::proxy {

// `startup`: the startup options in canonical form; empty in the compatible profile, where they are tracked settings.
struct PoolKey {
  std::string user;
  std::string database;
  std::string startup;

  bool operator==(const PoolKey&) const = default;
};

using PoolId = std::uint32_t;    // valid as long as the owner is attached, then perhaps another pool's
using WaiterId = std::uint64_t;  // the owner's name for a client; a client waits in one pool at a time
using ServerId = std::uint64_t;  // chosen by Pools in `open`, never used twice; 0 is none

enum class FailureKind : std::uint8_t {
  unreachable,  // no address, no route, refused, reset, silent, untrusted: nobody answered as a server
  full,         // a server that answered "not now" (53300, 57P03): alive, and not to be given up
  rejected,  // a server that answered "never like this" (3D000, 28P01, 28000, 42501 …): asking again changes nothing
};

// Why a connection could not be opened. `sqlstate` and `message` are the server's own where it said something, and are
// passed on to clients.
struct ConnectFailure {
  FailureKind kind = FailureKind::unreachable;
  std::string sqlstate;
  std::string message;
};

enum class RefuseReason : std::uint8_t {
  wait_timeout,           // 53300: waited for wait_timeout; `failure` is what opening last met with, if it did
  too_many_waiters,       // 53300 (53000 in the compatible profile)
  connect_failed,         // `failure` says why
  too_many_startup_sets,  // 0A000
  too_many_pools,         // 53300
};

enum class CloseReason : std::uint8_t {
  not_reusable,     // the owner said so at release
  idle_timeout,     //
  lifetime,         //
  surplus,          // more than the last 30 seconds needed, or more than max_idle
  over_limit,       // max_size or max_total was lowered
  evicted,          // max_total is reached and another pool waits
  check_failed,     // or as long idle as one whose check failed
  snapshot_moved,   // the server's parameters are others now
  retired,          // the owner asked for it
  connect_timeout,  //
};

enum class AssignSource : std::uint8_t { idle, released, opened };

enum class PoolActionKind : std::uint8_t {
  open,    // connect and log in as `server` for `pool`; answer opened() or open_failed()
  assign,  // `waiter` has `server` until released() or lost()
  check,   // one round trip on `server`; answer checked()
  close,   // Terminate and close `server`; answer lost() once the descriptor is gone, which may be at once
  refuse,  // `waiter` no longer waits
  forget,  // the pool ended: drop what is kept for `pool`
};

struct PoolAction {
  PoolActionKind kind;
  PoolId pool = 0;
  ServerId server = 0;
  WaiterId waiter = 0;
  AssignSource source = AssignSource::idle;                 // assign
  Time waited = 0;                                          // assign, refuse
  CloseReason close_reason = CloseReason::not_reusable;     // close
  RefuseReason refuse_reason = RefuseReason::wait_timeout;  // refuse
  std::shared_ptr<const ConnectFailure> failure = nullptr;  // refuse: wait_timeout, connect_failed
};

}  // namespace sluice::proxy
