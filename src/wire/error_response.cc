#include "wire/error_response.h"

#include <algorithm>

namespace sluice::wire {
namespace {

bool is_sqlstate(std::string_view text) noexcept {
  return text.size() == 5 &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z'); });
}

}  // namespace

std::string_view ErrorFields::find(char type) const noexcept {
  for (std::size_t i = 0; i < count_; i++) {
    if (types_[i] == type) return texts_[i];
  }
  return {};
}

bool ErrorFields::set(char type, std::string_view text) noexcept {
  if (type == 0) return false;
  for (std::size_t i = 0; i < count_; i++) {
    if (types_[i] != type) continue;
    texts_[i] = text;
    return true;
  }
  if (count_ == kMaxFields) return false;
  types_[count_] = type;
  texts_[count_++] = text;
  return true;
}

bool read_error(Bytes payload, ErrorFields& fields) noexcept {
  ByteReader reader(payload);
  fields.clear();
  for (;;) {
    auto type = static_cast<char>(reader.byte());
    if (reader.failed()) return false;
    if (type == 0) break;
    std::string_view text = reader.text();
    // A type that comes twice would be ambiguous for whoever reads it next.
    if (reader.failed() || fields.find(type).data() != nullptr || !fields.set(type, text)) return false;
  }
  return reader.finished() && !fields.severity().empty() && !fields.message().empty() && is_sqlstate(fields.sqlstate());
}

void write_error(ByteWriter& out, char type, const ErrorFields& fields) noexcept {
  out.begin(type);
  for (std::size_t i = 0; i < fields.size(); i++) {
    out.byte(static_cast<std::uint8_t>(fields.type(i))).text(fields.text(i));
  }
  out.byte(0).end();
}

void write_error(ByteWriter& out, const ErrorText& error) noexcept {
  out.begin('E').byte('S').text(error.severity).byte('V').text(error.severity).byte('C').text(error.sqlstate);
  out.byte('M').text(error.message);
  if (!error.detail.empty()) out.byte('D').text(error.detail);
  if (!error.hint.empty()) out.byte('H').text(error.hint);
  out.byte(0).end();
}

}  // namespace sluice::wire
