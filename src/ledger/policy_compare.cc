// What a policy would find over its limits, before it is activated.
#include <cstring>
#include <initializer_list>

#include "ledger/atomics.h"
#include "ledger/class_use.h"
#include "ledger/policy_change.h"
#include "ledger/session_counts.h"
#include "policy/decisions.h"

namespace sluice::ledger {

namespace {

using policy::RuleField;

struct Report {
  OverLimit* entries;
  std::uint32_t max_entries;
  std::uint32_t count;
  bool only_over;  // first pass: what is over its limit now; second: the rest
};

void add(Report& report, const OverLimit& entry, const char* name, std::size_t name_bytes) noexcept {
  if (entry.limit == policy::kNoLimit || report.count == report.max_entries) return;
  if ((entry.now > entry.limit) != report.only_over) return;
  OverLimit& out = report.entries[report.count++];
  out = entry;
  std::memset(out.name, 0, sizeof(out.name));
  const std::size_t most = name_bytes < sizeof(out.name) ? name_bytes : sizeof(out.name);
  std::memcpy(out.name, name, strnlen(name, most - 1));
}

[[nodiscard]] std::uint64_t would_wait(const Ledger& ledger, std::uint32_t tenant, std::uint32_t klass) noexcept {
  std::uint64_t total = 0;
  for (std::uint32_t i = 0; i < ticket_count(ledger); i++) {
    const Ticket& ticket = ledger.tickets[i];
    if (ticket.klass == klass && (tenant == kNil || ticket.tenant == tenant))
      total += load_relaxed(ticket.stat_would_wait);
  }
  const std::uint32_t first = tenant == kNil ? 0 : tenant;
  const std::uint32_t last = tenant == kNil ? ledger.header->tenant_count : tenant + 1;
  for (std::uint32_t i = first; i < last; i++) total += row_at(ledger, i, klass).would_wait;
  return total;
}

void compare_server(const Ledger& ledger, const policy::Policy& policy, Report& report) noexcept {
  const Header& header = *ledger.header;
  add(report,
      {{RuleField::server_session_permits, 0},
       header.ordinary_sessions,
       header.peak_ordinary_sessions,
       policy.server_session_permits,
       header.sessions_would_refuse,
       0,
       {}},
      "", 1);
  add(report,
      {{RuleField::admin_reserve, 0}, header.admin_sessions, header.admin_sessions, policy.admin_reserve, 0, 0, {}}, "",
      1);
}

void compare_classes(const Ledger& ledger, const Shared& lock, const policy::Policy& policy, Report& report) noexcept {
  for (std::uint16_t i = 0; i < policy.class_count; i++) {
    const policy::ExecutionClass& rule = policy.classes[i];
    OverLimit entry = {{RuleField::class_permits, i}, 0, 0, rule.permits, 0, 0, {}};
    const std::uint32_t slot = find_class(ledger, lock, rule.name);
    if (slot != kNil) {
      const ClassState& state = ledger.classes[slot];
      entry.now = permits_in_use(state);
      entry.peak = peak_in_use(state);
      entry.would_refuse = load_relaxed(state.would_refuse);
      entry.would_wait = would_wait(ledger, kNil, slot);
    }
    add(report, entry, rule.name, sizeof(rule.name));
  }
}

// Sessions of one database or role, counted from the records: the caps of the policy in force have other indexes.
[[nodiscard]] std::uint32_t sessions_of(const Ledger& ledger, const char* name,
                                        const char (Session::*field)[policy::kNameBytes], SessionKind kind) noexcept {
  std::uint32_t count = 0;
  for (std::uint32_t i = 0; i < ledger.header->sizes.sessions; i++) {
    const Session& session = ledger.sessions[i];
    if (session.kind == kind && holds_session_permit(session_state(session)) &&
        std::strncmp(session.*field, name, policy::kNameBytes) == 0) {
      count++;
    }
  }
  return count;
}

void compare_caps(const Ledger& ledger, const policy::Policy& policy, Report& report) noexcept {
  for (std::uint16_t i = 0; i < policy.database_cap_count; i++) {
    const policy::DatabaseCap& rule = policy.database_caps[i];
    const std::uint32_t now = sessions_of(ledger, rule.database, &Session::database, SessionKind::ordinary);
    add(report, {{RuleField::database_max_sessions, i}, now, now, rule.max_sessions, 0, 0, {}}, rule.database,
        sizeof(rule.database));
  }
  for (std::uint16_t i = 0; i < policy.role_cap_count; i++) {
    const policy::RoleCap& rule = policy.role_caps[i];
    const std::uint32_t now = sessions_of(ledger, rule.role, &Session::role, SessionKind::ordinary);
    add(report, {{RuleField::role_max_sessions, i}, now, now, rule.max_sessions, 0, 0, {}}, rule.role,
        sizeof(rule.role));
  }
}

void compare_tenant(const Ledger& ledger, const policy::Policy& policy, std::uint32_t tenant, Report& report) noexcept {
  const Tenant& entry = ledger.tenants[tenant];
  const std::uint16_t index = policy::tenant_rule(policy, entry.name);
  if (index >= policy.tenant_rule_count) return;
  const policy::TenantRule& rule = policy.tenant_rules[index];
  // The session limit is reported where it was reached or would have refused; most tenants never come near it.
  if (entry.peak_sessions >= rule.max_sessions || entry.would_refuse_sessions > 0) {
    add(report,
        {{RuleField::tenant_max_sessions, index},
         entry.sessions,
         entry.peak_sessions,
         rule.max_sessions,
         entry.would_refuse_sessions,
         0,
         {}},
        entry.name, sizeof(entry.name));
  }
  for (std::uint32_t klass = 0; klass < ledger.header->sizes.classes; klass++) {
    const std::uint32_t in_use = unpack_row(load(row_at(ledger, tenant, klass).word)).in_use;
    const std::uint64_t waits = in_use < rule.max_inflight ? would_wait(ledger, tenant, klass) : 0;
    if (in_use < rule.max_inflight && waits == 0) continue;
    add(report, {{RuleField::tenant_max_inflight, index}, in_use, in_use, rule.max_inflight, 0, waits, {}}, entry.name,
        sizeof(entry.name));
  }
}

}  // namespace

std::uint32_t compare_policy(const Ledger& ledger, const Shared& lock, const policy::Policy& policy, OverLimit* entries,
                             std::uint32_t max_entries) noexcept {
  Report report = {entries, max_entries, 0, true};
  // Two passes, so that a table too small never hides what is over its limit.
  for (const bool only_over : {true, false}) {
    report.only_over = only_over;
    compare_server(ledger, policy, report);
    compare_classes(ledger, lock, policy, report);
    compare_caps(ledger, policy, report);
    for (std::uint32_t tenant = 0; tenant < ledger.header->tenant_count; tenant++) {
      compare_tenant(ledger, policy, tenant, report);
    }
  }
  return report.count;
}

}  // namespace sluice::ledger
