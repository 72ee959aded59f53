// sluice-stress [--operations N] [--threads N] [--seed N]: many threads as backends on one ledger, a real mutex as its
// lock, a guard, an administrator and an auditor beside them. Run under ThreadSanitizer and without. Holders are
// counted a second time, outside of the ledger, and compared with the limits.
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "stress/watched.h"
#include "unit/ledger_fixture.h"

namespace sluice::ledger {
namespace {

constexpr std::uint32_t kClasses = 3;
constexpr std::uint32_t kTenants = 5;
constexpr std::uint32_t kSlotsPerThread = 8;
constexpr std::uint32_t kRows = 8 * kClasses;
constexpr std::uint64_t kFullRun = 1000000;  // operations
constexpr auto kLongest = std::chrono::seconds(300);

std::int64_t clock_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

enum Operation : std::uint32_t {
  kTake,
  kQueue,
  kPark,
  kPromote,
  kCancel,
  kHandOver,
  kRelease,
  kExpire,
  kDeadline,
  kCommit,
  kLower,
  kRaise,
  kOverdraft,
  kRefuse,
  kSession,
  kAudit,
  kBorrow,
  kRecall,
  kDuplicate,
  kPushOut,
  kOperations,
};
constexpr const char* kOperationNames[kOperations] = {
    "take",    "queue",    "park",   "promote",      "cancel",       "hand over", "release",
    "expire",  "deadline", "commit", "lower limits", "raise limits", "overdraft", "refuse",
    "session", "audit",    "borrow", "recall",       "duplicate",    "push out",
};

struct Stress {
  Stress(std::uint32_t threads, std::uint64_t operations)
      : slots(threads * kSlotsPerThread), target(operations), t({slots, 0, 8, kClasses, 64, 64, 64}), woken(slots) {}

  void fail(const char* what) {
    if (!failed.exchange(true)) std::printf("not ok - stress: %s\n", what);
  }
  void count(Operation operation) { counts[operation].fetch_add(1, std::memory_order_relaxed); }
  std::uint64_t total() const {
    std::uint64_t sum = 0;
    for (const auto& one : counts) sum += one.load(std::memory_order_relaxed);
    return sum;
  }
  // A full run goes on until it has met everything, however long the machine takes over it.
  bool misses_an_operation() const {
    if (target < kFullRun) return false;
    for (const auto& one : counts) {
      if (one.load(std::memory_order_relaxed) == 0) return true;
    }
    return false;
  }
  bool is_over() const { return failed || stop; }

  // Latches are set after the lock was left, as every caller has to.
  void wake(const Wakes& wakes) {
    for (std::uint32_t i = 0; i < wakes.count; i++) woken[wakes.tickets[i]].store(true);
  }
  template <typename Call>
  auto locked(Call call) {
    Wakes wakes = {};
    std::unique_lock guard(mutex);
    auto answer = call(wakes);
    for (;;) {
      guard.unlock();
      wake(wakes);
      if (!wakes.more) return answer;
      wakes = {};
      guard.lock();
      tick(t.ledger, t.lock, clock_us(), wakes);
    }
  }

  Watched& row(std::uint32_t tenant, std::uint32_t klass) { return rows[tenant * kClasses + klass]; }

  const std::uint32_t slots;
  const std::uint64_t target;
  test::TestLedger t;
  std::mutex mutex;
  std::vector<std::atomic<bool>> woken;
  Watched classes[kClasses];
  Watched rows[kRows];
  Watched everybody;  // lending moves permits between classes and makes none
  std::uint32_t tenants[kTenants];
  std::atomic<std::uint64_t> counts[kOperations]{};
  std::atomic<bool> failed{false}, stop{false}, finished{false};
  std::atomic<std::uint64_t> transitions{0};
};

constexpr std::uint32_t kHighPermits[kClasses] = {5, 60, 9};
constexpr std::uint32_t kLowPermits[kClasses] = {2, 30, 4};
constexpr std::uint32_t kHighTotal = 5 + 60 + 9, kLowTotal = 2 + 30 + 4;
constexpr std::uint32_t kHighInflight = 6, kLowInflight = 2;
constexpr std::uint32_t kOverdraftPermits = 2;

policy::Policy make_policy(bool low, std::uint64_t generation) {
  policy::Policy policy = test::empty_policy(generation);
  const std::uint32_t* permits = low ? kLowPermits : kHighPermits;
  test::add_class(policy, "tight", permits[0], 20);
  test::add_class(policy, "ample", permits[1], 20);
  test::add_class(policy, "medium", permits[2], 8);
  test::add_tenant(policy, "*", 2, low ? kLowInflight : kHighInflight);
  policy.overdraft_max = kOverdraftPermits;
  test::let_borrow(policy, 0, 1U << 1 | 1U << 2, 3, 1, policy::BorrowExpiry::cancel);
  test::let_borrow(policy, 2, 1U << 1, 4, 2);
  test::let_borrow(policy, 1, 1U << 2, 2, 1);
  return policy;
}

// One backend: a slot and where it is between two calls.
struct Backend {
  std::uint32_t slot = 0;
  enum { idle, waiting, holding } at = idle;
  TicketRequest request{};
  bool watched = false;   // counted in the second books (not with an overdraft permit)
  bool of_class = false;  // and among its class's holders (not with a borrowed one)
};

class Worker {
 public:
  Worker(Stress& stress, std::uint32_t index, std::uint64_t seed) : s_(stress), random_(seed * 1000003 + index) {
    for (std::uint32_t i = 0; i < kSlotsPerThread; i++) backends_[i].slot = index * kSlotsPerThread + i;
  }

