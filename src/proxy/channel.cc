#include "proxy/channel.h"

#include <utility>

namespace sluice::proxy {

void ChannelHub::flush_all() {
  // Sending calls handlers, and they may queue more.
  while (!waiting_.empty()) {
    Channel* channel = waiting_.back();
    waiting_.pop_back();
    channel->listed_ = false;
    channel->write_some();
  }
}

// Reading waits for the next turn: who was relieved may be on the stack.
void ChannelHub::read_again() {
  std::vector<Channel*> refrained = std::exchange(refrained_, {});
  for (Channel* channel : refrained) {
    channel->refrains_ = false;
    if (channel->stream_.has_pending()) channel->again_.next_turn();
    channel->update_interest();
  }
}

Channel::Channel(ChannelHub& hub, Stream stream, ChannelHandler& handler)
    : hub_(hub),
      stream_(std::move(stream)),
      handler_(handler),
      poll_(std::make_unique<Poll>(hub.loop(), stream_.descriptor(), [this](Interest found) { ready(found); })),
      again_(hub.loop(),
             [this] {
               read_some();
               hub_.flush_all();
               update_interest();
             }),
      held_(hub.memory()) {
  update_interest();
}

Channel::~Channel() { close(); }

void Channel::begin_step(bool wait_for_writable) {
  in_step_ = true;
  step_writes_ = wait_for_writable;
  update_interest();
}

void Channel::end_step() {
  in_step_ = false;
  // What the peer sent right behind its handshake may be inside TLS already.
  if (stream_.has_pending()) again_.next_turn();
  update_interest();
}

void Channel::send(wire::Bytes bytes) {
  if (closed() || bytes.empty()) return;
  if (queue_.empty()) progress_at_ = hub_.loop().now();
  queue_.add(bytes);
  // Only the buffer that was read into stays as it is until flush_all(); and nobody flushes while the peer takes
  // nothing.
  if (blocked_ || !hub_.holds(bytes)) {
    queue_.settle();
    held_.set(queue_.capacity() + stream_.unsent());
  }
  if (listed_ || blocked_) return;
  listed_ = true;
  hub_.waiting_.push_back(this);
  hub_.flush_task_.at_turn_end();
}

void Channel::flush() {
  if (!listed_) return;
  std::erase(hub_.waiting_, this);
  listed_ = false;
  write_some();
}

void Channel::read(bool wanted) {
  if (reading_ == wanted) return;
  reading_ = wanted;
  if (closed()) return;
  // Bytes that TLS holds already make no descriptor readable.
  if (wanted && !in_step_ && stream_.has_pending()) again_.next_turn();
  update_interest();
}

void Channel::yield_memory(bool yields) {
  yields_ = yields;
  if (yields || !refrains_) return;
  stop_refraining();
  if (stream_.has_pending()) again_.next_turn();
  update_interest();
}

void Channel::stop_refraining() {
  if (std::exchange(refrains_, false)) std::erase(hub_.refrained_, this);
}

void Channel::close() noexcept {
  if (closed()) return;
  stop_refraining();
  if (listed_) std::erase(hub_.waiting_, this);
  listed_ = false;
  queue_.clear();
  held_.set(0);
  poll_.reset();
  stream_.close();
}

void Channel::close_with_reset() noexcept {
  if (closed()) return;
  stream_.reset_on_close();
  close();
}

void Channel::ready(Interest found) {
  if (in_step_) {
    handler_.channel_step(*this);
    if (!closed()) update_interest();
    return;
  }
  if (blocked_ || stream_.unsent() > 0) write_some();
  // A reset is told also while nothing is read; after it nothing can be sent either.
  if (found.failed && !closed() && stream_.pending_error() != StreamStatus::done) end(StreamStatus::reset);
  if (!closed()) read_some();
  hub_.flush_all();
  if (!closed()) update_interest();
}

void Channel::read_some() {
  for (int reads = 0; reading_ && !ended_ && !closed() && !in_step_; reads++) {
    if (yields_ && hub_.memory().full()) {
      if (!std::exchange(refrains_, true)) hub_.refrained_.push_back(this);
      return;
    }
    if (reads == kMaxReadsPerTurn) {
      again_.next_turn();
      return;
    }
    Moved moved = stream_.read(hub_.buffer());
    if (moved.status == StreamStatus::would_block) return;
    if (moved.status != StreamStatus::done) {
      end(moved.status);
      return;
    }
    bytes_received_ += moved.bytes;
    handler_.channel_received(*this, wire::Bytes(hub_.buffer()).first(moved.bytes));
    hub_.flush_all();
    if (!moved.more) return;
  }
}

void Channel::write_some() {
  if (closed()) return;
  if (in_step_) {
    queue_.settle();  // what it was read into is used again before the step ends
    return;
  }
  bool was_blocked = std::exchange(blocked_, false);
  // What TLS has kept goes first.
  StreamStatus kept = stream_.flush();
  if (kept == StreamStatus::would_block) {
    blocked_ = true;
    queue_.settle();
  } else if (kept != StreamStatus::done) {
    queue_.clear();
    end(StreamStatus::reset);
    return;
  }
  while (!blocked_ && !queue_.empty()) {
    Moved moved = stream_.write(queue_.front());
    if (moved.bytes > 0) {
      progress_at_ = hub_.loop().now();
      bytes_sent_ += moved.bytes;
      queue_.sent(moved.bytes);
    }
    if (moved.status == StreamStatus::done) continue;
    if (moved.status != StreamStatus::would_block) {
      queue_.clear();
      end(StreamStatus::reset);
      return;
    }
    blocked_ = true;
    queue_.settle();
  }
  blocked_ = blocked_ || stream_.unsent() > 0;
  held_.set(queue_.capacity() + stream_.unsent());
  update_interest();
  if (was_blocked && !blocked_) handler_.channel_drained(*this);
}

void Channel::end(StreamStatus how) {
  // A FIN leaves the other direction open, so a reset after it is news. Nothing is after a reset.
  if (lost_ || (ended_ && how == StreamStatus::end)) return;
  ended_ = true;
  lost_ = how != StreamStatus::end;
  handler_.channel_ended(*this, how);
}

void Channel::update_interest() noexcept {
  if (poll_ == nullptr) return;
  if (in_step_) {
    Interest interest = stream_.poll_interest(!step_writes_, step_writes_);
    poll_->want(interest.readable, interest.writable);
    return;
  }
  Interest interest = stream_.poll_interest(reading_ && !ended_ && !refrains_, blocked_);
  poll_->want(interest.readable, interest.writable);
}

}  // namespace sluice::proxy
