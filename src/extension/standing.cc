#include "extension/pg.h"

#include "extension/standing.h"

#include <atomic>
#include <cstring>

#include "extension/backend.h"
#include "extension/errors.h"
#include "extension/identity.h"
#include "extension/settings.h"
#include "extension/shared.h"
#include "ledger/policy_change.h"
#include "ledger/sessions.h"

namespace sluice::extension {

namespace {

// What was declared when the standing was last worked out. Policies may name settings of their own, which have no
// assign hook: these are compared at each transaction.
struct Declaration {
  bool changed;
  bool must_compare;  // one of the two settings is the policy's own
  char class_setting[policy::kNameBytes];
  char tenant_setting[policy::kNameBytes];  // empty unless this role is trusted
  char class_name[policy::kNameBytes];
  char tenant_name[policy::kTenantBytes];
};

Declaration declaration = {};

struct DeclaredTicket {
  bool given;
  policy::Uuid id;
};

DeclaredTicket ticket = {};

const char* setting_value(const char* name) {
  if (name[0] == '\0') return "";
  if (std::strcmp(name, "pg_sluice.class") == 0) return settings.declared_class;
  if (std::strcmp(name, "pg_sluice.tenant") == 0) return settings.declared_tenant;
  const char* value = GetConfigOption(name, true, false);
  return value == nullptr ? "" : value;
}

bool has_own_hook(const char* setting) {
  return setting[0] == '\0' || std::strcmp(setting, "pg_sluice.class") == 0 ||
         std::strcmp(setting, "pg_sluice.tenant") == 0;
}

bool differs(const char* setting, const char* known, std::size_t known_bytes) {
  return !has_own_hook(setting) && std::strncmp(setting_value(setting), known, known_bytes - 1) != 0;
}

bool own_settings_differ() {
  return differs(declaration.class_setting, declaration.class_name, sizeof(declaration.class_name)) ||
         differs(declaration.tenant_setting, declaration.tenant_name, sizeof(declaration.tenant_name));
}

bool declared_otherwise() { return declaration.must_compare && own_settings_differ(); }

void read_declaration(const policy::Policy& policy) {
  strlcpy(declaration.class_setting, policy.class_setting, sizeof(declaration.class_setting));
  const bool trusted = policy::is_trusted(policy, backend.role);
  strlcpy(declaration.tenant_setting, trusted ? policy.tenant_setting : "", sizeof(declaration.tenant_setting));
  strlcpy(declaration.class_name, setting_value(declaration.class_setting), sizeof(declaration.class_name));
  strlcpy(declaration.tenant_name, setting_value(declaration.tenant_setting), sizeof(declaration.tenant_name));
  declaration.must_compare = !has_own_hook(declaration.class_setting) || !has_own_hook(declaration.tenant_setting);
}

// The declared class where mayEnter allows it, else the class of the assignment.
std::uint8_t chosen_class(const policy::Policy& policy) {
  const std::uint8_t home = backend.identity.execution_class;
  if (declaration.class_name[0] == '\0') return home;
  const std::uint16_t declared = policy::declared_class(policy, home, declaration.class_name);
  if (declared != policy::kNone) return static_cast<std::uint8_t>(declared);
  ereport(WARNING, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
                    errmsg("class \"%s\" cannot be declared from class \"%s\"", declaration.class_name,
                           policy.classes[home].name),
                    errdetail("executionClasses.%s.mayEnter does not list it; the transaction runs in class \"%s\".",
                              policy.classes[home].name, policy.classes[home].name)));
  return home;
}

void set_terms(const policy::ExecutionClass& chosen, std::uint32_t klass) {
  ClassTerms& terms = backend.terms;
  terms.klass = klass;
  terms.queue_deadline_us = std::int64_t{chosen.queue_deadline_ms} * 1000;
  terms.time_limit_us = chosen.transaction_time_limit_ms == policy::kNoTimeLimit
                            ? 0
                            : std::int64_t{chosen.transaction_time_limit_ms} * 1000;
  strlcpy(terms.name, chosen.name, sizeof(terms.name));
}

// One attempt; false when the policy changed under it.
bool settle(const policy::Policy& policy, std::uint64_t version) {
  const char* declared_tenant = declaration.tenant_setting[0] == '\0' ? nullptr : declaration.tenant_name;
  identify_role(policy, backend.role, backend.role_oid, backend.superuser, backend.database, declared_tenant,
                backend.identity);
  const std::uint8_t chosen = chosen_class(policy);
  policy::Status status = policy::Status::ok;
  std::uint32_t klass = ledger::kNil;
  {
    ExclusiveLedger lock;
    if (the_ledger.header->policy_version != version) return false;
    status = ledger::reassign_session(the_ledger, lock.token(), backend.slot, backend.identity, now_us());
    backend.tenant = the_ledger.sessions[backend.slot].tenant;
    klass = ledger::class_slot(the_ledger, lock.token(), chosen);
  }
  if (status != policy::Status::ok) report_fault(status, "reassigning a session");
  if (klass == ledger::kNil) {
    report_fault(policy::Status::not_found, "looking up a class");
    return true;
  }
  set_terms(policy.classes[chosen], klass);
  backend.policy_version = version;
  backend.never_queues = backend.identity.standing != policy::Standing::ordinary;
  return true;
}

}  // namespace

void note_particulars() {
  backend.particular = declaration.changed || declaration.must_compare || ticket.given || backend.never_queues;
}

void declaration_changed() {
  declaration.changed = true;
  note_particulars();
}

void ticket_declared(const char* text) {
  ticket.given = policy::parse_uuid(text, ticket.id);
  note_particulars();
}

bool declared_ticket(policy::Uuid& id) {
  if (ticket.given) id = ticket.id;
  return ticket.given;
}

bool is_ticket_declared() { return ticket.given; }

namespace {

void work_out_standing() {
  bool settled = false;
  while (!settled) {
    CHECK_FOR_INTERRUPTS();
    std::uint64_t version = 0;
    policy::Policy* policy = copy_policy(&version);
    read_declaration(*policy);
    settled = settle(*policy, version);
    pfree(policy);
  }
  declaration.changed = false;
  note_particulars();
}

}  // namespace

void refresh_standing() {
  const std::uint64_t current =
      std::atomic_ref<std::uint64_t>(the_ledger.header->policy_version).load(std::memory_order_acquire);
  if (current == backend.policy_version && !declaration.changed && !declared_otherwise()) return;
  work_out_standing();
}

ledger::Mode effective_mode() {
  const auto mode = static_cast<ledger::Mode>(
      std::atomic_ref<std::uint32_t>(the_ledger.header->mode).load(std::memory_order_relaxed));
  if (settings.enforcement == kEnforcePolicy) [[likely]]
    return mode;
  if (settings.enforcement == kEnforceOff) return ledger::Mode::off;
  return mode == ledger::Mode::enforce ? ledger::Mode::shadow : mode;
}

}  // namespace sluice::extension
