// Backstop and alerts for sessions. PostgreSQL restarts everything when a backend dies without its exit callbacks, and
// the ledger starts anew with it; so a record whose process is gone is a bug, here or in PostgreSQL. It is given back
// only on proof, and each one is counted and logged.
#include <errno.h>
#include <signal.h>

#include <atomic>

#include "extension/guard.h"
#include "ledger/sessions.h"

namespace sluice::extension {

namespace {

using ledger::SessionState;

constexpr std::int64_t kReclaimEveryUs = 1'000'000;
constexpr std::int64_t kLeakEveryUs = 10'000'000;

SessionState state_of(ledger::Session& session) {
  return static_cast<SessionState>(std::atomic_ref(session.state).load(std::memory_order_acquire));
}

// A reservation has no process yet; every other state that consumes a permit has one.
bool has_process(SessionState state) {
  return ledger::holds_session_permit(state) && state != SessionState::session_reserved;
}

bool process_is_gone(std::uint32_t pid) { return pid > 1 && kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH; }

// The ProcArray is asked before the lock is taken: a process that is gone does not come back, and under the lock the
// record has to be the very one that was looked at.
void reclaim_if_gone(std::uint32_t slot) {
  ledger::Session& session = the_ledger.sessions[slot];
  const std::uint32_t pid = std::atomic_ref(session.pid).load(std::memory_order_relaxed);
  const std::uint64_t use = std::atomic_ref(session.connection_generation).load(std::memory_order_relaxed);
  if (!has_process(state_of(session)) || !process_is_gone(pid) || BackendPidGetProc(static_cast<int>(pid)) != nullptr)
    return;

  ledger::Wakes wakes{};
  policy::Status status;
  {
    ExclusiveLedger lock;
    if (session.pid != pid || session.connection_generation != use || !has_process(state_of(session)) ||
        !process_is_gone(pid)) {
      return;
    }
    status = ledger::reclaim_session(the_ledger, lock.token(), slot, now_us(), wakes);
  }
  wake(wakes);
  ereport(LOG, (errmsg("pg_sluice: reclaimed the session of process %u, which is gone without having returned it (%s)",
                       pid, policy::status_name(status)),
                errdetail("This is a bug: a process that ends returns its permits itself.")));
}

void alert_leaks(std::int64_t now) {
  std::uint32_t idle = 0;
  std::uint32_t unknown = 0;
  const std::int64_t leak_us = std::int64_t{the_ledger.header->policy.leak_after_ms} * 1000;
  const std::uint32_t slots = the_ledger.header->sizes.sessions;
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    ledger::Session& session = the_ledger.sessions[slot];
    const SessionState state = state_of(session);
    if (state == SessionState::session_unknown) ++unknown;
    if (state != SessionState::open_idle || leak_us <= 0) continue;
    const std::int64_t since = std::atomic_ref(session.idle_since_us).load(std::memory_order_relaxed);
    if (since > 0 && now - since > leak_us) ++idle;
  }
  static LogThrottle idle_log;
  static LogThrottle unknown_log;
  static std::uint32_t last_idle = 0;
  std::uint64_t suppressed = 0;
  if (idle > last_idle && idle_log.pass(now, suppressed)) {
    ereport(
        LOG,
        (errmsg(
            "pg_sluice: %u sessions have been idle for longer than leakAfterMs (%lld ms) and still hold their permits",
            idle, static_cast<long long>(leak_us / 1000))));
  }
  last_idle = idle;
  static std::uint32_t last_unknown = 0;
  if (unknown > last_unknown && unknown_log.pass(now, suppressed)) {
    ereport(LOG, (errmsg("pg_sluice: %u sessions are SESSION_UNKNOWN and consume capacity until their end is proved",
                         unknown)));
  }
  last_unknown = unknown;
}

}  // namespace

void watch_sessions() {
  static std::int64_t last_reclaim_us = 0;
  static std::int64_t last_leak_us = 0;
  const std::int64_t now = now_us();
  if (now - last_reclaim_us >= kReclaimEveryUs) {
    last_reclaim_us = now;
    const std::uint32_t slots = the_ledger.header->sizes.sessions;
    for (std::uint32_t slot = 0; slot < slots; ++slot) {
      if (has_process(state_of(the_ledger.sessions[slot]))) reclaim_if_gone(slot);
    }
  }
  if (now - last_leak_us >= kLeakEveryUs) {
    last_leak_us = now;
    alert_leaks(now);
  }
}

}  // namespace sluice::extension
