// sluice.explain(): what would happen to a session of this role in this database, step by step, and which rule says so.
// It asks the same pure functions and the same numbers that a login asks, and changes nothing.
#include <cstring>

#include "extension/identity.h"
#include "extension/settings.h"
#include "extension/shared.h"
#include "extension/sql_support.h"
#include "extension/standing.h"
#include "ledger/class_use.h"
#include "ledger/connect_rate.h"
#include "ledger/policy_change.h"
#include "ledger/tenants.h"
#include "ledger/words.h"
#include "policy/decisions.h"

namespace sluice::extension {
namespace {

using policy::Identity;
using policy::kNone;
using policy::Policy;
using policy::Rule;
using policy::RuleField;
using policy::Standing;

// What the ledger counts for the session in question, copied under the lock.
struct Counts {
  std::uint32_t ordinary, unclaimed_by_others;
  std::uint32_t admin, admin_role, other_admin_guarantees;
  std::uint32_t tenant_sessions, database_sessions, role_sessions, role_connects;
  std::uint32_t class_in_use, class_queued, row_in_use, row_parked;
};

// The result as it is written: the rows and what the verdicts at the end need to know.
struct Explanation {
  Rows& rows;
  const Policy& policy;
  bool session_refused;
  bool must_queue;
};

Counts collect_counts(const Policy& policy, const Identity& identity, std::uint32_t policy_class) {
  Counts counts{};
  SharedLedger lock;
  const ledger::Header& header = *the_ledger.header;
  counts.ordinary = header.ordinary_sessions;
  counts.unclaimed_by_others = header.unclaimed_guarantees;
  counts.admin = header.admin_sessions;
  for (std::uint32_t i = 0; i < policy.admin_role_count; i++) {
    const std::uint32_t guarantee = policy.admin_roles[i].guaranteed_sessions;
    if (i == identity.admin_role) {
      counts.admin_role = header.admin_role_sessions[i];
    } else if (guarantee > header.admin_role_sessions[i]) {
      counts.other_admin_guarantees += guarantee - header.admin_role_sessions[i];
    }
  }
  if (identity.database_cap != kNone) counts.database_sessions = header.database_sessions[identity.database_cap];
  if (identity.role_cap != kNone) counts.role_sessions = header.role_sessions[identity.role_cap];
  counts.role_connects = ledger::recent_connects(the_ledger, lock.token(), identity.role_cap, now_us());
  const std::uint32_t slot = ledger::class_slot(the_ledger, lock.token(), policy_class);
  const std::uint32_t tenant = ledger::find_tenant(the_ledger, lock.token(), identity.tenant);
  if (tenant != ledger::kNil) {
    const ledger::Tenant& record = the_ledger.tenants[tenant];
    counts.tenant_sessions = record.sessions;
    const std::uint32_t unclaimed = record.guaranteed > record.sessions ? record.guaranteed - record.sessions : 0;
    counts.unclaimed_by_others -= unclaimed < counts.unclaimed_by_others ? unclaimed : counts.unclaimed_by_others;
  }
  if (slot != ledger::kNil) {
    const ledger::ClassState& state = the_ledger.classes[slot];
    counts.class_in_use = ledger::permits_in_use(state);
    counts.class_queued = state.queued;
    if (tenant != ledger::kNil) {
      const ledger::RowWord row = ledger::unpack_row(ledger::row_at(the_ledger, tenant, slot).word);
      counts.row_in_use = row.in_use;
      counts.row_parked = row.parked;
    }
  }
  return counts;
}

void add_step(Rows& rows, const char* step, const char* result, const char* rule, const char* note) {
  rows.text(step).text(result).text(rule).null().null().text(note).end();
}

// One limit: is there room for one more?
bool add_limit(Explanation& explanation, const char* step, Rule rule, std::uint32_t used, std::uint32_t limit,
               const char* no_room, const char* note) {
  const bool room = limit == policy::kNoLimit || used < limit;
  explanation.rows.text(step).text(room ? "has room" : no_room).text(rule_text(explanation.policy, rule));
  explanation.rows.number(used).limit(limit).text(note).end();
  return room;
}

void explain_mode(Rows& rows, const Policy& policy, ledger::Mode mode) {
  const char* note = "nothing is published: everything is admitted and counted";
  if (policy.generation != 0) {
    note = psprintf("generation %llu for %s%s", static_cast<unsigned long long>(policy.generation), policy.database,
                    mode == ledger::Mode::enforce ? "" : "; what is refused below would be refused, but is admitted");
  }
  add_step(rows, "mode", mode_name(mode), settings.enforcement == kEnforcePolicy ? nullptr : "pg_sluice.enforcement",
           note);
}

void explain_identity(Rows& rows, const Policy& policy, const Identity& identity) {
  const char* rule = nullptr;
  const char* name = "ordinary";
  const char* note = nullptr;
  if (identity.standing == Standing::admin_role) {
    name = "admin role";
    rule = psprintf("adminRoles.%s", policy.admin_roles[identity.admin_role].name);
    note = "uses the administrators' reserve and never queues";
  } else if (identity.standing == Standing::superuser) {
    name = "superuser";
    note = "passes on a Unix socket in any case, uses the administrators' reserve over TCP, and never queues";
  }
  add_step(rows, "standing", name, rule, note);
  const std::uint16_t tenant_rule = policy::tenant_rule(policy, identity.tenant);
  rule = tenant_rule == kNone ? nullptr : psprintf("tenants.%s", policy.tenant_rules[tenant_rule].pattern);
  note = tenant_rule == kNone ? nullptr : psprintf("weight %u", policy.tenant_rules[tenant_rule].weight);
  add_step(rows, "tenant", identity.tenant, rule, note);
  rule = identity.assign_rule == kNone ? "defaultClass"
                                       : psprintf("assign[%u]", static_cast<unsigned>(identity.assign_rule));
  add_step(rows, "class", policy.classes[identity.execution_class].name, rule, nullptr);
}

// The class the session's transactions run in when it declares one; raises for a class that does not exist.
std::uint32_t explain_declared(Rows& rows, const Policy& policy, const Identity& identity, const char* wanted) {
  const std::uint16_t declared = policy::declared_class(policy, identity.execution_class, wanted);
  const char* rule = psprintf("executionClasses.%s.mayEnter", policy.classes[identity.execution_class].name);
  if (declared != kNone) {
    add_step(rows, "declared class", policy.classes[declared].name, rule, nullptr);
    return declared;
  }
  bool exists = false;
  for (std::uint32_t i = 0; i < policy.class_count; i++)
    exists = exists || std::strcmp(policy.classes[i].name, wanted) == 0;
  add_step(rows, "declared class", policy.classes[identity.execution_class].name, rule,
           psprintf("\"%s\" is %s: the declaration has no effect", wanted, exists ? "not listed" : "no class"));
  return identity.execution_class;
}

void explain_session(Explanation& out, const Identity& identity, const Counts& counts) {
  const Policy& policy = out.policy;
  bool admitted = true;
  if (identity.standing == Standing::superuser) {
    add_limit(out, "session", {RuleField::admin_reserve, 0}, counts.admin, policy.admin_reserve, "is used up",
              "a superuser is refused only where the free slots belong to the guarantees of named admin roles");
  } else if (identity.standing == Standing::admin_role) {
    const std::uint32_t guarantee = policy.admin_roles[identity.admin_role].guaranteed_sessions;
    if (counts.admin_role < guarantee) {
      add_limit(out, "session", {RuleField::admin_guarantee, identity.admin_role}, counts.admin_role, guarantee,
                "refused", nullptr);
    } else {
      admitted = add_limit(out, "session", {RuleField::admin_reserve, 0}, counts.admin + counts.other_admin_guarantees,
                           policy.admin_reserve, "refused",
                           counts.other_admin_guarantees > 0 ? "with what other admin roles are guaranteed" : nullptr);
    }
  } else {
    const std::uint16_t rule = policy::tenant_rule(policy, identity.tenant);
    admitted = add_limit(out, "session", {RuleField::server_session_permits, 0},
                         counts.ordinary + counts.unclaimed_by_others, policy.server_session_permits, "refused",
                         counts.unclaimed_by_others > 0 ? "with what other tenants are guaranteed" : nullptr);
    if (rule != kNone) {
      admitted &= add_limit(out, "tenant's sessions", {RuleField::tenant_max_sessions, rule}, counts.tenant_sessions,
                            policy.tenant_rules[rule].max_sessions, "refused", nullptr);
    }
    if (identity.database_cap != kNone) {
      admitted &= add_limit(out, "database's sessions", {RuleField::database_max_sessions, identity.database_cap},
                            counts.database_sessions, policy.database_caps[identity.database_cap].max_sessions,
                            "refused", nullptr);
    }
    if (identity.role_cap != kNone) {
      const policy::RoleCap& cap = policy.role_caps[identity.role_cap];
      admitted &= add_limit(out, "role's sessions", {RuleField::role_max_sessions, identity.role_cap},
                            counts.role_sessions, cap.max_sessions, "refused", nullptr);
      if (cap.connects_per_second != policy::kNoLimit) {
        admitted &= add_limit(out, "role's connects", {RuleField::role_connects, identity.role_cap},
                              counts.role_connects, cap.connects_per_second, "refused", nullptr);
      }
    }
  }
  out.session_refused = !admitted;
}

// Returns whether the transaction would be refused at once.
bool explain_transaction(Explanation& out, const Identity& identity, std::uint32_t klass, const Counts& counts) {
  const Policy& policy = out.policy;
  const policy::ExecutionClass& limits = policy.classes[klass];
  const auto index = static_cast<std::uint16_t>(klass);
  const std::uint16_t rule = policy::tenant_rule(policy, identity.tenant);
  const char* wait_note = counts.class_queued > 0 ? psprintf("%u transactions wait", counts.class_queued) : nullptr;
  bool runs = add_limit(out, "class", {RuleField::class_permits, index}, counts.class_in_use, limits.permits, "queues",
                        wait_note);
  if (rule != kNone) {
    runs &= add_limit(out, "tenant in class", {RuleField::tenant_max_inflight, rule}, counts.row_in_use,
                      policy.tenant_rules[rule].max_inflight, "queues", nullptr);
  }
  out.must_queue = !runs || counts.class_queued > counts.row_parked;
  return !add_limit(out, "queue", {RuleField::class_max_queue, index}, counts.class_queued, limits.max_queue, "refused",
                    psprintf("each waits %u ms at most", limits.queue_deadline_ms)) &&
         out.must_queue;
}

}  // namespace
}  // namespace sluice::extension

