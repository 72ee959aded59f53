#include "sim/world.h"

#include <algorithm>

#include "ledger/class_use.h"

namespace sluice::sim {

using ledger::TicketState;
using policy::Outcome;
using policy::Status;

namespace {

constexpr const char* kRoles[] = {"web", "api", "batch_1", "batch_2", "acme", "zoo", "dba", "monitor", "tiny", "extra"};
constexpr const char* kDatabases[] = {"orders", "shared", "analytics"};
constexpr const char* kClassNames[] = {"interactive", "batch", "reports", "exports", "jobs"};

}  // namespace

World::World(std::uint64_t seed) : t_({kBackends, 0, 10, kClasses, 64, 64, 64}), random_(seed) { change_policy(); }

void World::fail(const std::string& what) {
  if (failure_.empty()) failure_ = what;
}

std::string World::step() {
  summary_.steps++;
  t_.now_us += pick(2000);
  // Owners notice their own deadline at their next tick; nothing they need depends on anybody else.
  for (std::uint32_t slot = 0; slot < kBackends; slot++) {
    if (backends_[slot].at == At::waiting && t_.now_us >= backends_[slot].deadline_us) wait(slot);
  }
  if (one_in(12)) {
    act_from_outside();
  } else {
    act(pick(kBackends));
  }
  check_audit();
  check_work_conserved();
  check_deadlines();
  check_session_budget();
  return failure_;
}

void World::act(std::uint32_t slot) {
  switch (backends_[slot].at) {
    case At::closed:
      return open(slot);
    case At::idle:
      return one_in(10) ? close(slot) : begin(slot);
    case At::take_lock:
      return continue_begin(slot);
    case At::waiting:
      return one_in(6) ? end_wait(slot, Status::cancelled) : wait(slot);
    case At::holding:
      return hold(slot);
    case At::release_lock:
      return continue_release(slot);
  }
}

void World::act_from_outside() {
  switch (pick(10)) {
    case 0:
      return change_policy();
    case 1:
    case 2:
      return kill(pick(kBackends));
    case 3:
      return one_in(4) ? switch_off() : expire_some();
    case 4:
    case 5:
    case 6:
      return help_blocker();
    case 7:
      return hand_over();
    case 8:
      tick();
      drain_wakes();
      return recall_some();
    default:
      return expire_some();
  }
}

bool World::is_enforcing() const { return mode_ == ledger::Mode::enforce; }

// Sessions.

void World::open(std::uint32_t slot) {
  Backend& backend = backends_[slot];
  backend.role = kRoles[pick(std::size(kRoles))];
  backend.database = kDatabases[pick(std::size(kDatabases))];
  const bool superuser = one_in(15);
  const policy::Identity identity =
      ledger::test::identity_of(policy_, backend.role.c_str(), backend.database.c_str(), superuser);
  ledger::SessionRequest request = {};
  request.slot = slot;
  request.pid = 100 + slot;
  request.identity = &identity;
  request.role = backend.role.c_str();
  request.database = backend.database.c_str();
  request.kind = superuser                                           ? ledger::SessionKind::superuser
                 : one_in(20)                                        ? ledger::SessionKind::walsender
                 : identity.standing == policy::Standing::admin_role ? ledger::SessionKind::admin_role
                                                                     : ledger::SessionKind::ordinary;
  request.enforce = is_enforcing();
  request.over_unix_socket = one_in(2);
  request.physical_free = pick(kBackends);
  request.physical_reserved = 3;
  request.now_us = t_.now_us;
  const ledger::Header& header = *t_.ledger.header;
  const std::uint32_t ordinary_before = header.ordinary_sessions;
  const Outcome outcome = ledger::open_session(t_.ledger, t_.lock, request);
  if (outcome.status == Status::ok) {
    backend.at = At::idle;
    backend.seen_version = header.policy_version;
    summary_.sessions++;
    if (ledger::session_ready(t_.ledger, slot) != Status::ok) fail("a new session is not ready");
    if (request.enforce && request.kind == ledger::SessionKind::ordinary &&
        ordinary_before >= policy_.server_session_permits) {
      fail("a session was admitted above serverSessionPermits");
    }
    return;
  }
  summary_.sessions_refused++;
  if (!request.enforce) fail("shadow refused a session");
  if (!policy::is_refusal(outcome.status)) fail("a session was answered with a fault");
  if (outcome.rule.field == policy::RuleField::none) fail("a session was refused without a rule");
  if (outcome.used < outcome.limit && outcome.rule.field != policy::RuleField::admin_guarantee) {
    fail("a session was refused below its limit");
  }
}

void World::close(std::uint32_t slot) {
  if (ledger::close_session(t_.ledger, t_.lock, slot, t_.now_us) != Status::ok) fail("an idle session did not close");
  if (one_in(3)) {
    summary_.duplicates++;
    if (ledger::close_session(t_.ledger, t_.lock, slot, t_.now_us) != Status::ok) fail("a second close was not ok");
  }
  backends_[slot].at = At::closed;
}

// A kill leaves the end of the session to the guard, sometimes to two of them, sometimes after a time of not knowing.
void World::kill(std::uint32_t slot) {
  Backend& backend = backends_[slot];
  if (backend.at == At::closed) return;
  if (one_in(2) && ledger::session_unknown(t_.ledger, t_.lock, slot) != Status::ok) fail("a session cannot be unknown");
  check_audit();
  ledger::Wakes wakes = {};
  if (ledger::reclaim_session(t_.ledger, t_.lock, slot, t_.now_us, wakes) != Status::ok) fail("a reclaim failed");
  note(wakes);
  summary_.reclaimed++;
  wakes = {};
  if (ledger::reclaim_session(t_.ledger, t_.lock, slot, t_.now_us, wakes) != Status::ok)
    fail("a second reclaim failed");
  if (wakes.count != 0) fail("a second reclaim granted something");
  backend.at = At::closed;
  drain_wakes();
}

void World::reassign(std::uint32_t slot) {
  Backend& backend = backends_[slot];
  const policy::Identity identity = ledger::test::identity_of(policy_, backend.role.c_str(), backend.database.c_str());
  if (ledger::reassign_session(t_.ledger, t_.lock, slot, identity, t_.now_us) != Status::ok) fail("a reassign failed");
  backend.seen_version = t_.ledger.header->policy_version;
}

// Transactions.

std::uint32_t World::slot_of_random_class() {
  const std::uint32_t slot = ledger::class_slot(t_.ledger, t_.lock, pick(policy_.class_count));
  if (slot == ledger::kNil) fail("a class of the policy has no slot");
  return slot == ledger::kNil ? 0 : slot;
}

void World::begin(std::uint32_t slot) {
  Backend& backend = backends_[slot];
  if (backend.seen_version != t_.ledger.header->policy_version && !one_in(8)) reassign(slot);
  const ledger::Session& session = t_.ledger.sessions[slot];
  if (!ledger::session_busy(t_.ledger, slot)) fail("an open session may not be busy");
  ledger::TicketRequest& request = backend.request;
  const std::uint32_t klass = one_in(3) ? slot_of_random_class() : session.klass;
  request = t_.request(session.tenant, klass, is_enforcing());
  request.id.bytes[0] = static_cast<std::uint8_t>(1 + pick(4));
  request.owner = one_in(3) ? 1 + pick(12) : 0;
  request.deadline_us = t_.now_us + pick(400'000);
  request.time_limit_us = one_in(3) ? 1 + pick(50'000) : 0;
  backend.deadline_us = request.deadline_us;
  backend.marked = backend.named = false;
  const Status status = ledger::take(t_.ledger, slot, request);
  if (status == Status::ok) {
    backend.at = At::holding;
    summary_.granted++;
  } else if (status == Status::contended) {
    // Anything may happen before it has the lock.
    backend.at = At::take_lock;
    summary_.half_steps++;
    if (one_in(2)) continue_begin(slot);
  } else {
    fail("a take answered with a fault");
  }
}

void World::continue_begin(std::uint32_t slot) {
  Backend& backend = backends_[slot];
  backend.request.now_us = t_.now_us;
  ledger::Wakes wakes = {};
  backend.had_slot = t_.mark(slot) == ledger::Mark::row_held;
  const bool must_refuse = is_enforcing() && backend.request.enforce && is_alive_elsewhere(slot);
  const Outcome outcome = ledger::take_or_queue(t_.ledger, t_.lock, slot, backend.request, wakes);
  backend.named = backend.request.owner != 0 && backend.request.enforce && is_enforcing();
  if (must_refuse && outcome.status != Status::duplicate_ticket) fail("a ticket lives twice");
  if (outcome.status == Status::ok) {
    backend.at = At::holding;
    summary_.granted++;
  } else if (outcome.status == Status::queued) {
    if (!is_enforcing()) fail("shadow queued a ticket");
    backend.at = At::waiting;
    entered_queue(slot);
  } else if (outcome.status == Status::queue_full || outcome.status == Status::deadline_unreachable ||
             (outcome.status == Status::duplicate_ticket && backend.request.owner != 0)) {
    summary_.refused++;
    if (outcome.status == Status::duplicate_ticket) summary_.duplicate_tickets++;
    backend.at = At::idle;
    ledger::session_idle(t_.ledger, slot, t_.now_us);
  } else {
    fail("a take under the lock answered with a fault");
  }
  note(wakes);
  drain_wakes();
}

// Does another backend have a ticket of the same login role and id that waits or runs?
bool World::is_alive_elsewhere(std::uint32_t slot) const {
  const ledger::TicketRequest& request = backends_[slot].request;
  for (std::uint32_t other = 0; other < kBackends; other++) {
    const TicketState at = state(other);
    const ledger::TicketRequest& its = backends_[other].request;
    if (other != slot && request.owner != 0 && backends_[other].named && its.owner == request.owner &&
        std::memcmp(&its.id, &request.id, sizeof(its.id)) == 0 &&
        (at == TicketState::queued || ledger::holds_permit(at))) {
      return true;
    }
  }
  return false;
}

void World::wait(std::uint32_t slot) {
  Backend& backend = backends_[slot];
  const Outcome outcome = ledger::poll_wait(t_.ledger, t_.lock, slot, t_.now_us);
  if (outcome.status == Status::ok) {
    backend.at = At::holding;
  } else if (outcome.status == Status::overdraft_exhausted || outcome.status == Status::pushed_out) {
    backend.at = At::idle;
  } else if (outcome.status != Status::queued) {
    fail("a poll answered neither queued nor granted");
  } else if (t_.now_us >= backend.deadline_us) {
    end_wait(slot, Status::queue_deadline);
  }
}

void World::end_wait(std::uint32_t slot, Status why) {
  Backend& backend = backends_[slot];
  const TicketState before = state(slot);
  ledger::Wakes wakes = {};
  const Outcome outcome = ledger::end_wait(t_.ledger, t_.lock, slot, why, t_.now_us, wakes);
  note(wakes);
  // Exactly one of granted and ended, and the one that had happened.
  if ((outcome.status == Status::ok) != ledger::holds_permit(before)) fail("a cancel and a grant both won, or neither");
  if (outcome.status == Status::ok) {
    backend.at = At::holding;
  } else {
    backend.at = At::idle;
    if (why == Status::cancelled) summary_.cancelled++;
    if (why == Status::queue_deadline) summary_.expired++;
  }
  drain_wakes();
}

void World::hold(std::uint32_t slot) {
  Backend& backend = backends_[slot];
  if (one_in(4)) {
    const bool expiring = state(slot) == TicketState::expiring;
    const Status status = ledger::begin_commit(t_.ledger, slot);
    if (status != (expiring ? Status::time_limit : Status::ok)) fail("a commit began although the guard was first");
    if (one_in(4)) (void)ledger::continue_transaction(t_.ledger, slot);
    return;
  }
  if (ledger::release(t_.ledger, slot, t_.now_us) == Status::contended) {
    backend.at = At::release_lock;
    summary_.half_steps++;
    if (one_in(2)) continue_release(slot);
    return;
  }
  if (state(slot) != TicketState::request_released) fail("a release left the ticket open");
  backend.at = At::idle;
  ledger::session_idle(t_.ledger, slot, t_.now_us);
}

void World::continue_release(std::uint32_t slot) {
  for (int times = one_in(3) ? 2 : 1; times > 0; times--) {
    ledger::Wakes wakes = {};
    if (ledger::release_locked(t_.ledger, t_.lock, slot, t_.now_us, wakes) != Status::ok) fail("a release failed");
    note(wakes);
    drain_wakes();
    if (times == 2) summary_.duplicates++;
  }
  backends_[slot].at = At::idle;
  ledger::session_idle(t_.ledger, slot, t_.now_us);
}

// Guard and administrator.

void World::change_policy() {
  policy::Policy policy = ledger::test::empty_policy(++generation_);
  const std::uint32_t first = pick(2);
  const std::uint32_t classes = 1 + pick(3);
  for (std::uint32_t i = 0; i < classes; i++) {
    ledger::test::add_class(policy, kClassNames[first + i], one_in(20) ? 0 : 1 + pick(8), pick(20), 400);
    policy.classes[i].aging_ms = 1 + pick(300);
    policy.classes[i].borrow = {pick(8) & ~(1U << i) & ((1U << classes) - 1), pick(6), 1 + pick(10),
                                one_in(2) ? policy::BorrowExpiry::cancel : policy::BorrowExpiry::mark};
  }
  policy.server_session_permits = 10 + pick(35);
  policy.admin_reserve = 3 + pick(4);
  policy.overdraft_max = pick(3);
  policy.lease_ms = 1 + pick(2000);
  ledger::test::add_tenant(policy, "*", 1 + pick(3), one_in(4) ? policy::kNoLimit : 1 + pick(6), 3 + pick(20), pick(2),
                           3);
  ledger::test::add_tenant(policy, "acme", 1 + pick(5), 1 + pick(9), policy::kNoLimit, pick(5));
  ledger::test::add_tenant(policy, "batch_*", 1, 1 + pick(3), 1 + pick(8));
  std::snprintf(policy.assign[0].pattern, sizeof(policy.assign[0].pattern), "batch_*");
  policy.assign[0].execution_class = static_cast<std::uint8_t>(classes - 1);
  policy.assign_count = 1;
  for (const char* name : {"dba", "monitor"}) {
    policy::AdminRole& role = policy.admin_roles[policy.admin_role_count++];
    std::snprintf(role.name, sizeof(role.name), "%s", name);
    role.guaranteed_sessions = pick(3);
    if (one_in(5)) break;
  }
  policy.database_cap_count = static_cast<std::uint16_t>(pick(2));
  std::snprintf(policy.database_caps[0].database, sizeof(policy.database_caps[0].database), "shared");
  policy.database_caps[0].max_sessions = 2 + pick(8);
  policy.role_cap_count = static_cast<std::uint16_t>(pick(2));
  std::snprintf(policy.role_caps[0].role, sizeof(policy.role_caps[0].role), "tiny");
  policy.role_caps[0].max_sessions = pick(3);
  policy.role_caps[0].connects_per_second = one_in(2) ? 1 + pick(20) : policy::kNoLimit;
  apply(policy, one_in(6) ? ledger::Mode::shadow : ledger::Mode::enforce);
}

void World::apply(const policy::Policy& policy, ledger::Mode mode) {
  ledger::Wakes wakes = {};
  const Status status = ledger::apply_policy(t_.ledger, t_.lock, policy, mode, t_.now_us, wakes);
  // The classes of two policies may not fit together before the old ones have drained.
  if (status == Status::table_full) return;
  if (status != Status::ok) fail("a policy was not applied");
  if (mode != mode_) summary_.flips++;
  policy_ = policy;
  mode_ = mode;
  summary_.policies++;
  note(wakes);
  drain_wakes();
}

void World::switch_off() {
  ledger::Wakes wakes;
  do {
    wakes = {};
    summary_.switched += ledger::admit_waiters(t_.ledger, t_.lock, t_.now_us, wakes);
    note(wakes);
  } while (wakes.more);
  if (t_.ledger.header->queued_total != 0) fail("the switch left somebody waiting");
}

void World::expire_some() {
  for (std::uint32_t slot = 0; slot < kBackends; slot++) {
    const TicketState before = state(slot);
    const std::int64_t held_us = t_.now_us - t_.ledger.tickets[slot].granted_us;
    const Status status = ledger::expire(t_.ledger, t_.lock, slot, t_.now_us);
    if (status != Status::ok || before == TicketState::expiring) continue;
    if (before != TicketState::in_transaction) fail("something but a transaction expired");
    if (held_us < backends_[slot].request.time_limit_us) fail("a transaction expired before its limit");
    summary_.time_limits++;
  }
  recall_some();
}

void World::recall_some() {
  for (std::uint32_t slot = 0; slot < kBackends; slot++) {
    const TicketState before = state(slot);
    const ledger::Ticket& ticket = t_.ledger.tickets[slot];
    if (ledger::expire_borrowed(t_.ledger, t_.lock, slot, t_.now_us) != Status::ok) continue;
    if (before == TicketState::expiring) continue;
    const ledger::ClassState& klass = t_.ledger.classes[ticket.klass];
    if (before != TicketState::in_transaction) fail("something but a transaction was recalled");
    if (ticket.source != ledger::PermitSource::borrowed || !klass.cancels_borrowed) fail("an own permit was recalled");
    if (t_.klass(ticket.lender).waiters == 0) fail("a permit was recalled that nobody waits for");
    if (t_.now_us - ticket.granted_us < klass.borrow_ttl_us) fail("a permit was recalled before its time");
    summary_.recalled++;
  }
}

void World::help_blocker() {
  const std::uint32_t slot = pick(kBackends);
  if (state(slot) != TicketState::queued) return;
  Backend& backend = backends_[slot];
  ledger::Wakes wakes = {};
  backend.marked = true;
  if (ledger::mark_blocker(t_.ledger, t_.lock, slot, t_.now_us) != Status::ok) fail("a waiter could not be marked");
  if (one_in(2)) {
    const Status status = ledger::grant_overdraft(t_.ledger, t_.lock, slot, t_.now_us, wakes);
    if (status == Status::ok) {
      summary_.overdrafts++;
      if (t_.ledger.header->overdraft_in_use > policy_.overdraft_max)
        fail("more overdraft permits than the policy has");
    } else if (status != Status::overdraft_exhausted) {
      fail("an overdraft was answered with a fault");
    }
  } else if (one_in(3)) {
    if (ledger::refuse_blocker(t_.ledger, t_.lock, slot, t_.now_us, wakes) != Status::ok)
      fail("a blocker was not refused");
  }
  note(wakes);
  drain_wakes();
}

void World::hand_over() {
  for (std::uint32_t from = 0; from < kBackends; from++) {
    const ledger::Ticket& giver = t_.ledger.tickets[from];
    if (backends_[from].at != At::holding || state(from) != TicketState::in_transaction ||
        giver.source != ledger::PermitSource::own_class) {
      continue;
    }
    for (std::uint32_t to = 0; to < kBackends; to++) {
      if (state(to) != TicketState::queued || t_.ledger.tickets[to].klass != giver.klass) continue;
      backends_[to].marked = true;
      const Status status = ledger::hand_over(t_.ledger, t_.lock, from, to, t_.now_us);
      if (status == Status::contended) return;
      if (status != Status::ok) return fail("a hand-over failed");
      summary_.handed_over++;
      backends_[from].at = At::idle;
      was_granted(to);
      drain_wakes();
      return;
    }
  }
}

// Books.

void World::note(ledger::Wakes wakes) {
  more_ = more_ || wakes.more;
  for (std::uint32_t i = 0; i < wakes.count; i++) {
    const std::uint32_t slot = wakes.tickets[i];
    if (state(slot) == TicketState::execution_granted) was_granted(slot);
    if (state(slot) == TicketState::cancelled && t_.ledger.tickets[slot].wait_status == Status::pushed_out) {
      summary_.pushed_out++;
    }
  }
}

// Whoever gets wakes with `more` calls tick again. Nothing else that a caller needs depends on the guard.
void World::drain_wakes() {
  while (more_) tick();
  if (is_enforcing()) return;
  switch_off();
}

void World::tick() {
  more_ = false;
  ledger::Wakes wakes = {};
  ledger::tick(t_.ledger, t_.lock, t_.now_us, wakes);
  note(wakes);
}

void World::entered_queue(std::uint32_t slot) {
  summary_.queued++;
  if (t_.ledger.tickets[slot].parked) summary_.parked++;
}

// First in, first out: by the age of tickets, kept ones included, but for those that were moved ahead as blockers. One
// that took its row's slot before it had the lock may be ahead of older ones that parked meanwhile.
void World::was_granted(std::uint32_t slot) {
  const ledger::Ticket& ticket = t_.ledger.tickets[slot];
  if (backends_[slot].at != At::waiting) fail("a ticket was granted that did not wait");
  summary_.granted++;
  if (ticket.source == ledger::PermitSource::borrowed) summary_.borrowed++;
  if (backends_[slot].marked || backends_[slot].had_slot || ticket.admitted_by_switch) return;
  for (std::uint32_t other = 0; other < kBackends; other++) {
    const ledger::Ticket& peer = t_.ledger.tickets[other];
    if (state(other) == TicketState::queued && peer.tenant == ticket.tenant && peer.klass == ticket.klass &&
        !peer.parked && !backends_[other].marked && peer.queued_us < ticket.queued_us) {
      fail("a ticket overtook an older one of its row");
    }
  }
}

// Checks after every step.

void World::check_audit() {
  summary_.audits++;
  const std::string report = t_.audit_report();
  if (!report.empty()) fail("audit: " + report);
  if (t_.ledger.header->faults != 0) fail("a fault was counted");
}

void World::check_work_conserved() {
  for (std::uint32_t klass = 0; klass < kClasses; klass++) {
    const ledger::ClassWord word = t_.klass(klass);
    if (word.gate) fail("a gate stayed set");
    if (word.free > 0 && word.waiters > 0) fail("somebody waits while a permit is free");
  }
  for (std::uint32_t slot = 0; slot < kBackends; slot++) {
    const ledger::Ticket& ticket = t_.ledger.tickets[slot];
    if (state(slot) != TicketState::queued || !ticket.parked) continue;
    const ledger::RowWord row = t_.row(ticket.tenant, ticket.klass);
    if (row.in_use < row.limit) fail("somebody is parked while his row has room");
  }
}

void World::check_deadlines() {
  for (std::uint32_t slot = 0; slot < kBackends; slot++) {
    if (state(slot) == TicketState::queued && t_.now_us > backends_[slot].deadline_us + kTickUs) {
      fail("a waiter is older than its deadline and a tick");
    }
  }
}

void World::check_session_budget() {
  std::uint32_t ordinary = 0;
  for (std::uint32_t slot = 0; slot < kBackends; slot++) {
    const ledger::Session& session = t_.ledger.sessions[slot];
    const bool open = ledger::holds_session_permit(static_cast<ledger::SessionState>(session.state));
    if (open != (backends_[slot].at != At::closed)) fail("a session left the ledger, or stayed in it");
    if (open && session.kind == ledger::SessionKind::ordinary) ordinary++;
  }
  if (ordinary != t_.ledger.header->ordinary_sessions) fail("ordinary sessions are miscounted");
}

std::string World::drain() {
  for (int rounds = 0; rounds < 10; rounds++) {
    for (std::uint32_t slot = 0; slot < kBackends; slot++) {
      t_.now_us += 1000;
      Backend& backend = backends_[slot];
      if (backend.at == At::take_lock) continue_begin(slot);
      if (backend.at == At::waiting) end_wait(slot, Status::cancelled);
      while (backend.at == At::holding) hold(slot);
      if (backend.at == At::release_lock) continue_release(slot);
      if (backend.at == At::idle) close(slot);
    }
  }
  check_audit();
  for (std::uint32_t klass = 0; klass < kClasses; klass++) {
    const ledger::ClassWord word = t_.klass(klass);
    if (word.free != static_cast<std::int32_t>(t_.ledger.classes[klass].permits))
      fail("permits are missing at the end");
    if (ledger::permits_owed(t_.ledger.classes[klass]) + t_.ledger.classes[klass].lent != 0)
      fail("permits are owed at the end");
  }
  const ledger::Header& header = *t_.ledger.header;
  if (header.ordinary_sessions + header.admin_sessions + header.walsender_sessions != 0) fail("sessions are left");
  if (header.overdraft_in_use + header.queued_total + header.overdraft_waiters != 0) fail("waiters are left");
  return failure_;
}

}  // namespace sluice::sim
