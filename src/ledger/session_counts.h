// The balances that sessions enter. Internal to the ledger.
#pragma once

#include "ledger/atomics.h"
#include "ledger/region.h"

namespace sluice::ledger {

// Adds the session to every balance of its kind, or takes it out.
void count_session(const Ledger& ledger, const Exclusive& lock, const Session& session, bool enters) noexcept;

[[nodiscard]] inline SessionState session_state(const Session& session) noexcept {
  return static_cast<SessionState>(load(session.state));
}

[[nodiscard]] inline std::uint32_t unclaimed_of(const Tenant& tenant) noexcept {
  return tenant.sessions < tenant.guaranteed ? tenant.guaranteed - tenant.sessions : 0;
}

}  // namespace sluice::ledger