using namespace sluice;             // NOLINT: the function below only translates an SQL call
using namespace sluice::extension;  // NOLINT

extern "C" {

PG_FUNCTION_INFO_V1(sluice_explain);
Datum sluice_explain(PG_FUNCTION_ARGS) {
  require_ledger();
  const char* role = text_argument(fcinfo, 0, "role");
  const char* database = text_argument(fcinfo, 1, "database");
  const Oid role_oid = get_role_oid(role, false);
  (void)get_database_oid(database, false);
  const ledger::Mode mode = effective_mode();
  const policy::Policy* compiled = copy_policy();
  policy::Identity identity{};
  identify_role(*compiled, role, role_oid, superuser_arg(role_oid), database, nullptr, identity);

  Rows rows(fcinfo);
  explain_mode(rows, *compiled, mode);
  explain_identity(rows, *compiled, identity);
  std::uint32_t klass = identity.execution_class;
  if (!PG_ARGISNULL(2)) klass = explain_declared(rows, *compiled, identity, text_argument(fcinfo, 2, "class"));
  const Counts counts = collect_counts(*compiled, identity, klass);
  Explanation out{rows, *compiled, false, false};
  explain_session(out, identity, counts);
  const char* transaction = "runs at once";
  if (identity.standing == policy::Standing::ordinary) {
    const bool refused = explain_transaction(out, identity, klass, counts);
    transaction = refused ? "refused" : (out.must_queue ? "queues" : "runs at once");
  }
  const bool enforced = mode == ledger::Mode::enforce;
  const char* would = enforced ? nullptr : "not enforced: it is admitted in any case";
  add_step(rows, "login", out.session_refused ? "refused" : "admitted", nullptr, out.session_refused ? would : nullptr);
  add_step(rows, "transaction", transaction, nullptr, std::strcmp(transaction, "runs at once") == 0 ? nullptr : would);
  return static_cast<Datum>(0);
}
}
