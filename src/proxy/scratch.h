// Memory for the few bytes that a session makes itself instead of forwarding what came. Spans stay where they are until
// clear(), because the owner of the descriptor may send everything of a turn at once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "wire/bytes.h"

namespace sluice::proxy {

class Scratch {
 public:
  // Uninitialized room for `bytes`.
  [[nodiscard]] std::span<std::uint8_t> take(std::size_t bytes) {
    if (blocks_.empty() || bytes > blocks_.back().size - used_) grow(bytes);
    std::span<std::uint8_t> room(blocks_.back().data.get() + used_, bytes);
    used_ += bytes;
    return room;
  }

  [[nodiscard]] wire::Bytes copy(wire::Bytes bytes) {
    std::span<std::uint8_t> room = take(bytes.size());
    std::copy(bytes.begin(), bytes.end(), room.begin());
    return room;
  }

  // The first block is kept when it is small, so that a busy session does not allocate.
  void clear() noexcept {
    if (blocks_.empty()) return;
    bool keep = blocks_.front().size <= kBlockBytes;
    blocks_.erase(blocks_.begin() + (keep ? 1 : 0), blocks_.end());
    used_ = 0;
  }

 private:
  static constexpr std::size_t kBlockBytes = 1024;

  struct Block {
    std::unique_ptr<std::uint8_t[]> data;
    std::size_t size;
  };

  void grow(std::size_t bytes) {
    std::size_t size = std::max(bytes, kBlockBytes);
    blocks_.push_back({std::unique_ptr<std::uint8_t[]>(new std::uint8_t[size]), size});
    used_ = 0;
  }

  std::vector<Block> blocks_;
  std::size_t used_ = 0;  // of the last block
};

}  // namespace sluice::proxy
