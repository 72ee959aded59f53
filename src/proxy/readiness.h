// Whether clients wait too long on average, over a sliding window: what makes /readyz say "degraded" although
// everything works. Owns a few buckets of time; allocates nothing.
#pragma once

#include <array>
#include <cstdint>

#include "proxy/time.h"

namespace sluice::proxy {

class Readiness {
 public:
  // `max_queue_time` 0: never degraded. The window is kept in kBuckets parts, so it is exact to one of them.
  static constexpr std::size_t kBuckets = 10;

  Readiness(Time max_queue_time, Time window) noexcept { set(max_queue_time, window); }
  // Of a reloaded configuration; begins anew.
  void set(Time max_queue_time, Time window) noexcept;

  // A client has waited so long for its connection, or has given up after so long.
  void waited(Time wait, Time now) noexcept;
  // Mean of the waits that ended within the window; 0 without any.
  [[nodiscard]] Time mean(Time now) const noexcept;
  // `oldest_wait` is how long the oldest client has been waiting by now, 0 if nobody waits: when nothing moves at all
  // no wait ends, and that must not look healthy.
  [[nodiscard]] bool degraded(Time now, Time oldest_wait) const noexcept;

 private:
  struct Bucket {
    std::int64_t number = -1;  // now / bucket length, of when it was begun
    std::uint64_t count = 0;
    std::uint64_t sum = 0;
  };

  Time max_queue_time_ = 0;
  Time bucket_length_ = 1;
  std::array<Bucket, kBuckets> buckets_{};
};

}  // namespace sluice::proxy
