// The login guard. A backend takes its connection slot before it authenticates, so clients that stall at the password
// prompt can use up every slot and keep even a superuser out, and no hook runs early enough to prevent it. When the
// free slots fall to those kept for administrators, logins in progress are ended: of the source address with most of
// them first, oldest first.
//
// What may be signalled is proved first. A login in progress has a client's PGPROC, no role yet and no session record;
// the signal is sent under the shared ProcArrayLock, which it cannot leave the array without. Parallel, background and
// autovacuum workers and walsenders have PGPROCs of other ranges and are never looked at.
#include <arpa/inet.h>
#include <signal.h>

#include <atomic>

#include "extension/guard.h"
#include "extension/guard_procfs.h"
#include "extension/guard_silent_sockets.h"
#include "extension/settings.h"
#include "ledger/journal.h"

namespace sluice::extension {

namespace {

using ledger::kNil;
using ledger::SessionState;

constexpr int kSpare = 2;       // slots beyond the kept ones that shall stay free
constexpr int kLookAhead = 32;  // logins are watched once the free slots come this near to the kept ones
constexpr int kMaxEndedARound = 64;
constexpr int kMaxCushion = 16;
constexpr std::int64_t kEndingUs = 5'000'000;  // after that a signalled login that is still there is signalled again
// A login is old enough to be ended after this long; the fewer slots are free, the less time it has.
constexpr std::int64_t kPatientUs = 1'000'000;
constexpr std::int64_t kPressedUs = 300'000;
constexpr std::int64_t kUrgentUs = 90'000;

// By PGPROC index: the login in progress that was seen there.
struct Seen {
  int pid;
  std::int64_t since_us;
  std::int64_t signalled_us;
  Source source;
  bool source_known;
};

Seen* seen = nullptr;
LoginInProgress* logins = nullptr;

// Slots that shall stay reachable for administrators and PostgreSQL's own reserves.
int kept_slots() {
  const ledger::Header& header = *the_ledger.header;
  int unused_reserve = 0;
  if (policy_enforced() && header.policy.admin_reserve < policy::kNoLimit) {
    unused_reserve = static_cast<int>(header.policy.admin_reserve) - static_cast<int>(header.admin_sessions);
  }
  return std::min(std::max(unused_reserve, 0) + reserved_slots() + kSpare, MaxConnections / 2);
}

bool has_record(int slot, int pid) {
  ledger::Session& session = the_ledger.sessions[slot];
  const auto state = static_cast<SessionState>(std::atomic_ref(session.state).load(std::memory_order_acquire));
  return ledger::holds_session_permit(state) && session.pid == static_cast<std::uint32_t>(pid);
}

// A transaction is open while a client authenticates; a PGPROC that was freed has none, though it may still carry its
// old pid.
bool is_logging_in(const PGPROC* proc, int slot) {
  const volatile PGPROC* current = proc;
  return current->pid > 1 && current->roleId == InvalidOid && local_transaction_of(proc) != InvalidLocalTransactionId &&
         !has_record(slot, current->pid);
}

void watch_slots(std::int64_t now) {
  for (int slot = 0; slot < MaxConnections; ++slot) {
    const PGPROC* proc = proc_at(slot);
    if (!is_logging_in(proc, slot)) {
      seen[slot].pid = 0;
    } else if (seen[slot].pid != proc->pid) {
      seen[slot] = {proc->pid, now, 0, {}, false};
    }
  }
}

LoginInProgress login_at(int slot, std::int64_t now) {
  const Seen& entry = seen[slot];
  return {entry.pid, slot, entry.since_us, entry.source,
          entry.signalled_us != 0 && now - entry.signalled_us < kEndingUs};
}

// Once there is no room, as much is made as logins came in the last second: what the next second may bring.
int cushion(int count, std::int64_t now) {
  const auto recent = std::count_if(logins, logins + count,
                                    [now](const LoginInProgress& login) { return now - login.since_us < kPatientUs; });
  return std::min(static_cast<int>(recent), std::min(kMaxCushion, MaxConnections / 8));
}

// Those of unknown source stand in front: the kernel's tables are read for them alone.
int collect_logins(std::int64_t now) {
  int count = 0;
  for (int slot = 0; slot < MaxConnections; ++slot) {
    if (seen[slot].pid != 0 && !seen[slot].source_known) logins[count++] = login_at(slot, now);
  }
  const int unknown = count;
  for (int slot = 0; slot < MaxConnections; ++slot) {
    if (seen[slot].pid != 0 && seen[slot].source_known) logins[count++] = login_at(slot, now);
  }
  if (unknown > 0) find_sources(logins, unknown);
  for (int i = 0; i < unknown; ++i) {
    seen[logins[i].slot].source = logins[i].source;
    seen[logins[i].slot].source_known = true;
  }
  return count;
}

bool terminate_login(const LoginInProgress& login) {
  LWLockAcquire(ProcArrayLock, LW_SHARED);
  const PGPROC* proc = BackendPidGetProcWithLock(login.pid);
  const bool sent = proc == proc_at(login.slot) && proc->roleId == InvalidOid && !has_record(login.slot, login.pid) &&
                    kill(login.pid, SIGTERM) == 0;
  LWLockRelease(ProcArrayLock);
  return sent;
}

void describe_source(const Source& source, char* out, std::size_t size) {
  const Source none = {};
  const bool mapped = source.words[0] == 0 && source.words[1] == 0 && source.words[2] == htonl(0xFFFF);
  const char* written = mapped ? inet_ntop(AF_INET, &source.words[3], out, static_cast<socklen_t>(size))
                               : inet_ntop(AF_INET6, source.words, out, static_cast<socklen_t>(size));
  if (written == nullptr || source == none) strlcpy(out, "local or unknown", size);
}

void count_ended(int ended, std::int64_t now) {
  ExclusiveLedger lock;
  the_ledger.header->logins_terminated += static_cast<std::uint64_t>(ended);
  const ledger::EventFacts facts{
      ledger::EventKind::login_terminated, policy::outcome(policy::Status::ok), kNil, kNil, nullptr, false};
  for (int i = 0; i < ended; ++i) ledger::record_event(the_ledger, lock.token(), facts, now);
}

std::int64_t min_age_us(int free_slots, int kept) {
  if (free_slots <= kSpare) return kUrgentUs;
  return free_slots * 2 < kept ? kPressedUs : kPatientUs;
}

void end_logins(int free_slots, int kept, std::int64_t now) {
  const int count = collect_logins(now);
  int wanted = kept + 1 + cushion(count, now) - free_slots;
  for (int i = 0; i < count; ++i) wanted -= logins[i].ending ? 1 : 0;
  const int chosen = choose_logins(logins, count, std::min(wanted, kMaxEndedARound), now, min_age_us(free_slots, kept));
  int ended = 0;
  Source source = {};
  for (int i = 0; i < chosen; ++i) {
    if (!terminate_login(logins[i])) continue;
    seen[logins[i].slot].signalled_us = now;
    source = logins[i].source;
    ++ended;
  }
  if (ended == 0) return;
  count_ended(ended, now);
  static LogThrottle log;
  std::uint64_t suppressed = 0;
  if (!log.pass(now, suppressed)) return;
  char text[INET6_ADDRSTRLEN];
  describe_source(source, text, sizeof text);
  ereport(
      LOG,
      (errmsg(
           "pg_sluice: ended %d of %d logins in progress (source: %s), because only %d connection slots were free and "
           "%d are kept for administrators",
           ended, count, text, free_slots, kept),
       suppressed == 0 ? 0
                       : errdetail("%llu more rounds like this since the last such line.",
                                   static_cast<unsigned long long>(suppressed))));
}

void log_silent(int ended, std::int64_t now) {
  static LogThrottle log;
  std::uint64_t suppressed = 0;
  if (!log.pass(now, suppressed)) return;
  ereport(LOG, (errmsg("pg_sluice: ended %d connections that had not sent anything yet, because they threaten the "
                       "postmaster's child "
                       "slots",
                       ended),
                suppressed == 0 ? 0
                                : errdetail("%llu more rounds like this since the last such line.",
                                            static_cast<unsigned long long>(suppressed))));
}

}  // namespace

void watch_logins() {
  if (!settings.login_guard || settings.enforcement == kEnforceOff) return;
  if (seen == nullptr) {
    seen = static_cast<Seen*>(worker_memory(static_cast<std::size_t>(MaxConnections) * sizeof(Seen)));
    logins = static_cast<LoginInProgress*>(
        worker_memory(static_cast<std::size_t>(MaxConnections) * sizeof(LoginInProgress)));
  }
  const std::int64_t now = now_us();
  const int kept = kept_slots();
  const int free_slots = free_proc_slots(kept + kLookAhead);
  if (free_slots < kept + kLookAhead) watch_slots(now);
  if (free_slots <= kept) end_logins(free_slots, kept, now);

  const int silent = end_silent_sockets(now);
  if (silent > 0) {
    count_ended(silent, now);
    log_silent(silent, now);
  }
}

}  // namespace sluice::extension
