// Traffic on the real ledger under a virtual clock: tenants with arrivals, holds, cancellations, deadlines and retries,
// a guard that ticks every 100 ms, and books of its own. One plan and one seed make one run, which digest() identifies.
#pragma once

#include <cstdint>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "sim/books.h"
#include "unit/ledger_fixture.h"

namespace sluice::sim {

inline constexpr std::int64_t kMs = 1'000;
inline constexpr std::int64_t kSecond = 1'000'000;

// How long transactions hold their permit. alternating: first_us and second_us in turns, to fool estimates.
struct Hold {
  enum class Kind : std::uint8_t { fixed, exponential, pareto, alternating };
  Kind kind = Kind::fixed;
  std::int64_t first_us = 2 * kMs;  // length, mean, or smallest
  std::int64_t second_us = 0;       // alternating: the other length; else the longest (0: no end)
};

[[nodiscard]] inline Hold fixed_hold(std::int64_t us) { return {Hold::Kind::fixed, us, 0}; }
[[nodiscard]] inline Hold exponential_hold(std::int64_t mean_us) { return {Hold::Kind::exponential, mean_us, 0}; }
[[nodiscard]] inline Hold pareto_hold(std::int64_t least_us, std::int64_t most_us) {
  return {Hold::Kind::pareto, least_us, most_us};
}
[[nodiscard]] inline Hold alternating_hold(std::int64_t a_us, std::int64_t b_us) {
  return {Hold::Kind::alternating, a_us, b_us};
}

struct ClassPlan {
  std::uint32_t permits = 20;
  std::uint32_t max_queue = 100000;
  std::uint32_t aging_ms = 1000;
  std::uint32_t borrow_from = 0;  // bit i: class i of the plan
  std::uint32_t borrow_max = 0;
  std::uint32_t borrow_ttl_ms = 5000;
  bool cancels_borrowed = false;
};

struct TenantPlan {
  const char* kind = "";  // for people
  std::uint32_t klass = 0;
  std::uint32_t weight = 1;
  std::uint32_t limit = policy::kNoLimit;  // in flight
  std::uint32_t clients = 4;
  Hold hold = {};
  double arrivals_per_s = 0;  // 0: each client asks again after it has thought; else arrivals that wait for nobody
  std::int64_t think_us = 0;  // mean; 0: always another one waits
  std::int64_t on_us = 0, off_us = 0;  // asks for on_us, then is silent for off_us; 0: always
  std::int64_t start_us = 0;
  std::int64_t deadline_us = 3600 * kSecond;
  double cancelled = 0;                        // share of requests whose client gives up,
  std::int64_t cancelled_within_us = kSecond;  // after at most so long
  bool retries = false;                        // comes again after a refusal, under the same id
  std::uint32_t owner = 0;                     // tickets named by a login role; 0: none
};

struct Plan {
  std::uint64_t seed = 1;
  std::vector<ClassPlan> classes;
  std::vector<TenantPlan> tenants;
  std::int64_t duration_us = 60 * kSecond;
  std::uint64_t most_events = ~std::uint64_t{0};
  std::int64_t cancel_latency_us = 20 * kMs;  // from the guard's signal to the end of the transaction
  std::uint32_t audit_every = 1;              // steps; 0: only at the end
  bool compare_pairs = true;
};

// What became of a tenant's requests.
struct Fate {
  std::uint64_t asked = 0, granted = 0, at_once = 0, full = 0, unreachable = 0, pushed_out = 0, expired = 0,
                cancelled = 0, recalled = 0, duplicates = 0, served_late = 0;
  std::vector<float> waits_ms;  // of granted requests, those that never waited included
};

class Traffic {
 public:
  explicit Traffic(const Plan& plan);

  // The whole run; false when something that must always hold did not (see failure()).
  bool run();
  // A part of it, up to this time after the start; run() goes on from there.
  bool run_until(std::int64_t until_us);

