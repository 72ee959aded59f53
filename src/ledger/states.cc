#include "ledger/states.h"

namespace sluice::ledger {

namespace {

template <typename State>
constexpr std::uint32_t bit(State state) noexcept {
  return 1U << static_cast<std::uint32_t>(state);
}

template <typename State, typename... States>
constexpr std::uint32_t bits(State first, States... rest) noexcept {
  return (bit(first) | ... | bit(rest));
}

constexpr std::uint32_t kTicketStates = static_cast<std::uint32_t>(TicketState::cancelled) + 1;
constexpr std::uint32_t kSessionStates = static_cast<std::uint32_t>(SessionState::session_unknown) + 1;

// A record that ended, or was never used, may begin again: queued, taken without a wait, or refused on the spot.
constexpr std::uint32_t kTicketBegin =
    bits(TicketState::queued, TicketState::in_transaction, TicketState::cancelled, TicketState::queue_expired);

constexpr std::uint32_t kTicketNext[kTicketStates] = {
    kTicketBegin,                                                                                 // none
    bits(TicketState::execution_granted, TicketState::queue_expired, TicketState::cancelled),     // queued
    bits(TicketState::checking_out, TicketState::in_transaction, TicketState::request_released),  // execution_granted
    bits(TicketState::in_transaction, TicketState::request_released),                             // checking_out
    bits(TicketState::expiring, TicketState::committing, TicketState::request_released),          // in_transaction
    bits(TicketState::request_released),                                                          // expiring
    bits(TicketState::in_transaction, TicketState::request_released),  // committing; back: a procedure commits inside
    kTicketBegin,                                                      // request_released
    kTicketBegin,                                                      // queue_expired
    kTicketBegin,                                                      // cancelled
};

// SESSION_UNKNOWN is left only by proof that the session is gone.
constexpr std::uint32_t kSessionBegin = bits(SessionState::session_reserved, SessionState::connecting);

constexpr std::uint32_t kSessionNext[kSessionStates] = {
    kSessionBegin,  // none
    bits(SessionState::connecting, SessionState::closing, SessionState::session_released,
         SessionState::session_unknown),  // session_reserved
    bits(SessionState::open_idle, SessionState::open_busy, SessionState::closing, SessionState::session_released,
         SessionState::session_unknown),  // connecting
    bits(SessionState::open_busy, SessionState::closing, SessionState::session_released,
         SessionState::session_unknown),  // open_idle
    bits(SessionState::open_idle, SessionState::closing, SessionState::session_released,
         SessionState::session_unknown),                                  // open_busy
    bits(SessionState::session_released, SessionState::session_unknown),  // closing
    kSessionBegin,                                                        // session_released
    bits(SessionState::session_released),                                 // session_unknown
};

constexpr const char* kTicketNames[kTicketStates] = {
    "NONE",     "QUEUED",     "EXECUTION_GRANTED", "CHECKING_OUT",  "IN_TRANSACTION",
    "EXPIRING", "COMMITTING", "REQUEST_RELEASED",  "QUEUE_EXPIRED", "CANCELLED",
};

constexpr const char* kSessionNames[kSessionStates] = {
    "NONE",      "SESSION_RESERVED", "CONNECTING",       "OPEN_IDLE",
    "OPEN_BUSY", "CLOSING",          "SESSION_RELEASED", "SESSION_UNKNOWN",
};

}  // namespace

bool is_legal(TicketState from, TicketState to) noexcept {
  const auto index = static_cast<std::uint32_t>(from);
  return index < kTicketStates && static_cast<std::uint32_t>(to) < kTicketStates && (kTicketNext[index] & bit(to)) != 0;
}

bool is_legal(SessionState from, SessionState to) noexcept {
  const auto index = static_cast<std::uint32_t>(from);
  return index < kSessionStates && static_cast<std::uint32_t>(to) < kSessionStates &&
         (kSessionNext[index] & bit(to)) != 0;
}

const char* state_name(TicketState state) noexcept {
  const auto index = static_cast<std::uint32_t>(state);
  return index < kTicketStates ? kTicketNames[index] : "CORRUPT";
}

const char* state_name(SessionState state) noexcept {
  const auto index = static_cast<std::uint32_t>(state);
  return index < kSessionStates ? kSessionNames[index] : "CORRUPT";
}

}  // namespace sluice::ledger
