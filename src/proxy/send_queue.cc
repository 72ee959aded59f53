#include "proxy/send_queue.h"

namespace sluice::proxy {

void SendQueue::sent(std::size_t count) {
  if (owned_.empty()) {
    borrowed_ = borrowed_.subspan(count);
    return;
  }
  begin_ += count;
  if (begin_ < owned_.size()) return;
  clear();
}

void SendQueue::clear() noexcept {
  std::vector<std::uint8_t>().swap(owned_);  // assigning an empty one would keep the memory
  begin_ = 0;
  borrowed_ = {};
}

void SendQueue::copy_borrowed() {
  if (borrowed_.empty()) return;
  // What was sent from the front is dropped once it is the greater part, so the buffer moves seldom and stays bounded.
  if (begin_ > owned_.size() / 2) {
    owned_.erase(owned_.begin(), owned_.begin() + static_cast<std::ptrdiff_t>(begin_));
    begin_ = 0;
  }
  owned_.insert(owned_.end(), borrowed_.begin(), borrowed_.end());
  borrowed_ = {};
}

}  // namespace sluice::proxy
