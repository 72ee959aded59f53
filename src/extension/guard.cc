#include "extension/guard.h"

#include <atomic>

#include "extension/refusal_log.h"
#include "extension/settings.h"

namespace sluice::extension {

namespace {

constexpr long kTickMs = 100;
constexpr std::int64_t kRoundUs =
    90'000;  // a little less than the tick: a round is never skipped for being early by a hair

void register_worker(const char* name, const char* function, int flags, BgWorkerStartTime start, int restart_s) {
  BackgroundWorker worker;
  memset(&worker, 0, sizeof worker);
  strlcpy(worker.bgw_name, name, sizeof worker.bgw_name);
  strlcpy(worker.bgw_type, name, sizeof worker.bgw_type);
  worker.bgw_flags = flags;
  worker.bgw_start_time = start;
  worker.bgw_restart_time = restart_s;
  strlcpy(worker.bgw_library_name, "pg_sluice", sizeof worker.bgw_library_name);
  strlcpy(worker.bgw_function_name, function, sizeof worker.bgw_function_name);
  RegisterBackgroundWorker(&worker);
}

void worker_stopped(int, Datum argument) {
  auto* status = reinterpret_cast<WorkerStatus*>(DatumGetPointer(argument));
  pg_atomic_write_u32(&status->pid, 0);
}

void reload_settings() {
  if (!ConfigReloadPending) return;
  ConfigReloadPending = false;
  ProcessConfigFile(PGC_SIGHUP);
}

}  // namespace

void register_workers() {
  register_worker("pg_sluice guard", "sluice_guard_main", BGWORKER_SHMEM_ACCESS, BgWorkerStart_PostmasterStart, 1);
  register_worker("pg_sluice publisher", "sluice_publisher_main",
                  BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION, BgWorkerStart_ConsistentState, 5);
}

void worker_started(WorkerStatus& status) {
  on_shmem_exit(worker_stopped, PointerGetDatum(&status));
  status.proc = proc_index(MyProc);
  status.started_us = now_us();
  status.beat_us = status.started_us;
  ++status.starts;
  pg_memory_barrier();
  pg_atomic_write_u32(&status.pid, static_cast<uint32>(MyProcPid));
}

void worker_beat(WorkerStatus& status) { status.beat_us = now_us(); }

bool policy_enforced() {
  ledger::Header& header = *the_ledger.header;
  return std::atomic_ref(header.switch_mode).load(std::memory_order_relaxed) == kEnforcePolicy &&
         std::atomic_ref(header.mode).load(std::memory_order_relaxed) ==
             static_cast<std::uint32_t>(ledger::Mode::enforce);
}

void* worker_memory(std::size_t bytes) { return MemoryContextAllocZero(TopMemoryContext, bytes); }

}  // namespace sluice::extension

// A wake-up before the tick is for the two jobs somebody waits for; the others keep to the tick.
void sluice_guard_main(Datum) {
  using namespace sluice::extension;

  pqsignal(SIGHUP, SignalHandlerForConfigReload);
  pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
  BackgroundWorkerUnblockSignals();
  if (!ledger_ready()) {
    ereport(LOG, (errmsg("pg_sluice: the guard ends because the ledger was not made by this library")));
    proc_exit(0);
  }
  worker_started(shared_state->guard);

  std::int64_t last_round_us = 0;
  while (!ShutdownRequestPending) {
    reload_settings();
    worker_beat(shared_state->guard);
    watch_switch();
    watch_lock_cycles();
    const std::int64_t now = now_us();
    if (now - last_round_us >= kRoundUs) {
      last_round_us = now;
      watch_schedule();
      watch_time_limits();
      watch_sessions();
      watch_logins();
    }
    (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, kTickMs, PG_WAIT_EXTENSION);
    ResetLatch(MyLatch);
  }
  report_left_out(true);
  // A worker that ends with 0 is not started again: this is also how somebody who kills it gets it back.
  proc_exit(1);
}
