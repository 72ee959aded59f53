#include "sim/report.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "sim/scenarios.h"

namespace sluice::sim {

namespace {

bool say(bool held, const std::string& what) {
  std::printf("%s - %s\n", held ? "ok" : "not ok", what.c_str());
  return held;
}

void add_waits(std::vector<float>& all, const Fate& fate) {
  all.insert(all.end(), fate.waits_ms.begin(), fate.waits_ms.end());
}

struct Group {
  std::uint32_t tenants = 0;
  std::uint64_t granted = 0, ended = 0;  // ended: refused, pushed out, expired or given up
  std::vector<float> waits_ms, shares_s;
};

void print_group(const std::string& kind, std::uint32_t weight, const Group& group) {
  std::printf("#   %-10s %6u %8u %9" PRIu64 " %8" PRIu64 "   %8.2f %8.2f %8.2f   %8.0f %8.0f %8.0f %8.0f\n",
              kind.c_str(), weight, group.tenants, group.granted, group.ended, percentile(group.shares_s, 0),
              percentile(group.shares_s, 0.5), percentile(group.shares_s, 1), percentile(group.waits_ms, 0.5),
              percentile(group.waits_ms, 0.95), percentile(group.waits_ms, 0.99), percentile(group.waits_ms, 1));
}

void print_tenants(const Plan& plan, const Traffic& traffic) {
  std::map<std::pair<std::string, std::uint32_t>, Group> groups;
  for (std::uint32_t i = 0; i < plan.tenants.size(); i++) {
    const TenantPlan& tenant = plan.tenants[i];
    const Fate& fate = traffic.fate(i);
    Group& group = groups[{tenant.kind, tenant.weight}];
    group.tenants++;
    group.granted += fate.granted;
    group.ended += fate.full + fate.pushed_out + fate.unreachable + fate.expired + fate.cancelled;
    group.shares_s.push_back(static_cast<float>(traffic.service_us(i) / 1e6 / tenant.weight));
    add_waits(group.waits_ms, fate);
  }
  std::printf("#   %-10s %6s %8s %9s %8s   %26s   %35s\n", "", "", "", "", "", "permit-seconds per weight", "wait, ms");
  std::printf("#   %-10s %6s %8s %9s %8s   %8s %8s %8s   %8s %8s %8s %8s\n", "kind", "weight", "tenants", "granted",
              "ended", "least", "median", "most", "p50", "p95", "p99", "max");
  for (const auto& [key, group] : groups) print_group(key.first, key.second, group);
}

// The tenants whose worst percentile is worst.
void print_longest_waits(const Plan& plan, const Traffic& traffic) {
  std::vector<std::pair<double, std::uint32_t>> worst;
  for (std::uint32_t i = 0; i < plan.tenants.size(); i++)
    worst.push_back({percentile(traffic.fate(i).waits_ms, 0.99), i});
  std::sort(worst.rbegin(), worst.rend());
  std::printf("#   longest p99: ");
  for (std::size_t i = 0; i < 6; i++) {
    std::printf("%s%s%u %.0f ms", i == 0 ? "" : ", ", plan.tenants[worst[i].second].kind, worst[i].second,
                worst[i].first);
  }
  std::printf("\n");
}

}  // namespace

bool report_properties(std::uint64_t seed, std::uint32_t plans) {
  bool ok = true;
  for (const bool lending : {false, true}) {
    const Sweep sum = sweep(seed * 1000, plans, lending);
    const std::string which = lending ? " with lending" : "";
    std::printf("# %" PRIu64 " random plans%s from seed %" PRIu64 ": %" PRIu64 " events, %" PRIu64 " granted, %" PRIu64
                " cancelled, %" PRIu64 " expired, %" PRIu64 " refused, %" PRIu64 " rejected early, %" PRIu64
                " pushed out, %" PRIu64 " borrowed, %" PRIu64 " recalled\n",
                sum.plans, which.c_str(), seed * 1000, sum.events, sum.granted, sum.cancelled, sum.expired, sum.full,
                sum.unreachable, sum.pushed_out, sum.borrowed, sum.recalled);
    std::printf("#   difference at most %.2f of its bound (%s)", sum.difference.ratio, sum.difference.where.c_str());
    if (!lending) std::printf(", hunger at most %.2f of its bound (%s)", sum.hunger.ratio, sum.hunger.where.c_str());
    std::printf("\n");
    ok = say(sum.failure.empty(), "every random plan conserves, hands over and keeps order" + which +
                                      (sum.failure.empty() ? "" : ": " + sum.failure)) &&
         ok;
    ok = say(sum.difference.ratio <= 1, "rows that wait together are served alike within the bound" + which) && ok;
    if (!lending) ok = say(sum.hunger.ratio <= 1, "a row that holds nothing waits no longer than the bound") && ok;
    const bool met = plans < 100 || (sum.cancelled > 0 && sum.expired > 0 && sum.full > 0 && sum.pushed_out > 0 &&
                                     sum.unreachable > 0 && (!lending || (sum.borrowed > 0 && sum.recalled > 0)));
    ok = say(met, "random plans met every kind of end" + which) && ok;
  }
  return ok;
}

bool report_shares(std::uint64_t seed) {
  bool ok = true;
  std::printf("# eight rows of weights 1 to 8 that always wait, seed %" PRIu64 ": D is in permit-seconds per weight\n",
              seed);
  for (const std::uint32_t permits : {1U, 4U, 20U}) {
    for (const bool attacked : {false, true}) {
      const Plan plan =
          attacked ? attack_plan(seed, permits, 600 * kSecond) : backlogged_plan(seed, permits, 600 * kSecond);
      Traffic traffic(plan);
      ok = traffic.run() && ok;
      const Verdict difference = traffic.book().service_difference();
      std::printf("#   P %3u %-16s D %7.3f, %.2f of its bound, Jain %.4f\n", permits, attacked ? "estimate attack" : "",
                  traffic.book().spread_us() / 1e6, difference.ratio, traffic.jain());
      if (difference.ratio > 1) ok = false;
    }
  }
  return say(ok, "saturated rows share by weight, seed " + std::to_string(seed));
}

bool report_lending() {
  std::printf("# a lender that asks for 2 s in 4 beside batch tickets of 5 s (ten minutes)\n");
  bool ok = true;
  for (const Recall recall : {Recall::none, Recall::mark, Recall::cancel}) {
    const Plan plan = lending_plan(1, recall, 600 * kSecond);
    Traffic traffic(plan);
    ok = traffic.run() && ok;
    const char* names[] = {"nothing lent", "mark", "cancel at ttl"};
    std::printf(
        "#   %-13s lender waits p50 %.0f p95 %.0f p99 %.0f max %.0f ms, batch served %.0f permit-s, borrowed %" PRIu64
        ", recalled %" PRIu64 ", longest recall %.0f ms\n",
        names[static_cast<int>(recall)], percentile(traffic.fate(0).waits_ms, 0.5),
        percentile(traffic.fate(0).waits_ms, 0.95), percentile(traffic.fate(0).waits_ms, 0.99),
        percentile(traffic.fate(0).waits_ms, 1), traffic.service_us(1) / 1e6, traffic.borrowed_grants(),
        traffic.fate(1).recalled, static_cast<double>(traffic.longest_recall_us(0)) / 1000);
    if (!traffic.failure().empty()) std::printf("# %s\n", traffic.failure().c_str());
  }
  return say(ok, "a lender has its permits back");
}

bool report_overload() {
  std::printf("# arrivals above what the permits can serve, deadline 1 s, two minutes\n");
  bool ok = true;
  for (const double load : {0.9, 1.5, 3.0}) {
    const Plan plan = overload_plan(1, load, 120 * kSecond);
    Traffic traffic(plan);
    ok = traffic.run() && ok;
    std::uint64_t asked = 0, expired = 0, unreachable = 0, granted = 0;
    for (std::uint32_t i = 0; i < 10; i++) {
      asked += traffic.fate(i).asked;
      expired += traffic.fate(i).expired;
      unreachable += traffic.fate(i).unreachable;
      granted += traffic.fate(i).granted;
    }
    std::printf(
        "#   load %.1f: %.1f %% served, %.1f %% rejected early, %.1f %% expired in the queue; light tenant: %" PRIu64
        " of %" PRIu64 " rejected early\n",
        load, 100.0 * static_cast<double>(granted) / static_cast<double>(asked),
        100.0 * static_cast<double>(unreachable) / static_cast<double>(asked),
        100.0 * static_cast<double>(expired) / static_cast<double>(asked), traffic.fate(10).unreachable,
        traffic.fate(10).asked);
    if (!traffic.failure().empty()) std::printf("# %s\n", traffic.failure().c_str());
  }
  return say(ok, "overload is refused early");
}

bool report_thousand_tenants() {
  const Plan plan = thousand_plan(1);
  Traffic traffic(plan);
  const bool ran = traffic.run();
  std::printf("# 1,000 tenants on %u permits over ten minutes: %" PRIu64 " events\n", plan.classes[0].permits,
              traffic.events());
  print_tenants(plan, traffic);
  print_longest_waits(plan, traffic);
  std::vector<double> shares;
  for (std::uint32_t i = 0; i < plan.tenants.size(); i++) {
    if (plan.tenants[i].think_us == 0) shares.push_back(traffic.service_us(i) / plan.tenants[i].weight);
  }
  const Verdict hunger = traffic.book().longest_hunger();
  std::printf("#   Jain's index of the %zu that always wait: %.4f; hunger at most %.2f of its bound\n", shares.size(),
              jain_index(shares), hunger.ratio);
  if (!ran) std::printf("# %s\n", traffic.failure().c_str());
  return say(ran && hunger.ratio <= 1, "1,000 tenants over ten minutes: every invariant held");
}

}  // namespace sluice::sim
