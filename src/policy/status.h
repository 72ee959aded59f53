// What a core function answers instead of throwing. One value per outcome that a caller must be able to tell apart;
// src/extension/errors.cc and the proxy map each of them to SQLSTATE, message and hint by an exhaustive switch.
#pragma once

#include <cstdint>

namespace sluice::policy {

enum class Status : std::uint8_t {
  ok,         // done; for a ticket: granted
  queued,     // the ticket waits; not an error
  contended,  // the lock-free path cannot decide: take the lock and call the locked variant

  // Session refusals (53300).
  session_limit,           // serverSessionPermits are used up (guarantees of others included)
  tenant_session_limit,    // tenants.<pattern>.maxSessions
  role_session_limit,      // roleCaps.<role>.maxSessions
  role_connect_rate,       // roleCaps.<role>.connectsPerSecond
  database_session_limit,  // databaseCaps.<database>.maxSessions
  admin_reserve,           // adminReserve, or the slots named admin roles are guaranteed

  // Execution refusals (53000).
  queue_full,            // executionClasses.<class>.maxQueue
  deadline_unreachable,  // the remaining deadline is shorter than the expected wait
  pushed_out,            // displaced from a full queue by another tenant's ticket
  queue_deadline,        // the deadline passed while queued
  overdraft_exhausted,   // the ticket closed a lock cycle and no overdraft permit came back in time

  cancelled,         // cancelled while queued (57014)
  time_limit,        // executionClasses.<class>.transactionTimeLimitMs (57014, then 57P01)
  duplicate_ticket,  // a live ticket with this id exists

  // Faults. None of these may happen; each is counted, logged and answered by pg_sluice.on_fault.
  illegal_transition,  // the record is not in a state that allows this step
  not_found,           // no such session, ticket, class or tenant
  table_full,          // a fixed table has no free entry
  corrupt,             // a balance or an index is out of range
  layout_mismatch,     // the region was made by another build
};

[[nodiscard]] constexpr bool is_refusal(Status status) noexcept {
  return status >= Status::session_limit && status <= Status::duplicate_ticket;
}

[[nodiscard]] constexpr bool is_fault(Status status) noexcept { return status >= Status::illegal_transition; }

// The stable, lower-case name used for `reason=` in DETAIL, in views and in metrics.
[[nodiscard]] const char* status_name(Status status) noexcept;

}  // namespace sluice::policy
