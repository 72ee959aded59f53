#include "extension/pg.h"

#include "extension/settings.h"

#include "extension/standing.h"
#include "ledger/region.h"
#include "policy/refusal.h"

namespace sluice::extension {

Settings settings;

namespace {

const config_enum_entry kEnforcementOptions[] = {{"policy", kEnforcePolicy, false},
                                                 {"shadow", kEnforceShadow, false},
                                                 {"off", kEnforceOff, false},
                                                 {nullptr, 0, false}};

const config_enum_entry kOnFaultOptions[] = {{"admit", kAdmit, false}, {"refuse", kRefuse, false}, {nullptr, 0, false}};

void declaration_assigned(const char*, void*) { declaration_changed(); }

bool is_ticket(char** value, void**, GucSource) {
  policy::Uuid id = {};
  if (**value == '\0' || policy::parse_uuid(*value, id)) return true;
  GUC_check_errdetail("A ticket is a UUID other than the nil UUID, or empty for none.");
  return false;
}

void ticket_assigned(const char* value, void*) { ticket_declared(value); }

void define_request_settings() {
  DefineCustomStringVariable("pg_sluice.class", "Execution class this session declares for its next transactions.",
                             "Takes effect where the policy's mayEnter allows it.", &settings.declared_class, "",
                             PGC_USERSET, 0, nullptr, declaration_assigned, nullptr);
  DefineCustomStringVariable("pg_sluice.tenant", "Tenant a trusted role works for.",
                             "Takes effect for roles in the policy's declare.trustedRoles.", &settings.declared_tenant,
                             "", PGC_USERSET, 0, nullptr, declaration_assigned, nullptr);
  DefineCustomStringVariable("pg_sluice.ticket", "Identity of this session's next request, a UUID; kept over retries.",
                             "A refused request keeps its age; one that is running or has run is not run again.",
                             &settings.ticket, "", PGC_USERSET, 0, is_ticket, ticket_assigned, nullptr);
  DefineCustomIntVariable("pg_sluice.queue_deadline", "Longest wait for a permit this session is content with.",
                          "Shortens the queue deadline of its class, never lengthens it; 0 or -1 leaves it as it is.",
                          &settings.queue_deadline_ms, -1, -1, INT_MAX, PGC_USERSET, GUC_UNIT_MS, nullptr, nullptr,
                          nullptr);
}

void define_sizes() {
  DefineCustomIntVariable("pg_sluice.max_tenants", "Tenants the ledger can tell apart at one time.",
                          "Tenants beyond it share one overflow row under \"*\", which raises an alert.",
                          &settings.max_tenants, 1000, 16, 100000, PGC_POSTMASTER, 0, nullptr, nullptr, nullptr);
  DefineCustomIntVariable("pg_sluice.max_classes", "Execution classes the ledger has room for, draining ones included.",
                          nullptr, &settings.max_classes, 8, 1, static_cast<int>(policy::kMaxClasses), PGC_POSTMASTER,
                          0, nullptr, nullptr, nullptr);
  DefineCustomIntVariable("pg_sluice.max_events", "Recent events kept in shared memory.", nullptr, &settings.max_events,
                          512, 16, 65536, PGC_POSTMASTER, 0, nullptr, nullptr, nullptr);
  DefineCustomIntVariable("pg_sluice.max_receipts", "Receipts of ended tickets kept in shared memory.", nullptr,
                          &settings.max_receipts, 1024, 16, 65536, PGC_POSTMASTER, 0, nullptr, nullptr, nullptr);
  DefineCustomIntVariable("pg_sluice.max_refusal_cells", "Minutes x tenants x reasons kept for sluice.refusals.",
                          nullptr, &settings.max_refusal_cells, 2048, 64, 65536, PGC_POSTMASTER, 0, nullptr, nullptr,
                          nullptr);
}

}  // namespace

void define_settings() {
  DefineCustomStringVariable("pg_sluice.database", "Database that holds the extension's SQL objects and policies.",
                             nullptr, &settings.database, "postgres", PGC_POSTMASTER, 0, nullptr, nullptr, nullptr);
  DefineCustomStringVariable("pg_sluice.label",
                             "Label a policy must name to be published here; cluster_name when empty.", nullptr,
                             &settings.label, "", PGC_POSTMASTER, 0, nullptr, nullptr, nullptr);
  define_sizes();
  DefineCustomEnumVariable("pg_sluice.enforcement",
                           "The kill switch: policy obeys the activated policy, shadow only counts, off is inert.",
                           "A reload suffices; waiting statements are admitted.", &settings.enforcement, kEnforcePolicy,
                           kEnforcementOptions, PGC_SIGHUP, 0, nullptr, nullptr, nullptr);
  DefineCustomEnumVariable("pg_sluice.on_fault",
                           "What happens when a policy or the ledger cannot be relied on: admit or refuse.", nullptr,
                           &settings.on_fault, kAdmit, kOnFaultOptions, PGC_SIGHUP, 0, nullptr, nullptr, nullptr);
  DefineCustomBoolVariable("pg_sluice.login_guard",
                           "Ends stalled logins while the slots of administrators are in danger.", nullptr,
                           &settings.login_guard, true, PGC_SIGHUP, 0, nullptr, nullptr, nullptr);
  define_request_settings();
  MarkGUCPrefixReserved("pg_sluice");
}

const char* enforcement_name(int enforcement) { return kEnforcementOptions[enforcement].name; }

const char* cluster_label() {
  return settings.label != nullptr && settings.label[0] != '\0' ? settings.label : cluster_name;
}

ledger::Sizes region_sizes() {
  ledger::Sizes sizes = {};
  sizes.sessions = static_cast<std::uint32_t>(MaxBackends);
  sizes.external_tickets = 0;
  sizes.tenants = static_cast<std::uint32_t>(settings.max_tenants) + 1;  // the overflow row is no tenant of its own
  sizes.classes = static_cast<std::uint32_t>(settings.max_classes);
  sizes.receipts = static_cast<std::uint32_t>(settings.max_receipts);
  sizes.events = static_cast<std::uint32_t>(settings.max_events);
  sizes.refusal_cells = static_cast<std::uint32_t>(settings.max_refusal_cells);
  return sizes;
}

}  // namespace sluice::extension
