// Transaction time limits, by time held whatever the state: cancel, a second later terminate, then every five seconds
// again. Borrowed permits that outlive their ttl while the lender queues go the same way where the class's onExpiry is
// cancel; where it is mark, an event says so once. A signal is sent only while the lock is held and the ticket is
// EXPIRING. The owner cannot leave EXPIRING without the lock, so no signal outlives its transaction; and a ticket that
// reached COMMITTING first cannot become EXPIRING at all.
#include <signal.h>

#include <atomic>

#include "extension/guard.h"
#include "ledger/borrowing.h"
#include "ledger/journal.h"

namespace sluice::extension {

namespace {

using ledger::TicketState;

constexpr std::int64_t kGraceUs = 1'000'000;
constexpr std::int64_t kRepeatUs = 5'000'000;

// What was already done about a transaction, told apart by when it took its permit. Lost when the guard restarts: then
// the transaction is cancelled once more and gets its grace again.
struct Expiry {
  std::int64_t granted_us;
  std::int64_t cancelled_us;
  std::int64_t terminated_us;
  bool marked;  // an overdue borrowed permit that is not cancelled has been told of
};

struct Signalled {
  bool sent;
  bool borrowed;  // because of the permit's ttl, not of the transaction's limit
  std::uint32_t pid;
  std::int64_t limit_ms;
  char class_name[policy::kNameBytes];
};

Expiry* expiries = nullptr;

// Could the ticket hold a borrowed permit for longer than its ttl? A look without the lock; the lock decides.
bool may_be_overdue(ledger::Ticket& ticket, std::int64_t held_us) {
  if (std::atomic_ref(ticket.source).load(std::memory_order_relaxed) != ledger::PermitSource::borrowed) return false;
  const std::uint32_t klass = std::atomic_ref(ticket.klass).load(std::memory_order_relaxed);
  return klass < the_ledger.header->sizes.classes &&
         held_us >= std::atomic_ref(the_ledger.classes[klass].borrow_ttl_us).load(std::memory_order_relaxed);
}

// SIGINT, SIGTERM or 0: what is due for a ticket seen without the lock.
int due_signal(ledger::Ticket& ticket, Expiry& expiry, std::int64_t now) {
  const TicketState state = ledger::phase_state(std::atomic_ref(ticket.phase).load(std::memory_order_acquire));
  if (state != TicketState::in_transaction && state != TicketState::expiring) return 0;
  const std::int64_t granted = std::atomic_ref(ticket.granted_us).load(std::memory_order_relaxed);
  const std::int64_t limit = std::atomic_ref(ticket.time_limit_us).load(std::memory_order_relaxed);
  const bool over_limit = limit > 0 && now - granted >= limit;
  if (state == TicketState::in_transaction && !over_limit && !may_be_overdue(ticket, now - granted)) return 0;
  if (expiry.granted_us != granted) expiry = {granted, 0, 0, false};
  if (expiry.cancelled_us == 0) return SIGINT;
  if (now - expiry.cancelled_us < kGraceUs) return 0;
  if (expiry.terminated_us != 0 && now - expiry.terminated_us < kRepeatUs) return 0;
  return SIGTERM;
}

// True when the session record and the PGPROC agree on the process: the pid is the ticket's owner.
bool is_owner(std::uint32_t slot, std::uint32_t& pid) {
  const ledger::Session& session = the_ledger.sessions[slot];
  pid = session.pid;
  return pid > 1 && ledger::holds_session_permit(static_cast<ledger::SessionState>(session.state)) &&
         proc_at(static_cast<int>(slot))->pid == static_cast<int>(pid);
}

// What the transaction has outlived: the ttl of its borrowed permit, or its class's time limit.
policy::Outcome outlived(const ledger::Ticket& ticket, bool borrowed, std::int64_t now) {
  const ledger::ClassState& klass = the_ledger.classes[ticket.klass];
  policy::Outcome outcome = policy::outcome(policy::Status::time_limit);
  if (klass.policy_index != ledger::kNil) {
    outcome.rule = {borrowed ? policy::RuleField::class_borrow_ttl : policy::RuleField::class_time_limit,
                    static_cast<std::uint16_t>(klass.policy_index)};
  }
  outcome.used = static_cast<std::uint32_t>((now - ticket.granted_us) / 1000);
  outcome.limit = static_cast<std::uint32_t>((borrowed ? klass.borrow_ttl_us : ticket.time_limit_us) / 1000);
  return outcome;
}

void count_terminate(const ledger::Exclusive& lock, std::uint32_t slot, const policy::Outcome& why, std::int64_t now) {
  const ledger::Ticket& ticket = the_ledger.tickets[slot];
  ++the_ledger.header->time_limit_terminates;
  const ledger::EventFacts facts{ledger::EventKind::time_limit_terminate, why,  ticket.tenant, ticket.klass,
                                 the_ledger.sessions[slot].database,      false};
  ledger::record_event(the_ledger, lock, facts, now);
}

// The class keeps its borrowed permits, however long: an event tells the operator why the lender still queues.
void mark_overdue(const ledger::Exclusive& lock, std::uint32_t slot, Expiry& expiry, std::int64_t now) {
  const ledger::Ticket& ticket = the_ledger.tickets[slot];
  if (expiry.marked || !ledger::is_overdue(the_ledger, lock, slot, now)) return;
  const ledger::ClassState& klass = the_ledger.classes[ticket.klass];
  if (klass.cancels_borrowed) return;
  const ledger::EventFacts facts{ledger::EventKind::borrow_expired,
                                 outlived(ticket, true, now),
                                 ticket.tenant,
                                 ticket.klass,
                                 the_ledger.sessions[slot].database,
                                 false,
                                 ticket.queued_us != 0 ? &ticket.id : nullptr};
  ledger::record_event(the_ledger, lock, facts, now);
  expiry.marked = true;
}

Signalled send_signal(std::uint32_t slot, int signal_number, Expiry& expiry) {
  Signalled done{};
  ledger::Ticket& ticket = the_ledger.tickets[slot];
  ExclusiveLedger lock;
  const std::int64_t now = now_us();
  if (ticket.granted_us != expiry.granted_us || !is_owner(slot, done.pid)) return done;
  const bool over_limit = ticket.time_limit_us > 0 && now - ticket.granted_us >= ticket.time_limit_us;
  const policy::Status status = over_limit ? ledger::expire(the_ledger, lock.token(), slot, now)
                                           : ledger::expire_borrowed(the_ledger, lock.token(), slot, now);
  if (status != policy::Status::ok) {
    if (!over_limit) mark_overdue(lock.token(), slot, expiry, now);
    return done;
  }
  done.borrowed = !over_limit;
  done.sent = kill(static_cast<pid_t>(done.pid), signal_number) == 0;
  if (!done.sent) return done;

  const ledger::ClassState& klass = the_ledger.classes[ticket.klass];
  const policy::Outcome why = outlived(ticket, done.borrowed, now);
  if (signal_number == SIGTERM) count_terminate(lock.token(), slot, why, now);  // the cancel was counted with expiry
  done.limit_ms = why.limit;
  strlcpy(done.class_name, klass.name, sizeof done.class_name);
  return done;
}

void log_signal(const Signalled& done, bool cancel, std::int64_t now) {
  static LogThrottle throttles[2][2];
  std::uint64_t suppressed = 0;
  if (!throttles[done.borrowed ? 1 : 0][cancel ? 1 : 0].pass(now, suppressed)) return;
  ereport(
      LOG,
      (errmsg("pg_sluice: %s the transaction of process %u, which held %s of class \"%s\" longer than %lld ms%s",
              cancel ? "cancelled" : "terminated", done.pid, done.borrowed ? "a borrowed permit" : "its permit",
              done.class_name, static_cast<long long>(done.limit_ms), done.borrowed ? " while its lender queued" : ""),
       suppressed == 0
           ? 0
           : errdetail("%llu more since the last such line.", static_cast<unsigned long long>(suppressed))));
}

}  // namespace

void watch_time_limits() {
  if (!policy_enforced()) return;
  const std::uint32_t slots = the_ledger.header->sizes.sessions;
  if (expiries == nullptr) expiries = static_cast<Expiry*>(worker_memory(slots * sizeof(Expiry)));
  const std::int64_t now = now_us();
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    Expiry& expiry = expiries[slot];
    const int signal_number = due_signal(the_ledger.tickets[slot], expiry, now);
    if (signal_number == 0) continue;
    const Signalled done = send_signal(slot, signal_number, expiry);
    if (!done.sent) continue;
    (signal_number == SIGINT ? expiry.cancelled_us : expiry.terminated_us) = now;
    log_signal(done, signal_number == SIGINT, now);
  }
}

}  // namespace sluice::extension
