#include "proxy/readiness.h"

#include <algorithm>

namespace sluice::proxy {

void Readiness::set(Time max_queue_time, Time window) noexcept {
  max_queue_time_ = max_queue_time;
  bucket_length_ = std::max<Time>(window / static_cast<Time>(kBuckets), 1);
  buckets_ = {};
}

void Readiness::waited(Time wait, Time now) noexcept {
  std::int64_t number = now / bucket_length_;
  Bucket& bucket = buckets_[static_cast<std::size_t>(number) % kBuckets];
  if (bucket.number != number) bucket = {number, 0, 0};
  bucket.count++;
  bucket.sum += static_cast<std::uint64_t>(std::max<Time>(wait, 0));
}

Time Readiness::mean(Time now) const noexcept {
  std::int64_t newest = now / bucket_length_;
  std::uint64_t count = 0;
  std::uint64_t sum = 0;
  for (const Bucket& bucket : buckets_) {
    if (bucket.number < 0 || bucket.number > newest || newest - bucket.number >= static_cast<std::int64_t>(kBuckets)) {
      continue;
    }
    count += bucket.count;
    sum += bucket.sum;
  }
  return count == 0 ? 0 : static_cast<Time>(sum / count);
}

bool Readiness::degraded(Time now, Time oldest_wait) const noexcept {
  if (max_queue_time_ == 0) return false;
  Time window = bucket_length_ * static_cast<Time>(kBuckets);
  return mean(now) >= max_queue_time_ || oldest_wait >= std::max(window, max_queue_time_);
}

}  // namespace sluice::proxy
