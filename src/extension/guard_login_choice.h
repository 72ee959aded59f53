// Which logins in progress to end when there is no room: of the source with most of them first, oldest first. Pure, so
// that the choice can be tested without a server.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sluice::extension {

// Where a login comes from: an IPv4 address (as ::ffff:a.b.c.d) or the first half of an IPv6 one, because a single host
// owns that many. All zero: a Unix socket, or not to be found out.
struct Source {
  std::uint32_t words[4];

  friend bool operator==(const Source&, const Source&) = default;
  friend auto operator<=>(const Source&, const Source&) = default;
};

struct LoginInProgress {
  int pid;
  int slot;  // PGPROC index, -1 without one
  std::int64_t since_us;
  Source source;
  bool ending;  // was signalled already and is on its way out
};

// Puts the logins to end in front and returns how many these are, at most `wanted`. A login on its way out counts for
// its source but is not chosen again. The choice stops where the next in turn is younger than min_age_us: a smaller
// source is not hit for the haste of a bigger one.
inline int choose_logins(LoginInProgress* logins, int count, int wanted, std::int64_t now, std::int64_t min_age_us) {
  std::sort(logins, logins + count, [](const LoginInProgress& a, const LoginInProgress& b) {
    if (a.source != b.source) return a.source < b.source;
    return a.since_us != b.since_us ? a.since_us < b.since_us : a.pid < b.pid;
  });
  int chosen = 0;
  while (chosen < wanted) {
    int best = -1;
    int best_size = 0;
    // Chosen ones stand in front; behind them every source is one run, oldest first.
    for (int begin = chosen; begin < count;) {
      int end = begin;
      int first = -1;
      for (; end < count && logins[end].source == logins[begin].source; ++end) {
        if (first < 0 && !logins[end].ending) first = end;
      }
      const int size = end - begin;
      if (first >= 0 && (size > best_size || (size == best_size && logins[first].since_us < logins[best].since_us))) {
        best = first;
        best_size = size;
      }
      begin = end;
    }
    if (best < 0 || now - logins[best].since_us < min_age_us) break;
    std::rotate(logins + chosen, logins + best, logins + best + 1);
    ++chosen;
  }
  return chosen;
}

}  // namespace sluice::extension
