// sluice._refusals(), sluice._events(): the bounded memory of what happened.
#include <cstring>

#include "extension/shared.h"
#include "extension/sql_support.h"

namespace sluice::extension {
namespace {

using ledger::Event;
using ledger::EventKind;
using ledger::RefusalCell;

constexpr std::int64_t kMinuteUs = 60 * 1000000LL;
constexpr std::int64_t kMinutesShown = 60;

const char* event_name(EventKind kind) {
  switch (kind) {
    case EventKind::session_refused:
      return "session_refused";
    case EventKind::execution_refused:
      return "execution_refused";
    case EventKind::wait_expired:
      return "wait_expired";
    case EventKind::wait_cancelled:
      return "wait_cancelled";
    case EventKind::time_limit_cancel:
      return "time_limit_cancel";
    case EventKind::time_limit_terminate:
      return "time_limit_terminate";
    case EventKind::overdraft_granted:
      return "overdraft_granted";
    case EventKind::blocker_promoted:
      return "blocker_promoted";
    case EventKind::login_terminated:
      return "login_terminated";
    case EventKind::reclaimed:
      return "reclaimed";
    case EventKind::tenant_overflow:
      return "tenant_overflow";
    case EventKind::switched:
      return "switched";
    case EventKind::policy_applied:
      return "policy_applied";
    case EventKind::fault:
      return "fault";
    case EventKind::would_refuse_session:
      return "would_refuse_session";
    case EventKind::borrow_expired:
      return "borrow_expired";
  }
  return "unknown";
}

const char* text_or_null(const char* text) { return text[0] == '\0' ? nullptr : text; }

// Zeros: no ticket was concerned.
void write_ticket_id(Rows& rows, const policy::Uuid& ticket) {
  constexpr policy::Uuid kNone = {};
  if (std::memcmp(&ticket, &kNone, sizeof(ticket)) == 0) {
    rows.null();
  } else {
    rows.uuid(ticket);
  }
}

void write_event(Rows& rows, const Names& names, const Event& event) {
  rows.text(event_name(event.kind));
  rows.text(event.status == policy::Status::ok ? nullptr : policy::status_name(event.status));
  rows.text(rule_text(names.policy, event.rule)).text(class_name(names, event.klass));
  rows.text(text_or_null(event.tenant)).text(text_or_null(event.database)).count(event.generation);
  rows.time(event.first_us).time(event.last_us).count(event.count);
  write_ticket_id(rows, event.ticket);
  rows.end();
}

using Counts = std::uint64_t[ledger::kReasons];

// The reasons a source can have, those that never occurred as well, so that a counter starts at 0.
void write_source(Rows& rows, const char* source, policy::Status first, policy::Status last, const Counts& counts) {
  for (auto i = static_cast<std::uint32_t>(first); i <= static_cast<std::uint32_t>(last); i++) {
    rows.text(source).text(policy::status_name(static_cast<policy::Status>(i))).count(counts[i]).end();
  }
}

// `clock_offset`: the wall clock less the ledger's, one for all rows so that the cells of one minute show one time.
void write_cell(Rows& rows, const Names& names, const RefusalCell& cell, std::int64_t clock_offset) {
  constexpr TimestampTz kSecond = 1000000;
  rows.timestamp((cell.minute * kMinuteUs + clock_offset + kSecond / 2) / kSecond * kSecond);
  rows.text(text_or_null(cell.tenant)).text(class_name(names, cell.klass)).text(policy::status_name(cell.status));
  rows.text(rule_text(names.policy, cell.rule)).boolean(cell.would).count(cell.count).end();
}

}  // namespace
}  // namespace sluice::extension

using namespace sluice;             // NOLINT: the functions below only translate SQL calls
using namespace sluice::extension;  // NOLINT

extern "C" {

PG_FUNCTION_INFO_V1(sluice_refusals);
Datum sluice_refusals(PG_FUNCTION_ARGS) {
  require_ledger();
  const Names& names = copy_names();
  const std::uint32_t count = the_ledger.header->sizes.refusal_cells;
  auto* cells = static_cast<ledger::RefusalCell*>(allocate_records(sizeof(ledger::RefusalCell) * count));
  {
    SharedLedger lock;
    std::memcpy(static_cast<void*>(cells), the_ledger.refusals, sizeof(ledger::RefusalCell) * count);
  }
  const std::int64_t now = now_us();
  const std::int64_t clock_offset = GetCurrentTimestamp() - now;
  const std::int64_t oldest = now / kMinuteUs - kMinutesShown;
  Rows rows(fcinfo);
  for (std::uint32_t i = 0; i < count; i++) {
    if (cells[i].count > 0 && cells[i].minute > oldest) write_cell(rows, names, cells[i], clock_offset);
  }
  return static_cast<Datum>(0);
}

PG_FUNCTION_INFO_V1(sluice_unavailable);
Datum sluice_unavailable(PG_FUNCTION_ARGS) {
  require_ledger();
  const Names& names = copy_names();
  Counts counts[policy::kMaxClasses + 1];
  const std::uint32_t classes = names.class_count;
  {
    SharedLedger lock;
    std::memcpy(counts[0], the_ledger.header->session_refusals, sizeof(counts[0]));
    for (std::uint32_t i = 0; i < classes; i++) {
      std::memcpy(counts[i + 1], the_ledger.classes[i].refusals, sizeof(counts[i + 1]));
    }
  }
  Rows rows(fcinfo);
  write_source(rows, "sessions", policy::Status::session_limit, policy::Status::admin_reserve, counts[0]);
  for (std::uint32_t i = 0; i < classes; i++) {
    const char* name = class_name(names, i);
    if (name == nullptr) continue;
    write_source(rows, psprintf("class %s", name), policy::Status::queue_full, policy::Status::overdraft_exhausted,
                 counts[i + 1]);
  }
  return static_cast<Datum>(0);
}

PG_FUNCTION_INFO_V1(sluice_events);
Datum sluice_events(PG_FUNCTION_ARGS) {
  require_ledger();
  const Names& names = copy_names();
  const std::uint32_t count = the_ledger.header->sizes.events;
  auto* events = static_cast<ledger::Event*>(allocate_records(sizeof(ledger::Event) * count));
  {
    SharedLedger lock;
    std::memcpy(static_cast<void*>(events), the_ledger.events, sizeof(ledger::Event) * count);
  }
  Rows rows(fcinfo);
  for (std::uint32_t i = 0; i < count; i++) {
    if (events[i].count > 0) write_event(rows, names, events[i]);
  }
  return static_cast<Datum>(0);
}
}
