// The states of tickets and sessions and which steps between them are legal (requirements A3, A4).
#pragma once

#include <cstdint>

namespace sluice::ledger {

// EXPIRING and COMMITTING refine IN_TRANSACTION: from EXPIRING the server may signal the backend, from COMMITTING
// nobody may any more. A view shows both as IN_TRANSACTION with a note.
enum class TicketState : std::uint8_t {
  none,
  queued,
  execution_granted,
  checking_out,
  in_transaction,
  expiring,
  committing,
  request_released,
  queue_expired,
  cancelled,
};

enum class SessionState : std::uint8_t {
  none,
  session_reserved,
  connecting,
  open_idle,
  open_busy,
  closing,
  session_released,
  session_unknown,
};

// What a lock-free step is in the middle of. `taking` and `releasing` are uncertain (a word may or may not have
// changed); the other two are certain: exactly one of the two words has been stepped. A process enters the lock only
// with a certain mark, so audit, which waits for uncertain ones to clear, never waits for somebody who waits for it.
enum class Mark : std::uint8_t {
  none,
  taking,
  row_held,  // row slot taken, class permit not
  releasing,
  row_released,  // row slot returned, class permit not
};

[[nodiscard]] bool is_legal(TicketState from, TicketState to) noexcept;
[[nodiscard]] bool is_legal(SessionState from, SessionState to) noexcept;

[[nodiscard]] constexpr bool holds_permit(TicketState state) noexcept {
  return state >= TicketState::execution_granted && state <= TicketState::committing;
}

[[nodiscard]] constexpr bool is_ended(TicketState state) noexcept { return state >= TicketState::request_released; }

// SESSION_UNKNOWN still consumes capacity (A10).
[[nodiscard]] constexpr bool holds_session_permit(SessionState state) noexcept {
  return (state >= SessionState::session_reserved && state <= SessionState::closing) ||
         state == SessionState::session_unknown;
}

// The upper-case names of A3 and A4 ("IN_TRANSACTION"); EXPIRING and COMMITTING under their own names.
[[nodiscard]] const char* state_name(TicketState state) noexcept;
[[nodiscard]] const char* state_name(SessionState state) noexcept;

}  // namespace sluice::ledger
