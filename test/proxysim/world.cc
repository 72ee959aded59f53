#include "proxysim/world.h"

#include <algorithm>
#include <utility>

namespace sluice::proxysim {

using proxy::AssignSource;
using proxy::ConnectFailure;
using proxy::FailureKind;
using proxy::kMillisecond;
using proxy::kNever;
using proxy::kSecond;
using proxy::PoolActionKind;
using proxy::PoolLimits;
using proxy::PoolOptions;

namespace {

constexpr std::uint64_t kClients = 120;
constexpr std::uint64_t kUsers = 8;
constexpr std::uint64_t kStartupSets = 3;
constexpr std::size_t kMaxPast = 64;
constexpr int kMaxTicksAtOnce = 64;
constexpr std::uint64_t kNobody = ~std::uint64_t{0};

[[nodiscard]] std::string user_name(std::uint64_t user) { return "user" + std::to_string(user); }

}  // namespace

World::World(std::uint64_t seed) : random_(seed), limits_(random_limits()), oracle_(limits_), clients_(kClients) {
  pools_ = std::make_unique<proxy::Pools>(limits_, oracle_, seed);
  for (std::uint64_t user = 0; user < kUsers; user++) moods_[user_name(user)] = Mood::well;
}

// --- Chance ------------------------------------------------------------------------------------------------------

Time World::span() {
  if (chance(80)) return static_cast<Time>(below(2000));
  if (chance(80)) return static_cast<Time>(below(50)) * kMillisecond;
  return static_cast<Time>(below(chance(90) ? 2000 : 60000)) * kMillisecond;
}

Time World::hold() {
  if (chance(70)) return static_cast<Time>(500 + below(3500));
  if (chance(80)) return static_cast<Time>(5 + below(50)) * kMillisecond;
  return static_cast<Time>(500 + below(5000)) * kMillisecond;
}

PoolOptions World::random_options() {
  PoolOptions options;
  options.mode = chance(15) ? proxy::PoolMode::session : proxy::PoolMode::transaction;
  options.max_size = static_cast<std::uint32_t>(1 + below(8));
  options.max_waiters = static_cast<std::uint32_t>(1 + below(20));
  options.wait_timeout = static_cast<Time>(200 + below(8000)) * kMillisecond;
  options.max_startup_sets = chance(50) ? 2 : 0;
  options.connect_timeout = static_cast<Time>(100 + below(2000)) * kMillisecond;
  options.fail_early_after = static_cast<Time>(below(3000)) * kMillisecond;
  options.grow_after = chance(30) ? kNever : static_cast<Time>(20 + below(200)) * kMillisecond;
  options.max_idle = chance(50) ? proxy::kNoPoolLimit : static_cast<std::uint32_t>(below(4));
  options.idle_timeout = static_cast<Time>(2 + below(60)) * kSecond;
  options.lifetime = chance(30) ? kNever : static_cast<Time>(1 + below(60)) * kSecond;
  options.lifetime_jitter = static_cast<Time>(below(5)) * kSecond;
  options.surplus_after = static_cast<Time>(below(6)) * kSecond;
  options.check_after = static_cast<Time>(1 + below(3000)) * kMillisecond;
  options.check_timeout = static_cast<Time>(50 + below(500)) * kMillisecond;
  options.gc_after = static_cast<Time>(1 + below(30)) * kSecond;
  return options;
}

PoolLimits World::random_limits() {
  PoolLimits limits;
  limits.max_total = static_cast<std::uint32_t>(3 + below(25));
  limits.max_connecting = static_cast<std::uint32_t>(1 + below(6));
  limits.connects_per_second = chance(50) ? 0 : static_cast<std::uint32_t>(5 + below(200));
  limits.max_pools = static_cast<std::uint32_t>(10 + below(20));
  return limits;
}

std::uint64_t World::random_client(ClientState state) {
  const std::uint64_t start = below(kClients);
  for (std::uint64_t i = 0; i < kClients; i++) {
    const std::uint64_t client = (start + i) % kClients;
    if (clients_[client].state == state) return client;
  }
  return kNobody;
}

ServerId World::random_server() {
  if (oracle_.servers.empty()) return 0;
  auto found = oracle_.servers.begin();
  std::advance(found, static_cast<std::ptrdiff_t>(below(oracle_.servers.size())));
  return found->first;
}

// --- Time --------------------------------------------------------------------------------------------------------

void World::fail(const std::string& what) {
  if (failure_.empty()) failure_ = what;
}

void World::pass(Time wait) {
  const Time end = now_ + wait;
  int at_once = 0;
  while (failure_.empty()) {
    const Time event = events_.empty() ? kNever : events_.begin()->first;
    const Time next = std::min(event, pools_->next_deadline());
    if (next > end) break;
    at_once = next > now_ ? 0 : at_once + 1;
    now_ = std::max(now_, next);
    if (event <= now_) {
      const std::function<void()> run = std::move(events_.begin()->second);
      events_.erase(events_.begin());
      run();
      at_once = 0;
    } else {
      pools_->tick(now_);
    }
    drain_actions();
    if (at_once > kMaxTicksAtOnce) fail("a deadline stays due although it was met");
  }
  if (failure_.empty()) now_ = end;
}

void World::drain_actions() {
  while (failure_.empty()) {
    const std::optional<PoolAction> action = pools_->next_action();
    if (!action) {
      oracle_.turn_ends();
      return;
    }
    digest(*action);
    fail(oracle_.judge(*action, now_));
    if (failure_.empty()) carry_out(*action);
  }
}

void World::digest(const PoolAction& action) {
  const std::uint64_t facts[] = {static_cast<std::uint64_t>(action.kind), action.pool, action.server, action.waiter,
                                 static_cast<std::uint64_t>(now_)};
  for (const std::uint64_t fact : facts) tally_.digest = (tally_.digest ^ fact) * 0x100000001B3U;
}

// --- What the owner of the pools does ----------------------------------------------------------------------------

void World::carry_out(const PoolAction& action) {
  const ServerId server = action.server;
  switch (action.kind) {
    case PoolActionKind::open:
      tally_.opens++;
      after(static_cast<Time>(2000 + below(chance(10) ? 300000 : 20000)), [this, server] { finish_login(server); });
      break;
    case PoolActionKind::assign: {
      if (action.source == AssignSource::idle) tally_.assigned_idle++;
      if (action.source == AssignSource::released) tally_.assigned_released++;
      if (action.source == AssignSource::opened) tally_.assigned_opened++;
      Client& client = clients_[action.waiter];
      client.state = ClientState::holding;
      client.server = server;
      const std::uint64_t id = action.waiter;
      after(hold(), [this, id, server] { release(id, server); });
      break;
    }
    case PoolActionKind::check:
      after(static_cast<Time>(100 + below(chance(10) ? 1000000 : 2000)), [this, server] { finish_check(server); });
      break;
    case PoolActionKind::close:
      tally_.closed[action.close_reason]++;
      // Mostly in the same turn; sometimes a cancel request is still under way.
      if (chance(80)) {
        finish_close(server);
      } else {
        after(static_cast<Time>(below(50)) * kMillisecond, [this, server] { finish_close(server); });
      }
      break;
    case PoolActionKind::refuse:
      tally_.refused[action.refuse_reason]++;
      clients_[action.waiter].state = ClientState::idle;
      break;
    case PoolActionKind::forget:
      tally_.forgotten++;
      break;
  }
}

void World::finish_login(ServerId server) {
  const auto found = oracle_.servers.find(server);
  if (found == oracle_.servers.end()) return;
  const Mood mood = peaceful_ ? Mood::well : moods_.at(oracle_.pools.at(found->second.pool).user);
  // Of one that the pools closed meanwhile the login may still report either way; the close follows.
  if (found->second.state == ModelState::closing) {
    if (chance(50)) pools_->opened(server, now_);
    return;
  }
  if (mood == Mood::silent && found->second.state == ModelState::connecting) return;
  if (mood == Mood::well || mood == Mood::silent) {
    oracle_.opened(server, now_);
    pools_->opened(server, now_);
    return;
  }
  tally_.failures++;
  ConnectFailure failure;
  failure.kind = mood == Mood::full          ? FailureKind::full
                 : mood == Mood::unreachable ? FailureKind::unreachable
                                             : FailureKind::rejected;
  failure.sqlstate = mood == Mood::full ? "53300" : mood == Mood::unreachable ? "08006" : "3D000";
  oracle_.failed(server, failure.kind, now_);
  pools_->open_failed(server, std::move(failure), now_);
}

void World::finish_check(ServerId server) {
  const auto found = oracle_.servers.find(server);
  const bool ok = peaceful_ || chance(85);
  if (found != oracle_.servers.end()) oracle_.checked(server, ok, now_);
  pools_->checked(server, ok, now_);
}

void World::finish_close(ServerId server) {
  if (!oracle_.servers.contains(server)) return;
  lose(server);
}

void World::lose(ServerId server) {
  if (past_.size() < kMaxPast) {
    past_.push_back(server);
  } else {
    past_[below(kMaxPast)] = server;
  }
  oracle_.gone(server);
  pools_->lost(server, now_);
}

void World::release(std::uint64_t id, ServerId server) {
  Client& client = clients_[id];
  if (client.state != ClientState::holding || client.server != server) return;
  client.state = ClientState::idle;
  const bool reusable = chance(92);
  oracle_.released(server, reusable, now_);
  pools_->released(server, reusable, now_);
}

// --- What happens ------------------------------------------------------------------------------------------------

std::string World::step() {
  tally_.steps++;
  act();
  drain_actions();
  pass(span());
  return check();
}

void World::act() {
  const std::uint64_t what = below(1000);
  if (what < 120) {
    come();
  } else if (what < 720) {
    ask();
  } else if (what < 780) {
    leave();
  } else if (what < 840) {
    go_away();
  } else if (what < 870) {
    // Somebody ends a backend, or the network does.
    if (const ServerId server = random_server(); server != 0) {
      const ModelServer model = oracle_.servers.at(server);
      if (model.state == ModelState::held) clients_[model.holder].state = ClientState::idle;
      tally_.kills++;
      lose(server);
    }
  } else if (what < 885) {
    change_mood();
  } else if (what < 905) {
    reload();
  } else if (what < 925) {
    change_gates();
  } else if (what < 935) {
    retire();
  } else if (what < 945) {
    move_snapshot();
  } else if (what < 970) {
    report_nonsense();
  } else if (const std::uint64_t client = random_client(ClientState::holding); client != kNobody) {
    ModelServer& model = oracle_.servers.at(clients_[client].server);
    std::uint32_t pinned = 0;
    for (const auto& [id, server] : oracle_.servers) pinned += server.pool == model.pool && server.pinned ? 1 : 0;
    const PoolOptions& options = oracle_.pools.at(model.pool).options;
    const bool may = model.pinned || options.mode == proxy::PoolMode::session || pinned < options.max_size / 2;
    if (pools_->pin(clients_[client].server) != may) fail("pins too many or too few");
    if (may) model.pinned = true;
    tally_.pinned += may ? 1 : 0;
  }
}

void World::come() {
  const std::uint64_t id = random_client(ClientState::away);
  if (id == kNobody) return;
  // Half of the clients are of one user.
  const std::string user = user_name(chance(50) ? 0 : below(kUsers));
  const std::uint64_t set = below(kStartupSets);
  const PoolOptions options = random_options();
  const proxy::Attachment attachment =
      pools_->attach({user, "app", set == 0 ? "" : "set" + std::to_string(set)}, options, now_);
  if (attachment.refused) {
    tally_.sets_refused += *attachment.refused == proxy::RefuseReason::too_many_startup_sets ? 1 : 0;
    return;
  }
  Client& client = clients_[id];
  client.state = ClientState::idle;
  client.pool = attachment.pool;
  if (!oracle_.pools.contains(attachment.pool)) {
    ModelPool& pool = oracle_.pools[attachment.pool];
    pool.options = options;
    pool.user = user;
  }
  oracle_.pools.at(attachment.pool).clients++;
}

void World::ask() {
  const std::uint64_t id = random_client(ClientState::idle);
  if (id == kNobody) return;
  Client& client = clients_[id];
  client.state = ClientState::waiting;
  oracle_.asks(client.pool, id, now_);
  pools_->acquire(client.pool, id, now_);
}

void World::leave() {
  const std::uint64_t id = random_client(ClientState::waiting);
  if (id == kNobody) return;
  Client& client = clients_[id];
  oracle_.leaves(client.pool, id);
  if (!pools_->leave(id, now_)) fail("does not know one who waits");
  client.state = ClientState::idle;
  tally_.left++;
}

void World::go_away() {
  const std::uint64_t id = random_client(ClientState::idle);
  if (id == kNobody) return;
  Client& client = clients_[id];
  client.state = ClientState::away;
  oracle_.pools.at(client.pool).clients--;
  pools_->detach(client.pool, now_);
}

void World::change_mood() {
  Mood& mood = moods_[user_name(below(kUsers))];
  mood = chance(75) ? Mood::well : static_cast<Mood>(1 + below(4));
}

void World::reload() {
  tally_.reloads++;
  if (chance(30)) {
    limits_ = random_limits();
    oracle_.set_limits(limits_);
    pools_->set_limits(limits_, now_);
    return;
  }
  if (oracle_.pools.empty()) return;
  auto found = oracle_.pools.begin();
  std::advance(found, static_cast<std::ptrdiff_t>(below(oracle_.pools.size())));
  const PoolOptions options = random_options();
  found->second.options = options;
  pools_->set_options(found->first, options, now_);
}

void World::change_gates() {
  tally_.gates++;
  if (chance(50)) {
    reopen_gates();
  } else if (chance(50)) {
    oracle_.connect_closed.insert(user_name(below(kUsers)));
  } else {
    oracle_.held_back.insert(below(kClients));
  }
}

void World::reopen_gates() {
  oracle_.connect_closed.clear();
  oracle_.held_back.clear();
  std::vector<PoolId> ids;
  for (const auto& [id, pool] : oracle_.pools) ids.push_back(id);
  for (const PoolId id : ids) {
    if (!oracle_.pools.contains(id)) continue;
    pools_->gate_changed(id, now_);
    drain_actions();
  }
}

void World::retire() {
  if (chance(5)) {
    for (const auto& [id, pool] : oracle_.pools) oracle_.retire_pool(id);
    pools_->retire_all(now_);
  } else if (const ServerId server = random_server(); server != 0) {
    const PoolId pool = oracle_.servers.at(server).pool;
    if (chance(30)) {
      oracle_.retire_pool(pool);
      pools_->retire_pool(pool, now_);
    } else {
      oracle_.retire(server);
      pools_->retire(server, now_);
    }
  }
}

void World::move_snapshot() {
  const std::uint64_t client = random_client(ClientState::holding);
  if (client == kNobody) return;
  const ServerId server = clients_[client].server;
  oracle_.snapshot_moved(server);
  pools_->snapshot_moved(server, now_);
}

// Reports about what is gone, or that do not fit.
void World::report_nonsense() {
  tally_.stale_reports++;
  const ServerId gone = past_.empty() ? 12345 : past_[below(past_.size())];
  pools_->opened(gone, now_);
  pools_->released(gone, true, now_);
  pools_->checked(gone, chance(50), now_);
  pools_->open_failed(gone, {FailureKind::rejected, "28P01", ""}, now_);
  pools_->lost(gone, now_);
  pools_->retire(gone, now_);
  pools_->snapshot_moved(gone, now_);
  if (pools_->pin(gone)) fail("pins what is gone");
  const ServerId server = random_server();
  if (server == 0) return;
  const ModelState state = oracle_.servers.at(server).state;
  if (state != ModelState::connecting) pools_->opened(server, now_);
  if (state != ModelState::held) pools_->released(server, true, now_);
  if (state != ModelState::checking) pools_->checked(server, false, now_);
  if (state != ModelState::connecting && state != ModelState::closing)
    pools_->open_failed(server, {FailureKind::rejected, "28P01", ""}, now_);
}

std::string World::check() {
  if (!failure_.empty()) return failure_;
  tally_.audits++;
  std::string found = pools_->audit(now_);
  if (found.empty()) found = oracle_.at_rest(*pools_, now_);
  return found;
}

std::string World::drain() {
  peaceful_ = true;
  reopen_gates();
  for (int i = 0; i < 600 && failure_.empty(); i++) {
    pass(100 * kMillisecond);
    const std::string found = check();
    if (!found.empty()) return found;
  }
  if (pools_->totals().waiting > 0) return "somebody waits for ever";
  if (random_client(ClientState::holding) != kNobody || random_client(ClientState::waiting) != kNobody)
    return "a client was forgotten";
  for (Client& client : clients_) {
    if (client.state == ClientState::away) continue;
    client.state = ClientState::away;
    oracle_.pools.at(client.pool).clients--;
    pools_->detach(client.pool, now_);
    drain_actions();
  }
  for (int i = 0; i < 100 && failure_.empty(); i++) {
    pass(5 * kSecond);
    const std::string found = check();
    if (!found.empty()) return found;
  }
  if (pools_->totals().servers > 0 || pools_->totals().pools > 0) return "something is left of nobody's pools";
  if (pools_->next_deadline() != kNever) return "something is due although nothing is left";
  return failure_;
}

}  // namespace sluice::proxysim
