#include "wire/message_type.h"

namespace sluice::wire {
namespace {

constexpr std::uint32_t kTokenLength = 65535;             // PG_MAX_AUTH_TOKEN_LENGTH
constexpr std::uint32_t kClientLimit = 30000;             // libpq takes anything longer for lost synchronization
constexpr std::uint32_t kPerColumnLimit = 7 + 2 * 65535;  // format codes of a COPY
constexpr std::uint32_t kPerTypeLimit = 6 + 4 * 65535;    // parameter types

constexpr TypeRule rule(Interest interest, std::uint32_t min_length, std::uint32_t max_length) noexcept {
  return {true, interest, min_length, max_length};
}

constexpr TypeRule kUnknown = {false, Interest::count, 0, 0};

TypeRule frontend_rule(std::uint8_t type) noexcept {
  switch (type) {
    case 'Q':  // Query
    case 'P':  // Parse
    case 'B':  // Bind
      return rule(Interest::read, kMinLength, kLargeLength);
    case 'F':  // FunctionCall
      return rule(Interest::note, kMinLength, kLargeLength);
    case 'C':  // Close
    case 'D':  // Describe
    case 'E':  // Execute
      return rule(Interest::read, kMinLength, kSmallLength);
    case 'H':  // Flush
    case 'S':  // Sync
    case 'X':  // Terminate
    case 'c':  // CopyDone
    case 'f':  // CopyFail
      return rule(Interest::note, kMinLength, kSmallLength);
    case 'd':  // CopyData
      return rule(Interest::count, kMinLength, kLargeLength);
    default:
      return kUnknown;
  }
}

TypeRule backend_rule(std::uint8_t type) noexcept {
  switch (type) {
    case '1':  // ParseComplete
    case '2':  // BindComplete
    case '3':  // CloseComplete
    case 'I':  // EmptyQueryResponse
    case 'n':  // NoData
    case 's':  // PortalSuspended
    case 'c':  // CopyDone
      return rule(Interest::note, kMinLength, kMinLength);
    case 'Z':  // ReadyForQuery
      return rule(Interest::read, 5, 5);
    case 'C':  // CommandComplete
      return rule(Interest::read, 5, kClientLimit);
    case 'S':  // ParameterStatus
      return rule(Interest::read, 6, kClientLimit);
    case 'E':  // ErrorResponse
      return rule(Interest::read, 5, kLargeLength);
    case 'G':  // CopyInResponse
    case 'H':  // CopyOutResponse
    case 'W':  // CopyBothResponse
      return rule(Interest::note, 7, kPerColumnLimit);
    case 'T':  // RowDescription
      return rule(Interest::note, 6, kLargeLength);
    case 't':  // ParameterDescription
      return rule(Interest::note, 6, kPerTypeLimit);
    case 'V':  // FunctionCallResponse
      return rule(Interest::note, 8, kLargeLength);
    case 'D':  // DataRow
      return rule(Interest::count, 6, kLargeLength);
    case 'd':  // CopyData
      return rule(Interest::count, kMinLength, kLargeLength);
    case 'N':  // NoticeResponse
      return rule(Interest::count, 5, kLargeLength);
    case 'A':  // NotificationResponse
      return rule(Interest::count, 10, kLargeLength);
    default:
      return kUnknown;
  }
}

// What a server may say before its first ReadyForQuery.
TypeRule backend_login_rule(std::uint8_t type) noexcept {
  switch (type) {
    case 'R':  // Authentication…
      return rule(Interest::read, 8, kTokenLength);
    case 'K':  // BackendKeyData
      return rule(Interest::read, 12, 8 + 256);
    case 'v':  // NegotiateProtocolVersion
      return rule(Interest::read, 12, kClientLimit);
    case 'E':
    case 'N':
      return rule(type == 'E' ? Interest::read : Interest::count, 5, kClientLimit);
    case 'S':
    case 'Z':
      return backend_rule(type);
    default:
      return kUnknown;
  }
}

}  // namespace

TypeRule type_rule(Direction direction, Phase phase, std::uint8_t type) noexcept {
  if (direction == Direction::backend) return phase == Phase::login ? backend_login_rule(type) : backend_rule(type);
  if (phase == Phase::relay) return frontend_rule(type);
  return type == 'p' ? rule(Interest::read, kMinLength, kTokenLength) : kUnknown;
}

}  // namespace sluice::wire
