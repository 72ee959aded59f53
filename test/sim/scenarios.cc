#include "sim/scenarios.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sluice::sim {

namespace {

// Draws that come out the same with every standard library.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  std::uint32_t below(std::uint32_t count) { return static_cast<std::uint32_t>(random_() % count); }
  bool one_in(std::uint32_t count) { return below(count) == 0; }
  std::int64_t logarithmic(double least, double most) {
    const double part = static_cast<double>(random_() >> 11) * 0x1.0p-53;
    return static_cast<std::int64_t>(least * std::pow(most / least, part));
  }

 private:
  std::mt19937_64 random_;
};

Hold random_hold(Dice& dice) {
  switch (dice.below(5)) {
    case 0:
      return fixed_hold(dice.logarithmic(2 * kMs, 2 * kSecond));
    case 1:
      return exponential_hold(dice.logarithmic(2 * kMs, 200 * kMs));
    case 2:
      return pareto_hold(dice.logarithmic(2 * kMs, 20 * kMs), 30 * kSecond);
    case 3:
      return alternating_hold(2 * kMs, dice.logarithmic(100 * kMs, 5 * kSecond));
    default:
      return fixed_hold(2 * kMs);
  }
}

TenantPlan random_tenant(Dice& dice) {
  TenantPlan tenant;
  tenant.weight = 1 + dice.below(10);
  if (dice.one_in(4)) tenant.limit = 1 + dice.below(12);
  tenant.clients = 1 + dice.below(dice.one_in(3) ? 60 : 12);
  tenant.hold = random_hold(dice);
  if (dice.one_in(3)) tenant.think_us = dice.logarithmic(5 * kMs, 2 * kSecond);
  if (dice.one_in(4)) {
    tenant.on_us = dice.logarithmic(50 * kMs, 5 * kSecond);
    tenant.off_us = dice.logarithmic(50 * kMs, 5 * kSecond);
  }
  tenant.start_us = dice.one_in(2) ? 0 : dice.logarithmic(kMs, 10 * kSecond);
  if (dice.one_in(3)) tenant.deadline_us = dice.logarithmic(100 * kMs, 20 * kSecond);
  if (dice.one_in(3)) {
    tenant.cancelled = 0.1 * (1 + dice.below(9));
    tenant.cancelled_within_us = dice.logarithmic(kMs, 5 * kSecond);
  }
  tenant.retries = dice.one_in(3);
  if (dice.one_in(4)) tenant.owner = 1 + dice.below(3);
  return tenant;
}

void add_to(Sweep& sum, const Plan& plan, const Traffic& traffic) {
  sum.plans++;
  sum.events += traffic.events();
  sum.audits += traffic.audits();
  sum.borrowed += traffic.borrowed_grants();
  for (std::uint32_t i = 0; i < plan.tenants.size(); i++) {
    const Fate& fate = traffic.fate(i);
    sum.granted += fate.granted;
    sum.cancelled += fate.cancelled;
    sum.expired += fate.expired;
    sum.full += fate.full;
    sum.pushed_out += fate.pushed_out;
    sum.unreachable += fate.unreachable;
    sum.recalled += fate.recalled;
  }
}

}  // namespace

TenantPlan backlogged(std::uint32_t weight, std::uint32_t clients, Hold hold) {
  TenantPlan tenant;
  tenant.weight = weight;
  tenant.clients = clients;
  tenant.hold = hold;
  return tenant;
}

Plan one_class(std::uint32_t permits, std::uint32_t aging_ms, std::vector<TenantPlan> tenants) {
  Plan plan;
  ClassPlan klass;
  klass.permits = permits;
  klass.aging_ms = aging_ms;
  plan.classes.push_back(klass);
  plan.tenants = std::move(tenants);
  return plan;
}

