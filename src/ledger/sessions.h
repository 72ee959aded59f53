// Session permits: one record a PGPROC index. Everything here runs under the lock; logins are rare and heavy anyway.
#pragma once

#include <cstdint>

#include "ledger/admission.h"
#include "ledger/region.h"
#include "policy/decisions.h"
#include "policy/rule.h"

namespace sluice::ledger {

using policy::Outcome;

struct SessionRequest {
  std::uint32_t slot;
  std::uint32_t pid;
  std::int64_t backend_start_us;
  SessionKind kind;
  const policy::Identity* identity;
  const char* role;
  const char* database;
  bool enforce;                     // false: shadow, admit and count what would have happened
  bool over_unix_socket;            // a superuser there is always admitted
  std::uint32_t physical_free;      // PGPROC slots free after this session's own
  std::uint32_t physical_reserved;  // slots that PostgreSQL's own check keeps from non-superusers
  std::int64_t now_us;
};

// Takes one session permit and opens the record CONNECTING, or refuses. Rules: an ordinary session needs
// ordinary_sessions + guarantees unclaimed by others < serverSessionPermits, its tenant, database and role below their
// caps, and its role not above its rate; an admin role needs its own unclaimed guarantee or admin_sessions + other
// admin roles' unclaimed guarantees < adminReserve; a superuser is refused only when the free slots are needed for the
// unclaimed guarantees of named admin roles (case A1). Walsenders are recorded, never counted.
[[nodiscard]] Outcome open_session(const Ledger& ledger, const Exclusive& lock, const SessionRequest& request) noexcept;

// CONNECTING -> OPEN_IDLE.
[[nodiscard]] Status session_ready(const Ledger& ledger, std::uint32_t slot) noexcept;

// Lock-free, owner only. false: somebody has moved the session to CLOSING (evicted): raise 57P01 before anything runs.
[[nodiscard]] bool session_busy(const Ledger& ledger, std::uint32_t slot) noexcept;
void session_idle(const Ledger& ledger, std::uint32_t slot, std::int64_t now_us) noexcept;

// Returns the permit exactly once; a second call changes nothing and answers ok (A9). A live ticket of the slot is an
// illegal_transition.
[[nodiscard]] Status close_session(const Ledger& ledger, const Exclusive& lock, std::uint32_t slot,
                                   std::int64_t now_us) noexcept;

// Guard, on proof that the process is gone: ends a queued or held ticket, closes the session, counts a reclaim (each
// one is a bug).

[[nodiscard]] Status reclaim_session(const Ledger& ledger, const Exclusive& lock, std::uint32_t slot,
                                     std::int64_t now_us, Wakes& wakes) noexcept;

// Marks a session whose end nobody can prove; it goes on consuming its permit (A10).
[[nodiscard]] Status session_unknown(const Ledger& ledger, const Exclusive& lock, std::uint32_t slot) noexcept;

// Re-evaluation after a policy change: moves the session (no live ticket) to its new tenant, class and caps without
// refusing it.
[[nodiscard]] Status reassign_session(const Ledger& ledger, const Exclusive& lock, std::uint32_t slot,
                                      const policy::Identity& identity, std::int64_t now_us) noexcept;

}  // namespace sluice::ledger
