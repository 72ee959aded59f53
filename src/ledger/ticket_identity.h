// Ticket ids that callers choose themselves, to be known again over retries (A7, A17). An id is bound to the login role
// that used it: the same id of another role is somebody else's. Two indexes keep the look-up cheap: one over the live
// tickets with such an id, one over their receipts, which holds the newest receipt of each id. Everything here needs
// the lock.
#pragma once

#include <cstdint>

#include "ledger/admission.h"
#include "ledger/region.h"

namespace sluice::ledger {

// What is known of an id: ok, go on, with the age of the first request that was turned away (0: none); or
// duplicate_ticket, because a request with this id is alive or has run.
struct Known {
  Status status;
  std::int64_t queued_us;
};

// For a request with an owner, which `ticket` is about to become. Receipts older than the policy's leaseMs count no
// more.
[[nodiscard]] Known recognize(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket,
                              const TicketRequest& request) noexcept;

// The request that a duplicate repeats: its state, and when it ended (0: it has not). TicketState::none: there is none.
struct Original {
  TicketState state;
  std::int64_t ended_us;
};

[[nodiscard]] Original original_of(const Ledger& ledger, const Shared& lock, std::uint32_t ticket,
                                   const TicketRequest& request) noexcept;

// A ticket with an owner has been queued or granted / has ended. Without an owner both do nothing; forgetting twice is
// harmless.
void remember_id(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket) noexcept;
void forget_id(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket) noexcept;

// The receipt at this place of the ring is about to be overwritten / has been written. Receipts without an owner are in
// no index. For journal.cc.
void drop_receipt(const Ledger& ledger, const Exclusive& lock, std::uint32_t receipt) noexcept;
void index_receipt(const Ledger& ledger, const Exclusive& lock, std::uint32_t receipt) noexcept;

// The newest receipt of this owner's id, whatever its age, or nullptr.
[[nodiscard]] const Receipt* newest_receipt(const Ledger& ledger, const Shared& lock, std::uint32_t owner,
                                            const Uuid& id) noexcept;

// For the audit, which asks the indexes what the records say themselves. Does the live ticket belong into its index?
[[nodiscard]] bool is_named_request(const Ticket& ticket) noexcept;

// How many tickets the index of live ones leads to, and how many receipts theirs knows: in it themselves, or by a newer
// one of the same id. -1: a chain is endless, or leads to a record that does not belong there.
[[nodiscard]] std::int64_t count_indexed_tickets(const Ledger& ledger, const Shared& lock) noexcept;
[[nodiscard]] std::int64_t count_indexed_receipts(const Ledger& ledger, const Shared& lock) noexcept;

}  // namespace sluice::ledger
