// How much the buffers of a worker's connections hold, against the limit of the process. Above the limit clients are
// not read, so nothing new begins; what is under way goes on, and ends it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

namespace sluice::proxy {

class MemoryMeter {
 public:
  // `relieved` is called when there is room again.
  explicit MemoryMeter(std::function<void()> relieved) : relieved_(std::move(relieved)) {}

  void set_limit(std::uint64_t bytes) {
    limit_ = bytes;
    check();
  }
  void change(std::size_t before, std::size_t after) {
    held_ = held_ - before + after;
    check();
  }

  [[nodiscard]] bool full() const noexcept { return full_; }
  [[nodiscard]] std::uint64_t held() const noexcept { return held_; }

 private:
  // An eighth below the limit clients are read again: at the limit itself each of them would be stopped and let go with
  // every message.
  void check() {
    if (!full_) {
      full_ = held_ >= limit_;
    } else if (held_ < limit_ - limit_ / 8) {
      full_ = false;
      relieved_();
    }
  }

  std::function<void()> relieved_;
  std::uint64_t limit_ = UINT64_MAX;
  std::uint64_t held_ = 0;
  bool full_ = false;
};

// The part of one buffer's owner in it. The meter outlives it.
class HeldMemory {
 public:
  explicit HeldMemory(MemoryMeter& meter) noexcept : meter_(meter) {}
  ~HeldMemory() { set(0); }
  HeldMemory(const HeldMemory&) = delete;
  HeldMemory& operator=(const HeldMemory&) = delete;

  void set(std::size_t bytes) {
    if (bytes != bytes_) meter_.change(std::exchange(bytes_, bytes), bytes);
  }

 private:
  MemoryMeter& meter_;
  std::size_t bytes_ = 0;
};

}  // namespace sluice::proxy