Plan random_plan(std::uint64_t seed, bool lending) {
  Dice dice(seed * 2654435761U + 17);
  Plan plan;
  plan.seed = seed;
  plan.most_events = 12'000;
  plan.duration_us = 120 * kSecond;
  plan.audit_every = 16;
  const std::uint32_t classes = lending ? 3 : 1;
  for (std::uint32_t klass = 0; klass < classes; klass++) {
    ClassPlan one;
    one.permits = static_cast<std::uint32_t>(dice.logarithmic(1, lending ? 12.99 : 40.99));
    one.aging_ms = static_cast<std::uint32_t>(dice.logarithmic(10, 15'000));
    if (dice.one_in(3)) one.max_queue = 2 + dice.below(60);
    if (lending && !dice.one_in(4)) {
      one.borrow_from = (1 + dice.below(7)) & ~(1U << klass);
      one.borrow_max = 1 + dice.below(10);
      one.borrow_ttl_ms = static_cast<std::uint32_t>(dice.logarithmic(50, 5000));
      one.cancels_borrowed = dice.one_in(2);
    }
    plan.classes.push_back(one);
    const std::uint32_t tenants = 2 + dice.below(lending ? 4 : 9);
    for (std::uint32_t i = 0; i < tenants; i++) {
      plan.tenants.push_back(random_tenant(dice));
      plan.tenants.back().klass = klass;
    }
  }
  return plan;
}

Sweep sweep(std::uint64_t first_seed, std::uint32_t plans, bool lending) {
  Sweep sum;
  for (std::uint64_t seed = first_seed; seed < first_seed + plans && sum.failure.empty(); seed++) {
    const Plan plan = random_plan(seed, lending);
    Traffic traffic(plan);
    const std::string which = "plan " + std::to_string(seed);
    if (!traffic.run()) sum.failure = which + ": " + traffic.failure();
    add_to(sum, plan, traffic);
    for (std::uint32_t klass = 0; klass < plan.classes.size(); klass++) {
      const Verdict difference = traffic.book(klass).service_difference();
      sum.difference.judge(difference.value, difference.bound, which + ", " + difference.where);
      // A lender's permits are not all there while they are lent.
      if (lending) continue;
      const Verdict hunger = traffic.book(klass).longest_hunger();
      sum.hunger.judge(hunger.value, hunger.bound, which + ", " + hunger.where);
    }
  }
  return sum;
}

Plan backlogged_plan(std::uint64_t seed, std::uint32_t permits, std::int64_t duration_us) {
  Plan plan;
  plan.seed = seed;
  plan.duration_us = duration_us;
  plan.audit_every = 0;
  ClassPlan one;
  one.permits = permits;
  one.aging_ms = 500;
  plan.classes.push_back(one);
  const Hold holds[] = {fixed_hold(2 * kMs), exponential_hold(50 * kMs), pareto_hold(5 * kMs, 30 * kSecond)};
  for (std::uint32_t weight = 1; weight <= 8; weight++) {
    plan.tenants.push_back(backlogged(weight, permits + 8, holds[weight % 3]));
    // Whoever comes first takes every permit while nobody competes; let that be a row of short ones.
    if (weight % 3 != 0) plan.tenants.back().start_us = 100 * kMs;
  }
  return plan;
}

Plan attack_plan(std::uint64_t seed, std::uint32_t permits, std::int64_t duration_us) {
  Plan plan = backlogged_plan(seed, permits, duration_us);
  for (TenantPlan& tenant : plan.tenants) {
    if (tenant.hold.kind == Hold::Kind::pareto) tenant.hold = exponential_hold(50 * kMs);
  }
  plan.tenants[0].hold = alternating_hold(2 * kMs, 5 * kSecond);
  return plan;
}

Plan overload_plan(std::uint64_t seed, double load, std::int64_t duration_us) {
  Plan plan;
  plan.seed = seed;
  plan.duration_us = duration_us;
  plan.audit_every = 0;
  plan.compare_pairs = false;
  ClassPlan one;
  one.permits = 20;
  plan.classes.push_back(one);
  constexpr double kMeanHoldS = 0.05;
  for (std::uint32_t i = 0; i < 10; i++) {
    TenantPlan tenant = backlogged(1, 3000, exponential_hold(static_cast<std::int64_t>(kMeanHoldS * 1e6)));
    tenant.arrivals_per_s = load * one.permits / kMeanHoldS / 10;
    tenant.deadline_us = kSecond;
    plan.tenants.push_back(tenant);
  }
  TenantPlan light = backlogged(1, 200, exponential_hold(20 * kMs));
  light.arrivals_per_s = 5;
  light.deadline_us = kSecond;
  plan.tenants.push_back(light);
  return plan;
}

Plan lending_plan(std::uint64_t seed, Recall recall, std::int64_t duration_us) {
  Plan plan;
  plan.seed = seed;
  plan.duration_us = duration_us;
  plan.audit_every = 64;
  plan.compare_pairs = false;
  ClassPlan online;
  online.permits = 20;
  ClassPlan batch;
  batch.permits = 10;
  if (recall != Recall::none) {
    batch.borrow_from = 1;
    batch.borrow_max = 15;
    batch.borrow_ttl_ms = 1000;
    batch.cancels_borrowed = recall == Recall::cancel;
  }
  plan.classes = {online, batch};
  TenantPlan web = backlogged(1, 40, exponential_hold(20 * kMs));
  web.think_us = 25 * kMs;
  web.on_us = web.off_us = 2 * kSecond;
  TenantPlan jobs = backlogged(1, 40, fixed_hold(5 * kSecond));
  jobs.klass = 1;
  plan.tenants = {web, jobs};
  return plan;
}

Plan thousand_plan(std::uint64_t seed) {
  Plan plan;
  plan.seed = seed;
  plan.duration_us = 600 * kSecond;
  plan.audit_every = 20'000;
  plan.compare_pairs = false;
  ClassPlan one;
  one.permits = 130;
  one.max_queue = 8000;
  plan.classes.push_back(one);
  Dice dice(seed + 99);
  for (std::uint32_t i = 0; i < 1000; i++) {
    TenantPlan tenant = backlogged(1 + i % 4, 2, exponential_hold(40 * kMs));
    tenant.kind = "light";
    tenant.think_us = 2 * kSecond;
    tenant.deadline_us = 30 * kSecond;
    tenant.cancelled = 0.02;
    tenant.start_us = dice.logarithmic(kMs, kSecond);
    if (i % 50 == 0) {  // twenty floods of sleeping transactions
      tenant.kind = "flood";
      tenant.clients = 100;
      tenant.think_us = 0;
      tenant.hold = fixed_hold(kSecond);
    } else if (i % 50 == 25) {  // twenty tenants with transactions of up to 30 s
      tenant.kind = "long";
      tenant.clients = 6;
      tenant.think_us = kSecond;
      tenant.hold = pareto_hold(100 * kMs, 30 * kSecond);
    } else if (i % 10 == 3) {  // a hundred that come in bursts
      tenant.kind = "burst";
      tenant.clients = 10;
      tenant.think_us = 200 * kMs;
      tenant.on_us = kSecond;
      tenant.off_us = 9 * kSecond;
    } else if (i % 10 == 7) {  // a hundred whose clients give up early
      tenant.kind = "impatient";
      tenant.clients = 4;
      tenant.cancelled = 0.5;
    } else if (i % 50 == 48) {  // twenty that always wait, with short ones
      tenant.kind = "short";
      tenant.clients = 20;
      tenant.think_us = 0;
      tenant.hold = fixed_hold(5 * kMs);
    }
    plan.tenants.push_back(tenant);
  }
  return plan;
}

}  // namespace sluice::sim
