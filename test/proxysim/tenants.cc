#include "proxysim/tenants.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "proxy/pools.h"

namespace sluice::proxysim {

using proxy::kMillisecond;
using proxy::kNever;
using proxy::kSecond;
using proxy::PoolAction;
using proxy::PoolActionKind;
using proxy::PoolId;
using proxy::ServerId;
using proxy::Time;
using proxy::WaiterId;

namespace {

constexpr std::uint32_t kTenants = 1000;
constexpr std::uint32_t kBusy = 2;
constexpr std::uint32_t kWarm = 18;
constexpr double kBusyRates[kBusy] = {438, 225};  // transactions a second
constexpr double kWarmRate = 3;
constexpr double kColdRate = 5;  // of all cold ones together
constexpr double kNewClients = 15;
constexpr std::uint32_t kMaxTotal = 60;
constexpr Time kLoad = 60 * kSecond;

enum class Kind : std::uint8_t { busy, warm, cold, newcomer, login };
constexpr std::size_t kKinds = 5;
constexpr const char* kNames[kKinds] = {"busy", "warm", "cold", "new client", "login to every tenant"};

class Load {
 public:
  explicit Load(std::uint64_t seed) : random_(seed), pools_(limits(), gate_, seed) {
    for (std::uint32_t tenant = 0; tenant < kTenants; tenant++) {
      ids_.push_back(pools_.attach({"tenant" + std::to_string(tenant), "app", ""}, {}, now_).pool);
    }
  }

  void run() {
    const Time end = now_ + 2 * kLoad;
    for (std::uint32_t i = 0; i < kBusy; i++) arrive(Kind::busy, i, 1, kBusyRates[i], end);
    arrive(Kind::warm, kBusy, kWarm, kWarm * kWarmRate, end);
    arrive(Kind::cold, kBusy + kWarm, kTenants - kBusy - kWarm, kColdRate, end);
    arrive(Kind::newcomer, 0, kTenants, kNewClients, end);
    pass(kLoad);
    opens_before_logins_ = opens_;
    for (std::uint32_t tenant = 0; tenant < kTenants; tenant++) {
      at(now_ + kLoad * tenant / kTenants, [this, tenant] { transact(Kind::login, tenant); });
    }
    pass(kLoad + 40 * kSecond);
  }

  bool report(std::uint64_t seed) {
    std::printf(
        "#   a thousand tenants: %" PRIu32 " connections at most, %.1f opened a second, %.1f while everybody logs in\n",
        most_, static_cast<double>(opens_before_logins_) / 60, static_cast<double>(opens_ - opens_before_logins_) / 60);
    std::uint64_t asked = 0;
    std::uint64_t served = 0;
    for (std::size_t kind = 0; kind < kKinds; kind++) {
      std::vector<Time>& waits = waits_[kind];
      std::sort(waits.begin(), waits.end());
      asked += asked_[kind];
      served += waits.size();
      std::printf("#   %s: %zu of %" PRIu64
                  " served, waited %.1f ms at the median, %.1f ms at 99 %%, %.1f ms at most\n",
                  kNames[kind], waits.size(), asked_[kind], wait_ms(kind, 0.5), wait_ms(kind, 0.99), wait_ms(kind, 1));
    }
    const std::string discrepancy = pools_.audit(now_);
    bool ok = say(seed, "everybody is served, nobody refused", served == asked && refused_ == 0);
    ok = say(seed, "the cap holds", most_ <= kMaxTotal) && ok;
    ok = say(seed, "busy tenants hardly wait", wait_ms(0, 0.5) == 0 && wait_ms(0, 0.99) <= 25) && ok;
    ok = say(seed, "a cold tenant waits for little more than a login",
             wait_ms(2, 0.99) <= 100 && wait_ms(4, 0.99) <= 100) &&
         ok;
    ok = say(seed, "two busy tenants do not open for every transaction", opens_before_logins_ < 60 * 25) && ok;
    return say(seed, discrepancy.empty() ? "the books hold" : discrepancy.c_str(), discrepancy.empty()) && ok;
  }

