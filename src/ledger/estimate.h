// How long a newcomer will wait. Used to refuse early what would miss its deadline anyway, and shown in views; it never
// decides who is served next.
#pragma once

#include <cstdint>

#include "ledger/region.h"

namespace sluice::ledger {

// What can be told: the virtual distance of the row's last ticket, at the rate of the active weights. -1: fewer than 8
// holds have been seen.
[[nodiscard]] std::int64_t expected_wait_us(const Ledger& ledger, const Shared& lock, std::uint32_t tenant,
                                            std::uint32_t klass, std::int64_t now_us) noexcept;

// The part of it that a request may be refused for: 0 while too little is known, and for a row that has nothing queued
// and nothing running. `has_slot`: one of the row's slots is the request's own already.
[[nodiscard]] std::int64_t least_wait_us(const Ledger& ledger, const Shared& lock, std::uint32_t tenant,
                                         std::uint32_t klass, bool has_slot, std::int64_t now_us) noexcept;

// The same for a ticket that waits, by those of its tenant that stand before it. -1: too little is known, or it does
// not wait.
[[nodiscard]] std::int64_t expected_wait_of(const Ledger& ledger, const Shared& lock, std::uint32_t ticket,
                                            std::int64_t now_us) noexcept;

// Position among the waiters of its class in service order as far as it can be told (1 = next); 0 when it does not
// wait.
[[nodiscard]] std::uint32_t queue_position(const Ledger& ledger, const Shared& lock, std::uint32_t ticket,
                                           std::int64_t now_us) noexcept;

}  // namespace sluice::ledger
