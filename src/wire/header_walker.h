// Walks the headers of a byte stream that arrives in arbitrary pieces. It keeps five bytes and a count, never a
// payload: what nobody reads is counted through and can be forwarded as it came.
#pragma once

#include <cstdint>
#include <span>

#include "wire/bytes.h"
#include "wire/message_type.h"

namespace sluice::wire {

enum class PieceKind : std::uint8_t {
  nothing,         // the input is empty
  partial_header,  // raw is the beginning of a header, or a middle part of one; more input is needed
  message,         // a message, or a part of one
  unknown_type,    // 08P01; the stream is over
  invalid_length,  // the stream is over: below four, over the type's limit, or over the caller's
};

struct Piece {
  PieceKind kind;
  std::uint8_t type;
  bool first;  // the message's header ended in this piece
  bool last;   // the message ends with this piece
  Interest interest;
  std::uint32_t length;  // payload bytes of the whole message
  Bytes raw;             // the bytes of the input this piece covers, header bytes included
  Bytes payload;         // those of them that are payload
};

class HeaderWalker {
 public:
  // Messages with more than `max_payload` bytes are refused from the header alone.
  explicit HeaderWalker(Direction direction, Phase phase = Phase::relay,
                        std::uint32_t max_payload = kLargeLength) noexcept
      : direction_(direction), phase_(phase), max_payload_(max_payload) {}

  // Takes one piece from the front of `input`. After unknown_type or invalid_length it takes nothing and says the same
  // again, however often it is asked.
  [[nodiscard]] Piece next(Bytes& input) noexcept;

  // Only between two messages.
  void enter(Phase phase) noexcept { phase_ = phase; }

  // No message has begun, so the stream may end or be cut here.
  [[nodiscard]] bool between_messages() const noexcept { return held_ == 0 && left_ == 0; }

  // The header of the message that is being read: what a caller forwards who kept back partial_header pieces.
  [[nodiscard]] Bytes header() const noexcept { return header_; }

 private:
  [[nodiscard]] PieceKind judge_header() noexcept;

  std::uint8_t header_[5] = {};
  Direction direction_;
  Phase phase_;
  PieceKind failure_ = PieceKind::nothing;
  Interest interest_ = Interest::count;
  std::uint8_t held_ = 0;  // bytes of an unfinished header
  std::uint32_t max_payload_;
  std::uint32_t length_ = 0;
  std::uint32_t left_ = 0;  // payload bytes still to come
};

enum class Collected : std::uint8_t {
  more,      // the message goes on
  complete,  // payload() is all of it
  too_long,  // it does not fit; payload() is as much of its beginning as does
};

// Puts the payload of one message together, in memory the caller owns. A message that arrived whole is not copied.
class Collector {
 public:
  explicit Collector(std::span<std::uint8_t> storage) noexcept : storage_(storage) {}
  [[nodiscard]] Collected add(const Piece& piece) noexcept;
  // Valid until the next add(), and no longer than the input it came from.
  [[nodiscard]] Bytes payload() const noexcept { return payload_; }

 private:
  std::span<std::uint8_t> storage_;
  std::size_t used_ = 0;
  Bytes payload_;
};

}  // namespace sluice::wire
