// What this backend knows about itself: its session record, who it is under the policy, and the permit it holds.
// Process-local; only the backend itself reads and writes it.
#pragma once

#include "extension/pg.h"
#include "ledger/admission.h"
#include "policy/decisions.h"

namespace sluice::extension {

// What a statement needs to know of its class, copied out of the policy so that the hot path reads no shared image.
struct ClassTerms {
  std::uint32_t klass;  // ledger index
  std::int64_t queue_deadline_us;
  std::int64_t time_limit_us;  // 0: none
  char name[policy::kNameBytes];
};

struct Backend {
  bool governed;       // a client backend with a session record
  bool holds_permit;   // the ticket is granted: return it at the transaction's end
  bool exempt;         // a statement that never waits is on the stack
  bool keeps_permit;   // a utility that may commit inside is on the stack
  bool connecting;     // the login transaction has not ended yet
  bool time_limited;   // the held permit has a time limit
  bool particular;     // its next transaction needs more than a look at the policy's version: see standing.h
  bool never_queues;   // administrators
  std::uint32_t slot;  // PGPROC index: session record and ticket

  // Who it is, as of policy_version.
  std::uint64_t policy_version;
  policy::Identity identity;
  std::uint32_t tenant;  // ledger index
  ClassTerms terms;
  Oid role_oid;
  bool superuser;
  char role[policy::kNameBytes];
  char database[policy::kNameBytes];

  int utility_depth;  // utilities on the stack
};

extern Backend backend;

}  // namespace sluice::extension
