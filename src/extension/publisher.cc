// The publisher worker: connected to pg_sluice.database, it brings the stored policy into the ledger at start, on a
// standby, and as a safety net behind the sessions that publish; and it writes what shared memory tells (flips of the
// kill switch, boots, restarted workers) into sluice.changes, on a primary. Nothing time-critical depends on it: it may
// fail, and it sleeps while there is no table. A worker that is connected to a database counts as a session of it: DROP
// DATABASE needs WITH (FORCE).
#include <cstring>

#include "extension/change_log.h"
#include "extension/guard.h"
#include "extension/policy_store.h"
#include "extension/settings.h"
#include "extension/shared.h"
#include "extension/sql_support.h"
#include "ledger/journal.h"
#include "policy/text.h"

namespace sluice::extension {
namespace {

using ledger::Mode;
using policy::Status;

constexpr long kTickMs = 1000;
constexpr std::int64_t kReloadUs = 10 * 1000000LL;
constexpr std::int64_t kRetryUs = 5 * 1000000LL;  // while there is no table

// What the worker has seen and written; a change against it is worth an entry in sluice.changes.
struct Seen {
  bool written;  // the boot has been recorded
  std::uint32_t switch_mode;
  std::uint64_t guard_starts;
};

Seen seen = {};
char last_error[256] = "";

void set_note(const char* text) {
  policy::TextWriter(shared_state->publisher.note, sizeof(shared_state->publisher.note)).add(text);
}

// Says in the status why there is no (new) policy, and in the log and the events when the reason is a new one.
void report_trouble(const char* text, bool fault) {
  const bool known = std::strcmp(shared_state->publisher.note, text) == 0;
  if (known) return;
  set_note(text);
  ereport(LOG, (errmsg("pg_sluice publisher: %s", text)));
  if (!fault) return;
  ExclusiveLedger lock;
  the_ledger.header->faults++;
  const ledger::EventFacts facts{
      ledger::EventKind::fault, policy::outcome(Status::corrupt), ledger::kNil, ledger::kNil, nullptr, false};
  ledger::record_event(the_ledger, lock.token(), facts, now_us());
}

// Only tables of the extension are read: a schema of the same name that somebody else made could hold code for a
// superuser.
bool tables_exist() {
  const Oid extension = get_extension_oid("pg_sluice", true);
  const Oid schema = get_namespace_oid("sluice", true);
  if (!OidIsValid(extension) || !OidIsValid(schema)) return false;
  constexpr const char* kTables[] = {"policies", "changes"};
  for (const char* name : kTables) {
    const Oid table = get_relname_relid(name, schema);
    if (!OidIsValid(table) || get_rel_relkind(table) != RELKIND_RELATION) return false;
    if (getExtensionOfObject(RelationRelationId, table) != extension) return false;
  }
  return true;
}

// Is this what the ledger decides by? Sessions compare their own copies by version; here generation and mode tell.
bool is_in_force(const StoredPolicy& stored) {
  SharedLedger lock;
  return the_ledger.header->policy.generation == stored.policy.generation &&
         the_ledger.header->mode == static_cast<std::uint32_t>(stored.mode);
}

// A deciding row that cannot be used keeps what is in force. Where nothing is, pg_sluice.on_fault decides: admit
// everybody, or administrators only.
void follow_fault(StoredPolicy& stored, std::uint64_t version) {
  {
    SharedLedger lock;
    if (the_ledger.header->policy.generation != 0) return;
  }
  policy::make_unlimited_policy(stored.policy);
  stored.mode = Mode::shadow;
  if (settings.on_fault == kRefuse) {
    stored.mode = Mode::enforce;
    stored.policy.server_session_permits = 0;
    stored.policy.admin_reserve = policy::kNoLimit;
  }
  if (!is_in_force(stored)) (void)put_in_force_since(version, stored.policy, stored.mode);
}

void log_in_force(const StoredPolicy& stored) {
  if (stored.policy.generation == 0) {
    ereport(LOG, (errmsg("pg_sluice: no policy is in force: everything is admitted and counted")));
  } else {
    ereport(LOG, (errmsg("pg_sluice: generation %llu is in force, mode %s",
                         static_cast<unsigned long long>(stored.policy.generation), mode_name(stored.mode))));
  }
}

// Brings what the tables say into force, unless it is. Needs a transaction and SPI when `readable`; without tables
// nothing is published, and everything is admitted.
void follow_tables(StoredPolicy& stored, bool readable) {
  char note[256] = "";
  const std::uint64_t version = policy_version_in_force();
  if (readable) {
    load_policy(stored, note, sizeof(note));
  } else {
    stored.present = stored.unreadable = false;
    stored.mode = Mode::shadow;
    policy::make_unlimited_policy(stored.policy);
  }
  if (stored.unreadable) {
    report_trouble(note, true);
    follow_fault(stored, version);
    return;
  }
  if (!is_in_force(stored)) {
    const Status status = put_in_force_since(version, stored.policy, stored.mode);
    if (status == Status::contended) {
      SetLatch(MyLatch);  // a session was faster: look again
    } else if (status != Status::ok) {
      policy::TextWriter(note, sizeof(note))
          .add("generation ")
          .add(stored.policy.generation)
          .add(" waits for classes of the policy before it to drain, or for a larger pg_sluice.max_classes");
    } else {
      log_in_force(stored);
    }
  }
  if (!readable) {
    report_trouble("no extension pg_sluice in this database: nothing is published", false);
  } else if (note[0] != '\0') {
    report_trouble(note, false);
  } else {
    set_note("");
  }
}

std::uint32_t current_switch() { return __atomic_load_n(&the_ledger.header->switch_mode, __ATOMIC_RELAXED); }

bool has_news() {
  return !seen.written || seen.switch_mode != current_switch() || seen.guard_starts != shared_state->guard.starts;
}

// Has this boot been recorded? The worker itself may have been restarted in the middle of it.
bool boot_is_recorded(const char* boot_id) {
  Oid types[1] = {TEXTOID};
  Datum values[1] = {CStringGetTextDatum(boot_id)};
  const int result = SPI_execute_with_args("SELECT FROM sluice.changes WHERE what = 'boot' AND diff->>'boot_id' = $1",
                                           1, types, values, nullptr, false, 1);
  if (result != SPI_OK_SELECT) elog(ERROR, "cannot read sluice.changes");
  return SPI_processed > 0;
}

void write_boot() {
  pg_uuid_t boot_id;
  std::memcpy(boot_id.data, the_ledger.header->boot_id.bytes, sizeof(boot_id.data));
  char* text = DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(&boot_id)));
  if (boot_is_recorded(text)) {
    const char* why = psprintf("the publisher was started for the %llu. time",
                               static_cast<unsigned long long>(shared_state->publisher.starts));
    if (shared_state->publisher.starts > 1) write_change({nullptr, "worker", 0, why, nullptr});
    return;
  }
  const char* json = psprintf("{\"boot_id\": \"%s\", \"epoch\": %llu}", text,
                              static_cast<unsigned long long>(the_ledger.header->epoch));
  Jsonb* diff = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(json)));
  write_change({nullptr, "boot", 0, "the server started and made a new ledger", diff});
}

