#include "ledger/ticket_identity.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>
#include <vector>

#include "ledger/journal.h"
#include "ledger_fixture.h"

namespace sluice::ledger {
namespace {

constexpr std::uint32_t kOwner = 16384;
constexpr std::uint32_t kStranger = 16385;

[[nodiscard]] Uuid id_of(std::uint32_t number) {
  Uuid id = {};
  std::memcpy(id.bytes + 4, &number, sizeof(number));
  id.bytes[0] = 1;
  return id;
}

// One class with one permit and room for two waiters; a request with an id of its own.
class LedgerTicketIdentity : public ::testing::Test {
 protected:
  LedgerTicketIdentity() : t({8, 0, 4, 1, 8, 16, 16}) {
    policy::Policy policy = test::empty_policy();
    test::add_class(policy, "only", 1, 2);
    test::add_tenant(policy, "*", 1, policy::kNoLimit);
    EXPECT_EQ(t.apply(policy), Status::ok);
    a = t.tenant("a");
  }

  TicketRequest named(std::uint32_t number, std::uint32_t owner = kOwner) {
    TicketRequest request = t.request(a, 0);
    request.id = id_of(number);
    request.owner = owner;
    return request;
  }

  Outcome begin(std::uint32_t ticket, std::uint32_t number, std::uint32_t owner = kOwner) {
    return t.begin_locked(ticket, named(number, owner));
  }

