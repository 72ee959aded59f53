#include "extension/pg.h"

#include "extension/execution.h"

#include <atomic>
#include <cstring>

#include "extension/backend.h"
#include "extension/errors.h"
#include "extension/identity.h"
#include "extension/shared.h"
#include "extension/standing.h"
#include "ledger/sessions.h"
#include "ledger/ticket_identity.h"

namespace sluice::extension {

Backend backend = {};

namespace {

// One step of SplitMix64 (https://prng.di.unimi.it/splitmix64.c).
std::uint64_t scramble(std::uint64_t word) {
  word += 0x9E3779B97F4A7C15U;
  word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9U;
  word = (word ^ (word >> 27)) * 0x94D049BB133111EBU;
  return word ^ (word >> 31);
}

// Strong random bytes once a process; what follows from them tells one request from another and guards no secret.
void make_ticket_id(policy::Uuid& id) {
  static std::uint64_t words[2] = {0, 0};
  // An id that repeats after a failure here is legal, only less telling.
  if (words[0] == 0 && !pg_strong_random(words, sizeof(words))) words[0] = static_cast<std::uint64_t>(MyProcPid);
  for (std::uint64_t& word : words) word = scramble(word);
  std::memcpy(id.bytes, words, sizeof(id.bytes));
  id.bytes[6] = static_cast<std::uint8_t>((id.bytes[6] & 0x0FU) | 0x40U);  // version 4
  id.bytes[8] = static_cast<std::uint8_t>((id.bytes[8] & 0x3FU) | 0x80U);  // variant of RFC 9562
}

// What a duplicate is told of the request that it repeats.
policy::FirstRequest describe(const ledger::Original& original, std::int64_t now) {
  if (original.state == ledger::TicketState::none) return {};
  const bool ended = original.ended_us != 0;
  const std::int64_t ended_us_ago = ended && now > original.ended_us ? now - original.ended_us : 0;
  return {ledger::state_name(original.state), ended, static_cast<std::uint64_t>(ended_us_ago / 1000)};
}

[[noreturn]] void refuse(const policy::Outcome& outcome, const policy::Uuid& ticket,
                         const policy::FirstRequest& first) {
  RefusalContext context = {};
  context.outcome = outcome;
  context.class_name = backend.terms.name;
  context.tenant_name = backend.identity.tenant;
  context.ticket = &ticket;
  context.first = first;
  raise_refusal(*copy_policy(), context);
}

bool holds_borrowed() {
  std::atomic_ref<ledger::PermitSource> source(the_ledger.tickets[backend.slot].source);
  return source.load(std::memory_order_relaxed) == ledger::PermitSource::borrowed;
}

void settle(const policy::Outcome& outcome, const ledger::TicketRequest& request, const ledger::Original& original) {
  if (outcome.status == policy::Status::ok) {
    backend.holds_permit = true;
    // A borrowed permit may be called back. A permit that was not borrowed when it was granted never is later.
    backend.time_limited = request.time_limit_us != 0 || holds_borrowed();
    return;
  }
  ledger::session_idle(the_ledger, backend.slot, now_us());
  if (policy::is_fault(outcome.status)) {
    report_fault(outcome.status, "taking an execution permit");
    return;
  }
  refuse(outcome, request.id, describe(original, request.now_us));
}

// What the lock-free path reads of a request; the rest is filled in where it goes on under the lock.
inline ledger::TicketRequest request_now(bool enforce, std::int64_t now) {
  ledger::TicketRequest request = {};
  request.tenant = backend.tenant;
  request.klass = backend.terms.klass;
  request.enforce = enforce;
  request.now_us = now;
  // A time limit is enforcement too: shadow touches nothing.
  request.time_limit_us = enforce ? backend.terms.time_limit_us : 0;
  return request;
}

// The lock-free path could not decide: under the lock, and in the queue if there is one.
[[gnu::noinline]] void admit_slowly(bool enforce, std::int64_t now, WaitPlace place) {
  ledger::TicketRequest request = request_now(enforce, now);
  request.owner = declared_ticket(request.id) ? backend.role_oid : 0;
  if (request.owner == 0) make_ticket_id(request.id);
  request.deadline_us = queue_deadline(request.now_us, backend.terms.queue_deadline_us);
  ledger::Wakes wakes = {};
  policy::Outcome outcome = {};
  ledger::Original original = {};
  {
    ExclusiveLedger lock;
    outcome = ledger::take_or_queue(the_ledger, lock.token(), backend.slot, request, wakes);
    if (outcome.status == policy::Status::duplicate_ticket) {
      original = ledger::original_of(the_ledger, lock.token(), backend.slot, request);
    }
  }
  wake(wakes);
  if (outcome.status == policy::Status::queued) outcome = wait_for_permit(request, place);
  settle(outcome, request, original);
}

// Inlined twice: what it is told is known where it is called.
[[gnu::always_inline]] inline void admit(bool enforce, bool named, WaitPlace place) {
  if (!ledger::session_busy(the_ledger, backend.slot)) raise_evicted();
  const std::int64_t now = now_us();
  // Never passed on, so that it lives in registers.
  const ledger::TicketRequest request = request_now(enforce, now);
  // Who names a request is looked up under the lock.
  if (!named && ledger::take(the_ledger, backend.slot, request) == policy::Status::ok) {
    backend.holds_permit = true;
    backend.time_limited = request.time_limit_us != 0;
    return;
  }
  admit_slowly(enforce, now, place);
}

[[gnu::noinline]] void admit_carefully(WaitPlace place) {
  refresh_standing();
  if (backend.never_queues) return;
  const ledger::Mode mode = effective_mode();
  if (mode == ledger::Mode::off) return;
  admit(mode == ledger::Mode::enforce, is_ticket_declared(), place);
}

[[gnu::noinline]] policy::Status release_under_lock(std::int64_t now) {
  ledger::Wakes wakes = {};
  policy::Status status = policy::Status::ok;
  bool overdraft = false;
  {
    ExclusiveLedger lock;
    overdraft = the_ledger.tickets[backend.slot].source == ledger::PermitSource::overdraft;
    // The guard's cancel may have arrived while the transaction was already aborting; it must not hit the next
    // statement.
    if (ticket_state() == ledger::TicketState::expiring) QueryCancelPending = false;
    status = ledger::release_locked(the_ledger, lock.token(), backend.slot, now, wakes);
  }
  wake(wakes);
  if (overdraft) wake_worker(shared_state->guard);  // who hands out the next one
  return status;
}

}  // namespace

// Flattened, because the ledger's two steps are a handful of instructions and its calls would be as many again.
[[gnu::flatten]] void admit_transaction(WaitPlace place) {
  if (is_standing_plain() && effective_mode() == ledger::Mode::enforce) [[likely]]
    return admit(true, false, place);
  admit_carefully(place);
}

void release_permit() noexcept {
  if (!backend.holds_permit) return;
  backend.holds_permit = false;
  const std::int64_t now = now_us();
  policy::Status status = policy::Status::contended;
  // With a time limit the guard may be signalling this very transaction: only the lock tells that it has finished doing
  // so.
  if (!backend.time_limited) status = ledger::release(the_ledger, backend.slot, now);
  if (status == policy::Status::contended) status = release_under_lock(now);
  if (status != policy::Status::ok) report_fault(status, "returning an execution permit", false);
  ledger::session_idle(the_ledger, backend.slot, now);
}

void abandon_ticket() noexcept {
  ledger::Wakes wakes = {};
  {
    ExclusiveLedger lock;
    const std::int64_t now = now_us();
    const ledger::TicketState state = ticket_state();
    if (state == ledger::TicketState::queued || state == ledger::TicketState::execution_granted)
      (void)ledger::end_wait(the_ledger, lock.token(), backend.slot, policy::Status::cancelled, now, wakes);
    (void)ledger::release_locked(the_ledger, lock.token(), backend.slot, now, wakes, false);
  }
  backend.holds_permit = false;
  wake(wakes);
}

Expired why_expiring() noexcept {
  const ledger::Ticket& ticket = the_ledger.tickets[backend.slot];
  const bool over_limit = ticket.time_limit_us > 0 && now_us() - ticket.granted_us >= ticket.time_limit_us;
  return over_limit ? Expired::time_limit : Expired::borrowed_permit;
}

ledger::TicketState ticket_state() noexcept {
  std::atomic_ref<std::uint32_t> phase(the_ledger.tickets[backend.slot].phase);
  return ledger::phase_state(phase.load(std::memory_order_acquire));
}

namespace {

void describe_time_limit(void*) {
  if (!backend.holds_permit) return;
  if (ticket_state() != ledger::TicketState::expiring) return;
  const int code = geterrcode();
  if (code == ERRCODE_QUERY_CANCELED || code == ERRCODE_ADMIN_SHUTDOWN) add_time_limit_context(why_expiring());
}

}  // namespace

void push_time_limit_context(TimeLimitContext& context) {
  context.callback.callback = describe_time_limit;
  context.callback.arg = nullptr;
  context.callback.previous = error_context_stack;
  error_context_stack = &context.callback;
}

void pop_time_limit_context(TimeLimitContext& context) { error_context_stack = context.callback.previous; }

}  // namespace sluice::extension
