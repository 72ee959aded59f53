#include "extension/pg.h"

#include "extension/errors.h"

#include <atomic>

#include "extension/settings.h"
#include "extension/shared.h"

namespace sluice::extension {

namespace {

using policy::Status;

struct Wording {
  int sqlstate;
  const char* message;
  const char* hint;
};

// Exhaustive on purpose: a new Status does not compile until it has words.
Wording wording_of(Status status) {
  constexpr int session = ERRCODE_TOO_MANY_CONNECTIONS;
  constexpr int execution = ERRCODE_INSUFFICIENT_RESOURCES;
  switch (status) {
    case Status::session_limit:
      return {session, "no session permit is free", "Retry after the delay in DETAIL, or close idle sessions."};
    case Status::tenant_session_limit:
      return {session, "the tenant has all the sessions it may have",
              "Close sessions of this tenant, or raise its maxSessions."};
    case Status::role_session_limit:
      return {session, "the role has all the sessions it may have", "Close sessions of this role, or raise its cap."};
    case Status::role_connect_rate:
      return {session, "the role opens sessions faster than it may",
              "Retry after the delay in DETAIL; keep connections open instead of opening one for each request."};
    case Status::database_session_limit:
      return {session, "the database has all the sessions it may have",
              "Close sessions of this database, or raise its cap."};
    case Status::admin_reserve:
      return {session, "the sessions kept for administrators are in use or promised to others",
              "A superuser on the Unix socket always gets in."};
    case Status::queue_full:
      return {execution, "the queue of the execution class is full",
              "Nothing was executed. Retry after the delay in DETAIL."};
    case Status::deadline_unreachable:
      return {execution, "the statement would not be admitted before its deadline",
              "Nothing was executed. Retry after the delay in DETAIL."};
    case Status::pushed_out:
      return {execution, "the statement gave up its place in a full queue to another tenant",
              "Nothing was executed. Retry after the delay in DETAIL."};
    case Status::queue_deadline:
      return {execution, "the statement was not admitted before its deadline",
              "Nothing was executed. Retry after the delay in DETAIL."};
    case Status::overdraft_exhausted:
      return {execution, "the queued transaction blocks a running one and no overdraft permit came free",
              "Nothing of this statement was executed. Retry the transaction."};
    case Status::cancelled:
      return {ERRCODE_QUERY_CANCELED, "the statement was canceled while queued", "Nothing was executed."};
    case Status::time_limit:
      return {ERRCODE_QUERY_CANCELED, "canceling the transaction because of its time limit",
              "Split the transaction, or raise transactionTimeLimitMs of its class."};
    case Status::duplicate_ticket:
      return {ERRCODE_DUPLICATE_OBJECT, "a request with this ticket is queued or running",
              "Nothing of this statement was executed. Wait for the first request to end, or use a new ticket."};
    case Status::ok:
    case Status::queued:
    case Status::contended:
    case Status::illegal_transition:
    case Status::not_found:
    case Status::table_full:
    case Status::corrupt:
    case Status::layout_mismatch:
      break;
  }
  return {ERRCODE_SYSTEM_ERROR, "pg_sluice: an answer that is no refusal was raised", "Please report this."};
}

constexpr std::int64_t kFaultLogWindowUs = 10 * 1000000;

// A duplicate of a request that has ended is told something else than one of a request that is alive.
Wording wording_of(const RefusalContext& context) {
  if (context.outcome.status == Status::duplicate_ticket && context.first.ended) {
    return {ERRCODE_DUPLICATE_OBJECT, "the request with this ticket has been executed",
            "Nothing of this statement was executed. Look whether the first request took effect; a request of its own "
            "needs a new ticket."};
  }
  return wording_of(context.outcome.status);
}

std::uint32_t random_bits() {
  std::uint32_t bits = 0;
  (void)pg_strong_random(&bits, sizeof(bits));
  return bits;
}

}  // namespace

void raise_refusal(const policy::Policy& policy, const RefusalContext& context) {
  const Wording wording = wording_of(context);
  policy::Refusal refusal = {};
  refusal.outcome = context.outcome;
  refusal.retry = policy::retry_of(context.outcome.status);
  refusal.retry_after_ms = policy::jittered_delay_ms(policy.retry_base_ms, random_bits());
  refusal.class_name = context.class_name;
  refusal.tenant_name = context.tenant_name;
  refusal.ticket = context.ticket;
  refusal.first = context.first;
  char* detail = static_cast<char*>(palloc(policy::kDetailBytes));
  (void)policy::format_detail(policy, refusal, detail, policy::kDetailBytes);
  const int level = context.login ? FATAL : ERROR;
  ereport(level, (errcode(wording.sqlstate), errmsg("%s", wording.message), errdetail_internal("%s", detail),
                  errhint("%s", wording.hint)));
  pg_unreachable();
}

void raise_evicted() {
  ereport(FATAL, (errcode(ERRCODE_ADMIN_SHUTDOWN), errmsg("terminating connection: the session was closed while idle"),
                  errhint("Nothing was executed. Connect again.")));
  pg_unreachable();
}

namespace {

const char* expiry_context(Expired why) {
  switch (why) {
    case Expired::time_limit:
      return "pg_sluice: the transaction held its permit longer than transactionTimeLimitMs of its class";
    case Expired::borrowed_permit:
      break;
  }
  return "pg_sluice: the transaction held a borrowed permit longer than borrow.ttlMs of its class while the lender "
         "queued";
}

}  // namespace

void add_time_limit_context(Expired why) { errcontext("%s", expiry_context(why)); }

void raise_time_limit(Expired why) {
  Wording wording = wording_of(Status::time_limit);
  if (why == Expired::borrowed_permit) {
    wording.message = "canceling the transaction because its permit was borrowed and the lender needs it";
    wording.hint = "Retry the transaction; raise permits of its class, or set borrow.onExpiry to mark.";
  }
  ereport(ERROR, (errcode(wording.sqlstate), errmsg("%s", wording.message), errcontext("%s", expiry_context(why)),
                  errhint("%s", wording.hint)));
  pg_unreachable();
}

void raise_plan_outdated() {
  ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
                  errmsg("a relation of the statement changed its inheritance while the statement was queued"),
                  errhint("Nothing was executed. Retry at once.")));
  pg_unreachable();
}

