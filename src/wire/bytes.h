// Bounded access to protocol bytes: a reader that never leaves its span and a writer that never overruns its buffer.
// Both are sticky: once something did not fit, everything after it fails as well, so callers check once, at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace sluice::wire {

using Bytes = std::span<const std::uint8_t>;

[[nodiscard]] inline std::string_view as_text(Bytes bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

[[nodiscard]] inline Bytes as_bytes(std::string_view text) noexcept {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

[[nodiscard]] constexpr std::uint32_t read_uint32(const std::uint8_t* at) noexcept {
  return std::uint32_t{at[0]} << 24U | std::uint32_t{at[1]} << 16U | std::uint32_t{at[2]} << 8U | at[3];
}

class ByteReader {
 public:
  explicit ByteReader(Bytes bytes) noexcept : bytes_(bytes) {}

  [[nodiscard]] bool failed() const noexcept { return failed_; }
  [[nodiscard]] std::size_t left() const noexcept { return failed_ ? 0 : bytes_.size() - at_; }
  // Everything was read and nothing was missing: what the end of a well-formed message looks like.
  [[nodiscard]] bool finished() const noexcept { return !failed_ && at_ == bytes_.size(); }

  [[nodiscard]] std::uint8_t byte() noexcept { return need(1) ? bytes_[at_++] : 0; }

  [[nodiscard]] std::uint16_t uint16() noexcept {
    if (!need(2)) return 0;
    auto value = static_cast<std::uint16_t>(bytes_[at_] << 8U | bytes_[at_ + 1]);
    at_ += 2;
    return value;
  }

  [[nodiscard]] std::uint32_t uint32() noexcept {
    if (!need(4)) return 0;
    std::uint32_t value = read_uint32(bytes_.data() + at_);
    at_ += 4;
    return value;
  }

  [[nodiscard]] Bytes bytes(std::size_t count) noexcept {
    if (!need(count)) return {};
    Bytes taken = bytes_.subspan(at_, count);
    at_ += count;
    return taken;
  }

  [[nodiscard]] Bytes rest() noexcept { return bytes(left()); }

  // The text up to the next NUL, which is read as well but is no part of it.
  [[nodiscard]] std::string_view text() noexcept {
    std::size_t room = left();
    const void* end = room == 0 ? nullptr : std::memchr(bytes_.data() + at_, 0, room);
    if (end == nullptr) {
      failed_ = true;
      return {};
    }
    std::size_t length = static_cast<std::size_t>(static_cast<const std::uint8_t*>(end) - (bytes_.data() + at_));
    std::string_view found = as_text(bytes_.subspan(at_, length));
    at_ += length + 1;
    return found;
  }

 private:
  [[nodiscard]] bool need(std::size_t count) noexcept {
    if (count > left()) failed_ = true;
    return !failed_;
  }

  Bytes bytes_;
  std::size_t at_ = 0;
  bool failed_ = false;
};

class ByteWriter {
 public:
  explicit ByteWriter(std::span<std::uint8_t> out) noexcept : out_(out) {}

  // False once anything did not fit; what was written is then not to be sent.
  [[nodiscard]] bool ok() const noexcept { return ok_; }
  [[nodiscard]] std::size_t length() const noexcept { return ok_ ? length_ : 0; }
  [[nodiscard]] Bytes written() const noexcept { return Bytes(out_).first(length()); }

  ByteWriter& byte(std::uint8_t value) noexcept { return bytes({&value, 1}); }

  ByteWriter& uint16(std::uint16_t value) noexcept {
    const std::uint8_t big[2] = {static_cast<std::uint8_t>(value >> 8U), static_cast<std::uint8_t>(value)};
    return bytes(big);
  }

  ByteWriter& uint32(std::uint32_t value) noexcept {
    std::uint8_t big[4];
    put_uint32(big, value);
    return bytes(big);
  }

  ByteWriter& bytes(Bytes value) noexcept {
    if (value.size() > out_.size() - length_) ok_ = false;
    if (!ok_ || value.empty()) return *this;
    std::memcpy(out_.data() + length_, value.data(), value.size());
    length_ += value.size();
    return *this;
  }

  // Text with its NUL. A NUL inside would end it early for the reader, so it makes the writer fail.
  ByteWriter& text(std::string_view value) noexcept {
    if (!value.empty() && std::memchr(value.data(), 0, value.size()) != nullptr) ok_ = false;
    return bytes(as_bytes(value)).byte(0);
  }

  // A message: its type, room for the length, then whatever is written until end(). Type 0 leaves the type out, as
  // packets before the first ReadyForQuery do.
  ByteWriter& begin(char type) noexcept {
    if (type != 0) byte(static_cast<std::uint8_t>(type));
    message_ = length_;
    return uint32(0);
  }

  ByteWriter& end() noexcept {
    if (ok_) put_uint32(out_.data() + message_, static_cast<std::uint32_t>(length_ - message_));
    return *this;
  }

 private:
  static void put_uint32(std::uint8_t* at, std::uint32_t value) noexcept {
    for (std::size_t i = 0; i < 4; i++) at[i] = static_cast<std::uint8_t>(value >> (24U - 8U * i));
  }

  std::span<std::uint8_t> out_;
  std::size_t length_ = 0;
  std::size_t message_ = 0;
  bool ok_ = true;
};

}  // namespace sluice::wire
