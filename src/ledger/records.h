// The records of the ledger: trivial, standard-layout, linked by index. Fields that the lock-free path touches are
// plain integers accessed through std::atomic_ref; everything else is read and written under the ledger's lock (see
// region.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "ledger/states.h"
#include "policy/policy.h"
#include "policy/refusal.h"

namespace sluice::ledger {

using policy::Rule;
using policy::Status;
using policy::Uuid;

inline constexpr std::uint32_t kNil = 0xFFFFFFFFU;
inline constexpr std::uint32_t kOverflowTenant = 0;  // where newcomers go while the tenant table is full
inline constexpr std::uint32_t kReasons = static_cast<std::uint32_t>(Status::duplicate_ticket) + 1;
inline constexpr std::uint32_t kHistogramBuckets = 20;  // bucket i counts waits below 2^i ms; the last one is open

// Whose permits a ticket holds.
enum class PermitSource : std::uint8_t { none, own_class, borrowed, overdraft };

// One ticket a PGPROC index (its backend's current transaction), then `external` ones.
struct alignas(64) Ticket {
  // Lock-free.
  std::uint32_t phase;  // TicketState | Mark << 8 | uses << 16 (read it with phase_state() and phase_mark())
  std::uint32_t tenant;
  std::uint32_t klass;
  std::uint32_t generation;    // low bits of the policy generation it was decided under
  std::int64_t granted_us;     // when the permit was taken
  std::int64_t time_limit_us;  // held longer than this is ended by the guard; 0: no limit
  // The owner's statistics since its record was last folded into its row (see fold()).
  std::uint64_t stat_granted;
  std::uint64_t stat_execution_us;
  std::uint64_t stat_would_wait;  // shadow: takes over the permits or over the row's limit
  // When it was queued, or asked for under an id of its caller's (0: neither); kept over retries. Not 0: its release
  // goes through the lock and leaves a receipt.
  std::int64_t queued_us;
  // Under the lock.
  Uuid id;                   // of the last request that went through the lock; current where queued_us is not 0
  std::int64_t deadline_us;  // queue deadline, absolute
  std::uint32_t owner;       // the login role whose id this is; 0: the id was made for this request
  std::uint32_t id_next;     // chain of live tickets with an owner
  std::uint32_t next;        // in its row's eligible or parked list, or in its class's list of borrowed permits
  std::uint32_t previous;
  std::uint32_t lender;     // the class whose permit it holds while `source` is borrowed, else kNil
  PermitSource source;      // means something while it holds a permit
  bool parked;              // waits for its row's slot, not for the class
  bool blocks_holder;       // the guard found that it blocks a permit holder
  bool admitted_by_switch;  // admitted by the kill switch or a flip to shadow
  std::int64_t blocking_since_us;
  Status wait_status;   // why an ended wait was ended
  std::uint64_t waits;  // statistics: how often this slot waited
};

// A tenant's share of one class. Rows are a dense array: tenant * max_classes + class.
struct alignas(64) Row {
  std::uint64_t word;  // RowWord, lock-free
  std::uint32_t weight;
  std::uint32_t queued;  // eligible and parked
  std::uint32_t eligible_head, eligible_tail, eligible_count;
  std::uint32_t parked_head, parked_tail;
  // Fair queueing (scheduler.h). Service is counted in permit-microseconds, keys in those per weight.
  std::uint32_t key_at, flood_at;  // places in the class's two heaps, kNil: in neither
  std::uint32_t held;              // permits held since charged_us
  std::int64_t key;                // as the heap was ordered by it: not above the key of this moment
  std::int64_t service;            // attained, less what was forgiven, plus what idle credit was cut
  std::int64_t charged_us;
  std::int64_t head_us;                    // when its first eligible ticket was queued
  std::int64_t idle_since_us;              // when it last gave up its only permit
  std::uint64_t contention;                // the contention that `service` belongs to
  std::int64_t forgiven;                   // in this contention, as key
  std::int64_t mean_hold_us, max_hold_us;  // decaying
  std::uint32_t hold_samples;
  // Statistics folded from slots that left, and those that are only counted under the lock.
  std::uint32_t peak_queued;
  std::uint64_t granted, execution_us, would_wait, waited, refused, expired, cancelled, pushed_out;
  std::uint32_t audit_in_use, audit_parked, audit_eligible;  // audit()'s own sums
  bool audit_skip;                                           // a step in transition touches it
};

struct alignas(64) ClassState {
  std::uint64_t word;  // ClassWord, lock-free
  char padding[56];
  char name[policy::kNameBytes];
  std::uint32_t permits;  // of the policy
  std::int32_t capacity;  // permits + borrowed - lent: in use = capacity - free
  std::uint32_t max_queue;
  std::uint32_t queued;        // eligible + parked
  std::uint32_t policy_index;  // in the deciding policy; kNil: no longer in it, draining
  std::uint32_t recent_peak;   // permits in use since the last tick; lock-free, only ever raised between ticks
  std::uint32_t peak_in_use;   // before the last tick
  std::uint32_t peak_queued;
  // Fair queueing (scheduler.h).
  std::uint32_t key_count, flood_count;  // sizes of the two heaps
  std::uint32_t active_weight;           // of the rows in the heap by key
  std::int64_t virtual_time;
  std::uint64_t contention;      // counts the times contention began
  std::int64_t smoothed_weight;  // active_weight over the last second, times kWeightScale
  std::int64_t weight_us;        // when it was smoothed
  std::int64_t ticked_us;
  std::int64_t aging_us;
  // Borrowing (borrowing.h), by class slot.
  std::uint32_t borrow_from;  // bit i: may borrow from slot i
  std::uint32_t borrow_max;
  std::int64_t borrow_ttl_us;
  bool cancels_borrowed;  // onExpiry: cancel
  std::uint32_t lent;     // how many it owes itself is in its word
  std::uint32_t borrowed_from[policy::kMaxClasses];
  std::uint32_t borrowed_head, borrowed_tail;  // tickets that hold a borrowed permit, oldest grant first
  std::int64_t lending_peak;                   // decaying maximum of use and demand, times kPeakScale
  std::int64_t peaked_us;
  std::int64_t lending_memory_us;  // time constant of that decay: five times the longest ttl of those who may borrow
  // Counters.
  std::uint64_t handed_over, borrows, recalls;
  std::uint64_t would_refuse;  // shadow: takes that would have met a full queue
  std::uint64_t wait_histogram[kHistogramBuckets];
  std::uint64_t wait_us_total;
  std::uint64_t refusals[kReasons];  // by Status
};

struct Tenant {
  char name[policy::kTenantBytes];
  bool used;
  std::uint16_t rule;  // tenants.<pattern> of the deciding policy, policy::kNone
  std::uint32_t sessions;
  std::uint32_t guaranteed;  // session permits held back for it
  std::uint32_t max_sessions;
  std::uint32_t peak_sessions;
  std::uint32_t hash_next;  // chain of its bucket
  std::uint64_t session_refusals, would_refuse_sessions;
  std::int64_t last_used_us;
  std::uint32_t audit_sessions;  // audit()'s own sum
};

enum class SessionKind : std::uint8_t { ordinary, admin_role, superuser, walsender };

struct alignas(64) Session {
  std::uint32_t state;  // SessionState, lock-free
  std::uint32_t pid;
  std::int64_t backend_start_us;  // PostgreSQL's TimestampTz, an identity not a clock of the ledger
  std::int64_t opened_us;
  std::int64_t idle_since_us;
  std::uint64_t epoch;
  std::uint64_t connection_generation;  // counts uses of this slot
  std::uint64_t generation;             // policy generation it was admitted under
  Uuid permit_token;                    // reservations; zero otherwise
  std::uint32_t tenant;
  std::uint8_t klass;  // class slot in the ledger
  SessionKind kind;
  std::uint16_t admin_role, database_cap, role_cap;  // indexes in the deciding policy, policy::kNone
  bool counted;                                      // holds a session permit (false: opened while enforcement was off)
  char role[policy::kNameBytes];
  char database[policy::kNameBytes];
};

struct Receipt {
  Uuid id;
  std::uint32_t owner;  // the login role whose id it is; 0: made for one request
  TicketState outcome;
  Status reason;  // why it was not granted; ok: it ran
  std::uint32_t tenant, klass;
  std::uint32_t hash_next;  // chain of receipts with an owner
  std::int64_t queued_us, ended_us;
};

enum class EventKind : std::uint8_t {
  session_refused,
  execution_refused,
  wait_expired,
  wait_cancelled,
  time_limit_cancel,
  time_limit_terminate,
  overdraft_granted,
  blocker_promoted,
  login_terminated,
  reclaimed,
  tenant_overflow,
  switched,
  policy_applied,
  fault,
  would_refuse_session,
  borrow_expired,
};

// One line of sluice.events; repeats of (kind, status, tenant, class, rule) are folded.
struct Event {
  EventKind kind;
  Status status;
  Rule rule;
  std::uint32_t klass;
  std::uint64_t generation;
  std::int64_t first_us, last_us;
  std::uint64_t count;
  Uuid ticket;  // of the newest of them; zeros: none
  char tenant[policy::kTenantBytes];
  char database[policy::kNameBytes];
};

// One cell of sluice.refusals: a minute × tenant × class × reason × rule.
struct RefusalCell {
  std::int64_t minute;  // ledger time / 60 s
  Status status;
  bool would;  // counted in shadow
  Rule rule;
  std::uint32_t klass;
  std::uint64_t count;
  char tenant[policy::kTenantBytes];
};

static_assert(std::is_trivially_copyable_v<Ticket> && std::is_standard_layout_v<Ticket>);
static_assert(std::is_trivially_copyable_v<Row> && std::is_standard_layout_v<Row> && sizeof(Row) % 64 == 0);
static_assert(std::is_trivially_copyable_v<ClassState> && offsetof(ClassState, name) == 64);
static_assert(std::is_trivially_copyable_v<Session> && std::is_trivially_copyable_v<Tenant>);

[[nodiscard]] constexpr std::uint32_t pack_phase(TicketState state, Mark mark = Mark::none) noexcept {
  return static_cast<std::uint32_t>(state) | static_cast<std::uint32_t>(mark) << 8;
}
[[nodiscard]] constexpr TicketState phase_state(std::uint32_t phase) noexcept {
  return static_cast<TicketState>(phase & 0xFFU);
}
[[nodiscard]] constexpr Mark phase_mark(std::uint32_t phase) noexcept {
  return static_cast<Mark>((phase >> 8) & 0xFFU);
}

}  // namespace sluice::ledger