  test::TestLedger t;
  std::uint32_t a;
};

TEST_F(LedgerTicketIdentity, AnUnknownIdRunsAndIsKnownWhileItRuns) {
  EXPECT_EQ(begin(0, 1).status, Status::ok);
  EXPECT_EQ(begin(1, 1).status, Status::duplicate_ticket);
  const Original original = original_of(t.ledger, t.lock, 1, named(1));
  EXPECT_EQ(original.state, TicketState::in_transaction);
  EXPECT_EQ(original.ended_us, 0);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerTicketIdentity, ADuplicateOfAQueuedTicketIsRefusedAndTheFirstKeepsItsPlace) {
  EXPECT_EQ(begin(0, 1).status, Status::ok);
  EXPECT_EQ(begin(1, 2).status, Status::queued);
  EXPECT_EQ(begin(2, 2).status, Status::duplicate_ticket);
  EXPECT_EQ(original_of(t.ledger, t.lock, 2, named(2)).state, TicketState::queued);
  EXPECT_EQ(t.finish(0), Status::ok);
  EXPECT_EQ(t.poll(1).status, Status::ok);
}

TEST_F(LedgerTicketIdentity, AnExecutedIdIsRefusedWithItsReceipt) {
  EXPECT_EQ(begin(0, 1).status, Status::ok);
  t.now_us += 5000;
  EXPECT_EQ(t.finish(0), Status::ok);
  t.now_us += 1000;
  EXPECT_EQ(begin(0, 1).status, Status::duplicate_ticket);
  const Original original = original_of(t.ledger, t.lock, 0, named(1));
  EXPECT_EQ(original.state, TicketState::request_released);
  EXPECT_EQ(original.ended_us, t.now_us - 1000);
}

TEST_F(LedgerTicketIdentity, ADuplicateDoesNotHideTheReceiptItRepeats) {
  EXPECT_EQ(begin(0, 1).status, Status::ok);
  EXPECT_EQ(t.finish(0), Status::ok);
  for (int i = 0; i < 20; i++) EXPECT_EQ(begin(1, 1).status, Status::duplicate_ticket) << i;
  EXPECT_EQ(original_of(t.ledger, t.lock, 1, named(1)).state, TicketState::request_released);
}

TEST_F(LedgerTicketIdentity, ARetryKeepsTheAgeOfItsFirstRequest) {
  EXPECT_EQ(begin(0, 1).status, Status::ok);
  EXPECT_EQ(begin(1, 2).status, Status::queued);
  const std::int64_t first_us = t.ledger.tickets[1].queued_us;
  t.now_us += 700'000;
  EXPECT_EQ(t.end(1, Status::queue_deadline).status, Status::queue_deadline);
  t.now_us += 300'000;
  const Known known = recognize(t.ledger, t.lock, 3, named(2));
  EXPECT_EQ(known.status, Status::ok);
  EXPECT_EQ(known.queued_us, first_us);
  // And over a second retry, from another backend.
  EXPECT_EQ(begin(3, 2).status, Status::queued);
  EXPECT_EQ(t.ledger.tickets[3].queued_us, first_us);
  EXPECT_EQ(t.end(3, Status::cancelled).status, Status::cancelled);
  EXPECT_EQ(recognize(t.ledger, t.lock, 1, named(2)).queued_us, first_us);
}

TEST_F(LedgerTicketIdentity, ARequestRefusedForAFullQueueKeepsItsAge) {
  EXPECT_EQ(begin(0, 1).status, Status::ok);
  EXPECT_EQ(begin(1, 2).status, Status::queued);
  EXPECT_EQ(begin(2, 3).status, Status::queued);
  const std::int64_t first_us = t.now_us;
  EXPECT_EQ(begin(3, 4).status, Status::queue_full);
  t.now_us += 250'000;
  EXPECT_EQ(begin(3, 4).status, Status::queue_full);
  EXPECT_EQ(recognize(t.ledger, t.lock, 3, named(4)).queued_us, first_us);
}

// A cancel that meets the grant, or an error between the wait and the first step: nothing ran, so the retry is no
// duplicate.
TEST_F(LedgerTicketIdentity, WhoGivesUpAfterTheGrantBeforeItRanMayTryAgain) {
  for (const bool saw_the_grant : {false, true}) {
    const std::uint32_t number = saw_the_grant ? 21 : 22;
    EXPECT_EQ(begin(0, 1000 + number).status, Status::ok);
    EXPECT_EQ(begin(1, number).status, Status::queued);
    const std::int64_t queued_us = t.ledger.tickets[1].queued_us;
    EXPECT_EQ(t.finish(0), Status::ok);
    if (saw_the_grant) {
      EXPECT_EQ(poll_wait(t.ledger, t.lock, 1, t.now_us).status, Status::ok);
    }
    Wakes wakes = {};
    EXPECT_EQ(release_locked(t.ledger, t.lock, 1, t.now_us, wakes, !saw_the_grant), Status::ok);
    EXPECT_EQ(original_of(t.ledger, t.lock, 1, named(number)).state, TicketState::cancelled);
    t.now_us += 1000;
    EXPECT_EQ(begin(1, number).status, Status::ok);
    EXPECT_EQ(t.ledger.tickets[1].queued_us, queued_us) << "it keeps its age";
    EXPECT_EQ(t.finish(1), Status::ok);
    EXPECT_EQ(begin(1, number).status, Status::duplicate_ticket) << "and runs once";
  }
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerTicketIdentity, TheSameIdOfAnotherRoleIsSomebodyElses) {
  EXPECT_EQ(begin(0, 1).status, Status::ok);
  EXPECT_EQ(begin(1, 1, kStranger).status, Status::queued);
  EXPECT_EQ(t.finish(0), Status::ok);
  EXPECT_EQ(t.poll(1).status, Status::ok);
  EXPECT_EQ(recognize(t.ledger, t.lock, 2, named(1)).status, Status::duplicate_ticket);
  EXPECT_EQ(t.finish(1), Status::ok);
  EXPECT_EQ(recognize(t.ledger, t.lock, 2, named(1, kStranger + 1)).status, Status::ok);
}

TEST_F(LedgerTicketIdentity, AReceiptCountsForTheLeaseOnly) {
  EXPECT_EQ(begin(0, 1).status, Status::ok);
  EXPECT_EQ(t.finish(0), Status::ok);
  const std::int64_t lease_us = std::int64_t{t.ledger.header->policy.lease_ms} * 1000;
  t.now_us += lease_us;
  EXPECT_EQ(recognize(t.ledger, t.lock, 0, named(1)).status, Status::duplicate_ticket);
  t.now_us += 1;
  EXPECT_EQ(recognize(t.ledger, t.lock, 0, named(1)).status, Status::ok);
  EXPECT_EQ(original_of(t.ledger, t.lock, 0, named(1)).state, TicketState::none);
}

TEST_F(LedgerTicketIdentity, ALiveTicketIsKnownHoweverLongItRuns) {
  EXPECT_EQ(begin(0, 1).status, Status::ok);
  t.now_us += 3'600'000'000;
  EXPECT_EQ(recognize(t.ledger, t.lock, 1, named(1)).status, Status::duplicate_ticket);
}

TEST_F(LedgerTicketIdentity, TheLedgersOwnIdsAreNobodysDuplicates) {
  TicketRequest request = t.request(a, 0);
  request.id = id_of(1);
  EXPECT_EQ(t.begin_locked(0, request).status, Status::ok);
  EXPECT_EQ(t.begin_locked(1, request).status, Status::queued);
  EXPECT_EQ(recognize(t.ledger, t.lock, 2, named(1)).status, Status::ok);
  EXPECT_EQ(t.finish(0), Status::ok);
  EXPECT_EQ(recognize(t.ledger, t.lock, 2, named(1)).status, Status::ok);
}

TEST_F(LedgerTicketIdentity, ShadowRefusesNoDuplicate) {
  TicketRequest request = named(1);
  request.enforce = false;
  EXPECT_EQ(t.begin_locked(0, request).status, Status::ok);
  EXPECT_EQ(t.begin_locked(1, request).status, Status::ok);
  EXPECT_EQ(t.finish(0), Status::ok);
  EXPECT_EQ(t.begin_locked(0, request).status, Status::ok);
  EXPECT_EQ(t.finish(0), Status::ok);
  EXPECT_EQ(t.finish(1), Status::ok);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerTicketIdentity, AReceiptThatWasOverwrittenIsForgotten) {
  EXPECT_EQ(begin(0, 1).status, Status::ok);
  EXPECT_EQ(t.finish(0), Status::ok);
  for (std::uint32_t i = 0; i < 7; i++) {
    EXPECT_EQ(begin(0, 100 + i).status, Status::ok);
    EXPECT_EQ(t.finish(0), Status::ok);
  }
  EXPECT_EQ(recognize(t.ledger, t.lock, 0, named(1)).status, Status::duplicate_ticket);
  EXPECT_EQ(begin(0, 200).status, Status::ok);
  EXPECT_EQ(t.finish(0), Status::ok);
  EXPECT_EQ(recognize(t.ledger, t.lock, 0, named(1)).status, Status::ok);
}

// A repeated id occupies one place in the index, however often it is turned away.
TEST_F(LedgerTicketIdentity, ARepeatedIdMakesNoChainLonger) {
  EXPECT_EQ(begin(0, 1).status, Status::ok);
  EXPECT_EQ(begin(1, 2).status, Status::queued);
  EXPECT_EQ(begin(2, 3).status, Status::queued);
  for (int i = 0; i < 6; i++) EXPECT_EQ(begin(3, 4).status, Status::queue_full);
  std::uint32_t indexed = 0;
  for (std::uint32_t bucket = 0; bucket < receipt_bucket_count(t.ledger.header->sizes); bucket++) {
    for (std::uint32_t at = t.ledger.receipt_buckets[bucket]; at != kNil; at = t.ledger.receipts[at].hash_next) {
      indexed++;
    }
  }
  EXPECT_EQ(indexed, 1U);
}

// A model of plain maps says what every random step must answer, over rings that wrap and slots that are used again.
TEST(LedgerTicketIdentityProperty, AnswersAsAPlainModelDoes) {
  for (std::uint32_t seed = 1; seed <= 20; seed++) {
    constexpr std::uint32_t kSlots = 12;
    test::TestLedger t({kSlots, 0, 4, 1, 1024, 16, 16});
    policy::Policy policy = test::empty_policy();
    test::add_class(policy, "only", kSlots, kSlots);
    test::add_tenant(policy, "*", 1, policy::kNoLimit);
    ASSERT_EQ(t.apply(policy), Status::ok);
    const std::uint32_t tenant = t.tenant("a");
    std::mt19937 random(seed);
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::int64_t> ran;  // owner, id -> when it ended
    std::vector<std::pair<std::uint32_t, std::uint32_t>> held(kSlots);
    for (int step = 0; step < 900; step++) {
      t.now_us += random() % 40'000;
      const std::uint32_t slot = random() % kSlots;
      if (held[slot].first != 0) {
        ASSERT_EQ(t.finish(slot), Status::ok);
        ran[held[slot]] = t.now_us;
        held[slot] = {};
        continue;
      }
      TicketRequest request = t.request(tenant, 0);
      const std::pair<std::uint32_t, std::uint32_t> key = {kOwner + random() % 3, random() % 16};
      request.owner = key.first;
      request.id = id_of(key.second);
      bool known = false;
      for (const auto& other : held) known = known || other == key;
      const auto receipt = ran.find(key);
      known = known || (receipt != ran.end() && t.now_us - receipt->second <= 10'000'000);
      const Status status = t.begin_locked(slot, request).status;
      ASSERT_EQ(status, known ? Status::duplicate_ticket : Status::ok) << "seed " << seed << " step " << step;
      if (status == Status::ok) held[slot] = key;
    }
    EXPECT_EQ(t.audit_report(), "") << "seed " << seed;
  }
}

// Falsifies an index, sees the balance named, and puts it back.
class LedgerTicketIndex : public LedgerTicketIdentity {
 protected:
  LedgerTicketIndex() {
    // Alive: one that runs, one that waits. Ended: id 5 twice, of which the index keeps the newer receipt, and id 6.
    EXPECT_EQ(begin(0, 1).status, Status::ok);
    for (const std::uint32_t number : {5U, 5U, 6U}) {
      EXPECT_EQ(begin(2, number).status, Status::queued);
      EXPECT_EQ(t.end(2, Status::cancelled).status, Status::cancelled);
      t.now_us += 1000;
    }
    EXPECT_EQ(begin(1, 2).status, Status::queued);
    EXPECT_EQ(t.audit_report(), "");
  }

