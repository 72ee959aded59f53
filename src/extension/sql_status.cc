// sluice._status(): the one row behind the view sluice.status.
#include <atomic>

#include "extension/settings.h"
#include "extension/shared.h"
#include "extension/sql_support.h"
#include "extension/stamp.h"
#include "extension/standing.h"

namespace sluice::extension {
namespace {

using ledger::Header;
using ledger::SessionState;

constexpr std::int64_t kGuardSilentUs = 5 * 1000000LL;       // it beats every 100 ms
constexpr std::int64_t kPublisherSilentUs = 60 * 1000000LL;  // it beats every second, but also waits for locks
constexpr int kMaxAlerts = 16;

struct Alerts {
  const char* texts[kMaxAlerts];
  int count;

  void add(const char* text) {
    if (count < kMaxAlerts) texts[count++] = text;
  }
};

// A copy of the header and of what a reader has to count, made under the lock.
struct StatusCopy {
  Header header;
  std::uint32_t tenants_used;
  std::uint32_t unknown_sessions;
  std::uint32_t overflow_sessions;
};

void take_snapshot(StatusCopy& snapshot) {
  SharedLedger lock;
  snapshot.header = *the_ledger.header;
  const ledger::Sizes& sizes = snapshot.header.sizes;
  for (std::uint32_t i = 1; i < sizes.tenants; i++) snapshot.tenants_used += the_ledger.tenants[i].used ? 1 : 0;
  for (std::uint32_t i = 0; i < sizes.sessions; i++) {
    const std::uint32_t state =
        std::atomic_ref<std::uint32_t>(the_ledger.sessions[i].state).load(std::memory_order_relaxed);
    snapshot.unknown_sessions += static_cast<SessionState>(state) == SessionState::session_unknown ? 1 : 0;
  }
  snapshot.overflow_sessions = the_ledger.tenants[ledger::kOverflowTenant].sessions;
}

std::int64_t beat_age_us(const WorkerStatus& worker) { return worker.beat_us == 0 ? -1 : now_us() - worker.beat_us; }

void check_worker(Alerts& alerts, const char* name, WorkerStatus& worker, std::int64_t silent_us) {
  const std::int64_t age = beat_age_us(worker);
  if (pg_atomic_read_u32(&worker.pid) == 0) {
    alerts.add(psprintf("%s is not running", name));
  } else if (age > silent_us) {
    alerts.add(psprintf("%s has given no sign for %lld s", name, static_cast<long long>(age / 1000000)));
  }
  if (worker.note[0] != '\0') alerts.add(psprintf("%s: %s", name, worker.note));
}

void count_alert(Alerts& alerts, std::uint64_t count, const char* format) {
  if (count > 0) alerts.add(psprintf("%llu %s", static_cast<unsigned long long>(count), format));
}

void collect_alerts(Alerts& alerts, const StatusCopy& snapshot) {
  const Header& header = snapshot.header;
  check_worker(alerts, "guard", shared_state->guard, kGuardSilentUs);
  check_worker(alerts, "publisher", shared_state->publisher, kPublisherSilentUs);
  if (settings.enforcement != kEnforcePolicy) {
    alerts.add(psprintf("pg_sluice.enforcement is %s", enforcement_name(settings.enforcement)));
  }
  count_alert(alerts, snapshot.overflow_sessions, "sessions share the overflow tenant: raise pg_sluice.max_tenants");
  count_alert(alerts, snapshot.unknown_sessions, "sessions are in state SESSION_UNKNOWN and keep their permits");
  if (header.faults > 0) {
    alerts.add(psprintf("%llu fault%s, answered by pg_sluice.on_fault = %s",
                        static_cast<unsigned long long>(header.faults), header.faults == 1 ? "" : "s",
                        settings.on_fault == kRefuse ? "refuse" : "admit"));
  }
  count_alert(alerts, header.reclaimed, "sessions had to be reclaimed after their process was gone");
  count_alert(alerts, header.over_limit_grants, "permits were granted over a limit");
}

void write_worker(Rows& rows, WorkerStatus& worker) {
  const std::uint32_t pid = pg_atomic_read_u32(&worker.pid);
  const std::int64_t age = beat_age_us(worker);
  if (pid == 0) {
    rows.null();
  } else {
    rows.number(pid);
  }
  if (age < 0) {
    rows.null();
  } else {
    rows.number(age / 1000);
  }
  rows.count(worker.starts).text(worker.note[0] == '\0' ? nullptr : worker.note);
}

void write_sessions(Rows& rows, const StatusCopy& snapshot) {
  const Header& header = snapshot.header;
  const policy::Policy& policy = header.policy;
  rows.number(header.ordinary_sessions).limit(policy.server_session_permits).number(header.peak_ordinary_sessions);
  rows.number(header.unclaimed_guarantees);
  rows.number(header.admin_sessions).limit(policy.generation == 0 ? policy::kNoLimit : policy.admin_reserve);
  rows.number(header.walsender_sessions).number(snapshot.unknown_sessions);
  rows.number(MaxConnections).number(free_proc_slots(MaxConnections));
  rows.number(header.queued_total).number(header.overdraft_in_use).number(policy.overdraft_max);
}

void write_counters(Rows& rows, const Header& header) {
  rows.count(header.sessions_admitted).count(header.sessions_refused).count(header.sessions_would_refuse);
  rows.count(header.tickets_refused).count(header.waits_expired).count(header.waits_cancelled);
  rows.count(header.overdraft_granted).count(header.admitted_by_switch).count(header.tenant_overflows);
  rows.count(header.reclaimed)
      .count(header.faults)
      .count(header.time_limit_cancels)
      .count(header.time_limit_terminates);
  rows.count(header.logins_terminated).count(header.over_limit_grants);
}

void write_sizes(Rows& rows, const StatusCopy& snapshot) {
  const ledger::Sizes& sizes = snapshot.header.sizes;
  rows.count(snapshot.header.bytes).number(sizes.sessions).number(sizes.tenants - 1).number(snapshot.tenants_used);
  rows.number(sizes.classes).number(sizes.events).number(sizes.receipts).number(sizes.refusal_cells);
  rows.count(snapshot.header.pushed_out).count(snapshot.header.borrow_cancels);
}

}  // namespace
}  // namespace sluice::extension

