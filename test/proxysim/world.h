// Random traffic in virtual time over the production pools: clients that come, wait, hold, leave and die; servers that
// are slow, full, gone, or refuse; reloads, gates that close, reports that come late or twice. A seed replays it
// exactly.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "proxysim/oracle.h"

namespace sluice::proxysim {

// How often what happened; a run that never met a fault proves nothing about it.
struct Tally {
  std::uint64_t steps = 0;
  std::uint64_t audits = 0;
  std::uint64_t assigned_idle = 0;
  std::uint64_t assigned_released = 0;
  std::uint64_t assigned_opened = 0;
  std::uint64_t opens = 0;
  std::uint64_t failures = 0;
  std::uint64_t kills = 0;
  std::uint64_t left = 0;
  std::uint64_t pinned = 0;
  std::uint64_t reloads = 0;
  std::uint64_t gates = 0;
  std::uint64_t stale_reports = 0;
  std::uint64_t forgotten = 0;
  std::uint64_t sets_refused = 0;
  std::map<proxy::RefuseReason, std::uint64_t> refused;
  std::map<proxy::CloseReason, std::uint64_t> closed;
  std::uint64_t digest = 0;  // of all actions in their order: equal for equal seeds
};

class World {
 public:
  explicit World(std::uint64_t seed);

  // Empty, or what went wrong.
  [[nodiscard]] std::string step();
  // No more clients come and every server works: everybody must be served, and in the end nothing is left.
  [[nodiscard]] std::string drain();
  [[nodiscard]] const Tally& tally() const { return tally_; }

 private:
  enum class ClientState : std::uint8_t { away, idle, waiting, holding };
  struct Client {
    ClientState state = ClientState::away;
    PoolId pool = 0;
    ServerId server = 0;
  };
  enum class Mood : std::uint8_t { well, full, unreachable, rejecting, silent };

  [[nodiscard]] std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
  [[nodiscard]] bool chance(std::uint64_t percent) { return below(100) < percent; }
  [[nodiscard]] Time span();
  [[nodiscard]] Time hold();
  [[nodiscard]] proxy::PoolOptions random_options();
  [[nodiscard]] proxy::PoolLimits random_limits();
  [[nodiscard]] std::uint64_t random_client(ClientState state);
  [[nodiscard]] ServerId random_server();

  void after(Time wait, std::function<void()> event) { events_.emplace(now_ + wait, std::move(event)); }
  void pass(Time wait);
  void drain_actions();
  void carry_out(const PoolAction& action);
  void finish_login(ServerId server);
  void finish_check(ServerId server);
  void finish_close(ServerId server);
  void release(std::uint64_t client, ServerId server);
  void lose(ServerId server);
  void digest(const PoolAction& action);
  void fail(const std::string& what);

  void act();
  void come();
  void ask();
  void leave();
  void go_away();
  void change_mood();
  void reload();
  void change_gates();
  void reopen_gates();
  void retire();
  void move_snapshot();
  void report_nonsense();
  [[nodiscard]] std::string check();

  std::mt19937_64 random_;
  proxy::PoolLimits limits_;
  Oracle oracle_;
  std::unique_ptr<proxy::Pools> pools_;
  Time now_ = 100 * proxy::kSecond;
  std::multimap<Time, std::function<void()>> events_;
  std::vector<Client> clients_;
  std::map<std::string, Mood> moods_;
  std::vector<ServerId> past_;  // some that are gone
  bool peaceful_ = false;
  std::string failure_;
  Tally tally_;
};

}  // namespace sluice::proxysim
