#include "ledger/audit.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "ledger/atomics.h"
#include "ledger_fixture.h"

namespace sluice::ledger {
namespace {

// A busy ledger: one holder, two eligible, two parked, sessions of each kind.
class LedgerAudit : public ::testing::Test {
 protected:
  LedgerAudit() : t({16, 0, 8, 2, 16, 16, 16}) {
    policy::Policy policy = test::empty_policy();
    test::add_class(policy, "default", 1, 10);
    test::add_tenant(policy, "*", 1, 5, 9, 1, 2);
    test::add_tenant(policy, "a", 1, 1);
    policy.server_session_permits = 10;
    if (t.apply(policy) != Status::ok) std::abort();
    a = t.tenant("a");
    b = t.tenant("b");
    for (std::uint32_t i = 0; i < 2; i++) (void)t.begin(i, b);
    for (std::uint32_t i = 2; i < 5; i++) (void)t.begin(i, a);
    const policy::Identity identity = test::identity_of(policy, "b", "app");
    SessionRequest request = {};
    request.slot = 9;
    request.identity = &identity;
    request.role = "b";
    request.database = "app";
    (void)open_session(t.ledger, t.lock, request);
  }

  Row& row(std::uint32_t tenant) { return row_at(t.ledger, tenant, 0); }