void report_fault(policy::Status status, const char* where, bool may_raise) {
  std::atomic_ref<std::uint64_t>(the_ledger.header->faults).fetch_add(1, std::memory_order_relaxed);
  static std::int64_t last_logged_us = 0;
  const std::int64_t now = now_us();
  if (last_logged_us == 0 || now - last_logged_us > kFaultLogWindowUs) {
    last_logged_us = now;
    ereport(LOG, (errmsg("pg_sluice: broken invariant in %s: %s", where, policy::status_name(status)),
                  errhint("Run SELECT * FROM sluice.reconcile() and report what it shows.")));
  }
  if (!may_raise || settings.on_fault == kAdmit) return;
  ereport(
      ERROR,
      (errcode(ERRCODE_SYSTEM_ERROR),
       errmsg("pg_sluice: refused because of a fault in %s: %s", where, policy::status_name(status)),
       errhint("pg_sluice.on_fault = refuse is set; set it to admit, or pg_sluice.enforcement to off, and reload.")));
}

namespace {

constexpr char kPreloadHint[] = "Add pg_sluice to shared_preload_libraries in postgresql.conf and restart the server.";

}  // namespace

void raise_not_preloaded() {
  ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                  errmsg("pg_sluice must be loaded via shared_preload_libraries"), errhint("%s", kPreloadHint)));
  pg_unreachable();
}

void warn_not_preloaded() {
  ereport(WARNING, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                    errmsg("pg_sluice does nothing: it must be loaded via shared_preload_libraries"),
                    errhint("%s", kPreloadHint)));
}

void raise_other_build(const char* running, const char* loaded) {
  ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                  errmsg("pg_sluice: the server runs another build of the library"),
                  errdetail("The server started with %s, this library is %s.", running, loaded),
                  errhint("Restart the server to finish the upgrade.")));
  pg_unreachable();
}

void raise_wrong_database(const char* here, const char* wanted) {
  ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                  errmsg("policies are kept in database \"%s\", not in \"%s\"", wanted, here),
                  errhint("Connect to \"%s\", or change pg_sluice.database and restart.", wanted)));
  pg_unreachable();
}

}  // namespace sluice::extension