 private:
  static proxy::PoolLimits limits() {
    proxy::PoolLimits limits;
    limits.max_total = kMaxTotal;
    return limits;
  }

  static bool say(std::uint64_t seed, const char* what, bool ok) {
    std::printf("%s - a thousand tenants, seed %" PRIu64 ": %s\n", ok ? "ok" : "not ok", seed, what);
    return ok;
  }

  [[nodiscard]] double wait_ms(std::size_t kind, double share) const {
    const std::vector<Time>& waits = waits_[kind];
    if (waits.empty()) return 0;
    const auto last = static_cast<double>(waits.size() - 1);
    return static_cast<double>(waits[static_cast<std::size_t>(last * share)]) / kMillisecond;
  }

  [[nodiscard]] double uniform() { return static_cast<double>(random_() >> 11U) * 0x1.0p-53; }
  [[nodiscard]] Time exponential(double mean) { return static_cast<Time>(-std::log(1 - uniform()) * mean); }
  [[nodiscard]] Time hold() { return uniform() < 0.01 ? 200 * kMillisecond : 500 + exponential(5000); }

  void at(Time time, std::function<void()> event) { events_.emplace(time, std::move(event)); }

  // Transactions of random ones of `count` tenants from `first` on, so many a second, until `end`.
  void arrive(Kind kind, std::uint32_t first, std::uint32_t count, double rate, Time end) {
    const Time next = now_ + exponential(static_cast<double>(kSecond) / rate);
    if (next >= end) return;
    at(next, [this, kind, first, count, rate, end] {
      transact(kind, first + static_cast<std::uint32_t>(random_() % count));
      arrive(kind, first, count, rate, end);
    });
  }

  void transact(Kind kind, std::uint32_t tenant) {
    const auto waiter = static_cast<WaiterId>(kinds_.size());
    kinds_.push_back(kind);
    asked_[static_cast<std::size_t>(kind)]++;
    pools_.acquire(ids_[tenant], waiter, now_);
  }

  void pass(Time span) {
    const Time end = now_ + span;
    for (;;) {
      const Time event = events_.empty() ? kNever : events_.begin()->first;
      const Time next = std::min(event, pools_.next_deadline());
      if (next > end) break;
      now_ = std::max(now_, next);
      if (event <= now_) {
        const std::function<void()> run = std::move(events_.begin()->second);
        events_.erase(events_.begin());
        run();
      } else {
        pools_.tick(now_);
      }
      while (const std::optional<PoolAction> action = pools_.next_action()) carry_out(*action);
      most_ = std::max(most_, pools_.totals().servers);
    }
    now_ = end;
  }

  void carry_out(const PoolAction& action) {
    const ServerId server = action.server;
    if (action.kind == PoolActionKind::open) {
      opens_++;
      at(now_ + 15 * kMillisecond + exponential(10000), [this, server] { pools_.opened(server, now_); });
    } else if (action.kind == PoolActionKind::assign) {
      waits_[static_cast<std::size_t>(kinds_[action.waiter])].push_back(action.waited);
      at(now_ + hold(), [this, server] { pools_.released(server, true, now_); });
    } else if (action.kind == PoolActionKind::check) {
      at(now_ + 300, [this, server] { pools_.checked(server, true, now_); });
    } else if (action.kind == PoolActionKind::close) {
      pools_.lost(server, now_);
    } else if (action.kind == PoolActionKind::refuse) {
      refused_++;
    }
  }

  std::mt19937_64 random_;
  proxy::OpenGate gate_;
  proxy::Pools pools_;
  Time now_ = 1000 * kSecond;
  std::multimap<Time, std::function<void()>> events_;
  std::vector<PoolId> ids_;
  std::vector<Kind> kinds_;  // of every transaction
  std::uint64_t asked_[kKinds] = {};
  std::vector<Time> waits_[kKinds];
  std::uint64_t refused_ = 0;
  std::uint64_t opens_ = 0;
  std::uint64_t opens_before_logins_ = 0;
  std::uint32_t most_ = 0;
};

}  // namespace

bool report_thousand_tenants(std::uint64_t seed) {
  Load load(seed);
  load.run();
  return load.report(seed);
}

}  // namespace sluice::proxysim
