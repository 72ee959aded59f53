// Bytes on their way to one descriptor. What is added is only borrowed until settle(): in the usual turn all of it is
// one span of the buffer it was read into, and goes out from there with a single write. What the descriptor did not
// take is copied, and the copy's memory is given back as soon as it is empty, so an idle connection holds none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "wire/bytes.h"

namespace sluice::proxy {

class SendQueue {
 public:
  // `bytes` must stay where they are until settle() or copy().
  void add(wire::Bytes bytes) {
    if (bytes.empty()) return;
    if (owned_.empty() && borrowed_.empty()) {
      borrowed_ = bytes;
    } else if (!borrowed_.empty() && borrowed_.data() + borrowed_.size() == bytes.data()) {
      borrowed_ = {borrowed_.data(), borrowed_.size() + bytes.size()};
    } else {
      copy_borrowed();
      borrowed_ = bytes;
      copy_borrowed();
    }
  }

  [[nodiscard]] bool empty() const noexcept { return owned_.empty() && borrowed_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return owned_.size() - begin_ + borrowed_.size(); }
  // Memory that is held, for the process's limit.
  [[nodiscard]] std::size_t capacity() const noexcept { return owned_.capacity(); }

  // The next bytes to write. There may be more behind them.
  [[nodiscard]] wire::Bytes front() const noexcept {
    return owned_.empty() ? borrowed_ : wire::Bytes(owned_).subspan(begin_);
  }
  // `count` bytes of front() were written.
  void sent(std::size_t count);
  // Keeps whatever is left in memory of its own.
  void settle() { copy_borrowed(); }
  void clear() noexcept;

 private:
  void copy_borrowed();

  std::vector<std::uint8_t> owned_;
  std::size_t begin_ = 0;  // of what is left in owned_
  wire::Bytes borrowed_;
};

}  // namespace sluice::proxy
