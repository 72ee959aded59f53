// What this backend knows about itself: its session record, who it is under the policy, and the permit it holds. Process-local;
// only the backend itself reads and writes it.
#pragma once

#include "extension/pg.h"
#include "ledger/admission.h"
#include "policy/decisions.h"

namespace sluice::extension {

struct Backend {
  bool governed;              // a client backend with a session record
  bool walsender;
  bool never_queues;          // administrators
  std::uint32_t slot;         // PGPROC index: session record and ticket
  std::uint32_t tenant;       // ledger indexes, as of policy_version
  std::uint32_t home_class;   // by assignment
  std::uint32_t klass;        // with a declaration applied
  std::uint64_t policy_version;
  policy::Identity identity;
  char role[policy::kNameBytes];
  char database[policy::kNameBytes];

  bool holds_permit;          // the ticket is granted: return it at the transaction's end
  bool utility_keeps_permit;  // a utility that commits inside is on the stack
  int nesting;                // statements on the stack, saved and restored by the hooks
};

extern Backend backend;

// Called by the authentication hook once the session is admitted.
void adopt_session(const policy::Identity& identity, std::uint32_t tenant, bool superuser, bool walsender);

}  // namespace sluice::extension
