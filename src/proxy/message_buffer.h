// Makes one message of a size known beforehand and sends it: the logins' small messages, errors included.
#pragma once

#include <cstdint>
#include <vector>

#include "proxy/output.h"
#include "wire/bytes.h"
#include "wire/error_response.h"

namespace sluice::proxy {

// Room for a message's type, length, counts and terminators, beside its texts.
inline constexpr std::size_t kMessageFrameBytes = 64;

// `write` gets a ByteWriter with room for `texts` bytes of text. What does not fit is not sent: a size that was
// computed wrongly shows as a missing message in the first test, never as a truncated one.
template <typename Write>
std::vector<std::uint8_t> make_message(std::size_t texts, Write write) {
  std::vector<std::uint8_t> buffer(texts + kMessageFrameBytes);
  wire::ByteWriter writer(buffer);
  write(writer);
  buffer.resize(writer.length());
  return buffer;
}

[[nodiscard]] inline std::size_t text_bytes(const wire::ErrorFields& error) noexcept {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < error.size(); i++) bytes += error.text(i).size() + 2;
  return bytes;
}

[[nodiscard]] inline std::size_t text_bytes(const wire::ErrorText& error) noexcept {
  return 2 * error.severity.size() + error.sqlstate.size() + error.message.size() + error.detail.size() +
         error.hint.size();
}

}  // namespace sluice::proxy
