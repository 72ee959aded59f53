// The authentication hook: every login takes a session permit or is refused, after its identity is proved and before it
// can send anything. It never waits: authentication_timeout would end the wait without a word, and an xmin is held
// meanwhile.
#include "extension/pg.h"

#include <sys/socket.h>

#include "extension/backend.h"
#include "extension/errors.h"
#include "extension/execution.h"
#include "extension/hooks.h"
#include "extension/identity.h"
#include "extension/settings.h"
#include "extension/shared.h"
#include "extension/standing.h"
#include "ledger/policy_change.h"
#include "ledger/sessions.h"

namespace sluice::extension {

namespace {

ClientAuthentication_hook_type previous_authentication = nullptr;

// Shared memory only: no catalogue, no error (F14). Runs after the transaction was aborted and before the PGPROC can be
// reused.
void end_session(int, Datum) {
  if (!backend.governed) return;
  abandon_ticket();
  {
    ExclusiveLedger lock;
    (void)ledger::close_session(the_ledger, lock.token(), backend.slot, now_us());
  }
  backend.governed = false;
}

// A startup parameter "name=value", given directly or as -c name=value / --name=value in options. Forgeable, so it only
// ever names a tenant for roles the policy trusts. Settings themselves are not processed yet at this point.
const char* startup_parameter(const Port* port, const char* name) {
  ListCell* cell = list_head(port->guc_options);
  while (cell != nullptr) {
    const auto* key = static_cast<const char*>(lfirst(cell));
    cell = lnext(port->guc_options, cell);
    if (cell == nullptr) break;
    if (strcmp(key, name) == 0) return static_cast<const char*>(lfirst(cell));
    cell = lnext(port->guc_options, cell);
  }
  if (port->cmdline_options == nullptr) return nullptr;
  const std::size_t length = strlen(name);
  const int most = 2 + static_cast<int>((strlen(port->cmdline_options) + 1) / 2);
  auto** words = static_cast<char**>(palloc(static_cast<std::size_t>(most) * sizeof(char*)));
  int count = 0;
  pg_split_opts(words, &count, port->cmdline_options);
  for (int i = 0; i < count; i++) {
    const char* word = words[i];
    if (strncmp(word, "--", 2) == 0 || (strncmp(word, "-c", 2) == 0 && word[2] != '\0')) {
      word += 2;
    } else if (strcmp(word, "-c") == 0 && i + 1 < count) {
      word = words[++i];
    } else {
      continue;
    }
    if (strncmp(word, name, length) == 0 && word[length] == '=') return word + length + 1;
  }
  return nullptr;
}

ledger::SessionKind kind_of(const policy::Identity& identity) {
  if (am_walsender) return ledger::SessionKind::walsender;
  switch (identity.standing) {
    case policy::Standing::superuser:
      return ledger::SessionKind::superuser;
    case policy::Standing::admin_role:
      return ledger::SessionKind::admin_role;
    case policy::Standing::ordinary:
      break;
  }
  return ledger::SessionKind::ordinary;
}

// A superuser is asked to leave the slots that named administrators are guaranteed; more than these need not be
// counted.
std::uint32_t count_free_slots(const policy::Policy& policy) {
  std::uint32_t guaranteed = 0;
  for (std::uint32_t i = 0; i < policy.admin_role_count; i++) guaranteed += policy.admin_roles[i].guaranteed_sessions;
  return static_cast<std::uint32_t>(free_proc_slots(static_cast<int>(guaranteed) + reserved_slots() + 1));
}

ledger::SessionRequest make_request(const policy::Policy& policy) {
  ledger::SessionRequest request = {};
  request.slot = backend.slot;
  request.pid = static_cast<std::uint32_t>(MyProcPid);
  request.backend_start_us = MyStartTimestamp;
  request.kind = kind_of(backend.identity);
  request.identity = &backend.identity;
  request.role = backend.role;
  request.database = backend.database;
  request.enforce = effective_mode() == ledger::Mode::enforce;
  request.physical_free = count_free_slots(policy);
  request.physical_reserved = static_cast<std::uint32_t>(reserved_slots());
  return request;
}

policy::Outcome take_session_permit(const policy::Policy& policy, std::uint64_t version, bool& policy_moved) {
  ledger::SessionRequest request = make_request(policy);
  ExclusiveLedger lock;
  request.now_us = now_us();
  policy_moved = the_ledger.header->policy_version != version;
  if (policy_moved) return policy::outcome(policy::Status::ok);
  return ledger::open_session(the_ledger, lock.token(), request);
}

[[noreturn]] void refuse(const policy::Policy& policy, const policy::Outcome& outcome) {
  backend.governed = false;
  RefusalContext context = {};
  context.outcome = outcome;
  context.class_name = policy.classes[backend.identity.execution_class].name;
  context.tenant_name = backend.identity.tenant;
  context.login = true;
  raise_refusal(policy, context);
}

void admit_login(const Port* port, Oid role_oid, bool superuser) {
  backend.slot = static_cast<std::uint32_t>(proc_index(MyProc));
  backend.role_oid = role_oid;
  backend.superuser = superuser;
  strlcpy(backend.role, port->user_name, sizeof(backend.role));
  strlcpy(backend.database, port->database_name != nullptr ? port->database_name : "", sizeof(backend.database));
  on_shmem_exit(end_session, 0);

  bool policy_moved = true;
  while (policy_moved) {
    std::uint64_t version = 0;
    policy::Policy* policy = copy_policy(&version);
    const char* tenant = policy->tenant_setting[0] != '\0' && policy::is_trusted(*policy, backend.role)
                             ? startup_parameter(port, policy->tenant_setting)
                             : nullptr;
    identify_role(*policy, backend.role, role_oid, superuser, backend.database, tenant, backend.identity);
    const policy::Outcome outcome = take_session_permit(*policy, version, policy_moved);
    if (!policy_moved && policy::is_refusal(outcome.status)) refuse(*policy, outcome);
    pfree(policy);
    if (policy::is_fault(outcome.status)) return report_fault(outcome.status, "opening a session");
  }
  backend.governed = true;
  backend.connecting = true;
  backend.never_queues = backend.identity.standing != policy::Standing::ordinary;
  note_particulars();
}

void authenticate(Port* port, int status) {
  if (previous_authentication != nullptr) previous_authentication(port, status);
  if (status != STATUS_OK || !ledger_ready() || IsBinaryUpgrade) return;
  const Oid role_oid = get_role_oid(port->user_name, true);
  if (!OidIsValid(role_oid)) return;  // the login fails a moment later
  const bool superuser = superuser_arg(role_oid);
  // Always a way in: for a superuser on the Unix socket no code of the ledger runs, so none can fail.
  if (superuser && port->raddr.addr.ss_family == AF_UNIX) return;
  admit_login(port, role_oid, superuser);
}

}  // namespace

void install_authentication_hook() {
  previous_authentication = ClientAuthentication_hook;
  ClientAuthentication_hook = authenticate;
}

}  // namespace sluice::extension