  [[nodiscard]] const std::string& failure() const { return failure_; }
  [[nodiscard]] std::uint64_t digest() const { return digest_; }  // of every decision, in order
  [[nodiscard]] std::uint64_t events() const { return events_; }
  [[nodiscard]] std::uint64_t audits() const { return audits_; }
  [[nodiscard]] std::int64_t now_us() const { return t_.now_us - kStartUs; }
  [[nodiscard]] const ClassBook& book(std::uint32_t klass = 0) const { return classes_[klass].book; }
  [[nodiscard]] const Fate& fate(std::uint32_t tenant) const { return tenants_[tenant].fate; }
  [[nodiscard]] double service_us(std::uint32_t tenant) const;
  [[nodiscard]] std::uint32_t held(std::uint32_t tenant) const;
  [[nodiscard]] double jain(std::uint32_t klass = 0) const { return classes_[klass].book.jain(t_.now_us); }
  [[nodiscard]] const ledger::Row& row(std::uint32_t tenant) const;
  [[nodiscard]] const ledger::ClassState& klass(std::uint32_t klass) const { return t_.ledger.classes[klass]; }
  // Longest time that a class waited for lent permits while it queued.
  [[nodiscard]] std::int64_t longest_recall_us(std::uint32_t klass) const { return classes_[klass].recall_us; }
  [[nodiscard]] std::uint64_t borrowed_grants() const { return borrowed_grants_; }

 private:
  static constexpr std::int64_t kStartUs = 10 * kSecond;

  enum class Kind : std::uint8_t { ask, arrive, release, deadline, give_up, tick };
  enum class At : std::uint8_t { idle, waiting, holding };

  struct Event {
    std::int64_t at_us;
    std::uint64_t order;
    Kind kind;
    std::uint32_t index;
    std::uint32_t use;  // of the client when the event was planned; another one now: the event is void
    bool operator>(const Event& other) const {
      return at_us != other.at_us ? at_us > other.at_us : order > other.order;
    }
  };

  struct Client {
    std::uint32_t tenant = 0;
    At at = At::idle;
    bool is_retry = false, recalled = false;
    std::uint32_t use = 0;
    std::uint64_t id = 0;
    std::int64_t asked_us = 0, granted_us = 0, deadline_us = 0, age_us = 0;
  };

  struct Tenant {
    TenantPlan plan;
    std::uint32_t index = 0;  // in the ledger
    std::uint32_t row = 0;    // in the book
    bool second_turn = false;
    std::vector<std::uint32_t> idle;  // clients that an arrival may use
    std::vector<std::uint32_t> line;  // clients that wait, oldest first
    Fate fate;
  };

  struct Class {
    ClassPlan plan;
    ClassBook book;
    std::uint32_t waiters_before = 0, lent_before = 0;
    std::int64_t recall_since_us = -1, recall_us = 0;
  };

  void make_policy();
  void make_books();
  void plan_at(std::int64_t at_us, Kind kind, std::uint32_t index, std::uint32_t use = 0);
  void plan_next_ask(std::uint32_t client, bool refused);
  double uniform() { return static_cast<double>(random_() >> 11) * 0x1.0p-53; }
  std::int64_t exponential(double mean_us);
  std::int64_t hold_of(Tenant& tenant);
  std::int64_t when_awake(const Tenant& tenant, std::int64_t at_us) const;

  void handle(const Event& event);
  void ask(std::uint32_t client);
  void arrive(std::uint32_t tenant);
  void release(std::uint32_t client);
  void end_wait(std::uint32_t client, policy::Status why);
  void tick();
  void recall_borrowed();
  void check_lending();

  void was_granted(std::uint32_t client, bool waited);
  void was_refused(std::uint32_t client, policy::Status why);
  void entered_line(std::uint32_t client);
  void left_line(std::uint32_t client, bool granted);
  void wake(const ledger::Wakes& wakes);
  void settle(ledger::Wakes wakes);

  void note(std::uint64_t what);
  void fail(const std::string& what);
  void check();
  void check_class(std::uint32_t klass);

  Plan plan_;
  std::mt19937_64 random_;
  ledger::test::TestLedger t_;
  std::vector<Client> clients_;
  std::vector<Tenant> tenants_;
  std::vector<Class> classes_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> agenda_;
  std::uint64_t order_ = 0, events_ = 0, audits_ = 0, next_id_ = 1, borrowed_grants_ = 0;
  std::uint64_t digest_ = 0xCBF29CE484222325;
  std::string failure_;
};

// The p-th part (0 to 1) of sorted values; 0 where there are none.
[[nodiscard]] double percentile(std::vector<float> values, double part);

}  // namespace sluice::sim
