#include "ledger/sessions.h"

#include <gtest/gtest.h>

#include <string>

#include "ledger_fixture.h"

namespace sluice::ledger {
namespace {

class LedgerSessions : public ::testing::Test {
 protected:
  LedgerSessions() : t({64, 0, 16, 4, 16, 64, 64}) {
    policy = test::empty_policy(5);
    test::add_class(policy, "interactive", 10, 10);
    test::add_class(policy, "batch", 5, 5);
    policy.server_session_permits = 10;
    policy.admin_reserve = 4;
    test::add_tenant(policy, "*", 1, 30, 6);
    test::add_tenant(policy, "acme", 4, 60, policy::kNoLimit, 3);
    std::strcpy(policy.assign[0].pattern, "batch_*");
    policy.assign[0].by = policy::AssignBy::role;
    policy.assign[0].execution_class = 1;
    policy.assign_count = 1;
    std::strcpy(policy.admin_roles[0].name, "dba");
    std::strcpy(policy.admin_roles[1].name, "monitor");
    policy.admin_roles[1].guaranteed_sessions = 2;
    policy.admin_role_count = 2;
    std::strcpy(policy.database_caps[0].database, "shared");
    policy.database_caps[0].max_sessions = 3;
    policy.database_cap_count = 1;
    std::strcpy(policy.role_caps[0].role, "narrow");
    policy.role_caps[0].max_sessions = 1;
    policy.role_caps[0].connects_per_second = policy::kNoLimit;
    policy.role_cap_count = 1;
    if (t.apply(policy) != Status::ok) std::abort();
  }

  SessionRequest request(std::uint32_t slot, const char* role, const char* database = "app") {
    identity = test::identity_of(t.ledger.header->policy, role, database);
    SessionRequest r = {};
    r.slot = slot;
    r.pid = 1000 + slot;
    r.backend_start_us = 77 + slot;
    r.kind = identity.standing == policy::Standing::admin_role ? SessionKind::admin_role : SessionKind::ordinary;
    r.identity = &identity;
    r.role = role;
    r.database = database;
    r.enforce = true;
    r.physical_free = 100;
    r.now_us = t.now_us;
    return r;
  }

  Outcome open(std::uint32_t slot, const char* role, const char* database = "app") {
    return open_session(t.ledger, t.lock, request(slot, role, database));
  }
  Outcome open_superuser(std::uint32_t slot, std::uint32_t physical_free, bool over_unix_socket = false) {
    SessionRequest r = request(slot, "postgres");
    r.kind = SessionKind::superuser;
    r.physical_free = physical_free;
    r.physical_reserved = 3;
    r.over_unix_socket = over_unix_socket;
    return open_session(t.ledger, t.lock, r);
  }
  Status close(std::uint32_t slot) { return close_session(t.ledger, t.lock, slot, t.now_us); }
  SessionState state(std::uint32_t slot) const { return static_cast<SessionState>(t.ledger.sessions[slot].state); }

