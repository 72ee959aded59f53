// sluice._sessions(), sluice._tickets(): who is connected, who runs, who waits and for what.
#include <atomic>

#include "extension/shared.h"
#include "extension/sql_support.h"
#include "ledger/estimate.h"
#include "ledger/words.h"

namespace sluice::extension {
namespace {

using ledger::Session;
using ledger::SessionKind;
using ledger::SessionState;
using ledger::Ticket;
using ledger::TicketState;
using policy::Rule;
using policy::RuleField;

const char* kind_name(SessionKind kind) {
  switch (kind) {
    case SessionKind::ordinary:
      return "ordinary";
    case SessionKind::admin_role:
      return "admin role";
    case SessionKind::superuser:
      return "superuser";
    case SessionKind::walsender:
      return "walsender";
  }
  return "ordinary";
}

const char* source_name(const Ticket& ticket) {
  if (ticket.admitted_by_switch) return "switch";
  switch (ticket.source) {
    case ledger::PermitSource::none:
      return nullptr;
    case ledger::PermitSource::own_class:
      return "own class";
    case ledger::PermitSource::borrowed:
      return "borrowed";
    case ledger::PermitSource::overdraft:
      return "overdraft";
  }
  return nullptr;
}

void write_milliseconds(Rows& rows, std::int64_t since_us, std::int64_t now) {
  if (since_us == 0) {
    rows.null();
  } else {
    rows.real(static_cast<double>(now > since_us ? now - since_us : 0) / 1e3);
  }
}

void write_session(Rows& rows, const Names& names, std::uint32_t slot, const Session& session, std::int64_t now) {
  const auto state = static_cast<SessionState>(session.state);
  const bool idle = state == SessionState::open_idle;
  rows.number(slot).number(session.pid).text(session.role).text(session.database);
  rows.text(tenant_name(session.tenant)).text(class_name(names, session.klass)).text(kind_name(session.kind));
  const bool admin = session.admin_role < names.policy.admin_role_count;
  rows.text(admin ? names.policy.admin_roles[session.admin_role].name : nullptr);
  rows.text(ledger::state_name(state)).boolean(session.counted);
  rows.timestamp(session.backend_start_us).time(session.opened_us);
  if (idle) {
    write_milliseconds(rows, session.idle_since_us, now);
  } else {
    rows.null();
  }
  rows.count(session.generation).count(session.epoch).count(session.connection_generation);
  rows.end();
}

// The rule a waiter waits for: its own row's limit, or the class's permits.
char* blocking_rule(const Names& names, const Ticket& ticket) {
  if (ticket.klass >= names.class_count) return nullptr;
  if (ticket.parked) {
    const std::uint16_t rule = the_ledger.tenants[ticket.tenant].rule;
    return rule_text(names.policy, {RuleField::tenant_max_inflight, rule});
  }
  for (std::uint32_t i = 0; i < names.policy.class_count; i++) {
    if (strcmp(names.policy.classes[i].name, names.classes[ticket.klass]) == 0) {
      return rule_text(names.policy, {RuleField::class_permits, static_cast<std::uint16_t>(i)});
    }
  }
  return nullptr;
}

// Where a waiter stands, as of now: it may have been served since its record was copied.
struct Place {
  std::uint32_t position;
  std::int64_t expected_wait_us;  // -1: unknown
};

Place place_of(std::uint32_t slot) {
  SharedLedger lock;
  const std::int64_t now = now_us();
  return {ledger::queue_position(the_ledger, lock.token(), slot, now),
          ledger::expected_wait_of(the_ledger, lock.token(), slot, now)};
}

void write_ticket(Rows& rows, const Names& names, std::uint32_t slot, const Session& session, const Ticket& ticket) {
  const TicketState state = ledger::phase_state(ticket.phase);
  const bool waits = state == TicketState::queued;
  const bool refined = state == TicketState::expiring || state == TicketState::committing;
  const std::int64_t now = now_us();
  const Place place = waits ? place_of(slot) : Place{0, -1};
  rows.number(session.pid).number(slot).text(ledger::state_name(refined ? TicketState::in_transaction : state));
  rows.text(tenant_name(ticket.tenant)).text(class_name(names, ticket.klass));
  // Without a wait the ticket never got an identity: nobody could have asked for it.
  if (ticket.queued_us == 0) {
    rows.null();
  } else {
    rows.uuid(ticket.id);
  }
  rows.number(ticket.generation).boolean(state == TicketState::committing).boolean(state == TicketState::expiring);
  if (waits) {
    rows.null().null().null().null();
    rows.number(place.position).text(blocking_rule(names, ticket));
    write_milliseconds(rows, ticket.queued_us, now);
    rows.real(static_cast<double>(ticket.deadline_us > now ? ticket.deadline_us - now : 0) / 1e3);
    rows.boolean(ticket.blocks_holder);
  } else {
    rows.time(ticket.granted_us);
    write_milliseconds(rows, ticket.granted_us, now);
    if (ticket.time_limit_us == 0) {
      rows.null();
    } else {
      rows.real(static_cast<double>(ticket.time_limit_us) / 1e3);
    }
    rows.text(source_name(ticket)).null().null();
    if (ticket.queued_us != 0 && ticket.granted_us > ticket.queued_us) {
      write_milliseconds(rows, ticket.queued_us, ticket.granted_us);
    } else {
      rows.null();
    }
    rows.null().null();
  }
  write_expected_wait(rows, place.expected_wait_us);
  const bool borrowed = !waits && ticket.source == ledger::PermitSource::borrowed;
  rows.text(borrowed ? class_name(names, ticket.lender) : nullptr).boolean(ticket.owner != 0);
  rows.end();
}

}  // namespace
}  // namespace sluice::extension

using namespace sluice;             // NOLINT: the functions below only translate SQL calls
using namespace sluice::extension;  // NOLINT

extern "C" {

PG_FUNCTION_INFO_V1(sluice_sessions);
Datum sluice_sessions(PG_FUNCTION_ARGS) {
  require_ledger();
  const Names& names = copy_names();
  const Slots slots = copy_slots();
  const std::int64_t now = now_us();
  Rows rows(fcinfo);
  for (std::uint32_t slot = 0; slot < slots.count; slot++) {
    const ledger::Session& session = slots.sessions[slot];
    if (!ledger::holds_session_permit(static_cast<ledger::SessionState>(session.state))) continue;
    write_session(rows, names, slot, session, now);
  }
  return static_cast<Datum>(0);
}

PG_FUNCTION_INFO_V1(sluice_tickets);
Datum sluice_tickets(PG_FUNCTION_ARGS) {
  require_ledger();
  const Names& names = copy_names();
  const Slots slots = copy_slots();
  Rows rows(fcinfo);
  for (std::uint32_t slot = 0; slot < slots.count; slot++) {
    const ledger::TicketState state = ledger::phase_state(slots.tickets[slot].phase);
    if (state != ledger::TicketState::queued && !ledger::holds_permit(state)) continue;
    write_ticket(rows, names, slot, slots.sessions[slot], slots.tickets[slot]);
  }
  return static_cast<Datum>(0);
}
}
