// Pools in virtual time: what they ask for is noted, closes are answered at once, and the books are audited after
// every step.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "proxy/pools.h"

namespace sluice::proxy::test {

class PoolsWorld {
 public:
  explicit PoolsWorld(const PoolLimits& limits = {}) : pools(limits, gate, 7) {}
  explicit PoolsWorld(ConnectGate& other, const PoolLimits& limits = {}) : pools(limits, other, 7) {}

  // A pool with one client attached.
  PoolId pool(const std::string& user, const PoolOptions& options = {}, const std::string& startup = {}) {
    const Attachment attachment = pools.attach({user, "app", startup}, options, now);
    drain();
    EXPECT_FALSE(attachment.refused.has_value());
    return attachment.pool;
  }

  void acquire(PoolId id, WaiterId waiter) {
    pools.acquire(id, waiter, now);
    drain();
  }
  void release(WaiterId waiter, bool reusable = true) {
    const ServerId server = held.at(waiter);
    held.erase(waiter);
    pools.released(server, reusable, now);
    drain();
  }
  void opened(ServerId server) {
    pools.opened(server, now);
    drain();
  }
  // The oldest login in progress.
  void open_next() {
    ASSERT_FALSE(connecting.empty());
    const ServerId server = connecting.front();
    connecting.erase(connecting.begin());
    opened(server);
  }
  void fail_next(FailureKind kind, const std::string& sqlstate) {
    ASSERT_FALSE(connecting.empty());
    const ServerId server = connecting.front();
    connecting.erase(connecting.begin());
    pools.open_failed(server, {kind, sqlstate, "said by the server"}, now);
    drain();
  }
  // Opens so many connections and leaves them idle.
  void warm(PoolId id, std::uint32_t count) {
    for (WaiterId waiter = 0; waiter < count; waiter++) {
      acquire(id, kWarm + waiter);
      pass(30 * kMillisecond);
      while (!connecting.empty()) open_next();
    }
    for (WaiterId waiter = 0; waiter < count; waiter++) release(kWarm + waiter);
    ASSERT_EQ(pools.status(id, now).idle, count);
  }

  void at(Time time, std::function<void()> event) { events.emplace(time, std::move(event)); }
  void after(Time span, std::function<void()> event) { at(now + span, std::move(event)); }

  // Lets time go by: events and deadlines in their order.
  void pass(Time span) {
    const Time end = now + span;
    for (int steps = 0; steps < 1000000; steps++) {
      const Time event = events.empty() ? kNever : events.begin()->first;
      const Time next = std::min(event, pools.next_deadline());
      if (next > end) break;
      ASSERT_LT(steps, 999999) << "time does not move";
      now = std::max(now, next);
      if (event <= now) {
        const std::function<void()> run = std::move(events.begin()->second);
        events.erase(events.begin());
        run();
      } else {
        pools.tick(now);
      }
      drain();
    }
    now = end;
  }

  // Every login from now on ends well after `span`, by itself.
  void connect_in(Time span) {
    on_open = [this, span](ServerId server) {
      after(span, [this, server] {
        std::erase(connecting, server);
        pools.opened(server, now);
      });
    };
  }
  void fail_in(Time span, FailureKind kind, const std::string& sqlstate) {
    on_open = [this, span, kind, sqlstate](ServerId server) {
      after(span, [this, server, kind, sqlstate] {
        std::erase(connecting, server);
        pools.open_failed(server, {kind, sqlstate, "said by the server"}, now);
      });
    };
  }
  // Every client from now on releases by itself.
  void hold_for(Time span) {
    on_assign = [this, span](WaiterId waiter) {
      after(span, [this, waiter] {
        if (held.contains(waiter)) release(waiter);
      });
    };
  }

  void drain() {
    while (std::optional<PoolAction> action = pools.next_action()) note(*action);
    const std::string discrepancy = pools.audit(now);
    // Said once: every later step would only repeat it.
    if (discrepancy != last_discrepancy) ADD_FAILURE() << discrepancy;
    last_discrepancy = discrepancy;
  }

  [[nodiscard]] bool holds(WaiterId waiter) const { return held.contains(waiter); }
  [[nodiscard]] PoolStatus status(PoolId id) const { return pools.status(id, now); }
  [[nodiscard]] std::size_t closed_for(CloseReason reason) const {
    return static_cast<std::size_t>(std::count(close_reasons.begin(), close_reasons.end(), reason));
  }

  static constexpr WaiterId kWarm = 1'000'000;

  OpenGate gate;
  Time now = 1000 * kSecond;
  Pools pools;
  std::multimap<Time, std::function<void()>> events;
  std::function<void(ServerId)> on_open;
  std::function<void(WaiterId)> on_assign;
  bool answers_closes = true;

  std::uint32_t opens = 0;
  std::vector<ServerId> connecting;
  std::map<WaiterId, ServerId> held;
  std::vector<WaiterId> served;  // in the order they were
  std::map<WaiterId, PoolAction> assigned;
  std::map<WaiterId, PoolAction> refused;
  std::vector<ServerId> checks;
  std::vector<ServerId> closed;
  std::vector<CloseReason> close_reasons;
  std::vector<PoolId> forgotten;
  std::string last_discrepancy;

 private:
  void note(const PoolAction& action) {
    switch (action.kind) {
      case PoolActionKind::open:
        opens++;
        connecting.push_back(action.server);
        if (on_open) on_open(action.server);
        break;
      case PoolActionKind::assign:
        held[action.waiter] = action.server;
        assigned[action.waiter] = action;
        served.push_back(action.waiter);
        if (on_assign) on_assign(action.waiter);
        break;
      case PoolActionKind::check:
        checks.push_back(action.server);
        break;
      case PoolActionKind::close:
        closed.push_back(action.server);
        close_reasons.push_back(action.close_reason);
        std::erase(connecting, action.server);
        if (answers_closes) pools.lost(action.server, now);
        break;
      case PoolActionKind::refuse:
        refused[action.waiter] = action;
        break;
      case PoolActionKind::forget:
        forgotten.push_back(action.pool);
        break;
    }
  }
};

}  // namespace sluice::proxy::test