  void run() {
    while (!s_.is_over()) {
      step(backends_[pick(kSlotsPerThread)]);
      if (++steps_ % 64 == 0) std::this_thread::yield();
    }
    drain();
  }

 private:
  std::uint32_t pick(std::uint32_t count) { return static_cast<std::uint32_t>(random_() % count); }

  void step(Backend& b) {
    switch (b.at) {
      case Backend::idle:
        return begin(b);
      case Backend::waiting:
        return wait(b);
      case Backend::holding:
        return hold(b);
    }
  }

  void enter(Backend& b, PermitSource source) {
    b.at = Backend::holding;
    b.watched = source != PermitSource::overdraft;
    b.of_class = source == PermitSource::own_class;
    if (source == PermitSource::borrowed) s_.count(kBorrow);
    if (!b.watched) return;
    if (!s_.everybody.enter(kHighTotal)) s_.fail("more holders than permits");
    if (b.of_class && !s_.classes[b.request.klass].enter(kHighPermits[b.request.klass]))
      s_.fail("more holders of a class than permits");
    if (!s_.row(b.request.tenant, b.request.klass).enter(kHighInflight))
      s_.fail("more holders of a row than its limit");
  }
  void leave(Backend& b) {
    if (!b.watched) return;
    s_.everybody.leave();
    if (b.of_class) s_.classes[b.request.klass].leave();
    s_.row(b.request.tenant, b.request.klass).leave();
    b.watched = false;
  }

  void begin(Backend& b) {
    if (pick(256) == 0) return reopen(b);
    const std::int64_t now = clock_us();
    const std::uint32_t klass = pick(4) == 0 ? 0 : pick(4) == 0 ? 2 : 1;
    b.request = {s_.tenants[b.slot % kTenants], klass, true, Uuid{}, now, 0, pick(8) == 0 ? 1 : 0, 0};
    if (pick(16) == 0) {
      b.request.owner = 1 + pick(2);
      b.request.id.bytes[0] = static_cast<std::uint8_t>(pick(6));
      b.request.id.bytes[1] = static_cast<std::uint8_t>(named_ / 4);
      named_++;
    }
    b.request.deadline_us = now + (pick(4) == 0 ? pick(2000) : 10'000'000);
    if (!session_busy(s_.t.ledger, b.slot)) s_.fail("an open session may not be busy");
    s_.woken[b.slot].store(false);
    s_.count(kTake);
    const Status status = take(s_.t.ledger, b.slot, b.request);
    if (status == Status::ok) return enter(b, PermitSource::own_class);
    if (status != Status::contended) return s_.fail("a take answered with a fault");
    bool parked = false;
    PermitSource source = PermitSource::none;
    const Outcome outcome = s_.locked([&](Wakes& wakes) {
      const Outcome answer = take_or_queue(s_.t.ledger, s_.t.lock, b.slot, b.request, wakes);
      source = s_.t.ledger.tickets[b.slot].source;
      parked = answer.status == Status::queued && s_.t.ledger.tickets[b.slot].parked;
      return answer;
    });
    if (outcome.status == Status::ok) return enter(b, source);
    if (outcome.status == Status::queued) {
      s_.count(parked ? kPark : kQueue);
      b.at = Backend::waiting;
    } else if (outcome.status == Status::duplicate_ticket) {
      s_.count(kDuplicate);
    } else if (outcome.status != Status::queue_full && outcome.status != Status::deadline_unreachable) {
      s_.fail("a take under the lock answered with a fault");
    } else {
      s_.count(kRefuse);
    }
  }

