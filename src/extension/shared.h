// The shared memory of the extension: the ledger's region, its lock, and what the two workers tell about themselves.
// Lock contract: `ExclusiveLedger` and `SharedLedger` take the one LWLock for their scope. Inside such a scope only
// core calls, kill() and plain memory are allowed: nothing that can raise, allocate or wait.
#pragma once

#include "extension/pg.h"

#include <ctime>

#include "extension/refusal_log.h"
#include "ledger/admission.h"
#include "ledger/region.h"

namespace sluice::extension {

struct WorkerStatus {
  pg_atomic_uint32 pid;  // 0: not running
  int proc;              // PGPROC index while pid is set: whose latch to set
  std::int64_t started_us;
  std::int64_t beat_us;  // last round
  std::uint64_t starts;
  char note[256];  // publisher: why it has no policy; empty: all is well
};

struct SharedState {
  LWLock* lock;
  WorkerStatus guard;
  WorkerStatus publisher;
  RefusalLog refusal_log[kRefusalKinds];  // by Status
  std::uint64_t last_waiters_admitted;    // by the kill switch, for the log line
};

// nullptr / not ready in a process where the library was not preloaded.
extern SharedState* shared_state;
extern ledger::Ledger the_ledger;

// True once the region exists and was made by this very library.
bool ledger_ready();

// ERROR 55000 with the line to add when the library was not preloaded; version mismatch likewise (F19, F20).
void require_ledger();

void install_shared_memory_hooks();

// Monotonic microseconds: the ledger's clock.
inline std::int64_t now_us() {
  timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  // Never negative, which makes the division a multiplication.
  return std::int64_t{now.tv_sec} * 1000000 + static_cast<std::uint32_t>(now.tv_nsec) / 1000;
}

// The ledger's time as a TimestampTz, for views. 0 stays "never" (callers show NULL).
TimestampTz to_timestamp(std::int64_t ledger_us);

class ExclusiveLedger {
 public:
  ExclusiveLedger() { LWLockAcquire(shared_state->lock, LW_EXCLUSIVE); }
  ~ExclusiveLedger() { LWLockRelease(shared_state->lock); }
  ExclusiveLedger(const ExclusiveLedger&) = delete;
  ExclusiveLedger& operator=(const ExclusiveLedger&) = delete;
  const ledger::Exclusive& token() const { return token_; }

 private:
  ledger::Exclusive token_;
};

class SharedLedger {
 public:
  SharedLedger() { LWLockAcquire(shared_state->lock, LW_SHARED); }
  ~SharedLedger() { LWLockRelease(shared_state->lock); }
  SharedLedger(const SharedLedger&) = delete;
  SharedLedger& operator=(const SharedLedger&) = delete;
  const ledger::Shared& token() const { return token_; }

 private:
  ledger::Shared token_;
};

// Sets the latches of granted backends; call after the lock is released. When wakes.more was set the rest is granted
// here, in rounds of the lock.
void wake(const ledger::Wakes& wakes);

// Sets a worker's latch, if it runs.
void wake_worker(WorkerStatus& worker);

}  // namespace sluice::extension
