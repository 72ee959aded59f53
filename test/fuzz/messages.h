// Messages of the server's, made by hand for the models.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::fuzz {

inline std::string big_endian(std::size_t value) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(value >> shift);
  return text;
}

inline std::string message(char type, std::string_view payload = {}) {
  return std::string(1, type) + big_endian(payload.size() + 4) + std::string(payload);
}

inline std::string terminated(std::string_view text) { return std::string(text) + '\0'; }

inline std::string error(std::string_view severity, std::string_view sqlstate) {
  return message('E', 'S' + terminated(severity) + 'V' + terminated(severity) + 'C' + terminated(sqlstate) +
                          terminated("Mmodel") + '\0');
}

}  // namespace sluice::fuzz