  void wait(Backend& b) {
    const bool woken = s_.woken[b.slot].exchange(false);
    const std::int64_t now = clock_us();
    const bool late = now >= b.request.deadline_us;
    if (!woken && !late && pick(64) != 0) return;
    PermitSource source = PermitSource::none;
    const Status why = late ? Status::queue_deadline : Status::cancelled;
    const Outcome outcome = s_.locked([&](Wakes& wakes) {
      const Outcome answer = woken ? poll_wait(s_.t.ledger, s_.t.lock, b.slot, now)
                                   : end_wait(s_.t.ledger, s_.t.lock, b.slot, why, now, wakes);
      source = s_.t.ledger.tickets[b.slot].source;
      return answer;
    });
    if (outcome.status == Status::ok) {
      s_.count(kPromote);
      return enter(b, source);
    }
    // A latch set for this slot's previous wait can arrive late, as in the server: look again, wait on.
    if (outcome.status == Status::queued) return;
    if (outcome.status != why && outcome.status != Status::overdraft_exhausted && outcome.status != Status::pushed_out)
      return s_.fail("a wait ended in a fault");
    s_.count(outcome.status == Status::pushed_out ? kPushOut : late ? kDeadline : kCancel);
    b.at = Backend::idle;
  }

  void hold(Backend& b) {
    if (pick(8) == 0) {
      s_.count(kCommit);
      const Status status = begin_commit(s_.t.ledger, b.slot);
      if (status != Status::ok && status != Status::time_limit) s_.fail("a commit answered with a fault");
      return;
    }
    leave(b);
    if (b.request.klass != 1 && pick(8) == 0 && hand_over_to_somebody(b)) return;
    s_.count(kRelease);
    Status status = release(s_.t.ledger, b.slot, clock_us());
    if (status == Status::contended) {
      status =
          s_.locked([&](Wakes& wakes) { return release_locked(s_.t.ledger, s_.t.lock, b.slot, clock_us(), wakes); });
    }
    if (status != Status::ok) return s_.fail("a release failed");
    if (pick(4) == 0 && release(s_.t.ledger, b.slot, clock_us()) != Status::ok) s_.fail("a second release was not ok");
    session_idle(s_.t.ledger, b.slot, clock_us());
    b.at = Backend::idle;
  }

  bool hand_over_to_somebody(Backend& b) {
    std::uint32_t to = kNil;
    const Status status = s_.locked([&](Wakes& wakes) {
      const Ticket& giver = s_.t.ledger.tickets[b.slot];
      if (phase_state(std::atomic_ref(s_.t.ledger.tickets[b.slot].phase).load()) != TicketState::in_transaction ||
          giver.source != PermitSource::own_class) {
        return Status::contended;
      }
      for (std::uint32_t i = 0; i < s_.slots; i++) {
        Ticket& taker = s_.t.ledger.tickets[i];
        if (phase_state(std::atomic_ref(taker.phase).load()) != TicketState::queued || taker.klass != giver.klass)
          continue;
        const Status answer = hand_over(s_.t.ledger, s_.t.lock, b.slot, i, clock_us());
        if (answer == Status::ok) wakes.tickets[wakes.count++] = to = i;
        return answer;
      }
      return Status::contended;
    });
    if (status == Status::contended) return false;
    if (status != Status::ok) s_.fail("a hand-over failed");
    s_.count(kHandOver);
    b.at = Backend::idle;
    return true;
  }

  void reopen(Backend& b) {
    s_.count(kSession);
    std::lock_guard guard(s_.mutex);
    if (close_session(s_.t.ledger, s_.t.lock, b.slot, clock_us()) != Status::ok) s_.fail("a session did not close");
    const policy::Identity identity = test::identity_of(s_.t.ledger.header->policy, name(b.slot), "app");
    SessionRequest request = {};
    request.slot = b.slot;
    request.identity = &identity;
    request.role = name(b.slot);
    request.database = "app";
    request.enforce = true;
    request.now_us = clock_us();
    if (open_session(s_.t.ledger, s_.t.lock, request).status != Status::ok) s_.fail("a session was refused");
    if (session_ready(s_.t.ledger, b.slot) != Status::ok) s_.fail("a session is not ready");
  }

