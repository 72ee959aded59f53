// The traffic that the properties of the fair queue are judged on. Unit tests and the simulator run the same plans.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/traffic.h"

namespace sluice::sim {

// A tenant whose clients always wait or hold.
[[nodiscard]] TenantPlan backlogged(std::uint32_t weight, std::uint32_t clients, Hold hold);

// These tenants on one class, nothing else.
[[nodiscard]] Plan one_class(std::uint32_t permits, std::uint32_t aging_ms, std::vector<TenantPlan> tenants);

// Random rows, weights, limits, holds, arrivals, cancellations, deadlines and retries on one class; with lending also a
// second and a third class that borrow from each other.
[[nodiscard]] Plan random_plan(std::uint64_t seed, bool lending);

// What many random plans came to. failure: the first thing that did not hold, with the seed of its plan.
struct Sweep {
  std::uint64_t plans = 0, events = 0, audits = 0, granted = 0, cancelled = 0, expired = 0, full = 0, pushed_out = 0,
                unreachable = 0, borrowed = 0, recalled = 0;
  Verdict difference, hunger;
  std::string failure;
};
[[nodiscard]] Sweep sweep(std::uint64_t first_seed, std::uint32_t plans, bool lending);

// Eight rows of weights 1 to 8 that always wait, with holds of 2 ms, exponential 50 ms and Pareto to 30 s.
[[nodiscard]] Plan backlogged_plan(std::uint64_t seed, std::uint32_t permits, std::int64_t duration_us);

// The same with one tenant that alternates 2 ms and 5 s, to fool whoever estimates.
[[nodiscard]] Plan attack_plan(std::uint64_t seed, std::uint32_t permits, std::int64_t duration_us);

// Ten tenants with a deadline of one second whose arrivals come to `load` times what the permits can serve, and a light
// one of a few requests each second.
[[nodiscard]] Plan overload_plan(std::uint64_t seed, double load, std::int64_t duration_us);

// Class 0 asks for two seconds and is silent for two; class 1 always has 5 s tickets and borrows from it.
enum class Recall : std::uint8_t { none, mark, cancel };  // none: nothing is lent
[[nodiscard]] Plan lending_plan(std::uint64_t seed, Recall recall, std::int64_t duration_us);

// A thousand tenants on 130 permits for ten minutes: light ones, floods, long transactions, cancellations, bursts.
[[nodiscard]] Plan thousand_plan(std::uint64_t seed);

}  // namespace sluice::sim
