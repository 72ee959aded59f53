// The second books of the stress program: holders counted by themselves.
#pragma once

#include <atomic>
#include <cstdint>

namespace sluice::ledger {

// A limit and those who hold under it, counted by their owners: after they have taken, before they release, so that the
// count never exceeds what the ledger has given out. The version moves with the limit; who saw it move compares with
// the highest limit only.
struct Watched {
  std::atomic<std::uint32_t> version{0};
  std::atomic<std::uint32_t> limit{0};
  std::atomic<std::uint32_t> holders{0};

  bool enter(std::uint32_t highest) {
    const std::uint32_t before = version.load();
    const std::uint32_t now = limit.load();
    const std::uint32_t count = holders.fetch_add(1) + 1;
    return count <= (version.load() == before ? now : highest);
  }
  void leave() { holders.fetch_sub(1); }
  void set(std::uint32_t value) {
    version.fetch_add(1);
    limit.store(value);
    version.fetch_add(1);
  }
};

}  // namespace sluice::ledger
