// Bounded text without allocation: what the core writes names, paths and messages with. A writer never overruns its
// buffer, always keeps it NUL-terminated and cuts at a whole UTF-8 character.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace sluice::policy {

[[nodiscard]] inline bool contains(const char* text, char wanted) noexcept {
  while (*text != '\0' && *text != wanted) text++;
  return *text == wanted;
}

class TextWriter {
 public:
  TextWriter(char* out, std::size_t size) noexcept : out_(out), size_(size) {
    if (size_ > 0) out_[0] = '\0';
  }

  [[nodiscard]] std::size_t length() const noexcept { return length_; }
  [[nodiscard]] bool cut() const noexcept { return cut_; }

  // Drops everything behind `length`, which length() answered earlier: undoes a part that did not fit.
  void rewind(std::size_t length) noexcept {
    length_ = length;
    cut_ = false;
    if (size_ > 0) out_[length_] = '\0';
  }

  TextWriter& add(const char* text, std::size_t bytes) noexcept {
    if (cut_ || size_ == 0) return *this;
    std::size_t room = size_ - 1 - length_;
    if (bytes > room) {
      cut_ = true;
      bytes = room;
      while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0U) == 0x80U) bytes--;
    }
    std::memcpy(out_ + length_, text, bytes);
    length_ += bytes;
    out_[length_] = '\0';
    return *this;
  }

  TextWriter& add(const char* text) noexcept { return add(text, std::strlen(text)); }

  TextWriter& add(std::uint64_t number) noexcept {
    char digits[20];
    std::size_t at = sizeof(digits);
    do {
      digits[--at] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number != 0);
    return add(digits + at, sizeof(digits) - at);
  }

  TextWriter& add(std::uint32_t number) noexcept { return add(static_cast<std::uint64_t>(number)); }

  // A name inside a path: as it is where it consists of letters, digits, "_*/-" and bytes beyond ASCII, else in double
  // quotes with quotes inside doubled, so that a dot in a name is not taken for a step.
  TextWriter& add_path_name(const char* name) noexcept {
    bool plain = name[0] != '\0';
    for (const char* c = name; *c != '\0' && plain; c++) plain = is_plain(*c);
    if (plain) return add(name);
    return add_quoted(name);
  }

  // In double quotes; quotes inside are doubled and control characters shown as '?'.
  TextWriter& add_quoted(const char* text) noexcept {
    add("\"", 1);
    const char* start = text;
    for (const char* c = text; *c != '\0'; c++) {
      bool control = static_cast<unsigned char>(*c) < 0x20 || *c == 0x7F;
      if (*c != '"' && !control) continue;
      add(start, static_cast<std::size_t>(c - start)).add(control ? "?" : "\"\"");
      start = c + 1;
    }
    return add(start).add("\"", 1);
  }

 private:
  static bool is_plain(char c) noexcept {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '*' ||
           c == '/' || c == '-' || static_cast<unsigned char>(c) >= 0x80;
  }

  char* out_;
  std::size_t size_;
  std::size_t length_ = 0;
  bool cut_ = false;
};

}  // namespace sluice::policy
