// ErrorResponse and NoticeResponse: fields in, fields out. Source: PostgreSQL's documentation, "Error and Notice
// Message Fields".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "wire/bytes.h"

namespace sluice::wire {

// The fields in the order they came. Views into the message, or into whatever the caller set them to. Types that are
// not known are kept: the protocol asks for it.
class ErrorFields {
 public:
  // Room for each documented field and as many unknown ones again.
  static constexpr std::size_t kMaxFields = 36;

  void clear() noexcept { count_ = 0; }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] char type(std::size_t index) const noexcept { return types_[index]; }
  [[nodiscard]] std::string_view text(std::size_t index) const noexcept { return texts_[index]; }

  // The first field of a type; empty where there is none.
  [[nodiscard]] std::string_view find(char type) const noexcept;
  // Replaces the field or adds it. False when there is no room, or `type` is 0.
  [[nodiscard]] bool set(char type, std::string_view text) noexcept;

  [[nodiscard]] std::string_view severity() const noexcept { return find('V').empty() ? find('S') : find('V'); }
  [[nodiscard]] std::string_view sqlstate() const noexcept { return find('C'); }
  [[nodiscard]] std::string_view message() const noexcept { return find('M'); }

  // The server closes the connection after it.
  [[nodiscard]] bool is_fatal() const noexcept { return severity() == "FATAL" || severity() == "PANIC"; }

 private:
  char types_[kMaxFields] = {};
  std::string_view texts_[kMaxFields];
  std::size_t count_ = 0;
};

// Reads the payload of 'E' or 'N'. False for one that is unterminated, goes on behind its end, has more fields than
// fit, or lacks what each error has: a severity, a message, and a SQLSTATE of five digits or upper-case letters. A
// server that sends such a thing is not to be trusted with the next message.
[[nodiscard]] bool read_error(Bytes payload, ErrorFields& fields) noexcept;

// `type` is 'E' or 'N'.
void write_error(ByteWriter& out, char type, const ErrorFields& fields) noexcept;

// The answer a proxy makes itself. Severity is ERROR, FATAL or a notice's; detail and hint may be empty.
struct ErrorText {
  std::string_view severity;
  std::string_view sqlstate;
  std::string_view message;
  std::string_view detail;
  std::string_view hint;
};
void write_error(ByteWriter& out, const ErrorText& error) noexcept;

}  // namespace sluice::wire
