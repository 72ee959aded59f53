#include "proxy/connect_estimate.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace sluice::proxy {

namespace {

constexpr int kFirstOctave = 6;  // 64 µs
constexpr Time kConnectShare = 8;
constexpr Time kMaxOutlier = 4;

// Of every bucket; the last has no end, so its beginning.
const std::array<double, HoldHistogram::kBuckets> kMiddles = [] {
  std::array<double, HoldHistogram::kBuckets> middles{};
  for (std::size_t bucket = 0; bucket < middles.size(); bucket++) {
    const std::size_t next = std::min(bucket + 1, middles.size() - 1);
    middles[bucket] = static_cast<double>(HoldHistogram::lower_bound(bucket) + HoldHistogram::lower_bound(next)) / 2;
  }
  return middles;
}();

// Which part of a bucket lies between two times, and the middle of that part.
struct Overlap {
  double share;
  double middle;
};

[[nodiscard]] Overlap overlap(std::size_t bucket, double from, double to) noexcept {
  const auto lower = static_cast<double>(HoldHistogram::lower_bound(bucket));
  // The last bucket has no end: whatever is in it takes longer than anyone asks.
  if (bucket + 1 == HoldHistogram::kBuckets) return {from <= lower ? 0.0 : 1.0, lower};
  const auto upper = static_cast<double>(HoldHistogram::lower_bound(bucket + 1));
  const double begin = std::max(lower, from);
  const double end = std::min(upper, to);
  if (end <= begin) return {0, 0};
  return {(end - begin) / (upper - lower), (begin + end) / 2};
}

}  // namespace

std::size_t HoldHistogram::bucket_of(Time hold) noexcept {
  if (hold < Time{1} << kFirstOctave) return 0;
  const auto value = static_cast<std::uint64_t>(hold);
  const int octave = static_cast<int>(std::bit_width(value)) - 1;
  const auto quarter = static_cast<std::size_t>(value >> (octave - 2)) & 3;
  const std::size_t bucket = static_cast<std::size_t>(octave - kFirstOctave) * 4 + quarter + 1;
  return std::min(bucket, kBuckets - 1);
}

Time HoldHistogram::lower_bound(std::size_t bucket) noexcept {
  if (bucket == 0) return 0;
  const std::size_t octave = (bucket - 1) / 4 + kFirstOctave;
  const auto quarter = static_cast<Time>((bucket - 1) % 4);
  return (4 + quarter) << (octave - 2);
}

void HoldHistogram::add(Time hold) noexcept {
  weights_[bucket_of(hold)] += 1;
  weight_ += 1;
  if (samples_ < kEnoughSamples) samples_++;
  if (weight_ < kMaxWeight) return;
  weight_ = 0;
  for (float& weight : weights_) {
    weight /= 2;
    weight_ += weight;
  }
}

HoldHistogram::Ending HoldHistogram::ending(Time age, Time horizon) const noexcept {
  const auto from = static_cast<double>(std::max<Time>(age, 0));
  const double to = from + static_cast<double>(horizon);
  double surviving = 0;
  double ends = 0;
  double sum = 0;
  for (std::size_t bucket = bucket_of(age); bucket < kBuckets; bucket++) {
    const double weight = weights_[bucket];
    if (weight == 0) continue;
    if (bucket + 1 == kBuckets) {
      surviving += weight;
      continue;
    }
    const Overlap in_time = overlap(bucket, from, to);
    surviving += weight * overlap(bucket, from, static_cast<double>(lower_bound(bucket + 1))).share;
    ends += weight * in_time.share;
    sum += weight * in_time.share * in_time.middle;
  }
  if (ends <= 0 || surviving < static_cast<double>(kOverlongShare * weight_)) return {};
  return {ends / surviving, sum / ends - from};
}

double HoldHistogram::mean_within(Time limit) const noexcept {
  const auto cut = static_cast<double>(limit);
  double sum = 0;
  for (std::size_t bucket = 0; bucket < kBuckets; bucket++) {
    sum += static_cast<double>(weights_[bucket]) * std::min(kMiddles[bucket], cut);
  }
  return weight_ <= 0 ? std::max(cut, 1.0) : std::max(sum / static_cast<double>(weight_), 1.0);
}

void ConnectAverage::add(Time taken) noexcept {
  if (!known_) {
    known_ = true;
    value_ = std::clamp<Time>(taken, 0, kMaxOutlier * kAssumed);
    return;
  }
  value_ += (std::clamp<Time>(taken, 0, kMaxOutlier * std::max(value_, kMillisecond)) - value_) / kConnectShare;
}

ConnectHistory ConnectHistory::assumed() noexcept {
  ConnectHistory history;
  for (int i = 0; i < kAssumedHolds; i++) history.holds.add(kAssumedHold);
  return history;
}

Time ServiceForecast::connect_time_of(const ConnectHistory& own, const ConnectHistory& all,
                                      Time least_connect_time) noexcept {
  const ConnectAverage& connects = own.connects.known() ? own.connects : all.connects;
  return std::max({connects.value(), least_connect_time, kMillisecond});
}

ServiceForecast::ServiceForecast(const ConnectHistory& own, const ConnectHistory& all, Time least_connect_time) noexcept
    : holds_(own.holds.has_enough() ? own.holds : all.holds),
      connect_time_(connect_time_of(own, all, least_connect_time)) {
  mean_within_horizon_ = holds_.mean_within(horizon());
  by_opening_ = std::max(1.0, static_cast<double>(connect_time_) / holds_.mean_within(connect_time_));
}

double ServiceForecast::by_lease(Time age) const noexcept {
  const HoldHistogram::Ending ending = holds_.ending(age, horizon());
  const double left = static_cast<double>(horizon()) - ending.after;
  return ending.probability * std::max(1.0, left / mean_within_horizon_);
}

std::uint32_t ServiceForecast::openings_for(double waiters, double each) noexcept {
  if (waiters < 1) return 0;
  return static_cast<std::uint32_t>(std::min(std::ceil(waiters / std::max(each, 1.0)), 1e6));
}

}  // namespace sluice::proxy