using namespace sluice;             // NOLINT: the function below only translates an SQL call
using namespace sluice::extension;  // NOLINT

extern "C" {

PG_FUNCTION_INFO_V1(sluice_status);
Datum sluice_status(PG_FUNCTION_ARGS) {
  require_ledger();
  auto* snapshot = static_cast<StatusCopy*>(palloc0(sizeof(StatusCopy)));
  take_snapshot(*snapshot);
  const ledger::Header& header = snapshot->header;
  auto* alerts = static_cast<Alerts*>(palloc0(sizeof(Alerts)));
  collect_alerts(*alerts, *snapshot);

  Rows rows(fcinfo);
  rows.text(kVersion).text(header.build_stamp).count(header.epoch).uuid(header.boot_id).time(header.formatted_us);
  rows.boolean(RecoveryInProgress()).text(settings.database).text(cluster_label());
  rows.text(mode_name(effective_mode())).text(mode_name(static_cast<ledger::Mode>(header.mode)));
  rows.text(enforcement_name(settings.enforcement));
  if (header.policy.generation == 0) {
    rows.null();
  } else {
    rows.count(header.policy.generation);
  }
  write_sessions(rows, *snapshot);
  write_worker(rows, shared_state->guard);
  write_worker(rows, shared_state->publisher);
  rows.texts(alerts->texts, alerts->count);
  write_counters(rows, header);
  write_sizes(rows, *snapshot);
  rows.end();
  return static_cast<Datum>(0);
}
}
