// The proxy's one notion of time: microseconds of a monotonic clock, read by the loop once a turn and handed to every
// decision as `now`. Decisions have no clock of their own, so tests and the simulator make time pass as they like.
#pragma once

#include <cstdint>
#include <limits>

namespace sluice::proxy {

using Time = std::int64_t;

inline constexpr Time kMillisecond = 1000;
inline constexpr Time kSecond = 1000 * kMillisecond;
inline constexpr Time kNever = std::numeric_limits<Time>::max();

}  // namespace sluice::proxy