  test::TestLedger t;
  std::uint32_t a, b;
};

TEST_F(LedgerAudit, ABalancedLedgerHasNoDiscrepancy) { EXPECT_EQ(t.audit_report(), ""); }

// Every balance: falsify it, see it named, put it back.
TEST_F(LedgerAudit, EachFalsifiedBalanceIsNamed) {
  Header& header = *t.ledger.header;
  ClassState& state = t.ledger.classes[0];
  const auto expect_named = [&](const char* balance, const std::function<void(int)>& falsify) {
    falsify(1);
    EXPECT_NE(t.audit_report().find(balance), std::string::npos) << balance;
    falsify(-1);
    EXPECT_EQ(t.audit_report(), "") << balance;
  };
  const auto change_word = [&](auto change) {
    ClassWord word = unpack_class(state.word);
    change(word);
    state.word = pack(word);
  };
  expect_named("class_free", [&](int by) { change_word([by](ClassWord& w) { w.free += by; }); });
  expect_named("class_waiters",
               [&](int by) { change_word([by](ClassWord& w) { w.waiters += static_cast<std::uint32_t>(by); }); });
  expect_named("class_queued", [&](int by) { state.queued += static_cast<std::uint32_t>(by); });
  expect_named("row_in_use", [&](int by) {
    change_row(row(b), [by](RowWord& w) noexcept {
      w.in_use += static_cast<std::uint32_t>(by);
      return true;
    });
  });
  expect_named("row_parked", [&](int by) {
    change_row(row(a), [by](RowWord& w) noexcept {
      w.parked += static_cast<std::uint32_t>(by);
      return true;
    });
  });
  expect_named("row_list", [&](int by) { row(a).eligible_count += static_cast<std::uint32_t>(by); });
  expect_named("class_order", [&](int by) { state.key_count += static_cast<std::uint32_t>(by); });
  expect_named("class_order", [&](int by) { state.flood_count += static_cast<std::uint32_t>(by); });
  expect_named("class_order", [&](int by) { state.active_weight += static_cast<std::uint32_t>(by); });
  std::uint32_t place = kNil;
  expect_named("row_order", [&](int) { std::swap(place, row(a).flood_at); });
  expect_named("borrowing", [&](int by) { state.lent += static_cast<std::uint32_t>(by); });
  expect_named("borrowing", [&](int by) { state.borrowed_from[1] += static_cast<std::uint32_t>(by); });
  expect_named("borrowing", [&](int by) { state.permits += static_cast<std::uint32_t>(by); });
  expect_named("borrowing",
               [&](int by) { change_word([by](ClassWord& w) { w.owed += static_cast<std::uint32_t>(by); }); });
  expect_named("ordinary_sessions", [&](int by) { header.ordinary_sessions += static_cast<std::uint32_t>(by); });
  expect_named("admin_sessions", [&](int by) { header.admin_sessions += static_cast<std::uint32_t>(by); });
  expect_named("admin_role_sessions", [&](int by) { header.admin_role_sessions[3] += static_cast<std::uint32_t>(by); });
  expect_named("walsender_sessions", [&](int by) { header.walsender_sessions += static_cast<std::uint32_t>(by); });
  expect_named("tenant_sessions", [&](int by) { t.ledger.tenants[b].sessions += static_cast<std::uint32_t>(by); });
  expect_named("database_sessions", [&](int by) { header.database_sessions[0] += static_cast<std::uint32_t>(by); });
  expect_named("role_sessions", [&](int by) { header.role_sessions[63] += static_cast<std::uint32_t>(by); });
  expect_named("unclaimed_guarantees", [&](int by) { header.unclaimed_guarantees += static_cast<std::uint32_t>(by); });
  expect_named("overdraft", [&](int by) { header.overdraft_in_use += static_cast<std::uint32_t>(by); });
  expect_named("queued_total", [&](int by) { header.queued_total += static_cast<std::uint32_t>(by); });
  expect_named("over_limit", [&](int by) { header.over_limit_grants += static_cast<std::uint64_t>(by); });
}

TEST_F(LedgerAudit, ABrokenListAndALostTenantAreNamed) {
  const std::uint32_t tail = row(a).parked_tail;
  row(a).parked_tail = 0;
  EXPECT_NE(t.audit_report().find("row_list"), std::string::npos);
  row(a).parked_tail = tail;
  t.ledger.tickets[tail].next = tail;  // endless
  EXPECT_NE(t.audit_report().find("row_list"), std::string::npos);
  t.ledger.tickets[tail].next = kNil;
  const char first = t.ledger.tenants[a].name[0];
  t.ledger.tenants[a].name[0] = 'z';
  EXPECT_NE(t.audit_report().find("tenant_table"), std::string::npos);
  t.ledger.tenants[a].name[0] = first;
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerAudit, RecordsInNoKnownStateAreNamed) {
  t.ledger.tickets[8].phase = 77;
  EXPECT_NE(t.audit_report().find("ticket_state"), std::string::npos);
  t.ledger.tickets[8].phase = 0;
  t.ledger.sessions[8].state = 77;
  EXPECT_NE(t.audit_report().find("session_state"), std::string::npos);
  t.ledger.sessions[8].state = 0;
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerAudit, AForgottenHolderIsFound) {
  t.ledger.tickets[0].phase = pack_phase(TicketState::request_released);
  const std::string report = t.audit_report();
  EXPECT_NE(report.find("class_free"), std::string::npos);
  EXPECT_NE(report.find("row_in_use"), std::string::npos);
}

TEST_F(LedgerAudit, AStepInTransitionIsReportedAsSuchAndNotAsADiscrepancy) {
  t.ledger.tickets[8].tenant = b;
  t.ledger.tickets[8].klass = 0;
  t.ledger.tickets[8].phase = pack_phase(TicketState::none, Mark::taking);
  change_row(row(b), [](RowWord& w) noexcept {
    w.in_use++;
    return true;
  });
  Discrepancy entries[8];
  EXPECT_EQ(audit(t.ledger, t.lock, nullptr, nullptr, entries, 8), 1U);
  EXPECT_EQ(entries[0].balance, Balance::in_transition);
  EXPECT_EQ(entries[0].index, 8U);
}

TEST_F(LedgerAudit, ItWaitsForUncertainMarksWithinItsBound) {
  struct Context {
    Ticket* ticket;
    int looks;
    bool gated;
    ClassState* state;
  } context = {&t.ledger.tickets[8], 0, false, &t.ledger.classes[0]};
  t.ledger.tickets[8].phase = pack_phase(TicketState::none, Mark::taking);
  const Pause pause = [](void* p) noexcept {
    Context& c = *static_cast<Context*>(p);
    c.gated = unpack_class(c.state->word).gate;
    if (++c.looks == 3) c.ticket->phase = pack_phase(TicketState::none);
    return true;
  };
  Discrepancy entries[8];
  EXPECT_EQ(audit(t.ledger, t.lock, pause, &context, entries, 8), 0U);
  EXPECT_EQ(context.looks, 3);
  EXPECT_TRUE(context.gated);
  EXPECT_FALSE(t.klass().gate);
  t.ledger.tickets[8].phase = pack_phase(TicketState::none, Mark::taking);
  EXPECT_EQ(audit(
                t.ledger, t.lock, [](void*) noexcept { return false; }, nullptr, entries, 8),
            1U);
}

TEST_F(LedgerAudit, EveryBalanceHasAName) {
  for (std::uint8_t i = 0; i <= static_cast<std::uint8_t>(Balance::in_transition); i++) {
    EXPECT_STRNE(balance_name(static_cast<Balance>(i)), "unknown");
  }
}

}  // namespace
}  // namespace sluice::ledger
