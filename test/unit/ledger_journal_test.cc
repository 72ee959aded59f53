#include "ledger/journal.h"

#include <gtest/gtest.h>

#include "ledger_fixture.h"

namespace sluice::ledger {
namespace {

class LedgerJournal : public ::testing::Test {
 protected:
  LedgerJournal() : t({8, 0, 4, 1, 4, 4, 4}) { a = t.tenant("a"); }

  void refuse(std::uint32_t tenant, std::int64_t now_us, Status status = Status::queue_full, bool would = false) {
    record_event(
        t.ledger, t.lock,
        {EventKind::execution_refused, {status, {policy::RuleField::class_max_queue, 0}, 1, 1}, tenant, 0, "db", would},
        now_us);
  }

  test::TestLedger t;
  std::uint32_t a;
};

TEST_F(LedgerJournal, RepeatsAreFoldedIntoOneLine) {
  for (int i = 0; i < 5; i++) refuse(a, 1000 + i);
  refuse(kOverflowTenant, 2000);
  EXPECT_EQ(t.ledger.events[0].count, 5U);
  EXPECT_EQ(t.ledger.events[0].first_us, 1000);
  EXPECT_EQ(t.ledger.events[0].last_us, 1004);
  EXPECT_STREQ(t.ledger.events[0].tenant, "a");
  EXPECT_STREQ(t.ledger.events[0].database, "db");
  EXPECT_EQ(t.ledger.events[1].count, 1U);
}

TEST_F(LedgerJournal, RefusalsAreCountedPerMinuteTenantReasonAndRule) {
  refuse(a, 1'000'000);
  refuse(a, 2'000'000);
  refuse(a, 61'000'000);
  refuse(a, 62'000'000, Status::deadline_unreachable);
  EXPECT_EQ(t.ledger.refusals[0].count, 2U);
  EXPECT_EQ(t.ledger.refusals[0].minute, 0);
  EXPECT_EQ(t.ledger.refusals[1].count, 1U);
  EXPECT_EQ(t.ledger.refusals[1].minute, 1);
  EXPECT_EQ(t.ledger.refusals[2].status, Status::deadline_unreachable);
}

TEST_F(LedgerJournal, RefusalsAreCountedForGoodByClassAndReason) {
  for (int i = 0; i < 10; i++) refuse(a, i * 60'000'000);
  refuse(a, 1, Status::pushed_out);
  refuse(a, 1, Status::queue_full, true);
  record_event(t.ledger, t.lock,
               {EventKind::session_refused, policy::outcome(Status::session_limit), a, kNil, "db", false}, 1);
  const auto count = [this](Status status) { return t.ledger.classes[0].refusals[static_cast<std::uint32_t>(status)]; };
  EXPECT_EQ(count(Status::queue_full), 10U);
  EXPECT_EQ(count(Status::pushed_out), 1U);
  EXPECT_EQ(count(Status::session_limit), 0U);
  EXPECT_EQ(t.ledger.header->session_refusals[static_cast<std::uint32_t>(Status::session_limit)], 1U);
}

TEST_F(LedgerJournal, AnEventShowsItsNewestTicket) {
  Uuid id = {{1}};
  EventFacts facts = {EventKind::execution_refused, policy::outcome(Status::queue_full), a, 0, nullptr, false};
  record_event(t.ledger, t.lock, facts, 1);
  EXPECT_EQ(t.ledger.events[0].ticket.bytes[0], 0);
  facts.ticket = &id;
  record_event(t.ledger, t.lock, facts, 2);
  id.bytes[0] = 2;
  record_event(t.ledger, t.lock, facts, 3);
  EXPECT_EQ(t.ledger.events[0].count, 3U);
  EXPECT_EQ(t.ledger.events[0].ticket.bytes[0], 2);
}

TEST_F(LedgerJournal, WouldBeRefusalsHaveCellsOfTheirOwn) {
  refuse(a, 1, Status::queue_full, false);
  refuse(a, 2, Status::queue_full, true);
  EXPECT_FALSE(t.ledger.refusals[0].would);
  EXPECT_TRUE(t.ledger.refusals[1].would);
}

TEST_F(LedgerJournal, TheRingsKeepTheNewest) {
  for (std::int64_t minute = 0; minute < 6; minute++) refuse(a, minute * 60'000'000);
  EXPECT_EQ(t.ledger.refusals[0].minute, 4);
  EXPECT_EQ(t.ledger.refusals[1].minute, 5);
  EXPECT_EQ(t.ledger.refusals[2].minute, 2);
}

TEST_F(LedgerJournal, TheNewestReceiptOfAnIdIsFound) {
  Ticket ticket = {};
  ticket.id.bytes[3] = 9;
  ticket.tenant = a;
  record_receipt(t.ledger, t.lock, ticket, TicketState::cancelled, 10);
  record_receipt(t.ledger, t.lock, ticket, TicketState::request_released, 20);
  const Receipt* receipt = find_receipt(t.ledger, t.lock, ticket.id);
  ASSERT_NE(receipt, nullptr);
  EXPECT_EQ(receipt->outcome, TicketState::request_released);
  Ticket other = {};
  for (std::uint8_t i = 0; i < 4; i++) {
    other.id.bytes[0] = static_cast<std::uint8_t>(i + 1);
    record_receipt(t.ledger, t.lock, other, TicketState::cancelled, 30);
  }
  EXPECT_EQ(find_receipt(t.ledger, t.lock, ticket.id), nullptr);
}

TEST_F(LedgerJournal, ALedgerWithoutRingsRecordsNothing) {
  test::TestLedger none({4, 0, 4, 1, 0, 0, 0});
  record_event(none.ledger, none.lock,
               {EventKind::execution_refused, policy::outcome(Status::queue_full), kNil, kNil, nullptr, false}, 1);
  record_receipt(none.ledger, none.lock, Ticket{}, TicketState::cancelled, 1);
  EXPECT_EQ(find_receipt(none.ledger, none.lock, Uuid{}), nullptr);
}

}  // namespace
}  // namespace sluice::ledger
