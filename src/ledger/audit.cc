#include "ledger/audit.h"

#include <cstring>

#include "ledger/queue.h"
#include "ledger/scheduler.h"
#include "ledger/session_counts.h"
#include "ledger/tenants.h"
#include "ledger/ticket_identity.h"

namespace sluice::ledger {

namespace {

// What the records add up to.
struct ClassSums {
  std::uint32_t holders, eligible, queued;
  std::uint32_t by_key, by_queue, weight;  // rows that belong into the class's orders
  std::uint32_t borrowed, borrowed_from[policy::kMaxClasses];
  bool skip;  // a step in transition touches it
};

struct Sums {
  ClassSums classes[policy::kMaxClasses];
  std::uint32_t ordinary, admin, walsenders, queued, overdraft, overdraft_waiters, named;
  std::uint32_t admin_roles[policy::kMaxAdminRoles];
  std::uint32_t databases[policy::kMaxDatabaseCaps];
  std::uint32_t roles[policy::kMaxRoleCaps];
};

struct Report {
  Discrepancy* entries;
  std::uint32_t max_entries;
  std::uint32_t count;
};

void add(Report& report, Balance balance, std::uint32_t index, std::uint32_t other, std::int64_t recorded,
         std::int64_t recomputed) noexcept {
  if (report.count < report.max_entries) report.entries[report.count++] = {balance, index, other, recorded, recomputed};
}

void check(Report& report, Balance balance, std::uint32_t index, std::uint32_t other, std::int64_t recorded,
           std::int64_t recomputed) noexcept {
  if (recorded != recomputed) add(report, balance, index, other, recorded, recomputed);
}

void set_gates(const Ledger& ledger, bool gate) noexcept {
  for (std::uint32_t i = 0; i < ledger.header->sizes.classes; i++) {
    std::atomic_ref<std::uint64_t> word(ledger.classes[i].word);
    if (gate) {
      word.fetch_or(1U, std::memory_order_seq_cst);
    } else {
      word.fetch_and(~std::uint64_t{1}, std::memory_order_seq_cst);
    }
  }
}

[[nodiscard]] bool is_uncertain(std::uint32_t phase) noexcept {
  return phase_mark(phase) == Mark::taking || phase_mark(phase) == Mark::releasing;
}

[[nodiscard]] bool has_row(const Ledger& ledger, const Ticket& ticket) noexcept {
  return ticket.tenant < ledger.header->sizes.tenants && ticket.klass < ledger.header->sizes.classes;
}

// How long the audit goes on waiting for marks: until the caller's bound is used up.
struct Patience {
  Pause pause;
  void* context;
  bool is_left;
};

[[nodiscard]] std::uint32_t settled_phase(const Ticket& ticket, Patience& patience) noexcept {
  std::uint32_t phase = load(ticket.phase, std::memory_order_seq_cst);
  while (patience.is_left && is_uncertain(phase)) {
    patience.is_left = patience.pause(patience.context);
    phase = load(ticket.phase, std::memory_order_seq_cst);
  }
  return phase;
}

// With the gates set, whoever has marked himself before is seen here, and is waited for until his step is done. Whoever
// marks himself later finds the gate, changes no word and takes the mark back.
void wait_for_marks(const Ledger& ledger, Patience& patience) noexcept {
  for (std::uint32_t i = 0; i < ticket_count(ledger); i++) (void)settled_phase(ledger.tickets[i], patience);
}

void clear_sums(const Ledger& ledger, Sums& sums) noexcept {
  std::memset(&sums, 0, sizeof(sums));
  const std::size_t rows = std::size_t{ledger.header->tenant_count} * ledger.header->sizes.classes;
  for (std::size_t i = 0; i < rows; i++) {
    Row& row = ledger.rows[i];
    row.audit_in_use = row.audit_parked = row.audit_eligible = 0;
    row.audit_skip = false;
  }
  for (std::uint32_t i = 0; i < ledger.header->tenant_count; i++) ledger.tenants[i].audit_sessions = 0;
}

void sum_waiting(const Ledger& ledger, Sums& sums, const Ticket& ticket) noexcept {
  Row& row = ledger.rows[row_index(ledger, ticket)];
  ClassSums& klass = sums.classes[ticket.klass];
  sums.queued++;
  klass.queued++;
  if (ticket.blocks_holder) sums.overdraft_waiters++;
  if (ticket.parked) {
    row.audit_parked++;
    return;
  }
  row.audit_in_use++;
  row.audit_eligible++;
  klass.eligible++;
}

// The value of `recorded` is the phase, so that a corrupt record can be recognized.
void sum_ticket(const Ledger& ledger, Sums& sums, Report& report, std::uint32_t index, std::uint32_t phase) noexcept {
  const Ticket& ticket = ledger.tickets[index];
  const TicketState state = phase_state(phase);
  const Mark mark = phase_mark(phase);
  if (is_uncertain(phase)) {
    add(report, Balance::in_transition, index, ticket.klass, phase, 0);
    if (!has_row(ledger, ticket)) return;
    ledger.rows[row_index(ledger, ticket)].audit_skip = true;
    sums.classes[ticket.klass].skip = true;
    return;
  }
  const bool holds = holds_permit(state);
  if (state == TicketState::none && mark == Mark::row_held && has_row(ledger, ticket)) {
    ledger.rows[row_index(ledger, ticket)].audit_in_use++;
    return;
  }
  const bool is_known =
      state <= TicketState::cancelled && (mark == Mark::none || (holds && mark == Mark::row_released));
  if (!is_known || ((holds || state == TicketState::queued) && !has_row(ledger, ticket))) {
    add(report, Balance::ticket_state, index, ticket.klass, phase, 0);
    return;
  }
  if (is_named_request(ticket)) sums.named++;
  if (state == TicketState::queued) sum_waiting(ledger, sums, ticket);
  if (!holds) return;
  if (ticket.source == PermitSource::overdraft) {
    sums.overdraft++;
    return;
  }
  ClassSums& klass = sums.classes[ticket.klass];
  klass.holders++;
  if (ticket.source == PermitSource::borrowed) {
    klass.borrowed++;
    if (ticket.lender < policy::kMaxClasses) klass.borrowed_from[ticket.lender]++;
  }
  if (mark != Mark::row_released) ledger.rows[row_index(ledger, ticket)].audit_in_use++;
}

void sum_session(const Ledger& ledger, Sums& sums, Report& report, std::uint32_t slot) noexcept {
  const Session& session = ledger.sessions[slot];
  const SessionState state = session_state(session);
  if (state > SessionState::session_unknown || session.kind > SessionKind::walsender) {
    add(report, Balance::session_state, slot, 0, static_cast<std::int64_t>(state), 0);
    return;
  }
  if (!holds_session_permit(state)) return;
  switch (session.kind) {
    case SessionKind::ordinary:
      sums.ordinary++;
      if (session.database_cap < policy::kMaxDatabaseCaps) sums.databases[session.database_cap]++;
      if (session.role_cap < policy::kMaxRoleCaps) sums.roles[session.role_cap]++;
      if (session.tenant < ledger.header->tenant_count) {
        ledger.tenants[session.tenant].audit_sessions++;
      } else {
        add(report, Balance::session_state, slot, session.tenant, static_cast<std::int64_t>(state), 0);
      }
      break;
    case SessionKind::admin_role:
      sums.admin++;
      if (session.admin_role < policy::kMaxAdminRoles) sums.admin_roles[session.admin_role]++;
      break;
    case SessionKind::superuser:
      sums.admin++;
      break;
    case SessionKind::walsender:
      sums.walsenders++;
      break;
  }
}

// Walks a list and says how many of its tickets are where they belong; -1: it is broken or endless.
[[nodiscard]] std::int64_t walk(const Ledger& ledger, std::uint32_t row, bool parked) noexcept {
  const Row& entry = ledger.rows[row];
  const std::uint32_t tail = parked ? entry.parked_tail : entry.eligible_tail;
  std::uint32_t at = parked ? entry.parked_head : entry.eligible_head;
  std::uint32_t previous = kNil;
  std::int64_t count = 0;
  while (at != kNil) {
    if (at >= ticket_count(ledger) || count >= static_cast<std::int64_t>(ticket_count(ledger))) return -1;
    const Ticket& ticket = ledger.tickets[at];
    if (ticket.previous != previous || !has_row(ledger, ticket) || row_index(ledger, ticket) != row ||
        ticket.parked != parked || phase_state(load(ticket.phase)) != TicketState::queued) {
      return -1;
    }
    count++;
    previous = at;
    at = ticket.next;
  }
  return previous == tail ? count : -1;
}

void check_row(const Ledger& ledger, Sums& sums, Report& report, std::uint32_t tenant, std::uint32_t klass) noexcept {
  const std::uint32_t index = tenant * ledger.header->sizes.classes + klass;
  const Row& row = ledger.rows[index];
  const RowWord word = unpack_row(load(row.word));
  ClassSums& sum = sums.classes[klass];
  const bool eligible = row.audit_eligible > 0;
  const bool queued = row.audit_eligible + row.audit_parked > 0;
  sum.by_key += eligible ? 1 : 0;
  sum.weight += eligible ? row.weight : 0;
  sum.by_queue += queued ? 1 : 0;
  if (!row.audit_skip) check(report, Balance::row_in_use, tenant, klass, word.in_use, row.audit_in_use);
  check(report, Balance::row_parked, tenant, klass, word.parked, row.audit_parked);
  check(report, Balance::row_list, tenant, klass, row.eligible_count, row.audit_eligible);
  check(report, Balance::row_list, tenant, klass, row.queued, row.audit_eligible + row.audit_parked);
  check(report, Balance::row_list, tenant, klass, walk(ledger, index, false), row.audit_eligible);
  check(report, Balance::row_list, tenant, klass, walk(ledger, index, true), row.audit_parked);
  check(report, Balance::row_order, tenant, klass, row.key_at != kNil ? 1 : 0, eligible ? 1 : 0);
  check(report, Balance::row_order, tenant, klass, row.flood_at != kNil ? 1 : 0, queued ? 1 : 0);
}

void check_orders_of(const Ledger& ledger, const Exclusive& lock, const ClassSums& sum, Report& report,
                     std::uint32_t klass) noexcept {
  const ClassState& state = ledger.classes[klass];
  const OrderSums found = check_orders(ledger, lock, klass);
  check(report, Balance::class_order, klass, kNil, state.key_count, sum.by_key);
  check(report, Balance::class_order, klass, kNil, found.by_key, sum.by_key);
  check(report, Balance::class_order, klass, kNil, state.active_weight, sum.weight);
  check(report, Balance::class_order, klass, kNil, found.weight, sum.weight);
  check(report, Balance::class_order, klass, kNil, state.flood_count, sum.by_queue);
  check(report, Balance::class_order, klass, kNil, found.by_queue, sum.by_queue);
}

// How many tickets the class's list of borrowed permits leads to; -1: it is broken or endless.
[[nodiscard]] std::int64_t walk_borrowed(const Ledger& ledger, std::uint32_t klass) noexcept {
  const ClassState& state = ledger.classes[klass];
  std::uint32_t previous = kNil;
  std::int64_t count = 0;
  for (std::uint32_t at = state.borrowed_head; at != kNil; at = ledger.tickets[at].next) {
    if (at >= ticket_count(ledger) || count >= static_cast<std::int64_t>(ticket_count(ledger))) return -1;
    const Ticket& ticket = ledger.tickets[at];
    if (ticket.previous != previous || ticket.klass != klass || ticket.source != PermitSource::borrowed) return -1;
    count++;
    previous = at;
  }
  return previous == state.borrowed_tail ? count : -1;
}

void check_borrowing(const Ledger& ledger, const Sums& sums, Report& report, std::uint32_t klass) noexcept {
  const ClassState& state = ledger.classes[klass];
  const ClassSums& sum = sums.classes[klass];
  const std::uint32_t classes = ledger.header->sizes.classes;
  std::uint32_t lent = 0;
  for (std::uint32_t other = 0; other < classes; other++) {
    lent += sums.classes[other].borrowed_from[klass];
    check(report, Balance::borrowing, klass, other, state.borrowed_from[other], sum.borrowed_from[other]);
  }
  check(report, Balance::borrowing, klass, kNil, state.lent, lent);
  check(report, Balance::borrowing, klass, kNil, walk_borrowed(ledger, klass), sum.borrowed);
  check(report, Balance::borrowing, klass, kNil, state.capacity, std::int64_t{state.permits} + sum.borrowed - lent);
  check(report, Balance::borrowing, klass, kNil, unpack_class(load(state.word)).owed, sum.borrowed);
}

void check_class(const Ledger& ledger, const Exclusive& lock, const Sums& sums, Report& report,
                 std::uint32_t klass) noexcept {
  const ClassState& state = ledger.classes[klass];
  const ClassWord word = unpack_class(load(state.word));
  const ClassSums& sum = sums.classes[klass];
  if (!sum.skip) {
    check(report, Balance::class_free, klass, 0, word.free, std::int64_t{state.capacity} - sum.holders);
  }
  check(report, Balance::class_waiters, klass, 0, word.waiters, sum.eligible);
  check(report, Balance::class_queued, klass, 0, state.queued, sum.queued);
  check_orders_of(ledger, lock, sum, report, klass);
  check_borrowing(ledger, sums, report, klass);
}

void check_sessions(const Ledger& ledger, const Sums& sums, Report& report) noexcept {
  const Header& header = *ledger.header;
  check(report, Balance::ordinary_sessions, 0, 0, header.ordinary_sessions, sums.ordinary);
  check(report, Balance::admin_sessions, 0, 0, header.admin_sessions, sums.admin);
  check(report, Balance::walsender_sessions, 0, 0, header.walsender_sessions, sums.walsenders);
  for (std::uint32_t i = 0; i < policy::kMaxAdminRoles; i++) {
    check(report, Balance::admin_role_sessions, i, 0, header.admin_role_sessions[i], sums.admin_roles[i]);
  }
  for (std::uint32_t i = 0; i < policy::kMaxDatabaseCaps; i++) {
    check(report, Balance::database_sessions, i, 0, header.database_sessions[i], sums.databases[i]);
  }
  for (std::uint32_t i = 0; i < policy::kMaxRoleCaps; i++) {
    check(report, Balance::role_sessions, i, 0, header.role_sessions[i], sums.roles[i]);
  }
}

void check_tenants(const Ledger& ledger, const Exclusive& lock, Report& report) noexcept {
  const Header& header = *ledger.header;
  std::int64_t unclaimed = guarantee_total(header.policy);
  for (std::uint32_t i = 0; i < header.tenant_count; i++) {
    const Tenant& tenant = ledger.tenants[i];
    check(report, Balance::tenant_sessions, i, 0, tenant.sessions, tenant.audit_sessions);
    unclaimed -= tenant.audit_sessions < tenant.guaranteed ? tenant.audit_sessions : tenant.guaranteed;
    // The overflow tenant is reached by index only.
    if (i == kOverflowTenant) continue;
    check(report, Balance::tenant_table, i, 0, tenant.used ? find_tenant(ledger, lock, tenant.name) : kNil, i);
  }
  check(report, Balance::unclaimed_guarantees, 0, 0, header.unclaimed_guarantees, unclaimed);
}

[[nodiscard]] std::uint32_t named_receipts(const Ledger& ledger) noexcept {
  std::uint32_t count = 0;
  for (std::uint32_t i = 0; i < ledger.header->sizes.receipts; i++) count += ledger.receipts[i].owner != 0 ? 1 : 0;
  return count;
}

}  // namespace

std::uint32_t audit(const Ledger& ledger, const Exclusive& lock, Pause pause, void* context, Discrepancy* entries,
                    std::uint32_t max_entries) noexcept {
  const Header& header = *ledger.header;
  Report report = {entries, max_entries, 0};
  Sums sums;
  set_gates(ledger, true);
  Patience patience = {pause, context, pause != nullptr};
  wait_for_marks(ledger, patience);
  clear_sums(ledger, sums);
  for (std::uint32_t i = 0; i < ticket_count(ledger); i++) {
    sum_ticket(ledger, sums, report, i, settled_phase(ledger.tickets[i], patience));
  }
  for (std::uint32_t i = 0; i < header.sizes.sessions; i++) sum_session(ledger, sums, report, i);
  for (std::uint32_t tenant = 0; tenant < header.tenant_count; tenant++) {
    for (std::uint32_t klass = 0; klass < header.sizes.classes; klass++) check_row(ledger, sums, report, tenant, klass);
  }
  for (std::uint32_t klass = 0; klass < header.sizes.classes; klass++) check_class(ledger, lock, sums, report, klass);
  set_gates(ledger, false);
  check_sessions(ledger, sums, report);
  check_tenants(ledger, lock, report);
  check(report, Balance::queued_total, 0, 0, header.queued_total, sums.queued);
  check(report, Balance::ticket_identity, 0, 0, count_indexed_tickets(ledger, lock), sums.named);
  check(report, Balance::receipt_identity, 0, 0, count_indexed_receipts(ledger, lock), named_receipts(ledger));
  check(report, Balance::overdraft, 0, 0, header.overdraft_in_use, sums.overdraft);
  check(report, Balance::overdraft, 1, 0, header.overdraft_waiters, sums.overdraft_waiters);
  check(report, Balance::over_limit, 0, 0, static_cast<std::int64_t>(load_relaxed(header.over_limit_grants)), 0);
  return report.count;
}

const char* balance_name(Balance balance) noexcept {
  switch (balance) {
    case Balance::class_free:
      return "class_free";
    case Balance::class_waiters:
      return "class_waiters";
    case Balance::class_queued:
      return "class_queued";
    case Balance::row_in_use:
      return "row_in_use";
    case Balance::row_parked:
      return "row_parked";
    case Balance::row_list:
      return "row_list";
    case Balance::class_order:
      return "class_order";
    case Balance::row_order:
      return "row_order";
    case Balance::borrowing:
      return "borrowing";
    case Balance::ordinary_sessions:
      return "ordinary_sessions";
    case Balance::admin_sessions:
      return "admin_sessions";
    case Balance::admin_role_sessions:
      return "admin_role_sessions";
    case Balance::walsender_sessions:
      return "walsender_sessions";
    case Balance::tenant_sessions:
      return "tenant_sessions";
    case Balance::database_sessions:
      return "database_sessions";
    case Balance::role_sessions:
      return "role_sessions";
    case Balance::unclaimed_guarantees:
      return "unclaimed_guarantees";
    case Balance::overdraft:
      return "overdraft";
    case Balance::tenant_table:
      return "tenant_table";
    case Balance::ticket_identity:
      return "ticket_identity";
    case Balance::receipt_identity:
      return "receipt_identity";
    case Balance::ticket_state:
      return "ticket_state";
    case Balance::session_state:
      return "session_state";
    case Balance::queued_total:
      return "queued_total";
    case Balance::over_limit:
      return "over_limit";
    case Balance::in_transition:
      return "in_transition";
  }
  return "unknown";
}

}  // namespace sluice::ledger
