#include "ledger/states.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

namespace sluice::ledger {
namespace {

constexpr std::uint8_t kTickets = static_cast<std::uint8_t>(TicketState::cancelled) + 1;
constexpr std::uint8_t kSessions = static_cast<std::uint8_t>(SessionState::session_unknown) + 1;

TEST(LedgerStates, TicketTableIsExactlyTheLegalSteps) {
  using T = TicketState;
  std::set<std::pair<T, T>> legal;
  for (const T begin : {T::none, T::request_released, T::queue_expired, T::cancelled}) {
    for (const T next : {T::queued, T::in_transaction, T::cancelled, T::queue_expired}) legal.insert({begin, next});
  }
  for (const T next : {T::execution_granted, T::queue_expired, T::cancelled}) legal.insert({T::queued, next});
  for (const T next : {T::checking_out, T::in_transaction, T::request_released})
    legal.insert({T::execution_granted, next});
  for (const T next : {T::in_transaction, T::request_released}) legal.insert({T::checking_out, next});
  for (const T next : {T::expiring, T::committing, T::request_released}) legal.insert({T::in_transaction, next});
  for (const T next : {T::in_transaction, T::request_released}) legal.insert({T::committing, next});
  legal.insert({T::expiring, T::request_released});
  for (std::uint8_t from = 0; from < kTickets; from++) {
    for (std::uint8_t to = 0; to < kTickets; to++) {
      const auto step = std::pair{static_cast<T>(from), static_cast<T>(to)};
      EXPECT_EQ(is_legal(step.first, step.second), legal.count(step) == 1)
          << state_name(step.first) << " -> " << state_name(step.second);
    }
  }
}

TEST(LedgerStates, AGrantedTicketIsNeverCancelledOrExpired) {
  for (const TicketState from : {TicketState::execution_granted, TicketState::checking_out, TicketState::in_transaction,
                                 TicketState::expiring, TicketState::committing}) {
    EXPECT_FALSE(is_legal(from, TicketState::cancelled));
    EXPECT_FALSE(is_legal(from, TicketState::queue_expired));
    EXPECT_TRUE(holds_permit(from));
  }
}

TEST(LedgerStates, ACommittingTransactionCannotExpire) {
  EXPECT_FALSE(is_legal(TicketState::committing, TicketState::expiring));
}

TEST(LedgerStates, SessionTableIsExactlyTheLegalSteps) {
  using S = SessionState;
  std::set<std::pair<S, S>> legal;
  for (const S begin : {S::none, S::session_released}) {
    legal.insert({begin, S::session_reserved});
    legal.insert({begin, S::connecting});
  }
  for (const S live : {S::session_reserved, S::connecting, S::open_idle, S::open_busy, S::closing}) {
    legal.insert({live, S::session_released});
    legal.insert({live, S::session_unknown});
    if (live != S::closing) legal.insert({live, S::closing});
  }
  legal.insert({S::session_reserved, S::connecting});
  legal.insert({S::connecting, S::open_idle});
  legal.insert({S::connecting, S::open_busy});
  legal.insert({S::open_idle, S::open_busy});
  legal.insert({S::open_busy, S::open_idle});
  legal.insert({S::session_unknown, S::session_released});
  for (std::uint8_t from = 0; from < kSessions; from++) {
    for (std::uint8_t to = 0; to < kSessions; to++) {
      const auto step = std::pair{static_cast<S>(from), static_cast<S>(to)};
      EXPECT_EQ(is_legal(step.first, step.second), legal.count(step) == 1)
          << state_name(step.first) << " -> " << state_name(step.second);
    }
  }
}

TEST(LedgerStates, AnUnknownSessionConsumesCapacityUntilItsEndIsProven) {
  EXPECT_TRUE(holds_session_permit(SessionState::session_unknown));
  EXPECT_FALSE(holds_session_permit(SessionState::session_released));
  EXPECT_FALSE(holds_session_permit(SessionState::none));
}

TEST(LedgerStates, NamesAreThoseOfTheRequirements) {
  EXPECT_STREQ(state_name(TicketState::queued), "QUEUED");
  EXPECT_STREQ(state_name(TicketState::execution_granted), "EXECUTION_GRANTED");
  EXPECT_STREQ(state_name(TicketState::checking_out), "CHECKING_OUT");
  EXPECT_STREQ(state_name(TicketState::in_transaction), "IN_TRANSACTION");
  EXPECT_STREQ(state_name(TicketState::request_released), "REQUEST_RELEASED");
  EXPECT_STREQ(state_name(TicketState::queue_expired), "QUEUE_EXPIRED");
  EXPECT_STREQ(state_name(TicketState::cancelled), "CANCELLED");
  EXPECT_STREQ(state_name(SessionState::session_reserved), "SESSION_RESERVED");
  EXPECT_STREQ(state_name(SessionState::open_busy), "OPEN_BUSY");
  EXPECT_STREQ(state_name(SessionState::session_unknown), "SESSION_UNKNOWN");
  EXPECT_STREQ(state_name(static_cast<TicketState>(200)), "CORRUPT");
  EXPECT_STREQ(state_name(static_cast<SessionState>(200)), "CORRUPT");
}

}  // namespace
}  // namespace sluice::ledger