// Writes what has changed in shared memory since the last time. `seen` moves on only after COMMIT.
void write_news(Seen& next) {
  next = {true, current_switch(), shared_state->guard.starts};
  const bool first = !seen.written;
  if (first) write_boot();
  if (first ? next.switch_mode != kEnforcePolicy : next.switch_mode != seen.switch_mode) {
    const char* why = psprintf("pg_sluice.enforcement is %s", enforcement_name(static_cast<int>(next.switch_mode)));
    write_change({nullptr, "switch", 0, why, nullptr});
  }
  if (!first && next.guard_starts != seen.guard_starts) {
    const char* why =
        psprintf("the guard was started for the %llu. time", static_cast<unsigned long long>(next.guard_starts));
    write_change({nullptr, "worker", 0, why, nullptr});
  }
  trim_changes();
}

// One transaction: the policy and, on a primary, the news. Returns whether the tables are there.
bool run_transaction(StoredPolicy& stored) {
  Seen next = seen;
  StartTransactionCommand();
  PushActiveSnapshot(GetTransactionSnapshot());
  pgstat_report_activity(STATE_RUNNING, "following sluice.policies");
  const bool readable = tables_exist();
  if (readable) {
    SPI_connect();
    follow_tables(stored, true);
    if (!RecoveryInProgress() && has_news()) write_news(next);
    SPI_finish();
  } else {
    follow_tables(stored, false);
  }
  PopActiveSnapshot();
  CommitTransactionCommand();
  pgstat_report_stat(true);
  pgstat_report_activity(STATE_IDLE, nullptr);
  seen = next;
  return readable;
}