  test::TestLedger t;
  policy::Policy policy;
  policy::Identity identity;
};

TEST_F(LedgerSessions, ASessionIsBoundToWhoItIs) {
  ASSERT_EQ(open(3, "batch_7").status, Status::ok);
  const Session& session = t.ledger.sessions[3];
  EXPECT_EQ(state(3), SessionState::connecting);
  EXPECT_EQ(session.pid, 1003U);
  EXPECT_EQ(session.backend_start_us, 80);
  EXPECT_EQ(session.epoch, 1U);
  EXPECT_EQ(session.generation, 5U);
  EXPECT_EQ(session.connection_generation, 1U);
  EXPECT_STREQ(session.role, "batch_7");
  EXPECT_STREQ(session.database, "app");
  EXPECT_STREQ(t.ledger.classes[session.klass].name, "batch");
  EXPECT_STREQ(t.ledger.tenants[session.tenant].name, "batch_7");
  EXPECT_EQ(close(3), Status::ok);
  ASSERT_EQ(open(3, "batch_7").status, Status::ok);
  EXPECT_EQ(session.connection_generation, 2U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerSessions, StatesFollowTheSession) {
  ASSERT_EQ(open(0, "web").status, Status::ok);
  EXPECT_EQ(session_ready(t.ledger, 0), Status::ok);
  EXPECT_EQ(state(0), SessionState::open_idle);
  EXPECT_TRUE(session_busy(t.ledger, 0));
  EXPECT_EQ(state(0), SessionState::open_busy);
  EXPECT_TRUE(session_busy(t.ledger, 0));
  session_idle(t.ledger, 0, 4711);
  EXPECT_EQ(state(0), SessionState::open_idle);
  EXPECT_EQ(t.ledger.sessions[0].idle_since_us, 4711);
  // Evicted: nothing may run.
  t.ledger.sessions[0].state = static_cast<std::uint32_t>(SessionState::closing);
  EXPECT_FALSE(session_busy(t.ledger, 0));
  EXPECT_EQ(session_ready(t.ledger, 0), Status::ok);
  EXPECT_EQ(state(0), SessionState::closing);
  EXPECT_EQ(close(0), Status::ok);
  EXPECT_EQ(state(0), SessionState::session_released);
  EXPECT_TRUE(session_busy(t.ledger, 7));
  EXPECT_EQ(session_ready(t.ledger, 7), Status::illegal_transition);
}

// A2, A9, A19: the session permit is held while idle and a request's release leaves it alone.
TEST_F(LedgerSessions, ASessionPermitAndARequestPermitNeverMix) {
  ASSERT_EQ(open(0, "web").status, Status::ok);
  ASSERT_EQ(session_ready(t.ledger, 0), Status::ok);
  EXPECT_EQ(t.ledger.header->ordinary_sessions, 1U);
  EXPECT_EQ(t.klass(0).free, 10);
  const Session& session = t.ledger.sessions[0];
  ASSERT_EQ(t.begin(0, session.tenant, session.klass).status, Status::ok);
  EXPECT_EQ(t.ledger.header->ordinary_sessions, 1U);
  EXPECT_EQ(t.klass(0).free, 9);
  ASSERT_EQ(t.finish(0), Status::ok);
  EXPECT_EQ(t.ledger.header->ordinary_sessions, 1U);
  EXPECT_EQ(state(0), SessionState::open_idle);
  EXPECT_EQ(t.klass(0).free, 10);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerSessions, TheSecondCloseChangesNothing) {
  ASSERT_EQ(open(0, "web").status, Status::ok);
  ASSERT_EQ(open(1, "web").status, Status::ok);
  EXPECT_EQ(close(0), Status::ok);
  EXPECT_EQ(close(0), Status::ok);
  EXPECT_EQ(t.ledger.header->ordinary_sessions, 1U);
  EXPECT_EQ(t.ledger.tenants[t.tenant("web")].sessions, 1U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerSessions, ALiveTicketKeepsItsSessionOpen) {
  ASSERT_EQ(open(0, "web").status, Status::ok);
  ASSERT_EQ(t.begin(0, t.ledger.sessions[0].tenant, 0).status, Status::ok);
  EXPECT_EQ(close(0), Status::illegal_transition);
  EXPECT_EQ(t.ledger.header->ordinary_sessions, 1U);
  ASSERT_EQ(t.finish(0), Status::ok);
  EXPECT_EQ(close(0), Status::ok);
}

TEST_F(LedgerSessions, GuaranteesOfOthersAreHeldBackAndTheOwnerGetsThem) {
  // 10 permits less the 3 that acme has not claimed.
  for (std::uint32_t i = 0; i < 7; i++) ASSERT_EQ(open(i, i < 4 ? "web" : "app").status, Status::ok);
  const Outcome refused = open(7, "app");
  EXPECT_EQ(refused.status, Status::session_limit);
  EXPECT_EQ(refused.rule.field, policy::RuleField::server_session_permits);
  EXPECT_EQ(refused.used, 10U);
  EXPECT_EQ(refused.limit, 10U);
  for (std::uint32_t i = 7; i < 10; i++) ASSERT_EQ(open(i, "acme").status, Status::ok);
  EXPECT_EQ(t.ledger.header->unclaimed_guarantees, 0U);
  EXPECT_EQ(open(10, "acme").status, Status::session_limit);
  EXPECT_EQ(t.audit_report(), "");
  // What acme gives back is acme's again.
  ASSERT_EQ(close(9), Status::ok);
  EXPECT_EQ(open(10, "web").status, Status::session_limit);
  EXPECT_EQ(open(10, "acme").status, Status::ok);
  EXPECT_EQ(t.ledger.header->sessions_refused, 3U);
  EXPECT_EQ(t.ledger.tenants[t.tenant("web")].session_refusals, 1U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerSessions, TenantDatabaseAndRoleCapsHoldAcrossEachOther) {
  EXPECT_EQ(open(0, "narrow").status, Status::ok);
  const Outcome role = open(1, "narrow");
  EXPECT_EQ(role.status, Status::role_session_limit);
  EXPECT_EQ(role.rule.field, policy::RuleField::role_max_sessions);
  for (std::uint32_t i = 1; i < 4; i++) {
    EXPECT_EQ(open(i, std::string(i, 'u').c_str(), "shared").status, Status::ok);
  }
  const Outcome database = open(4, "v", "shared");
  EXPECT_EQ(database.status, Status::database_session_limit);
  EXPECT_EQ(database.used, 3U);
  EXPECT_EQ(close(1), Status::ok);
  EXPECT_EQ(open(4, "v", "shared").status, Status::ok);
  policy.server_session_permits = 100;
  ASSERT_EQ(t.apply(policy), Status::ok);
  for (std::uint32_t i = 10; i < 16; i++) EXPECT_EQ(open(i, "web").status, Status::ok);
  const Outcome tenant = open(16, "web");
  EXPECT_EQ(tenant.status, Status::tenant_session_limit);
  EXPECT_EQ(tenant.rule.field, policy::RuleField::tenant_max_sessions);
  EXPECT_EQ(tenant.rule.index, 0U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerSessions, TheAdminReserveIsUsableWhileOrdinarySessionsFillTheirs) {
  for (std::uint32_t i = 0; i < 7; i++) ASSERT_EQ(open(i, i < 4 ? "web" : "app").status, Status::ok);
  ASSERT_EQ(open(7, "app").status, Status::session_limit);
  // 4 in the reserve, 2 of them guaranteed to monitor.
  EXPECT_EQ(open(10, "dba").status, Status::ok);
  EXPECT_EQ(open(11, "dba").status, Status::ok);
  const Outcome refused = open(12, "dba");
  EXPECT_EQ(refused.status, Status::admin_reserve);
  EXPECT_EQ(refused.rule.field, policy::RuleField::admin_reserve);
  EXPECT_EQ(refused.used, 4U);
  EXPECT_EQ(open(12, "monitor").status, Status::ok);
  EXPECT_EQ(open(13, "monitor").status, Status::ok);
  EXPECT_EQ(open(14, "monitor").status, Status::admin_reserve);
  EXPECT_EQ(close(10), Status::ok);
  EXPECT_EQ(open(14, "monitor").status, Status::ok);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerSessions, ASuperuserIsRefusedOnlyForTheGuaranteesOfAdminRoles) {
  // 2 unclaimed and 3 that PostgreSQL reserves.
  const Outcome refused = open_superuser(20, 4);
  EXPECT_EQ(refused.status, Status::admin_reserve);
  EXPECT_EQ(refused.rule.field, policy::RuleField::admin_guarantee);
  EXPECT_EQ(refused.rule.index, 1U);
  EXPECT_EQ(open_superuser(20, 5).status, Status::ok);
  EXPECT_EQ(open_superuser(21, 0, true).status, Status::ok);
  ASSERT_EQ(open(10, "monitor").status, Status::ok);
  ASSERT_EQ(open(11, "monitor").status, Status::ok);
  EXPECT_EQ(open_superuser(22, 0).status, Status::ok);
  EXPECT_EQ(t.ledger.header->admin_sessions, 5U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerSessions, ShadowAdmitsAndCountsWhatItWouldHaveRefused) {
  for (std::uint32_t i = 0; i < 8; i++) {
    SessionRequest r = request(i, "web");
    r.enforce = false;
    EXPECT_EQ(open_session(t.ledger, t.lock, r).status, Status::ok);
  }
  EXPECT_EQ(t.ledger.header->sessions_would_refuse, 2U);
  EXPECT_EQ(t.ledger.header->sessions_refused, 0U);
  EXPECT_EQ(t.ledger.tenants[t.tenant("web")].would_refuse_sessions, 2U);
  EXPECT_EQ(t.ledger.header->ordinary_sessions, 8U);
  EXPECT_TRUE(t.ledger.refusals[0].would);
  EXPECT_EQ(t.ledger.refusals[0].count, 2U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerSessions, WalsendersAreRecordedAndNotCountedAsOrdinary) {
  SessionRequest r = request(30, "replicator");
  r.kind = SessionKind::walsender;
  EXPECT_EQ(open_session(t.ledger, t.lock, r).status, Status::ok);
  EXPECT_EQ(t.ledger.header->walsender_sessions, 1U);
  EXPECT_EQ(t.ledger.header->ordinary_sessions, 0U);
  EXPECT_EQ(close(30), Status::ok);
  EXPECT_EQ(t.ledger.header->walsender_sessions, 0U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerSessions, AnUnknownSessionConsumesItsPermitUntilReclaimed) {
  ASSERT_EQ(open(0, "web").status, Status::ok);
  EXPECT_EQ(session_unknown(t.ledger, t.lock, 0), Status::ok);
  EXPECT_EQ(session_unknown(t.ledger, t.lock, 0), Status::ok);
  EXPECT_EQ(t.ledger.header->ordinary_sessions, 1U);
  EXPECT_EQ(t.audit_report(), "");
  EXPECT_EQ(open(0, "web").status, Status::illegal_transition);
  Wakes wakes = {};
  EXPECT_EQ(reclaim_session(t.ledger, t.lock, 0, t.now_us, wakes), Status::ok);
  EXPECT_EQ(t.ledger.header->ordinary_sessions, 0U);
  EXPECT_EQ(t.ledger.header->reclaimed, 1U);
  EXPECT_EQ(session_unknown(t.ledger, t.lock, 5), Status::illegal_transition);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerSessions, ReclaimEndsAWaitReturnsAPermitAndWakesTheNext) {
  policy.classes[0].permits = 1;
  ASSERT_EQ(t.apply(policy), Status::ok);
  for (std::uint32_t i = 0; i < 3; i++) {
    ASSERT_EQ(open(i, "web").status, Status::ok);
    (void)t.begin(i, t.ledger.sessions[i].tenant, 0);
  }
  ASSERT_EQ(t.state(1), TicketState::queued);
  Wakes wakes = {};
  EXPECT_EQ(reclaim_session(t.ledger, t.lock, 1, t.now_us, wakes), Status::ok);
  EXPECT_EQ(wakes.count, 0U);
  EXPECT_EQ(reclaim_session(t.ledger, t.lock, 0, t.now_us, wakes), Status::ok);
  EXPECT_EQ(wakes.count, 1U);
  EXPECT_EQ(wakes.tickets[0], 2U);
  // Two reapers: the second finds nothing to do.
  EXPECT_EQ(reclaim_session(t.ledger, t.lock, 0, t.now_us, wakes), Status::ok);
  EXPECT_EQ(t.ledger.header->reclaimed, 2U);
  EXPECT_EQ(t.ledger.header->ordinary_sessions, 1U);
  EXPECT_EQ(t.klass(0).free, 0);
  EXPECT_EQ(t.audit_report(), "");
}

TEST_F(LedgerSessions, ReassigningMovesEveryBalanceAndRefusesNobody) {
  ASSERT_EQ(open(0, "web", "shared").status, Status::ok);
  identity = test::identity_of(policy, "dba", "app");
  EXPECT_EQ(reassign_session(t.ledger, t.lock, 0, identity, t.now_us), Status::ok);
  EXPECT_EQ(t.ledger.sessions[0].kind, SessionKind::admin_role);
  EXPECT_EQ(t.ledger.header->ordinary_sessions, 0U);
  EXPECT_EQ(t.ledger.header->admin_role_sessions[0], 1U);
  EXPECT_EQ(t.ledger.header->database_sessions[0], 0U);
  identity = test::identity_of(policy, "acme", "app");
  EXPECT_EQ(reassign_session(t.ledger, t.lock, 0, identity, t.now_us), Status::ok);
  EXPECT_EQ(t.ledger.header->unclaimed_guarantees, 2U);
  EXPECT_EQ(t.audit_report(), "");
  EXPECT_EQ(reassign_session(t.ledger, t.lock, 9, identity, t.now_us), Status::illegal_transition);
}

}  // namespace
}  // namespace sluice::ledger
