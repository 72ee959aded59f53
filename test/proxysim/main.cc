// sluice-pool-sim [--seed N] [--steps N]: a seed replays its run exactly. Without a seed three runs with fixed seeds.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "proxysim/tenants.h"
#include "proxysim/world.h"

namespace {

using sluice::proxy::CloseReason;
using sluice::proxy::RefuseReason;
using sluice::proxysim::Tally;

constexpr std::uint64_t kStepsThatMeetEverything = 100000;

template <typename Key>
std::uint64_t of(const std::map<Key, std::uint64_t>& counts, Key key) {
  const auto found = counts.find(key);
  return found == counts.end() ? 0 : found->second;
}

bool met_everything(const Tally& t) {
  for (const RefuseReason reason :
       {RefuseReason::wait_timeout, RefuseReason::too_many_waiters, RefuseReason::connect_failed}) {
    if (of(t.refused, reason) == 0) return false;
  }
  for (int reason = 0; reason <= static_cast<int>(CloseReason::connect_timeout); reason++) {
    if (of(t.closed, static_cast<CloseReason>(reason)) == 0) return false;
  }
  return t.assigned_idle > 0 && t.assigned_released > 0 && t.assigned_opened > 0 && t.failures > 0 && t.kills > 0 &&
         t.left > 0 && t.pinned > 0 && t.reloads > 0 && t.gates > 0 && t.stale_reports > 0 && t.forgotten > 0 &&
         t.sets_refused > 0;
}

void print(const Tally& t) {
  std::printf("#   assigned: idle %" PRIu64 ", released %" PRIu64 ", opened %" PRIu64 "; opens %" PRIu64
              ", failures %" PRIu64 ", kills %" PRIu64 ", left %" PRIu64 "\n",
              t.assigned_idle, t.assigned_released, t.assigned_opened, t.opens, t.failures, t.kills, t.left);
  std::printf("#   pinned %" PRIu64 ", reloads %" PRIu64 ", gates %" PRIu64 ", stale reports %" PRIu64
              ", pools forgotten %" PRIu64 ", sets refused %" PRIu64 ", refused",
              t.pinned, t.reloads, t.gates, t.stale_reports, t.forgotten, t.sets_refused);
  for (const auto& [reason, count] : t.refused) std::printf(" %d:%" PRIu64, static_cast<int>(reason), count);
  std::printf(", closed");
  for (const auto& [reason, count] : t.closed) std::printf(" %d:%" PRIu64, static_cast<int>(reason), count);
  std::printf(", digest %016" PRIx64 "\n", t.digest);
}

bool run(std::uint64_t seed, std::uint64_t steps) {
  sluice::proxysim::World world(seed);
  for (std::uint64_t step = 1; step <= steps; step++) {
    const std::string failure = world.step();
    if (failure.empty()) continue;
    std::printf("not ok - pool simulation seed %" PRIu64 " step %" PRIu64 ": %s\n", seed, step, failure.c_str());
    return false;
  }
  const std::string left = world.drain();
  if (!left.empty()) {
    std::printf("not ok - pool simulation seed %" PRIu64 " drained after step %" PRIu64 ": %s\n", seed, steps,
                left.c_str());
    return false;
  }
  const Tally& tally = world.tally();
  std::printf("ok - pool simulation seed %" PRIu64 ", %" PRIu64 " steps, %" PRIu64 " audits without a discrepancy\n",
              seed, tally.steps, tally.audits);
  print(tally);
  if (steps < kStepsThatMeetEverything) return true;
  const bool met = met_everything(tally);
  std::printf("%s - pool simulation seed %" PRIu64 " met every kind of fault\n", met ? "ok" : "not ok", seed);
  return met;
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t seed = 0;
  std::uint64_t steps = kStepsThatMeetEverything;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--seed") == 0) seed = value;
    if (std::strcmp(argv[i], "--steps") == 0) steps = value;
  }
  bool ok = true;
  for (const std::uint64_t one : {std::uint64_t{1}, std::uint64_t{20261201}, std::uint64_t{4343}}) {
    if (seed != 0 && one != 1) break;
    const std::uint64_t chosen = seed != 0 ? seed : one;
    ok = run(chosen, steps) && ok;
  }
  if (steps >= kStepsThatMeetEverything) ok = sluice::proxysim::report_thousand_tenants(seed == 0 ? 1 : seed) && ok;
  return ok ? 0 : 1;
}