  static const char* name(std::uint32_t slot) {
    static constexpr const char* kNames[kTenants] = {"a", "b", "c", "d", "e"};
    return kNames[slot % kTenants];
  }

  // Everybody who waits must be granted in the end without asking: a wake-up that got lost shows here.
  void drain() {
    const auto begun = std::chrono::steady_clock::now();
    for (bool open = true; open;) {
      open = false;
      for (Backend& b : backends_) {
        while (b.at == Backend::holding) hold(b);
        if (b.at == Backend::idle) continue;
        open = true;
        if (s_.woken[b.slot].load()) wait(b);
      }
      std::this_thread::yield();
      if (std::chrono::steady_clock::now() - begun > std::chrono::seconds(60)) return s_.fail("a wake-up was lost");
    }
  }

  Stress& s_;
  std::mt19937_64 random_;
  std::uint64_t steps_ = 0, named_ = 0;
  Backend backends_[kSlotsPerThread];
};

// Lowers and raises limits. After lowering it waits until use is below the new limits and only then holds holders to
// them.
void administrate(Stress& s) {
  std::uint64_t generation = 1;
  const auto apply = [&](bool low) {
    const policy::Policy policy = make_policy(low, ++generation);
    bool more = true;
    for (bool first = true; more; first = false) {
      Wakes wakes = {};
      {
        std::lock_guard guard(s.mutex);
        if (first && apply_policy(s.t.ledger, s.t.lock, policy, Mode::enforce, clock_us(), wakes) != Status::ok) {
          s.fail("a policy was not applied");
        }
        tick(s.t.ledger, s.t.lock, clock_us(), wakes);
      }
      s.wake(wakes);
      more = wakes.more;
    }
  };
  const auto is_below = [&] {
    std::lock_guard guard(s.mutex);
    for (std::uint32_t k = 0; k < kClasses; k++) {
      if (unpack_class(std::atomic_ref(s.t.ledger.classes[k].word).load()).free < 0) return false;
      for (const std::uint32_t tenant : s.tenants) {
        const RowWord row = unpack_row(std::atomic_ref(row_at(s.t.ledger, tenant, k).word).load());
        if (row.in_use > row.limit) return false;
      }
    }
    return true;
  };
  const auto watch = [&](bool low) {
    for (std::uint32_t k = 0; k < kClasses; k++) s.classes[k].set(low ? kLowPermits[k] : kHighPermits[k]);
    for (Watched& row : s.rows) row.set(low ? kLowInflight : kHighInflight);
    s.everybody.set(low ? kLowTotal : kHighTotal);
  };
  while (!s.is_over()) {
    apply(true);
    s.count(kLower);
    while (!is_below() && !s.is_over()) std::this_thread::yield();
    if (!s.is_over()) watch(true);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    watch(false);
    apply(false);
    s.count(kRaise);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // The drain ends under the high limits.
}

// Time limits, lock cycles, overdraft.
void guard(Stress& s, std::uint64_t seed) {
  std::mt19937_64 random(seed + 77);
  while (!s.finished && !s.failed) {
    const auto slot = static_cast<std::uint32_t>(random() % s.slots);
    Wakes wakes = {};
    {
      std::lock_guard lock(s.mutex);
      if (expire(s.t.ledger, s.t.lock, slot, clock_us()) == Status::ok) s.count(kExpire);
      if (expire_borrowed(s.t.ledger, s.t.lock, slot, clock_us()) == Status::ok) s.count(kRecall);
      if (random() % 16 == 0) tick(s.t.ledger, s.t.lock, clock_us(), wakes);
      if (random() % 16 == 0 && wakes.count == 0 &&
          mark_blocker(s.t.ledger, s.t.lock, slot, clock_us()) == Status::ok) {
        const Status status = random() % 2 == 0 ? grant_overdraft(s.t.ledger, s.t.lock, slot, clock_us(), wakes)
                                                : refuse_blocker(s.t.ledger, s.t.lock, slot, clock_us(), wakes);
        if (status == Status::ok) s.count(kOverdraft);
        if (policy::is_fault(status)) s.fail("an overdraft was answered with a fault");
        if (s.t.ledger.header->overdraft_in_use > kOverdraftPermits)
          s.fail("more overdraft permits than the policy has");
      }
    }
    s.wake(wakes);
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

void look(Stress& s) {
  Discrepancy entries[8];
  std::uint32_t count;
  {
    std::lock_guard guard(s.mutex);
    auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    const Pause pause = [](void* context) noexcept {
      std::this_thread::yield();
      return std::chrono::steady_clock::now() < *static_cast<std::chrono::steady_clock::time_point*>(context);
    };
    count = audit(s.t.ledger, s.t.lock, pause, &until, entries, 8);
  }
  s.count(kAudit);
  for (std::uint32_t i = 0; i < count; i++) {
    if (entries[i].balance == Balance::in_transition) {
      s.transitions.fetch_add(1);
      continue;
    }
    std::printf("# %s[%u,%u] recorded %" PRId64 " recomputed %" PRId64 "\n", balance_name(entries[i].balance),
                entries[i].index, entries[i].other, entries[i].recorded, entries[i].recomputed);
    s.fail("the audit found a discrepancy");
  }
}

void watch_progress(Stress& s) {
  const auto begun = std::chrono::steady_clock::now();
  while (!s.failed && (s.total() < s.target || s.misses_an_operation())) {
    look(s);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (std::chrono::steady_clock::now() - begun > kLongest) s.fail("the run did not end in its time");
  }
  s.stop = true;
}

bool check_end(Stress& s) {
  look(s);
  for (std::uint32_t k = 0; k < kClasses; k++) {
    const ClassWord word = s.t.klass(k);
    if (word.free != static_cast<std::int32_t>(s.t.ledger.classes[k].permits) || word.waiters != 0 || word.gate ||
        word.owed != 0) {
      s.fail("permits are missing at the end");
    }
    if (s.classes[k].holders.load() != 0) s.fail("somebody still holds at the end");
  }
  const Header& header = *s.t.ledger.header;
  if (header.faults != 0) s.fail("a fault was counted");
  if (header.over_limit_grants != 0) s.fail("a permit was granted above a limit");
  if (header.overdraft_in_use != 0 || header.queued_total != 0) s.fail("a ticket was left over");
  for (std::uint32_t i = 0; i < kOperations; i++) {
    if (s.target >= kFullRun && s.counts[i].load() == 0) {
      std::printf("# never done: %s\n", kOperationNames[i]);
      s.fail("an operation never happened");
    }
  }
  return !s.failed;
}

bool run(std::uint32_t threads, std::uint64_t operations, std::uint64_t seed) {
  Stress s(threads, operations);
  if (s.t.apply(make_policy(false, 1)) != Status::ok) return false;
  static constexpr const char* kNames[kTenants] = {"a", "b", "c", "d", "e"};
  for (std::uint32_t i = 0; i < kTenants; i++) s.tenants[i] = s.t.tenant(kNames[i]);
  for (std::uint32_t k = 0; k < kClasses; k++) s.classes[k].set(kHighPermits[k]);
  for (Watched& row : s.rows) row.set(kHighInflight);
  s.everybody.set(kHighTotal);
  const auto begun = std::chrono::steady_clock::now();
  std::thread administrator(administrate, std::ref(s));
  std::thread guardian(guard, std::ref(s), seed);
  std::vector<std::thread> workers;
  for (std::uint32_t i = 0; i < threads; i++) {
    workers.emplace_back([&s, i, seed] { Worker(s, i, seed).run(); });
  }
  watch_progress(s);
  administrator.join();
  for (std::thread& worker : workers) worker.join();
  s.finished = true;
  guardian.join();
  const bool ok = check_end(s);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  std::printf("# %" PRIu64 " operations of %u threads in %.1f s, seed %" PRIu64 ", %" PRIu64 " steps in transition:",
              s.total(), threads, seconds, seed, s.transitions.load());
  for (std::uint32_t i = 0; i < kOperations; i++) std::printf(" %s %" PRIu64, kOperationNames[i], s.counts[i].load());
  std::printf("\n");
  if (ok) {
    std::printf("ok - stress: %" PRIu64 " operations, every audit during and after without a discrepancy\n", s.total());
    std::printf("ok - stress: neither a class, nor a row, nor the server ever had more holders than its limit\n");
  }
  return ok;
}

}  // namespace
}  // namespace sluice::ledger

int main(int argc, char** argv) {
  std::uint64_t operations = 1000000;
  std::uint64_t seed = 1;
  std::uint32_t threads = 4;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--operations") == 0) operations = value;
    if (std::strcmp(argv[i], "--seed") == 0) seed = value;
    if (std::strcmp(argv[i], "--threads") == 0 && value > 0) threads = static_cast<std::uint32_t>(value);
  }
  return sluice::ledger::run(threads, operations, seed) ? 0 : 1;
}
