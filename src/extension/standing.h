// Who this backend is at the moment: re-evaluated at the first statement of a transaction when the policy changed or
// the session declared another class or tenant.
#pragma once

#include "extension/pg.h"
#include "ledger/region.h"
#include "policy/refusal.h"

namespace sluice::extension {

// Brings backend.identity, tenant and terms up to date. Reads the catalogue and may raise; cheap when nothing changed.
void refresh_standing();

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
