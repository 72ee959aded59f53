// Who gives way when the queue of a class is full.
#pragma once

#include <cstdint>

#include "ledger/admission.h"
#include "ledger/region.h"

namespace sluice::ledger {

// Makes room for a ticket that has not been queued yet: the row with the most queued tickets per weight loses its
// youngest, if it still keeps at least as much per weight as the newcomer's row then has. Without that margin tenants
// with one ticket each push one another out for ever. Where the newcomer is older by our own receipts than that
// youngest ticket, the margin is not asked for. False: nobody has to give way.
[[nodiscard]] bool push_out(const Ledger& ledger, const Exclusive& lock, std::uint32_t newcomer, std::int64_t now_us,
                            Wakes& wakes) noexcept;

}  // namespace sluice::ledger
