// Conservation by recomputation: every balance is recomputed from the records and each difference is named.
#pragma once

#include <cstdint>

#include "ledger/region.h"

namespace sluice::ledger {

enum class Balance : std::uint8_t {
  class_free,
  class_waiters,
  class_queued,
  class_order,
  row_in_use,
  row_parked,
  row_list,
  row_order,
  borrowing,
  ordinary_sessions,
  admin_sessions,
  admin_role_sessions,
  walsender_sessions,
  tenant_sessions,
  database_sessions,
  role_sessions,
  unclaimed_guarantees,
  overdraft,
  tenant_table,
  ticket_identity,   // live tickets of named requests that their index leads to; -1: it is broken
  receipt_identity,  // the same for the receipts of named requests
  ticket_state,
  session_state,
  queued_total,
  over_limit,
  in_transition,  // not a discrepancy: a lock-free step that did not finish within the bound
};

struct Discrepancy {
  Balance balance;
  std::uint32_t index, other;  // class/row/tenant/slot; other: the class of a row
  std::int64_t recorded, recomputed;
};

// How audit waits for an uncertain mark to clear: called between looks, returns false when the bound is used up.
// nullptr: do not wait.
using Pause = bool (*)(void* context) noexcept;

// Sets the gate of every class, waits for uncertain marks, recomputes, clears the gates. Returns the number of entries
// written. Entries of balance in_transition say which ticket kept the audit from being exact.
[[nodiscard]] std::uint32_t audit(const Ledger& ledger, const Exclusive& lock, Pause pause, void* context,
                                  Discrepancy* entries, std::uint32_t max_entries) noexcept;

[[nodiscard]] const char* balance_name(Balance balance) noexcept;

}  // namespace sluice::ledger
