// The second half of the login guard: connections that have sent nothing. They hold no PGPROC, only one of the
// postmaster's child slots, and enough of them keep everybody out. Linux only: elsewhere there is no way to tell such a
// process from any other.
#pragma once

#include <cstdint>

namespace sluice::extension {

// Ends as many as threaten the child slots; returns how many it ended.
int end_silent_sockets(std::int64_t now);

}  // namespace sluice::extension
