// The simulated server: backends with sessions and tickets, a guard, an administrator who changes policies, and a
// virtual clock, all driven by one seed. It keeps books of its own, from what each call answered, and compares.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "unit/ledger_fixture.h"

namespace sluice::sim {

inline constexpr std::uint32_t kBackends = 48;
inline constexpr std::uint32_t kClasses = 4;
inline constexpr std::int64_t kTickUs = 100'000;  // how late a waiter may notice its deadline

struct Summary {
  std::uint64_t steps, granted, queued, parked, refused, cancelled, expired, handed_over, switched, overdrafts,
      reclaimed;
  std::uint64_t sessions, sessions_refused, policies, flips, half_steps, duplicates, time_limits, audits;
  std::uint64_t pushed_out, duplicate_tickets, borrowed, recalled;
};

class World {
 public:
  explicit World(std::uint64_t seed);

  // One random step. Empty when every check held, else what did not.
  std::string step();

  // Ends everything that is open and checks that nothing is left.
  std::string drain();

  [[nodiscard]] const Summary& summary() const { return summary_; }

 private:
  // Where a backend is between two calls.
  enum class At : std::uint8_t { closed, idle, take_lock, waiting, holding, release_lock };

  struct Backend {
    At at = At::closed;
    ledger::TicketRequest request{};
    std::uint64_t seen_version = 0;
    std::string role, database;
    bool marked = false;    // as a blocker: outside of its row's order
    bool named = false;     // known by its owner's id: it was while enforcing
    bool had_slot = false;  // took its row's slot before it had the lock
    std::int64_t deadline_us = 0;
  };

  std::uint32_t pick(std::uint32_t count) { return static_cast<std::uint32_t>(random_() % count); }
  bool one_in(std::uint32_t count) { return pick(count) == 0; }

  void act(std::uint32_t slot);
  void act_from_outside();

  void open(std::uint32_t slot);
  void close(std::uint32_t slot);
  void begin(std::uint32_t slot);
  void continue_begin(std::uint32_t slot);
  void hold(std::uint32_t slot);
  void continue_release(std::uint32_t slot);
  void wait(std::uint32_t slot);
  void end_wait(std::uint32_t slot, policy::Status why);
  void kill(std::uint32_t slot);
  void reassign(std::uint32_t slot);

  void change_policy();
  void apply(const policy::Policy& policy, ledger::Mode mode);
  void switch_off();
  void expire_some();
  void recall_some();
  void tick();
  void help_blocker();
  void hand_over();

  void note(ledger::Wakes wakes);
  void drain_wakes();
  void entered_queue(std::uint32_t slot);
  void was_granted(std::uint32_t slot);

  std::uint32_t slot_of_random_class();
  [[nodiscard]] bool is_enforcing() const;
  [[nodiscard]] bool is_alive_elsewhere(std::uint32_t slot) const;
  [[nodiscard]] ledger::TicketState state(std::uint32_t slot) const { return t_.state(slot); }

  void fail(const std::string& what);
  void check_audit();
  void check_work_conserved();
  void check_deadlines();
  void check_session_budget();

  ledger::test::TestLedger t_;
  std::mt19937_64 random_;
  Summary summary_{};
  std::vector<Backend> backends_{kBackends};
  policy::Policy policy_;
  ledger::Mode mode_ = ledger::Mode::enforce;
  std::uint64_t generation_ = 0;
  bool more_ = false;  // some wakes did not fit
  std::string failure_;
};

}  // namespace sluice::sim
