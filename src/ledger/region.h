// The region: one block of memory with a header and the tables, sized once, mapped by every process at the same
// address. Lock contract: functions that take `const Exclusive&` need the ledger's lock exclusively, `const Shared&` at
// least shared; functions without a token are lock-free or touch only what their owner may touch. The caller proves the
// lock by making the token; the core knows no lock of its own.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ledger/records.h"
#include "policy/policy.h"

namespace sluice::ledger {

inline constexpr std::uint64_t kMagic = 0x65636975'6c735f67;  // "g_sluice"
inline constexpr std::uint32_t kLayoutVersion = 3;

struct Shared {};
struct Exclusive : Shared {};

struct Sizes {
  std::uint32_t sessions;          // PGPROC indexes (MaxBackends)
  std::uint32_t external_tickets;  // queued by proxies; 0 until there are any
  std::uint32_t tenants;           // including the overflow tenant
  std::uint32_t classes;           // at most policy::kMaxClasses
  std::uint32_t receipts, events, refusal_cells;
};

enum class Mode : std::uint8_t { off, shadow, enforce };

struct Header {
  std::uint64_t magic;
  std::uint32_t layout_version;
  char build_stamp[32];  // version and commit of the library that made the region
  Uuid boot_id;
  std::uint64_t epoch;
  std::int64_t formatted_us;
  Sizes sizes;
  std::uint64_t bytes;

  // Lock-free reads.
  std::uint64_t policy_version;  // bumped by every apply_policy(); backends re-evaluate themselves when it moved
  std::uint32_t mode;            // Mode of the deciding policy (its activation), set by apply_policy
  std::uint32_t generation;      // low bits of policy.generation
  std::uint32_t switch_mode;     // pg_sluice.enforcement as the guard last saw it: 0 policy, 1 shadow, 2 off

  // Under the lock.
  policy::Policy policy;       // the deciding policy: the activated one, else the newest published (shadow)
  std::uint32_t tenant_count;  // entries ever used; they are recycled in place
  std::uint32_t tenant_hand;   // where the search for a tenant to recycle goes on
  std::uint32_t guaranteed_tenants[policy::kMaxTenantRules];  // tenants that have the guarantee of their rule
  std::uint32_t ordinary_sessions;                            // session permits in use by ordinary sessions
  std::uint32_t unclaimed_guarantees;  // session permits held back for tenants below their guarantee
  std::uint32_t admin_sessions;        // admin roles and superusers
  std::uint32_t walsender_sessions;
  std::uint32_t peak_ordinary_sessions;
  std::uint32_t admin_role_sessions[policy::kMaxAdminRoles];
  std::uint32_t database_sessions[policy::kMaxDatabaseCaps];
  std::uint32_t role_sessions[policy::kMaxRoleCaps];
  std::int64_t role_connects_until_us[policy::kMaxRoleCaps];  // connect_rate.h
  std::uint32_t overdraft_in_use;
  std::int64_t overdraft_released_us;  // when the last one came back
  std::uint32_t overdraft_waiters;
  std::uint32_t queued_total;
  std::uint32_t receipt_next, event_next, refusal_next;
  // Counters.
  std::uint64_t sessions_admitted, sessions_refused, sessions_would_refuse;
  std::uint64_t tickets_refused, pushed_out, waits_expired, waits_cancelled, overdraft_granted, admitted_by_switch;
  std::uint64_t tenant_overflows, reclaimed, faults, time_limit_cancels, time_limit_terminates, borrow_cancels,
      logins_terminated;
  std::uint64_t session_refusals[kReasons];  // by Status
  std::uint64_t over_limit_grants;  // grants that found their class or row over its limit while enforcing; always 0
};

// A process's view of the region: pointers and sizes computed once from the header.
struct Ledger {
  Header* header;
  ClassState* classes;
  Row* rows;
  std::uint32_t* by_key;    // each class's heap of rows with eligible tickets: classes x tenants
  std::uint32_t* by_queue;  // and of rows with queued ones
  Tenant* tenants;
  std::uint32_t* tenant_buckets;
  Session* sessions;
  Ticket* tickets;            // sessions + external_tickets
  std::uint32_t* id_buckets;  // of live tickets with an owner
  Receipt* receipts;
  std::uint32_t* receipt_buckets;  // of receipts with an owner
  Event* events;
  RefusalCell* refusals;
  // The sizes that every transaction needs, without a look at the header.
  std::uint32_t session_total, ticket_total, classes_each;
};

// Bytes of a region of these sizes (documented in docs/settings.md). 0: a size is out of its bounds.
[[nodiscard]] std::size_t region_size(const Sizes& sizes) noexcept;

// Makes an empty region with the unlimited policy in `memory` (64-byte aligned, region_size bytes).
[[nodiscard]] Status format(void* memory, std::size_t bytes, const Sizes& sizes, const char* build_stamp,
                            const Uuid& boot_id, std::uint64_t epoch, std::int64_t now_us, Ledger& ledger) noexcept;

// Attaches to a formatted region; layout_mismatch where magic, version, stamp or size differ.
[[nodiscard]] Status attach(void* memory, const char* build_stamp, Ledger& ledger) noexcept;

// Buckets of the hash tables of tenants, of live tickets with an owner and of their receipts: powers of two.
[[nodiscard]] std::uint32_t tenant_bucket_count(const Sizes& sizes) noexcept;
[[nodiscard]] std::uint32_t id_bucket_count(const Sizes& sizes) noexcept;
[[nodiscard]] std::uint32_t receipt_bucket_count(const Sizes& sizes) noexcept;

[[nodiscard]] inline std::uint32_t ticket_count(const Ledger& ledger) noexcept { return ledger.ticket_total; }

[[nodiscard]] inline Row& row_at(const Ledger& ledger, std::uint32_t tenant, std::uint32_t klass) noexcept {
  return ledger.rows[static_cast<std::size_t>(tenant) * ledger.classes_each + klass];
}

}  // namespace sluice::ledger
