// One connection on the loop: reads what arrives and hands it on, sends what is queued, and says when the peer stops
// reading or goes. Both sides of the proxy are channels; what the bytes mean is their handlers' business.
//
// All channels of a worker read into the same buffer, and what a handler passes on is sent from there: flush_all() runs
// after each read, before the buffer is used again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "proxy/loop.h"
#include "proxy/memory_meter.h"
#include "proxy/send_queue.h"
#include "proxy/stream.h"
#include "wire/bytes.h"

namespace sluice::proxy {

inline constexpr std::size_t kReadBufferBytes = 64 * 1024;
// Reads of one descriptor in one turn, before others get theirs.
inline constexpr int kMaxReadsPerTurn = 4;

class Channel;

// What the channels of one worker share. Outlives them.
class ChannelHub {
 public:
  explicit ChannelHub(Loop& loop)
      : loop_(loop),
        buffer_(kReadBufferBytes),
        flush_task_(loop, [this] { flush_all(); }),
        relief_task_(loop, [this] { read_again(); }),
        memory_([this] { relief_task_.at_turn_end(); }) {}

  [[nodiscard]] Loop& loop() noexcept { return loop_; }
  [[nodiscard]] std::span<std::uint8_t> buffer() noexcept { return buffer_; }
  // Whether these bytes lie in the buffer.
  [[nodiscard]] bool holds(wire::Bytes bytes) const noexcept {
    std::less_equal<const std::uint8_t*> not_above;
    return not_above(buffer_.data(), bytes.data()) &&
           not_above(bytes.data() + bytes.size(), buffer_.data() + buffer_.size());
  }
  // What its channels and their owners hold.
  [[nodiscard]] MemoryMeter& memory() noexcept { return memory_; }
  // Sends what every channel has queued since the last time.
  void flush_all();

 private:
  friend class Channel;

  void read_again();

  Loop& loop_;
  std::vector<std::uint8_t> buffer_;
  std::vector<Channel*> waiting_;    // channels with bytes that were not offered to their descriptor yet
  std::vector<Channel*> refrained_;  // channels that are not read because memory is full
  Task flush_task_;                  // for bytes that were queued outside of a read
  Task relief_task_;
  MemoryMeter memory_;
};

class ChannelHandler {
 public:
  // The bytes are there during the call only.
  virtual void channel_received(Channel& channel, wire::Bytes bytes) = 0;
  // A step of connecting or of a handshake that was waited for may go on: the descriptor is ready.
  virtual void channel_step(Channel& channel) = 0;
  // The peer sends no more (end), or the connection is lost (reset, failed). Told once.
  virtual void channel_ended(Channel& channel, StreamStatus how) = 0;
  // Everything queued has been sent, after some of it had to wait.
  virtual void channel_drained(Channel& channel) = 0;

 protected:
  ~ChannelHandler() = default;
};

// A handler must not destroy its channel from within a call: it closes it and lets go later.
class Channel {
 public:
  Channel(ChannelHub& hub, Stream stream, ChannelHandler& handler);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // While a step is on (connecting, TLS handshake) readiness is told as channel_step() and nothing is read or sent.
  void begin_step(bool wait_for_writable);
  void end_step();

  void send(wire::Bytes bytes);
  // Now, instead of at the end of the turn.
  void flush();
  // Stops and goes on with reading; what has arrived meanwhile stays in the kernel.
  void read(bool wanted);
  [[nodiscard]] bool reading() const noexcept { return reading_; }
  // Whether it is left unread while memory is full.
  void yield_memory(bool yields);
  // Bytes that the peer has not taken yet.
  [[nodiscard]] std::size_t unsent() const noexcept { return queue_.size() + stream_.unsent(); }
  // More than `bytes` wait for the peer, which was offered them. channel_drained() follows.
  [[nodiscard]] bool backed_up(std::size_t bytes) const noexcept { return blocked_ && unsent() > bytes; }
  // When the peer last took a byte, or when the first of those that wait was queued.
  [[nodiscard]] Time progress_at() const noexcept { return progress_at_; }
  // All bytes that were ever sent to and received from the peer.
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept { return bytes_sent_; }
  [[nodiscard]] std::uint64_t bytes_received() const noexcept { return bytes_received_; }

  [[nodiscard]] Stream& stream() noexcept { return stream_; }
  [[nodiscard]] bool closed() const noexcept { return !stream_.valid(); }
  // Drops what is unsent.
  void close() noexcept;
  void close_with_reset() noexcept;

 private:
  friend class ChannelHub;

  void ready(Interest found);
  void read_some();
  void write_some();
  void end(StreamStatus how);
  void update_interest() noexcept;
  void stop_refraining();

  ChannelHub& hub_;
  Stream stream_;
  ChannelHandler& handler_;
  std::unique_ptr<Poll> poll_;
  Task again_;  // goes on reading what TLS holds when the budget of the turn is used up
  SendQueue queue_;
  HeldMemory held_;
  Time progress_at_ = kNever;
  std::uint64_t bytes_sent_ = 0;
  std::uint64_t bytes_received_ = 0;
  bool in_step_ = false;
  bool step_writes_ = false;
  bool reading_ = true;
  bool ended_ = false;    // reading is over
  bool lost_ = false;     // and so is everything else
  bool blocked_ = false;  // the descriptor took less than was queued
  bool listed_ = false;   // in the hub's list
  bool yields_ = false;
  bool refrains_ = false;  // in the hub's other list
};

}  // namespace sluice::proxy
