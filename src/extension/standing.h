// Who this backend is at the moment: re-evaluated at the first statement of a transaction when the policy changed or
// the session declared another class or tenant.
#pragma once

#include <atomic>

#include "extension/backend.h"
#include "extension/pg.h"
#include "extension/shared.h"
#include "ledger/region.h"
#include "policy/refusal.h"

namespace sluice::extension {

// Nearly always the policy is the one that the standing was worked out under, the session has declared nothing new and
// named no request, and its role may queue: then the next transaction is a plain one, and nothing below needs asking.
inline bool is_standing_plain() {
  return std::atomic_ref<std::uint64_t>(the_ledger.header->policy_version).load(std::memory_order_acquire) ==
             backend.policy_version &&
         !backend.particular;
}

// Brings backend.identity, tenant and terms up to date. Reads the catalogue and may raise; cheap when nothing changed.
void refresh_standing();

// Sets backend.particular from what it stands for. After each change of backend.never_queues.
void note_particulars();

// From the assign hooks of pg_sluice.class and pg_sluice.tenant.
void declaration_changed();

// From the assign hook of pg_sluice.ticket, which only ever gets what its check hook let pass.
void ticket_declared(const char* text);

// The id the session gave its next request; false where it gave none.
bool declared_ticket(policy::Uuid& id);
bool is_ticket_declared();

// The mode that decides now: the policy's activation, lowered by this process's pg_sluice.enforcement.
ledger::Mode effective_mode();

}  // namespace sluice::extension
