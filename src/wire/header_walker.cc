#include "wire/header_walker.h"

#include <algorithm>
#include <cstring>

namespace sluice::wire {

// Called after every byte of a header: a wrong type is known with the first, a wrong length with the last.
PieceKind HeaderWalker::judge_header() noexcept {
  TypeRule rule = type_rule(direction_, phase_, header_[0]);
  if (!rule.known) return PieceKind::unknown_type;
  if (held_ < sizeof(header_)) return PieceKind::partial_header;
  std::uint32_t length = read_uint32(header_ + 1);
  if (length < rule.min_length || length > rule.max_length || length - kMinLength > max_payload_) {
    return PieceKind::invalid_length;
  }
  interest_ = rule.interest;
  length_ = left_ = length - kMinLength;
  held_ = 0;
  return PieceKind::message;
}

Piece HeaderWalker::next(Bytes& input) noexcept {
  Piece piece = {};
  piece.kind = failure_;
  if (failure_ != PieceKind::nothing || input.empty()) return piece;
  std::size_t taken = 0;
  if (left_ == 0) {
    piece.kind = PieceKind::partial_header;
    if (held_ == 0 && input.size() >= sizeof header_) {
      // The usual case: it is all there.
      std::memcpy(header_, input.data(), sizeof header_);
      held_ = sizeof header_;
      taken = sizeof header_;
      piece.kind = judge_header();
      // What is wrong with the type is known from one byte, and no more of it is taken than when they come one by one.
      if (piece.kind == PieceKind::unknown_type) taken = held_ = 1;
    }
    while (piece.kind == PieceKind::partial_header && taken < input.size()) {
      header_[held_++] = input[taken++];
      piece.kind = judge_header();
    }
    if (piece.kind == PieceKind::unknown_type || piece.kind == PieceKind::invalid_length) failure_ = piece.kind;
    piece.first = piece.kind == PieceKind::message;
  } else {
    piece.kind = PieceKind::message;
  }
  piece.type = header_[0];
  if (piece.kind == PieceKind::message) {
    piece.interest = interest_;
    piece.length = length_;
    piece.payload = input.subspan(taken, std::min<std::size_t>(left_, input.size() - taken));
    left_ -= static_cast<std::uint32_t>(piece.payload.size());
    taken += piece.payload.size();
    piece.last = left_ == 0;
  }
  piece.raw = input.first(taken);
  input = input.subspan(taken);
  return piece;
}

Collected Collector::add(const Piece& piece) noexcept {
  if (piece.first) used_ = 0;
  if (piece.first && piece.last) {
    payload_ = piece.payload;
    return Collected::complete;
  }
  std::size_t room = std::min(piece.payload.size(), storage_.size() - used_);
  if (room > 0) std::memcpy(storage_.data() + used_, piece.payload.data(), room);
  used_ += room;
  payload_ = Bytes(storage_).first(used_);
  if (piece.length > storage_.size()) return Collected::too_long;
  return piece.last ? Collected::complete : Collected::more;
}

}  // namespace sluice::wire
