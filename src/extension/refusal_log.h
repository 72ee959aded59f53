// Keeps a storm of refusals from filling the server's log: of each kind a few lines a window are written, the others
// are counted, and the count is logged with the next line of that kind or, when none comes, by the guard.
#pragma once

#include <cstdint>

#include "policy/status.h"

namespace sluice::extension {

inline constexpr std::uint32_t kRefusalKinds = static_cast<std::uint32_t>(policy::Status::duplicate_ticket) + 1;

// One kind's window, shared by all backends (in SharedState). Lock-free; a lost race shifts a line between windows,
// and no count is lost.
struct RefusalLog {
  std::int64_t window_us;
  std::uint64_t left_out;
  std::uint32_t lines;
};

void install_log_throttle();

// From the guard: logs what was left out in windows that are over; with `all` in those that are not as well. Never
// raises.
void report_left_out(bool all);

}  // namespace sluice::extension
