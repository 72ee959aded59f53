#include "ledger/policy_change.h"

#include <cstring>

#include "ledger/atomics.h"
#include "ledger/borrowing.h"
#include "ledger/class_use.h"
#include "ledger/connect_rate.h"
#include "ledger/journal.h"
#include "ledger/queue.h"
#include "ledger/scheduler.h"
#include "ledger/session_counts.h"
#include "ledger/tenants.h"
#include "policy/decisions.h"

namespace sluice::ledger {

namespace {

struct Plan {
  std::uint32_t slot_of[policy::kMaxClasses];   // by policy index
  std::uint32_t index_of[policy::kMaxClasses];  // by slot; kNil: not in the policy
  bool starts_anew[policy::kMaxClasses];        // by slot
};

[[nodiscard]] bool is_named(const ClassState& state, const char* name) noexcept {
  return std::strncmp(state.name, name, policy::kNameBytes) == 0;
}

// Nothing holds, waits in, or is in the middle of a step on the class.
[[nodiscard]] bool is_drained(const Ledger& ledger, std::uint32_t klass) noexcept {
  const ClassState& state = ledger.classes[klass];
  const ClassWord word = unpack_class(load(state.word));
  if (word.waiters > 0 || state.queued > 0 || permits_in_use(state.capacity, word.free) != 0 || word.owed > 0 ||
      state.lent > 0) {
    return false;
  }
  for (std::uint32_t i = 0; i < ticket_count(ledger); i++) {
    const Ticket& ticket = ledger.tickets[i];
    if (ticket.klass != klass) continue;
    const std::uint32_t phase = load(ticket.phase);
    if (phase_mark(phase) != Mark::none || phase_state(phase) == TicketState::queued ||
        holds_permit(phase_state(phase))) {
      return false;
    }
  }
  return true;
}

[[nodiscard]] bool plan_classes(const Ledger& ledger, const policy::Policy& policy, Plan& plan) noexcept {
  const std::uint32_t slots = ledger.header->sizes.classes;
  if (policy.class_count > slots) return false;
  for (std::uint32_t slot = 0; slot < policy::kMaxClasses; slot++) {
    plan.index_of[slot] = kNil;
    plan.starts_anew[slot] = false;
  }
  for (std::uint32_t i = 0; i < policy.class_count; i++) {
    plan.slot_of[i] = kNil;
    for (std::uint32_t slot = 0; slot < slots && plan.slot_of[i] == kNil; slot++) {
      if (plan.index_of[slot] != kNil || !is_named(ledger.classes[slot], policy.classes[i].name)) continue;
      plan.slot_of[i] = slot;
      plan.index_of[slot] = i;
    }
  }
  for (std::uint32_t i = 0; i < policy.class_count; i++) {
    for (std::uint32_t slot = 0; slot < slots && plan.slot_of[i] == kNil; slot++) {
      if (plan.index_of[slot] != kNil || !is_drained(ledger, slot)) continue;
      plan.slot_of[i] = slot;
      plan.index_of[slot] = i;
      plan.starts_anew[slot] = true;
    }
    if (plan.slot_of[i] == kNil) return false;
  }
  return true;
}

// A falling limit is seen before the word falls, a rising one after it has risen: see note_peak().
void set_permits(ClassState& state, std::uint32_t permits) noexcept {
  const std::int32_t delta = static_cast<std::int32_t>(permits) - static_cast<std::int32_t>(state.permits);
  const std::int32_t capacity = state.capacity + delta;
  state.permits = permits;
  if (delta < 0) store(state.capacity, capacity);
  if (delta != 0) {
    change_class(state, [delta](ClassWord& word) noexcept {
      word.free += delta;
      return true;
    });
  }
  if (delta > 0) store(state.capacity, capacity);
}

void begin_class(const Ledger& ledger, std::uint32_t slot, const char* name) noexcept {
  ClassState& state = ledger.classes[slot];
  std::memcpy(state.name, name, policy::kNameBytes);
  store_relaxed(state.recent_peak, 0U);
  state.peak_in_use = state.peak_queued = 0;
  state.lending_peak = 0;
  state.handed_over = state.borrows = state.recalls = 0;
  store_relaxed(state.would_refuse, std::uint64_t{0});
  std::memset(state.wait_histogram, 0, sizeof(state.wait_histogram));
  state.wait_us_total = 0;
  std::memset(state.refusals, 0, sizeof(state.refusals));
}

// A class that has got more permits of its own gives back what it borrowed.
void repay_spare(const Ledger& ledger, const Exclusive& lock) noexcept {
  for (std::uint32_t klass = 0; klass < ledger.header->sizes.classes; klass++) {
    ClassState& state = ledger.classes[klass];
    while (permits_owed(state) > 0 && unpack_class(load(state.word)).free > 0) {
      if (repay(ledger, lock, klass, kNil) == kNil) break;
    }
  }
}

void change_classes(const Ledger& ledger, const Exclusive& lock, const policy::Policy& policy, const Plan& plan,
                    std::int64_t now_us) noexcept {
  for (std::uint32_t slot = 0; slot < ledger.header->sizes.classes; slot++) {
    ClassState& state = ledger.classes[slot];
    const std::uint32_t index = plan.index_of[slot];
    if (plan.starts_anew[slot]) begin_class(ledger, slot, policy.classes[index].name);
    state.policy_index = index;
    // A class that is gone drains without limits.
    store_relaxed(state.max_queue, index == kNil ? policy::kNoLimit : policy.classes[index].max_queue);
    set_permits(state, index == kNil ? policy::kNoLimit : policy.classes[index].permits);
    if (index != kNil) set_aging(ledger, lock, slot, std::int64_t{policy.classes[index].aging_ms} * 1000, now_us);
  }
  adopt_borrowing(ledger, lock);
  repay_spare(ledger, lock);
}

void change_tenants(const Ledger& ledger, const Exclusive& lock, std::int64_t now_us) noexcept {
  Header& header = *ledger.header;
  std::memset(header.guaranteed_tenants, 0, sizeof(header.guaranteed_tenants));
  for (std::uint32_t tenant = 0; tenant < header.tenant_count; tenant++) {
    adopt_rule(ledger, lock, tenant, now_us);
    for (std::uint32_t klass = 0; klass < header.sizes.classes; klass++) {
      const std::uint32_t row = tenant * header.sizes.classes + klass;
      park_excess(ledger, lock, row, now_us);
      promote_parked(ledger, lock, row, now_us);
    }
  }
}

[[nodiscard]] std::uint16_t find_admin_role(const policy::Policy& policy, const char* role) noexcept {
  for (std::uint16_t i = 0; i < policy.admin_role_count; i++) {
    if (std::strncmp(policy.admin_roles[i].name, role, policy::kNameBytes) == 0) return i;
  }
  return policy::kNone;
}

[[nodiscard]] std::uint16_t find_database_cap(const policy::Policy& policy, const char* database) noexcept {
  for (std::uint16_t i = 0; i < policy.database_cap_count; i++) {
    if (std::strncmp(policy.database_caps[i].database, database, policy::kNameBytes) == 0) return i;
  }
  return policy::kNone;
}

[[nodiscard]] std::uint16_t find_role_cap(const policy::Policy& policy, const char* role) noexcept {
  for (std::uint16_t i = 0; i < policy.role_cap_count; i++) {
    if (std::strncmp(policy.role_caps[i].role, role, policy::kNameBytes) == 0) return i;
  }
  return policy::kNone;
}

// The indexes of admin roles and caps have changed their meaning, so sessions are counted anew. Peaks stay.
void change_sessions(const Ledger& ledger, const Exclusive& lock) noexcept {
  Header& header = *ledger.header;
  header.ordinary_sessions = header.admin_sessions = header.walsender_sessions = 0;
  std::memset(header.admin_role_sessions, 0, sizeof(header.admin_role_sessions));
  std::memset(header.database_sessions, 0, sizeof(header.database_sessions));
  std::memset(header.role_sessions, 0, sizeof(header.role_sessions));
  for (std::uint32_t i = 0; i < header.tenant_count; i++) ledger.tenants[i].sessions = 0;
  forget_connects(ledger, lock);
  header.unclaimed_guarantees = guarantee_total(header.policy);
  const std::uint32_t fallback = class_slot(ledger, lock, header.policy.default_class);
  for (std::uint32_t i = 0; i < header.sizes.sessions; i++) {
    Session& session = ledger.sessions[i];
    if (!holds_session_permit(session_state(session))) continue;
    session.admin_role = find_admin_role(header.policy, session.role);
    session.database_cap = find_database_cap(header.policy, session.database);
    session.role_cap = find_role_cap(header.policy, session.role);
    if (ledger.classes[session.klass].policy_index == kNil && fallback != kNil) {
      session.klass = static_cast<std::uint8_t>(fallback);
    }
    count_session(ledger, lock, session, true);
  }
}

}  // namespace

Status apply_policy(const Ledger& ledger, const Exclusive& lock, const policy::Policy& policy, Mode mode,
                    std::int64_t now_us, Wakes& wakes) noexcept {
  Plan plan;
  if (!plan_classes(ledger, policy, plan)) return Status::table_full;
  Header& header = *ledger.header;
  if (&policy != &header.policy) std::memcpy(&header.policy, &policy, sizeof(policy));
  store_relaxed(header.generation, static_cast<std::uint32_t>(policy.generation));
  change_classes(ledger, lock, policy, plan, now_us);
  change_tenants(ledger, lock, now_us);
  change_sessions(ledger, lock);
  store(header.mode, static_cast<std::uint32_t>(mode));
  store(header.policy_version, header.policy_version + 1);
  record_event(ledger, lock, {EventKind::policy_applied, policy::outcome(Status::ok), kNil, kNil, nullptr, false},
               now_us);
  if (mode != Mode::enforce) (void)admit_waiters(ledger, lock, now_us, wakes);
  for (std::uint32_t klass = 0; klass < header.sizes.classes; klass++) dispatch(ledger, lock, klass, now_us, wakes);
  return Status::ok;
}

std::uint32_t class_slot(const Ledger& ledger, const Shared&, std::uint32_t policy_index) noexcept {
  for (std::uint32_t slot = 0; slot < ledger.header->sizes.classes; slot++) {
    if (ledger.classes[slot].policy_index == policy_index && policy_index != kNil) return slot;
  }
  return kNil;
}

std::uint32_t find_class(const Ledger& ledger, const Shared&, const char* name) noexcept {
  for (std::uint32_t slot = 0; slot < ledger.header->sizes.classes; slot++) {
    if (ledger.classes[slot].policy_index != kNil && is_named(ledger.classes[slot], name)) return slot;
  }
  return kNil;
}

}  // namespace sluice::ledger
