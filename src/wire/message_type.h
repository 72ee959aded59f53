// Which messages there are, how long each may be, and how much of it a relay has to look at. Frontend limits are those
// of the server, so that whatever passes here is judged by PostgreSQL itself; backend limits are those of libpq, made
// exact where the format leaves no choice.
#pragma once

#include <cstdint>

namespace sluice::wire {

enum class Direction : std::uint8_t { frontend, backend };

// Password messages are only there before the login is complete, and then nothing else is.
enum class Phase : std::uint8_t { login, relay };

// How much of a message the relay needs. Whatever is counted is forwarded without being seen.
enum class Interest : std::uint8_t {
  count,  // the header only tells where the next one begins
  note,   // that it passed matters, its payload does not
  read,   // the payload is needed
};

// Lengths as they stand in the header: they include their own four bytes but not the type.
inline constexpr std::uint32_t kMinLength = 4;
inline constexpr std::uint32_t kSmallLength = 10000;
inline constexpr std::uint32_t kLargeLength = 0x3FFFFFFE;

struct TypeRule {
  bool known;
  Interest interest;
  std::uint32_t min_length;
  std::uint32_t max_length;
};

[[nodiscard]] TypeRule type_rule(Direction direction, Phase phase, std::uint8_t type) noexcept;

}  // namespace sluice::wire
