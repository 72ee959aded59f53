// The command's arguments: which subcommand, with which options, and its exit status.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace sluice::cli {

inline constexpr int kExitDone = 0;
inline constexpr int kExitRefused = 1;
inline constexpr int kExitUsage = 2;

// Runs the command with these arguments (without the program's name) and returns its exit status. Never throws for what
// a user can cause.
[[nodiscard]] int run_command(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);

}  // namespace sluice::cli
