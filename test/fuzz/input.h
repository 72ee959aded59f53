// One input of the fuzzer: the first bytes choose how the code is set up and how the rest is cut, the rest is the
// stream itself, as it stands. So a corpus can be written by hand, and a change of one byte changes one thing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "wire/bytes.h"

namespace sluice::fuzz {

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}

  // Choices: 0 once the input is used up.
  [[nodiscard]] std::uint8_t byte() {
    if (rest_.empty()) return 0;
    std::uint8_t first = rest_[0];
    rest_ = rest_.subspan(1);
    return first;
  }

  // How the rest is cut: 0 leaves it whole, anything else seeds the lengths of its pieces.
  void cut_by(std::uint8_t seed) { seed_ = seed; }
  [[nodiscard]] wire::Bytes piece() {
    std::size_t size = seed_ == 0 ? rest_.size() : std::min<std::size_t>(rest_.size(), 1 + random() % 40);
    wire::Bytes taken = rest_.first(size);
    rest_ = rest_.subspan(size);
    return taken;
  }

  // Repeatable, from the seed.
  [[nodiscard]] std::uint32_t random() {
    seed_ = seed_ * 1664525U + 1013904223U;
    return seed_ >> 16U;
  }

  [[nodiscard]] bool empty() const { return rest_.empty(); }
  [[nodiscard]] wire::Bytes rest() const { return rest_; }

 private:
  wire::Bytes rest_;
  std::uint32_t seed_ = 0;
};

}  // namespace sluice::fuzz
