// Whether a waiter is served sooner by a connection that another client gives back than by a new one.
//
// Known are the hold times of the pool (from assignment to release) as a histogram that forgets, and a moving average C
// of the time a login takes. With X a hold time, F its distribution, h = C/2 and
//
//   m(t) = E[min(X, t)]                                                the mean hold, cut off at t
//
// it follows:
//
//   a lease of age a ends within h with     p = (F(a+h) − F(a)) / (1 − F(a)),  on average after e
//   it serves until then                    p · max(1, (h − e) / m(h))         waiters
//   a connection that is being opened       max(1, C / m(C))                   waiters, in one connect time
//
// t/m(t) never exceeds the mean number of holds that begin in a time t, the first included (K. B. Erickson, 1973), so
// the forecast errs towards opening. A lease that is older than all but 1 % of the holds is overlong: it is not counted
// on at all, nor is one a client has pinned. What is left of the queue is divided by what one connection serves.
//
// If two leases are overlong (or one, in a pool that has no samples of its own yet) and none has ended since they
// began, the pool does something else than it did: then no lease is counted on and a new connection is good for one
// waiter.
//
// Nothing is known at first: then holds of 2 ms are assumed. That is the hopeful side, and costs little: when nobody of
// the queue was served for h, one is opened whatever the forecast said, and by then the leases have proved overlong.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "proxy/time.h"

namespace sluice::proxy {

// Four buckets an octave from 64 µs to about a minute.
class HoldHistogram {
 public:
  static constexpr std::size_t kBuckets = 80;
  static constexpr std::uint32_t kEnoughSamples = 16;  // a pool with fewer is judged by all pools' holds
  // Everything is halved at this weight: the last 128 holds or so decide.
  static constexpr float kMaxWeight = 256;
  static constexpr float kOverlongShare = 0.01F;

  struct Ending {
    double probability = 0;
    double after = 0;  // µs from now, on average, if it ends in time
  };

  void add(Time hold) noexcept;

  [[nodiscard]] bool has_enough() const noexcept { return samples_ >= kEnoughSamples; }
  // How likely a lease of this age ends within the horizon, and when.
  [[nodiscard]] Ending ending(Time age, Time horizon) const noexcept;
  // E[min(X, limit)], at least 1 µs.
  [[nodiscard]] double mean_within(Time limit) const noexcept;

  [[nodiscard]] static std::size_t bucket_of(Time hold) noexcept;
  [[nodiscard]] static Time lower_bound(std::size_t bucket) noexcept;

 private:
  std::array<float, kBuckets> weights_{};
  float weight_ = 0;
  std::uint32_t samples_ = 0;  // stays at kEnoughSamples
};

// An eighth of every new sample; one outlier counts for at most four times the average.
class ConnectAverage {
 public:
  static constexpr Time kAssumed = 50 * kMillisecond;

  void add(Time taken) noexcept;
  [[nodiscard]] bool known() const noexcept { return known_; }
  [[nodiscard]] Time value() const noexcept { return value_; }

 private:
  Time value_ = kAssumed;
  bool known_ = false;
};

// What was learnt, of one pool or of all pools.
struct ConnectHistory {
  static constexpr Time kAssumedHold = 2 * kMillisecond;
  static constexpr int kAssumedHolds = 8;

  // What all pools' history begins with.
  [[nodiscard]] static ConnectHistory assumed() noexcept;

  HoldHistogram holds;
  ConnectAverage connects;
};

// The formulae above for one decision.
class ServiceForecast {
 public:
  // `own` counts as far as it has samples, `all` for the rest. C is at least `least_connect_time`.
  ServiceForecast(const ConnectHistory& own, const ConnectHistory& all, Time least_connect_time) noexcept;

  // C alone, which is all that a deadline needs.
  [[nodiscard]] static Time connect_time_of(const ConnectHistory& own, const ConnectHistory& all,
                                            Time least_connect_time) noexcept;
  [[nodiscard]] Time connect_time() const noexcept { return connect_time_; }
  [[nodiscard]] Time horizon() const noexcept { return connect_time_ / 2; }
  [[nodiscard]] double by_lease(Time age) const noexcept;
  [[nodiscard]] double by_opening() const noexcept { return by_opening_; }
  // How many connections serve so many waiters at `each`; less than one waiter is none.
  [[nodiscard]] static std::uint32_t openings_for(double waiters, double each) noexcept;

 private:
  const HoldHistogram& holds_;
  Time connect_time_;
  double mean_within_horizon_;
  double by_opening_;
};

}  // namespace sluice::proxy
