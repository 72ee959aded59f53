// A ledger in ordinary memory and short ways to say what tests do with it. Used by the unit tests, the simulator, the
// stress program and the benchmarks; knows no test framework.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "ledger/admission.h"
#include "ledger/audit.h"
#include "ledger/policy_change.h"
#include "ledger/sessions.h"
#include "ledger/tenants.h"
#include "ledger/words.h"
#include "policy/decisions.h"

namespace sluice::ledger::test {

inline constexpr char kStamp[] = "test";

inline policy::Policy empty_policy(std::uint64_t generation = 1) {
  policy::Policy policy;
  policy::make_unlimited_policy(policy);
  policy.generation = generation;
  policy.class_count = 0;
  policy.tenant_rule_count = 0;
  return policy;
}

inline void add_class(policy::Policy& policy, const char* name, std::uint32_t permits, std::uint32_t max_queue,
                      std::uint32_t queue_deadline_ms = 60000) {
  policy::ExecutionClass& entry = policy.classes[policy.class_count++];
  std::memset(&entry, 0, sizeof(entry));
  std::snprintf(entry.name, sizeof(entry.name), "%s", name);
  entry.permits = permits;
  entry.max_queue = max_queue;
  entry.queue_deadline_ms = queue_deadline_ms;
  entry.aging_ms = 500;
  entry.transaction_time_limit_ms = policy::kNoTimeLimit;
}

// Lets a class of the policy borrow from others, named by their place in it.
inline void let_borrow(policy::Policy& policy, std::uint32_t klass, std::uint32_t from_classes, std::uint32_t max,
                       std::uint32_t ttl_ms = 1000, policy::BorrowExpiry on_expiry = policy::BorrowExpiry::mark) {
  policy.classes[klass].borrow = {from_classes, max, ttl_ms, on_expiry};
}

inline policy::TenantRule& add_tenant(policy::Policy& policy, const char* pattern, std::uint32_t weight,
                                      std::uint32_t max_inflight, std::uint32_t max_sessions = policy::kNoLimit,
                                      std::uint32_t guaranteed = 0, std::uint32_t max_tenants = 1) {
  policy::TenantRule& rule = policy.tenant_rules[policy.tenant_rule_count++];
  std::memset(&rule, 0, sizeof(rule));
  std::snprintf(rule.pattern, sizeof(rule.pattern), "%s", pattern);
  rule.weight = weight;
  rule.max_inflight = max_inflight;
  rule.max_sessions = max_sessions;
  rule.guaranteed_sessions = guaranteed;
  rule.max_tenants = max_tenants;
  return rule;
}

class TestLedger {
 public:
  explicit TestLedger(const Sizes& sizes) {
    const std::size_t bytes = region_size(sizes);
    memory_.reset(static_cast<char*>(std::aligned_alloc(64, bytes)));
    if (format(memory_.get(), bytes, sizes, kStamp, Uuid{}, 1, 0, ledger) != Status::ok) std::abort();
  }

  // A policy in force, enforcing unless told otherwise.
  Status apply(const policy::Policy& policy, Mode mode = Mode::enforce) {
    Wakes wakes = {};
    const Status status = apply_policy(ledger, lock, policy, mode, now_us, wakes);
    woken.insert(woken.end(), wakes.tickets, wakes.tickets + wakes.count);
    more = wakes.more;
    return status;
  }

  std::uint32_t tenant(const char* name) { return tenant_for(ledger, lock, name, now_us); }

  TicketRequest request(std::uint32_t tenant, std::uint32_t klass, bool enforce = true) const {
    return {tenant, klass, enforce, Uuid{}, now_us, now_us + 60'000'000, 0, 0};
  }

  // The whole way of a caller: without the lock, then with it.
  Outcome begin(std::uint32_t ticket, const TicketRequest& request) {
    const Status status = take(ledger, ticket, request);
    if (status != Status::contended) return policy::outcome(status);
    return begin_locked(ticket, request);
  }
  Outcome begin(std::uint32_t ticket, std::uint32_t tenant, std::uint32_t klass = 0) {
    return begin(ticket, request(tenant, klass));
  }
  Outcome begin_locked(std::uint32_t ticket, const TicketRequest& request) {
    Wakes wakes = {};
    const Outcome outcome = take_or_queue(ledger, lock, ticket, request, wakes);
    note(wakes);
    return outcome;
  }

  Status finish(std::uint32_t ticket) {
    Status status = release(ledger, ticket, now_us);
    if (status != Status::contended) return status;
    Wakes wakes = {};
    status = release_locked(ledger, lock, ticket, now_us, wakes);
    note(wakes);
    return status;
  }

  Outcome end(std::uint32_t ticket, Status why) {
    Wakes wakes = {};
    const Outcome outcome = end_wait(ledger, lock, ticket, why, now_us, wakes);
    note(wakes);
    return outcome;
  }

  // Lets time pass as the guard sees it.
  void pass(std::int64_t us) {
    const std::int64_t end_us = now_us + us;
    while (now_us < end_us) {
      now_us = now_us + 100'000 < end_us ? now_us + 100'000 : end_us;
      Wakes wakes = {};
      tick(ledger, lock, now_us, wakes);
      note(wakes);
    }
  }

  Outcome poll(std::uint32_t ticket) { return poll_wait(ledger, lock, ticket, now_us); }

  TicketState state(std::uint32_t ticket) const { return phase_state(ledger.tickets[ticket].phase); }
  Mark mark(std::uint32_t ticket) const { return phase_mark(ledger.tickets[ticket].phase); }
  RowWord row(std::uint32_t tenant, std::uint32_t klass = 0) const {
    return unpack_row(row_at(ledger, tenant, klass).word);
  }
  ClassWord klass(std::uint32_t klass = 0) const { return unpack_class(ledger.classes[klass].word); }

  // Empty when every balance agrees with the records; else one line a discrepancy.
  std::string audit_report() {
    Discrepancy entries[16];
    const std::uint32_t count = audit(ledger, lock, nullptr, nullptr, entries, 16);
    std::string report;
    for (std::uint32_t i = 0; i < count; i++) {
      report += std::string(balance_name(entries[i].balance)) + "[" + std::to_string(entries[i].index) + "," +
                std::to_string(entries[i].other) + "] recorded " + std::to_string(entries[i].recorded) +
                " recomputed " + std::to_string(entries[i].recomputed) + "\n";
    }
    return report;
  }

  Ledger ledger;
  Exclusive lock;
  std::int64_t now_us = 1'000'000;
  std::vector<std::uint32_t> woken;  // in the order of their grants
  bool more = false;

 private:
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };

  void note(Wakes& wakes) {
    woken.insert(woken.end(), wakes.tickets, wakes.tickets + wakes.count);
    while (wakes.more) {
      wakes = {};
      tick(ledger, lock, now_us, wakes);
      woken.insert(woken.end(), wakes.tickets, wakes.tickets + wakes.count);
    }
  }

  std::unique_ptr<char, Free> memory_;
};

inline policy::Identity identity_of(const policy::Policy& policy, const char* role, const char* database,
                                    bool superuser = false) {
  policy::Login login = {};
  login.role = role;
  login.database = database;
  login.superuser = superuser;
  policy::Identity identity;
  policy::identify(policy, login, identity);
  return identity;
}

}  // namespace sluice::ledger::test
