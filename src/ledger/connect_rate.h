// How often a role may open a session (roleCaps.<role>.connectsPerSecond). A second's worth may come at once; then one
// at a time, as the second goes by. Only sessions that were opened count, so a storm of refused logins keeps nobody out
// for longer. One time a cap is all that is kept, by the generic cell rate algorithm (ITU-T I.371): when what was
// opened would have been opened at an even pace. Everything here needs the lock.
#pragma once

#include <cstdint>

#include "ledger/region.h"

namespace sluice::ledger {

// How many of the second's worth are used up at this moment, at most the limit; `cap` is an index into roleCaps.
[[nodiscard]] std::uint32_t recent_connects(const Ledger& ledger, const Shared& lock, std::uint16_t cap,
                                            std::int64_t now_us) noexcept;

// A session that falls under the cap has been opened (kNone: under none).
void note_connect(const Ledger& ledger, const Exclusive& lock, std::uint16_t cap, std::int64_t now_us) noexcept;

// The caps have changed their meaning: each begins with a second's worth.
void forget_connects(const Ledger& ledger, const Exclusive& lock) noexcept;

}  // namespace sluice::ledger