// The same, with every error turned into a note: logged in full once, as long as it stays the same one.
bool try_transaction(StoredPolicy& stored) {
  MemoryContext context = CurrentMemoryContext;
  volatile bool readable = false;
  PG_TRY();
  {
    readable = run_transaction(stored);
    last_error[0] = '\0';
  }
  PG_CATCH();
  {
    MemoryContextSwitchTo(context);
    ErrorData* error = CopyErrorData();
    if (std::strncmp(last_error, error->message, sizeof(last_error) - 1) != 0) {
      EmitErrorReport();
      strlcpy(last_error, error->message, sizeof(last_error));
    }
    FlushErrorState();
    AbortCurrentTransaction();
    policy::TextWriter(shared_state->publisher.note, sizeof(shared_state->publisher.note))
        .add("cannot read the policies: ")
        .add(error->message);
    FreeErrorData(error);
  }
  PG_END_TRY();
  return readable;
}

bool database_exists() {
  StartTransactionCommand();
  const bool exists = OidIsValid(get_database_oid(settings.database, true));
  CommitTransactionCommand();
  return exists;
}

// Sees that the database is there before anybody tries to connect again: a failed connection costs a line of FATAL in
// the log. A process can connect only once, so this one ends when the database has appeared, and the next one connects.
[[noreturn]] void await_database() {
  BackgroundWorkerInitializeConnection(nullptr, nullptr, 0);
  while (!database_exists()) {
    worker_beat(shared_state->publisher);
    (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, kRetryUs / 1000, PG_WAIT_EXTENSION);
    ResetLatch(MyLatch);
    CHECK_FOR_INTERRUPTS();
  }
  set_note("");
  proc_exit(1);
}

void connect() {
  char note[128];
  policy::TextWriter(note, sizeof(note)).add("cannot connect to database ").add_quoted(settings.database);
  if (std::strcmp(shared_state->publisher.note, note) == 0) await_database();
  set_note(note);  // stays as it is when the connection fails: that ends the process
  BackgroundWorkerInitializeConnection(settings.database, nullptr, 0);
  SetConfigOption("search_path", "pg_catalog", PGC_SUSET, PGC_S_OVERRIDE);
  SetConfigOption("default_transaction_isolation", "read committed", PGC_SUSET, PGC_S_OVERRIDE);
  SetConfigOption("default_transaction_read_only", "off", PGC_SUSET, PGC_S_OVERRIDE);
  SetConfigOption("statement_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
}

void run() {
  auto* stored = static_cast<StoredPolicy*>(worker_memory(sizeof(StoredPolicy)));
  std::int64_t next_us = 0;
  bool in_recovery = RecoveryInProgress();
  for (;;) {
    CHECK_FOR_INTERRUPTS();
    if (ConfigReloadPending) {
      ConfigReloadPending = false;
      ProcessConfigFile(PGC_SIGHUP);
    }
    worker_beat(shared_state->publisher);
    const bool promoted = in_recovery && !RecoveryInProgress();
    in_recovery = in_recovery && !promoted;
    if (promoted || now_us() >= next_us || (!in_recovery && seen.written && has_news())) {
      const bool readable = try_transaction(*stored);
      next_us = now_us() + (readable ? kReloadUs : kRetryUs);
    }
    const int event = WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, kTickMs, PG_WAIT_EXTENSION);
    ResetLatch(MyLatch);
    if ((event & WL_LATCH_SET) != 0) next_us = 0;
  }
}

}  // namespace
}  // namespace sluice::extension

void sluice_publisher_main(Datum) {
  using namespace sluice::extension;

  pqsignal(SIGHUP, SignalHandlerForConfigReload);
  pqsignal(SIGTERM, die);
  BackgroundWorkerUnblockSignals();
  if (!ledger_ready()) {
    ereport(LOG, (errmsg("pg_sluice: the publisher ends because the ledger was not made by this library")));
    proc_exit(0);
  }
  worker_started(shared_state->publisher);
  connect();
  run();
}
