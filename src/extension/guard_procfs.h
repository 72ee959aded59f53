// What the login guard reads about processes on Linux: children, age, command line, and from where a process is
// connected. Nothing here needs rights beyond those of the server's own user; what cannot be read is answered with "not
// known". All buffers are bounded.
#pragma once

#include <cstddef>
#include <cstdint>

#include "extension/guard_login_choice.h"

namespace sluice::extension {

struct ProcessFacts {
  int parent;
  bool sleeping;              // waits for something; false while it runs or waits for a processor
  std::uint64_t start_ticks;  // since boot; with the pid it identifies a process
  std::int64_t age_us;
};

// Fills `pids` with the children of `parent` (which must have one thread) and returns how many, or -1 where they cannot
// be listed.
[[nodiscard]] int list_children(int parent, int* pids, int max_pids);

[[nodiscard]] bool read_process(int pid, ProcessFacts& facts);

// True when both command lines can be read and are the same bytes.
[[nodiscard]] bool same_command_line(int pid, int other);

// Sets the source of each login whose TCP peer can be found. Reads the kernel's tables once for all.
void find_sources(LoginInProgress* logins, int count);

// SIGTERM through a pidfd, after `still_the_one` has confirmed what the pidfd refers to. False: not sent.
using Confirm = bool (*)(int pid, const void* context);
[[nodiscard]] bool terminate_confirmed(int pid, Confirm still_the_one, const void* context);

}  // namespace sluice::extension