  template <typename T>
  void expect_named(const char* balance, T& field, T wrong) {
    std::swap(field, wrong);
    EXPECT_NE(t.audit_report().find(balance), std::string::npos) << balance;
    std::swap(field, wrong);
    EXPECT_EQ(t.audit_report(), "");
  }

  // The bucket that begins with this record.
  static std::uint32_t& bucket_of(std::uint32_t* buckets, std::uint32_t count, std::uint32_t record) {
    for (std::uint32_t i = 0; i < count; i++) {
      if (buckets[i] == record) return buckets[i];
    }
    ADD_FAILURE() << "no bucket begins with record " << record;
    return buckets[0];
  }
  std::uint32_t& live_bucket_of(std::uint32_t ticket) {
    return bucket_of(t.ledger.id_buckets, id_bucket_count(t.ledger.header->sizes), ticket);
  }
  std::uint32_t& receipt_bucket_of(std::uint32_t receipt) {
    return bucket_of(t.ledger.receipt_buckets, receipt_bucket_count(t.ledger.header->sizes), receipt);
  }
};

TEST_F(LedgerTicketIndex, TheAuditNamesALiveTicketThatIsNotInItsIndex) {
  expect_named("ticket_identity", live_bucket_of(1), kNil);
  expect_named("ticket_identity", t.ledger.tickets[1].id, id_of(77));
  expect_named("ticket_identity", t.ledger.tickets[1].owner, kStranger);
}

TEST_F(LedgerTicketIndex, TheAuditNamesAChainThatLeadsToTheWrongTicketOrNowhere) {
  expect_named("ticket_identity", t.ledger.tickets[1].id_next, 1U);    // endless
  expect_named("ticket_identity", t.ledger.tickets[1].id_next, 3U);    // one that is not alive
  expect_named("ticket_identity", t.ledger.tickets[1].id_next, 999U);  // beyond the table
  expect_named("ticket_identity", t.ledger.tickets[1].owner, 0U);      // one that nobody named
}

TEST_F(LedgerTicketIndex, TheAuditNamesAReceiptThatIsNotInItsIndex) {
  expect_named("receipt_identity", receipt_bucket_of(2), kNil);
  expect_named("receipt_identity", receipt_bucket_of(1), 0U);  // the older one of the same id instead of the newer
  expect_named("receipt_identity", t.ledger.receipts[2].hash_next, 2U);
  expect_named("receipt_identity", t.ledger.receipts[2].hash_next, 999U);
  expect_named("receipt_identity", t.ledger.receipts[2].owner, kStranger);
}

// What an owner left in a record does not make it a named request: neither in shadow nor after a later take.
TEST_F(LedgerTicketIdentity, AnOwnerThatIsLeftInARecordIsNoDiscrepancy) {
  EXPECT_EQ(begin(0, 1).status, Status::ok);
  EXPECT_EQ(t.finish(0), Status::ok);
  EXPECT_EQ(take(t.ledger, 0, t.request(a, 0)), Status::ok);
  EXPECT_NE(t.ledger.tickets[0].owner, 0U);
  EXPECT_EQ(t.audit_report(), "");
  TicketRequest request = named(2);
  request.enforce = false;
  EXPECT_EQ(t.begin_locked(1, request).status, Status::ok);
  EXPECT_EQ(t.audit_report(), "");
}

}  // namespace
}  // namespace sluice::ledger
