// sluice.reconcile(): the ledger recomputed from its own records, and compared with the processes that really exist. A
// healthy server gives no row, under load as well: what could be a matter of timing has to be seen unchanged in every
// one of several looks.
#include <cstring>

#include "extension/shared.h"
#include "extension/sql_support.h"
#include "ledger/audit.h"

namespace sluice::extension {
namespace {

using ledger::Balance;
using ledger::Discrepancy;
using ledger::Session;
using ledger::SessionState;
using ledger::Ticket;

constexpr std::uint32_t kMaxEntries = 512;
constexpr int kAuditTries = 20;
constexpr int kAuditPauses = 100;  // of 20 us: how long one audit keeps the lock for steps that are under way
constexpr int kLooks = 4;
constexpr int kLookEveryMs = 60;

// What is wrong with one PGPROC slot.
enum class Problem : std::uint8_t {
  none,
  no_process,
  no_record,
  other_process,
  ticket_without_session,
  ticket_without_transaction
};

struct Suspect {
  Problem problem;
  std::uint32_t recorded_pid;
  std::uint32_t actual_pid;
  std::uint64_t mark;  // connection generation or time of the grant: another one is another incident
};

void pause_ms(long milliseconds) {
  (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, milliseconds, PG_WAIT_EXTENSION);
  ResetLatch(MyLatch);
  CHECK_FOR_INTERRUPTS();
}

bool audit_pause(void* context) noexcept {
  int* left = static_cast<int*>(context);
  if (*left <= 0) return false;
  (*left)--;
  pg_usleep(20L);
  return true;
}

bool all_settled(const Discrepancy* entries, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; i++) {
    if (entries[i].balance == Balance::in_transition) return false;
  }
  return true;
}

// Audits until no step was under way meanwhile, for about a second.
std::uint32_t audit_ledger(Discrepancy* entries) {
  std::uint32_t count = 0;
  for (int attempt = 0; attempt < kAuditTries; attempt++) {
    int pauses = kAuditPauses;
    {
      ExclusiveLedger lock;
      count = ledger::audit(the_ledger, lock.token(), audit_pause, &pauses, entries, kMaxEntries);
    }
    if (all_settled(entries, count)) return count;
    pause_ms(10L + 4L * attempt);
  }
  return count;
}

// The process that has the slot, or 0. A slot that was given back keeps its old contents; only the ProcArray tells.
std::uint32_t live_pid(const PGPROC* proc) {
  const int pid = proc->pid;
  return pid != 0 && BackendPidGetProc(pid) == proc ? static_cast<std::uint32_t>(pid) : 0;
}

// Has the slot's process passed authentication, and must it have a record? Superusers need none: on the Unix socket
// they pass before any code of the ledger runs. Only the slots of client backends come here.
bool needs_record(const PGPROC* proc) {
  const Oid role = proc->roleId;
  return !is_background_worker(proc) && OidIsValid(role) && OidIsValid(proc->databaseId) && !superuser_arg(role);
}

Suspect look_at(std::uint32_t slot, const Session& session, const Ticket& ticket) {
  const PGPROC* proc = proc_at(static_cast<int>(slot));
  const auto state = static_cast<SessionState>(session.state);
  const bool recorded = ledger::holds_session_permit(state) && state != SessionState::session_unknown;
  const std::uint32_t pid = live_pid(proc);
  Suspect suspect{Problem::none, recorded ? session.pid : 0, pid, session.connection_generation};
  if (recorded && pid == 0) {
    suspect.problem = Problem::no_process;
  } else if (recorded && session.pid != pid) {
    suspect.problem = Problem::other_process;
  } else if (!recorded && pid != 0 && slot < static_cast<std::uint32_t>(MaxConnections) && needs_record(proc)) {
    suspect.problem = Problem::no_record;
  } else if (ledger::holds_permit(ledger::phase_state(ticket.phase))) {
    suspect.mark = static_cast<std::uint64_t>(ticket.granted_us);
    if (!recorded) {
      suspect.problem = Problem::ticket_without_session;
    } else if (!in_transaction(proc)) {
      suspect.problem = Problem::ticket_without_transaction;
    }
  }
  return suspect;
}

bool same(const Suspect& a, const Suspect& b) {
  return a.problem == b.problem && a.recorded_pid == b.recorded_pid && a.actual_pid == b.actual_pid && a.mark == b.mark;
}

// Looks several times at every slot and clears those that changed or turned out well.
std::uint32_t find_suspects(Suspect* suspects, Slots& last) {
  std::uint32_t left = 0;
  for (int look = 0; look < kLooks; look++) {
    if (look > 0) pause_ms(kLookEveryMs);
    last = copy_slots();
    left = 0;
    for (std::uint32_t slot = 0; slot < last.count; slot++) {
      if (look > 0 && suspects[slot].problem == Problem::none) continue;
      const Suspect suspect = look_at(slot, last.sessions[slot], last.tickets[slot]);
      if (look > 0 && !same(suspect, suspects[slot])) {
        suspects[slot].problem = Problem::none;
      } else {
        suspects[slot] = suspect;
      }
      left += suspects[slot].problem == Problem::none ? 0 : 1;
    }
    if (left == 0) break;
  }
  return left;
}

const char* problem_name(Problem problem) {
  switch (problem) {
    case Problem::none:
      return "none";
    case Problem::no_process:
      return "session record without a process";
    case Problem::no_record:
      return "process without a session record";
    case Problem::other_process:
      return "session record of another process";
    case Problem::ticket_without_session:
      return "permit held without a session";
    case Problem::ticket_without_transaction:
      return "permit held without a transaction";
  }
  return "none";
}

char* object_name(const Names& names, const Discrepancy& entry) {
  switch (entry.balance) {
    case Balance::class_free:
    case Balance::class_waiters:
    case Balance::class_queued:
    case Balance::class_order:
    case Balance::borrowing: {
      const char* name = class_name(names, entry.index);
      return psprintf("class %s", name == nullptr ? "?" : name);
    }
    case Balance::row_in_use:
    case Balance::row_parked:
    case Balance::row_list:
    case Balance::row_order: {
      const char* name = class_name(names, entry.other);
      const char* tenant = tenant_name(entry.index);
      return psprintf("tenant %s in class %s", tenant == nullptr ? "?" : tenant, name == nullptr ? "?" : name);
    }
    case Balance::tenant_sessions:
    case Balance::tenant_table: {
      const char* tenant = tenant_name(entry.index);
      return psprintf("tenant %s", tenant == nullptr ? "?" : tenant);
    }
    case Balance::ticket_state:
    case Balance::session_state:
    case Balance::in_transition:
      return psprintf("slot %u", entry.index);
    default:
      return psprintf("index %u", entry.index);
  }
}

void write_audit(Rows& rows, const Discrepancy* entries, std::uint32_t count) {
  if (count == 0) return;
  const Names& names = copy_names();
  for (std::uint32_t i = 0; i < count; i++) {
    const Discrepancy& entry = entries[i];
    const bool moving = entry.balance == Balance::in_transition;
    rows.text(moving ? "in transition" : psprintf("balance %s", ledger::balance_name(entry.balance)));
    rows.text(object_name(names, entry)).number(entry.recorded).number(entry.recomputed);
    rows.text(moving ? "a step of this slot did not end within a second, so the audit is not exact"
                     : "the recorded balance differs from the sum over the records");
    rows.end();
  }
}

void write_suspects(Rows& rows, const Suspect* suspects, const Slots& slots) {
  for (std::uint32_t slot = 0; slot < slots.count; slot++) {
    const Suspect& suspect = suspects[slot];
    if (suspect.problem == Problem::none) continue;
    const Session& session = slots.sessions[slot];
    rows.text(problem_name(suspect.problem)).text(psprintf("slot %u", slot));
    rows.number(suspect.recorded_pid).number(suspect.actual_pid);
    rows.text(psprintf("session %s of role \"%s\", ticket %s; recorded and actual are process ids",
                       ledger::state_name(static_cast<SessionState>(session.state)), session.role,
                       ledger::state_name(ledger::phase_state(slots.tickets[slot].phase))));
    rows.end();
  }
}

}  // namespace
}  // namespace sluice::extension

using namespace sluice;             // NOLINT: the function below only translates an SQL call
using namespace sluice::extension;  // NOLINT

extern "C" {

PG_FUNCTION_INFO_V1(sluice_reconcile);
Datum sluice_reconcile(PG_FUNCTION_ARGS) {
  require_ledger();
  auto* entries = static_cast<ledger::Discrepancy*>(palloc0(sizeof(ledger::Discrepancy) * kMaxEntries));
  auto* suspects = static_cast<Suspect*>(palloc0(sizeof(Suspect) * the_ledger.header->sizes.sessions));
  const std::uint32_t count = audit_ledger(entries);
  Slots slots{};
  const std::uint32_t left = find_suspects(suspects, slots);
  Rows rows(fcinfo);
  write_audit(rows, entries, count);
  if (left > 0) write_suspects(rows, suspects, slots);
  return static_cast<Datum>(0);
}
}
