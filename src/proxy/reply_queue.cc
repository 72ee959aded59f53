#include "proxy/reply_queue.h"

#include <algorithm>

namespace sluice::proxy {
namespace {

constexpr std::size_t kFirstSize = 16;

bool is_sync(Owed owed) noexcept { return owed == Owed::sync || owed == Owed::hidden_sync; }

bool is_local(Owed owed) noexcept { return owed == Owed::local_close || owed == Owed::local_parse; }

}  // namespace

void ReplyQueue::push(const Reply& reply) {
  if (size_ == ring_.size()) {
    std::vector<Reply> larger(std::max(kFirstSize, 2 * ring_.size()));
    for (std::size_t i = 0; i < size_; i++) larger[i] = at(i);
    ring_.swap(larger);
    begin_ = 0;
  }
  size_++;
  at(size_ - 1) = reply;
  if (ends_with_ready(reply.owed)) ready_owed_++;
}

void ReplyQueue::pop() noexcept { drop_front(1); }

void ReplyQueue::clear() noexcept {
  size_ = ready_owed_ = 0;
  begin_ = 0;
}

std::size_t ReplyQueue::before_sync() const noexcept {
  std::size_t index = 0;
  while (index < size_ && !is_sync(ring_[(begin_ + index) & (ring_.size() - 1)].owed)) index++;
  return index;
}

void ReplyQueue::drop_front(std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; i++) {
    if (ends_with_ready(at(i).owed)) ready_owed_--;
  }
  begin_ += count;
  size_ -= count;
}

void ReplyQueue::remove(std::size_t index) noexcept {
  if (ends_with_ready(at(index).owed)) ready_owed_--;
  for (std::size_t i = index; i + 1 < size_; i++) at(i) = at(i + 1);
  size_--;
}

std::size_t ReplyQueue::behind_local() const noexcept {
  std::size_t index = 1;
  // Answers of our own ask the server nothing.
  while (index < size_ && is_local(ring_[(begin_ + index) & (ring_.size() - 1)].owed)) index++;
  return index;
}

ReplyQueue::CopyIn ReplyQueue::enter_copy_in() noexcept {
  CopyIn found = {};
  for (;;) {
    std::size_t index = behind_local();
    found.ended = index < size_ && !is_sync(at(index).owed);
    if (index == size_ || found.ended) return found;
    found.syncs++;
    remove(index);
  }
}

}  // namespace sluice::proxy
