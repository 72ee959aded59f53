// The highest value of the last 30 seconds, in steps of five: what has been high is forgotten after 30 to 35 seconds.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "proxy/time.h"

namespace sluice::proxy {

class RecentPeak {
 public:
  static constexpr Time kStep = 5 * kSecond;
  static constexpr std::size_t kSteps = 7;

  void note(std::uint32_t value, Time now) noexcept {
    const Time step = now / kStep;
    Slot& slot = slots_[static_cast<std::size_t>(step) % kSteps];
    if (slot.step != step) slot = {step, 0};
    slot.peak = std::max(slot.peak, value);
  }

  [[nodiscard]] std::uint32_t value(Time now) const noexcept {
    const Time oldest = now / kStep - static_cast<Time>(kSteps) + 1;
    std::uint32_t peak = 0;
    for (const Slot& slot : slots_) {
      if (slot.step >= oldest) peak = std::max(peak, slot.peak);
    }
    return peak;
  }

 private:
  struct Slot {
    Time step = -1;
    std::uint32_t peak = 0;
  };
  std::array<Slot, kSteps> slots_{};
};

}  // namespace sluice::proxy
