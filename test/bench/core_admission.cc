// The core alone: an uncontended take and release, two threads on one class, and queue + hand over with few and with
// many rows and tickets. Figures are read by test/bench/figures.py.
#include <benchmark/benchmark.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "unit/ledger_fixture.h"

namespace sluice::ledger {
namespace {

std::unique_ptr<test::TestLedger> make_ledger(std::uint32_t tickets, std::uint32_t tenants, std::uint32_t permits) {
  auto t = std::make_unique<test::TestLedger>(Sizes{tickets, 0, tenants + 1, 1, 0, 16, 16});
  policy::Policy policy = test::empty_policy();
  test::add_class(policy, "default", permits, policy::kNoLimit);
  test::add_tenant(policy, "*", 1, policy::kNoLimit);
  if (t->apply(policy) != Status::ok) std::abort();
  for (std::uint32_t i = 0; i < tenants; i++) (void)t->tenant(("tenant" + std::to_string(i)).c_str());
  return t;
}

std::unique_ptr<test::TestLedger> shared_ledger;

// The hot path as a backend runs it: two compare-and-sets in, two out. Each thread is a tenant of its own.
void core_take_release(benchmark::State& state) {
  if (state.thread_index() == 0) {
    shared_ledger = make_ledger(8, 8, 8);
    for (std::uint32_t i = 0; i < 8; i++) {
      (void)shared_ledger->begin(i, i + 1);
      (void)shared_ledger->finish(i);
    }
  }
  const auto ticket = static_cast<std::uint32_t>(state.thread_index());
  std::int64_t now = 1;
  for (auto _ : state) {
    const Ledger& ledger = shared_ledger->ledger;
    const TicketRequest request = {ticket + 1, 0, true, Uuid{}, now, now + 1000, 0};
    if (take(ledger, ticket, request) != Status::ok || release(ledger, ticket, ++now) != Status::ok) {
      state.SkipWithError("the hot path met somebody");
      break;
    }
  }
}
BENCHMARK(core_take_release);
BENCHMARK(core_take_release)->Threads(2)->UseRealTime();

// One iteration is an enqueue, a release, a pick and a grant: a ticket queues, and the holder releases to the waiter
// that is next by service. range: rows, each of which has a ticket that waits.
void core_handover(benchmark::State& state) {
  const auto count = static_cast<std::uint32_t>(state.range(0));
  const auto t = make_ledger(count + 1, count, 1);
  std::uint32_t holder = count;
  if (t->begin(holder, 1).status != Status::ok) return state.SkipWithError("the first ticket must hold");
  for (std::uint32_t i = 0; i + 1 < count; i++) {
    if (t->begin(i, i + 1).status != Status::queued) return state.SkipWithError("a ticket did not queue");
  }
  std::uint32_t next = count - 1;
  std::uint32_t tenant = count;
  std::int64_t now = 2'000'000;
  for (auto _ : state) {
    now++;
    const TicketRequest request = {tenant, 0, true, Uuid{}, now, now + 60'000'000, 0};
    Wakes wakes = {};
    if (take(t->ledger, next, request) != Status::contended ||
        take_or_queue(t->ledger, t->lock, next, request, wakes).status != Status::queued) {
      state.SkipWithError("a newcomer must queue");
      break;
    }
    if (release(t->ledger, holder, now) != Status::contended ||
        release_locked(t->ledger, t->lock, holder, now, wakes) != Status::ok || wakes.count != 1) {
      state.SkipWithError("a release must hand over");
      break;
    }
    next = holder;
    tenant = t->ledger.tickets[holder].tenant;
    holder = wakes.tickets[0];
    (void)poll_wait(t->ledger, t->lock, holder, now);
  }
  if (!t->audit_report().empty()) state.SkipWithError("the ledger is out of balance");
}
BENCHMARK(core_handover)->Arg(10)->Arg(100)->Arg(1000)->Arg(10000);

// The same as it is in a busy server: rows of eight weights, many permits, and any of the holders is the next to
// finish, so that keys go stale and rows move far in the order. To be at most 1 us with 10,000 rows.
void core_grant(benchmark::State& state) {
  const auto rows = static_cast<std::uint32_t>(state.range(0));
  const std::uint32_t permits = rows < 200 ? rows / 2 : 100;
  test::TestLedger t({rows + permits, 0, rows + 1, 1, 0, 16, 16});
  policy::Policy policy = test::empty_policy();
  test::add_class(policy, "default", permits, policy::kNoLimit);
  policy.classes[0].aging_ms = 1000;
  for (std::uint32_t w = 1; w <= 8; w++) {
    test::add_tenant(policy, ("w" + std::to_string(w) + "_*").c_str(), w, policy::kNoLimit);
  }
  if (t.apply(policy) != Status::ok) return state.SkipWithError("the policy was not applied");
  std::vector<std::uint32_t> tenants, holders;
  for (std::uint32_t i = 0; i < rows; i++) {
    tenants.push_back(t.tenant(("w" + std::to_string(1 + i % 8) + "_" + std::to_string(i)).c_str()));
  }
  for (std::uint32_t i = 0; i < rows + permits; i++) {
    if (t.begin(i, tenants[i % rows]).status == Status::ok) holders.push_back(i);
  }
  std::mt19937 random(1);
  std::vector<std::uint32_t> draws(1U << 16);
  for (std::uint32_t& draw : draws) draw = static_cast<std::uint32_t>(random());
  std::size_t at = 0;
  for (auto _ : state) {
    const std::uint32_t draw = draws[at++ % draws.size()];
    t.now_us += 100 + draw % 512;
    std::uint32_t& holder = holders[(draw >> 12) % permits];
    const std::uint32_t released = holder;
    const std::uint32_t tenant = t.ledger.tickets[released].tenant;
    Wakes wakes = {};
    if (release(t.ledger, released, t.now_us) != Status::contended ||
        release_locked(t.ledger, t.lock, released, t.now_us, wakes) != Status::ok || wakes.count != 1) {
      state.SkipWithError("a release must hand over");
      break;
    }
    holder = wakes.tickets[0];
    (void)poll_wait(t.ledger, t.lock, holder, t.now_us);
    const TicketRequest request = {tenant, 0, true, Uuid{}, t.now_us, t.now_us + 3'600'000'000, 0};
    if (take(t.ledger, released, request) != Status::contended ||
        take_or_queue(t.ledger, t.lock, released, request, wakes).status != Status::queued) {
      state.SkipWithError("a newcomer must queue");
      break;
    }
  }
  if (!t.audit_report().empty()) state.SkipWithError("the ledger is out of balance");
}
BENCHMARK(core_grant)->Arg(10)->Arg(100)->Arg(1000)->Arg(10000);

// A tenant at its limit: its tickets park and are promoted; nobody else is touched.
void core_park_promote(benchmark::State& state) {
  const auto t = make_ledger(64, 4, 1);
  policy::Policy policy = t->ledger.header->policy;
  policy.tenant_rules[0].max_inflight = 1;
  if (t->apply(policy) != Status::ok) return state.SkipWithError("the limit was not applied");
  std::uint32_t holder = 0, next = 1;
  (void)t->begin(holder, 1);
  for (auto _ : state) {
    if (t->begin(next, 1).status != Status::queued || t->finish(holder) != Status::ok ||
        t->poll(next).status != Status::ok) {
      state.SkipWithError("a parked ticket must be promoted");
      break;
    }
    std::swap(holder, next);
  }
}
BENCHMARK(core_park_promote);

}  // namespace
}  // namespace sluice::ledger
