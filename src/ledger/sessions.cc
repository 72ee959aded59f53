#include "ledger/sessions.h"

#include <cstring>

#include "ledger/admission_locked.h"
#include "ledger/connect_rate.h"
#include "ledger/journal.h"
#include "ledger/policy_change.h"
#include "ledger/session_counts.h"
#include "ledger/tenants.h"

namespace sluice::ledger {

namespace {

using policy::RuleField;

[[nodiscard]] Outcome refusal(Status status, RuleField field, std::uint16_t index, std::uint64_t used,
                              std::uint32_t limit) noexcept {
  const std::uint64_t most = policy::kNoLimit;
  return {status, {field, index}, static_cast<std::uint32_t>(used < most ? used : most), limit};
}

void copy_name(char (&out)[policy::kNameBytes], const char* name) noexcept {
  std::memset(out, 0, sizeof(out));
  if (name != nullptr) std::memcpy(out, name, strnlen(name, sizeof(out) - 1));
}

[[nodiscard]] std::uint32_t unclaimed_by_admin_role(const Header& header, std::uint32_t role) noexcept {
  const std::uint32_t guaranteed = header.policy.admin_roles[role].guaranteed_sessions;
  const std::uint32_t in_use = header.admin_role_sessions[role];
  return in_use < guaranteed ? guaranteed - in_use : 0;
}

// What admin roles other than `except` are guaranteed and do not use.
[[nodiscard]] std::uint32_t unclaimed_by_admin_roles(const Header& header, std::uint32_t except) noexcept {
  std::uint32_t total = 0;
  for (std::uint32_t i = 0; i < header.policy.admin_role_count; i++) {
    if (i != except) total += unclaimed_by_admin_role(header, i);
  }
  return total;
}

[[nodiscard]] Outcome decide_by_role(const Ledger& ledger, const Exclusive& lock, std::uint16_t cap,
                                     std::int64_t now_us) noexcept {
  const Header& header = *ledger.header;
  if (cap >= header.policy.role_cap_count) return policy::outcome(Status::ok);
  const policy::RoleCap& rule = header.policy.role_caps[cap];
  const std::uint32_t sessions = header.role_sessions[cap];
  if (sessions >= rule.max_sessions && rule.max_sessions != policy::kNoLimit) {
    return refusal(Status::role_session_limit, RuleField::role_max_sessions, cap, sessions, rule.max_sessions);
  }
  const std::uint32_t connects = recent_connects(ledger, lock, cap, now_us);
  if (connects >= rule.connects_per_second && rule.connects_per_second != policy::kNoLimit) {
    return refusal(Status::role_connect_rate, RuleField::role_connects, cap, connects, rule.connects_per_second);
  }
  return policy::outcome(Status::ok);
}

[[nodiscard]] Outcome decide_ordinary(const Ledger& ledger, const Exclusive& lock, const policy::Identity& identity,
                                      std::uint32_t tenant, std::int64_t now_us) noexcept {
  const Header& header = *ledger.header;
  const policy::Policy& policy = header.policy;
  const Tenant& entry = ledger.tenants[tenant];
  if (entry.sessions >= entry.max_sessions && entry.max_sessions != policy::kNoLimit) {
    return refusal(Status::tenant_session_limit, RuleField::tenant_max_sessions, entry.rule, entry.sessions,
                   entry.max_sessions);
  }
  const Outcome of_role = decide_by_role(ledger, lock, identity.role_cap, now_us);
  if (of_role.status != Status::ok) return of_role;
  if (identity.database_cap < policy.database_cap_count) {
    const std::uint32_t limit = policy.database_caps[identity.database_cap].max_sessions;
    const std::uint32_t used = header.database_sessions[identity.database_cap];
    if (used >= limit && limit != policy::kNoLimit) {
      return refusal(Status::database_session_limit, RuleField::database_max_sessions, identity.database_cap, used,
                     limit);
    }
  }
  const std::uint32_t own = unclaimed_of(entry);
  const std::uint32_t others = header.unclaimed_guarantees > own ? header.unclaimed_guarantees - own : 0;
  const std::uint64_t used = std::uint64_t{header.ordinary_sessions} + others;
  if (policy.server_session_permits != policy::kNoLimit && used >= policy.server_session_permits) {
    return refusal(Status::session_limit, RuleField::server_session_permits, 0, used, policy.server_session_permits);
  }
  return policy::outcome(Status::ok);
}

[[nodiscard]] Outcome decide_admin_role(const Header& header, std::uint16_t role) noexcept {
  const bool is_named = role < header.policy.admin_role_count;
  if (is_named && unclaimed_by_admin_role(header, role) > 0) return policy::outcome(Status::ok);
  const std::uint32_t others = unclaimed_by_admin_roles(header, is_named ? role : kNil);
  const std::uint64_t used = std::uint64_t{header.admin_sessions} + others;
  if (header.policy.admin_reserve == policy::kNoLimit || used < header.policy.admin_reserve) {
    return policy::outcome(Status::ok);
  }
  return refusal(Status::admin_reserve, RuleField::admin_reserve, 0, used, header.policy.admin_reserve);
}

// Superusers may use every slot but those that are needed for what named admin roles are guaranteed.
[[nodiscard]] Outcome decide_superuser(const Header& header, const SessionRequest& request) noexcept {
  const std::uint32_t unclaimed = unclaimed_by_admin_roles(header, kNil);
  if (request.over_unix_socket || unclaimed == 0) return policy::outcome(Status::ok);
  const std::uint64_t needed = std::uint64_t{unclaimed} + request.physical_reserved;
  if (request.physical_free >= needed) return policy::outcome(Status::ok);
  std::uint16_t role = 0;
  while (unclaimed_by_admin_role(header, role) == 0) role++;
  return refusal(Status::admin_reserve, RuleField::admin_guarantee, role, header.admin_role_sessions[role],
                 header.policy.admin_roles[role].guaranteed_sessions);
}

[[nodiscard]] Outcome decide(const Ledger& ledger, const Exclusive& lock, const SessionRequest& request,
                             std::uint32_t tenant) noexcept {
  switch (request.kind) {
    case SessionKind::ordinary:
      return decide_ordinary(ledger, lock, *request.identity, tenant, request.now_us);
    case SessionKind::admin_role:
      return decide_admin_role(*ledger.header, request.identity->admin_role);
    case SessionKind::superuser:
      return decide_superuser(*ledger.header, request);
    case SessionKind::walsender:
      break;
  }
  return policy::outcome(Status::ok);
}

void note_refusal(const Ledger& ledger, const Exclusive& lock, const SessionRequest& request, std::uint32_t tenant,
                  const Outcome& why) noexcept {
  Header& header = *ledger.header;
  Tenant& entry = ledger.tenants[tenant];
  EventFacts facts = {EventKind::session_refused, why, tenant, kNil, request.database, false};
  if (request.enforce) {
    header.sessions_refused++;
    entry.session_refusals++;
  } else {
    header.sessions_would_refuse++;
    entry.would_refuse_sessions++;
    facts.kind = EventKind::would_refuse_session;
    facts.would = true;
  }
  record_event(ledger, lock, facts, request.now_us);
}

[[nodiscard]] bool has_live_ticket(const Ledger& ledger, std::uint32_t slot) noexcept {
  const std::uint32_t phase = load(ledger.tickets[slot].phase);
  return holds_permit(phase_state(phase)) || phase_state(phase) == TicketState::queued ||
         phase_mark(phase) != Mark::none;
}

// The record keeps no row: its next transaction goes through the lock, and a recycled tenant is never charged for it.
void detach_ticket(const Ledger& ledger, const Exclusive& lock, std::uint32_t slot) noexcept {
  fold(ledger, lock, slot);
  store_relaxed(ledger.tickets[slot].tenant, kNil);
  store_relaxed(ledger.tickets[slot].klass, kNil);
}

[[nodiscard]] std::uint8_t slot_of_class(const Ledger& ledger, const Shared& lock, std::uint8_t policy_index) noexcept {
  const std::uint32_t slot = class_slot(ledger, lock, policy_index);
  return slot == kNil ? std::uint8_t{0} : static_cast<std::uint8_t>(slot);
}

void adopt_identity(const Ledger& ledger, const Shared& lock, Session& session, const policy::Identity& identity,
                    std::uint32_t tenant) noexcept {
  session.tenant = tenant;
  session.klass = slot_of_class(ledger, lock, identity.execution_class);
  session.admin_role = identity.admin_role;
  session.database_cap = identity.database_cap;
  session.role_cap = identity.role_cap;
  session.generation = ledger.header->policy.generation;
}

void step(std::uint32_t& balance, bool enters) noexcept { balance += enters ? 1U : ~0U; }

void count_ordinary(const Ledger& ledger, const Session& session, bool enters) noexcept {
  Header& header = *ledger.header;
  step(header.ordinary_sessions, enters);
  if (header.ordinary_sessions > header.peak_ordinary_sessions && enters) {
    header.peak_ordinary_sessions = header.ordinary_sessions;
  }
  if (session.database_cap < policy::kMaxDatabaseCaps) step(header.database_sessions[session.database_cap], enters);
  if (session.role_cap < policy::kMaxRoleCaps) step(header.role_sessions[session.role_cap], enters);
  if (session.tenant >= header.sizes.tenants) return;
  Tenant& tenant = ledger.tenants[session.tenant];
  const std::uint32_t unclaimed = unclaimed_of(tenant);
  step(tenant.sessions, enters);
  header.unclaimed_guarantees += unclaimed_of(tenant) - unclaimed;
  if (tenant.sessions > tenant.peak_sessions && enters) tenant.peak_sessions = tenant.sessions;
}

}  // namespace

void count_session(const Ledger& ledger, const Exclusive&, const Session& session, bool enters) noexcept {
  Header& header = *ledger.header;
  switch (session.kind) {
    case SessionKind::ordinary:
      count_ordinary(ledger, session, enters);
      break;
    case SessionKind::admin_role:
      step(header.admin_sessions, enters);
      if (session.admin_role < policy::kMaxAdminRoles) step(header.admin_role_sessions[session.admin_role], enters);
      break;
    case SessionKind::superuser:
      step(header.admin_sessions, enters);
      break;
    case SessionKind::walsender:
      step(header.walsender_sessions, enters);
      break;
  }
}

Outcome open_session(const Ledger& ledger, const Exclusive& lock, const SessionRequest& request) noexcept {
  if (request.slot >= ledger.session_total || request.identity == nullptr) {
    return policy::outcome(fault_locked(ledger, lock, Status::not_found, kNil, request.now_us));
  }
  Session& session = ledger.sessions[request.slot];
  if (!is_legal(session_state(session), SessionState::connecting) || has_live_ticket(ledger, request.slot)) {
    return policy::outcome(fault_locked(ledger, lock, Status::illegal_transition, request.slot, request.now_us));
  }
  const std::uint32_t tenant = tenant_for(ledger, lock, request.identity->tenant, request.now_us);
  const Outcome decision = decide(ledger, lock, request, tenant);
  if (decision.status != Status::ok) {
    note_refusal(ledger, lock, request, tenant, decision);
    if (request.enforce) return decision;
  }
  detach_ticket(ledger, lock, request.slot);
  session.pid = request.pid;
  session.backend_start_us = request.backend_start_us;
  session.opened_us = request.now_us;
  store_relaxed(session.idle_since_us, request.now_us);
  session.epoch = ledger.header->epoch;
  session.connection_generation++;
  session.permit_token = Uuid{};
  session.kind = request.kind;
  session.counted = true;
  copy_name(session.role, request.role);
  copy_name(session.database, request.database);
  adopt_identity(ledger, lock, session, *request.identity, tenant);
  count_session(ledger, lock, session, true);
  if (session.kind == SessionKind::ordinary) note_connect(ledger, lock, session.role_cap, request.now_us);
  ledger.header->sessions_admitted++;
  store(session.state, static_cast<std::uint32_t>(SessionState::connecting));
  return policy::outcome(Status::ok);
}

Status session_ready(const Ledger& ledger, std::uint32_t slot) noexcept {
  if (slot >= ledger.session_total) return fault(ledger, Status::not_found);
  Session& session = ledger.sessions[slot];
  auto state = static_cast<std::uint32_t>(SessionState::connecting);
  if (compare_and_set(session.state, state, static_cast<std::uint32_t>(SessionState::open_idle))) return Status::ok;
  switch (static_cast<SessionState>(state)) {
    case SessionState::open_idle:
    case SessionState::open_busy:
    case SessionState::closing:  // its owner learns that from session_busy()
      return Status::ok;
    default:
      return fault(ledger, Status::illegal_transition);
  }
}

bool session_busy(const Ledger& ledger, std::uint32_t slot) noexcept {
  if (slot >= ledger.session_total) return true;
  Session& session = ledger.sessions[slot];
  constexpr auto kBusy = static_cast<std::uint32_t>(SessionState::open_busy);
  // Nearly always it is idle; if not, the failed step tells what it is.
  auto state = static_cast<std::uint32_t>(SessionState::open_idle);
  if (compare_and_set(session.state, state, kBusy)) [[likely]]
    return true;
  for (std::uint32_t attempt = 0; attempt < kMaxAttempts; attempt++) {
    switch (static_cast<SessionState>(state)) {
      case SessionState::connecting:
      case SessionState::open_idle:
        if (compare_and_set(session.state, state, kBusy)) return true;
        break;
      case SessionState::closing:
        return false;
      default:
        // Busy already, or not governed.
        return true;
    }
  }
  return false;
}

void session_idle(const Ledger& ledger, std::uint32_t slot, std::int64_t now_us) noexcept {
  if (slot >= ledger.session_total) return;
  Session& session = ledger.sessions[slot];
  store_relaxed(session.idle_since_us, now_us);
  auto state = static_cast<std::uint32_t>(SessionState::open_busy);
  (void)compare_and_set(session.state, state, static_cast<std::uint32_t>(SessionState::open_idle));
}

Status close_session(const Ledger& ledger, const Exclusive& lock, std::uint32_t slot, std::int64_t now_us) noexcept {
  if (slot >= ledger.session_total) return fault_locked(ledger, lock, Status::not_found, kNil, now_us);
  Session& session = ledger.sessions[slot];
  if (!holds_session_permit(session_state(session))) return Status::ok;
  if (has_live_ticket(ledger, slot)) return fault_locked(ledger, lock, Status::illegal_transition, slot, now_us);
  count_session(ledger, lock, session, false);
  if (session.tenant < ledger.header->sizes.tenants) ledger.tenants[session.tenant].last_used_us = now_us;
  session.counted = false;
  store(session.state, static_cast<std::uint32_t>(SessionState::session_released));
  detach_ticket(ledger, lock, slot);
  return Status::ok;
}

Status reclaim_session(const Ledger& ledger, const Exclusive& lock, std::uint32_t slot, std::int64_t now_us,
                       Wakes& wakes) noexcept {
  if (slot >= ledger.session_total) return fault_locked(ledger, lock, Status::not_found, kNil, now_us);
  const Session& session = ledger.sessions[slot];
  const bool is_open = holds_session_permit(session_state(session));
  const bool is_live = has_live_ticket(ledger, slot);
  if (!is_open && !is_live) return Status::ok;
  // Exactly one outcome: what is not queued any more was granted and is released.
  if (phase_state(load(ledger.tickets[slot].phase)) == TicketState::queued) {
    (void)end_wait(ledger, lock, slot, Status::cancelled, now_us, wakes);
  } else if (is_live) {
    const Status status = release_locked(ledger, lock, slot, now_us, wakes);
    if (status != Status::ok) return status;
  }
  ledger.header->reclaimed++;
  record_event(
      ledger, lock,
      {EventKind::reclaimed, policy::outcome(Status::ok), session.tenant, session.klass, session.database, false},
      now_us);
  return is_open ? close_session(ledger, lock, slot, now_us) : Status::ok;
}

Status session_unknown(const Ledger& ledger, const Exclusive& lock, std::uint32_t slot) noexcept {
  if (slot >= ledger.session_total) return fault_locked(ledger, lock, Status::not_found, kNil, 0);
  Session& session = ledger.sessions[slot];
  const SessionState state = session_state(session);
  if (state == SessionState::session_unknown) return Status::ok;
  if (!is_legal(state, SessionState::session_unknown)) return Status::illegal_transition;
  store(session.state, static_cast<std::uint32_t>(SessionState::session_unknown));
  return Status::ok;
}

Status reassign_session(const Ledger& ledger, const Exclusive& lock, std::uint32_t slot,
                        const policy::Identity& identity, std::int64_t now_us) noexcept {
  if (slot >= ledger.session_total) return fault_locked(ledger, lock, Status::not_found, kNil, now_us);
  Session& session = ledger.sessions[slot];
  if (!holds_session_permit(session_state(session)) || has_live_ticket(ledger, slot)) {
    return fault_locked(ledger, lock, Status::illegal_transition, slot, now_us);
  }
  const std::uint32_t tenant = tenant_for(ledger, lock, identity.tenant, now_us);
  count_session(ledger, lock, session, false);
  detach_ticket(ledger, lock, slot);
  if (session.kind != SessionKind::walsender) {
    switch (identity.standing) {
      case policy::Standing::ordinary:
        session.kind = SessionKind::ordinary;
        break;
      case policy::Standing::admin_role:
        session.kind = SessionKind::admin_role;
        break;
      case policy::Standing::superuser:
        session.kind = SessionKind::superuser;
        break;
    }
  }
  adopt_identity(ledger, lock, session, identity, tenant);
  count_session(ledger, lock, session, true);
  return Status::ok;
}

}  // namespace sluice::ledger
