// Execution permits: take, queue, hand over, release. The only place where execution capacity is allocated (A6).
//
// The order of a caller:  take() -> ok | contended;  contended: lock, take_or_queue() -> ok | queued | a refusal;
// queued: unlock, wait for the latch, lock, poll_wait()/end_wait();  at the end: release() -> ok | contended;
// contended: lock, release_locked(). Whoever gets a non-empty Wakes sets those owners' latches after unlocking and, if
// `more` is set, locks and calls dispatch() again.
#pragma once

#include <cstdint>

#include "ledger/region.h"
#include "policy/rule.h"

namespace sluice::ledger {

using policy::Outcome;

inline constexpr std::uint32_t kMaxWakes = 16;

struct Wakes {
  std::uint32_t count;
  bool more;                         // grants are left to be made: call tick() again
  std::uint32_t tickets[kMaxWakes];  // ticket index; below sizes.sessions it is the PGPROC index
};

struct TicketRequest {
  std::uint32_t tenant;
  std::uint32_t klass;
  bool enforce;  // false: shadow. Take over any limit, count what would have happened
  Uuid id;
  std::int64_t now_us;
  std::int64_t deadline_us;    // of the queue
  std::int64_t time_limit_us;  // 0: none
  // The login role whose id this is: a retry under it keeps its age, a duplicate is refused. 0: the id is new.
  std::uint32_t owner = 0;
};

// Lock-free. ok: the ticket is IN_TRANSACTION and holds its row's slot and a class permit. contended: nothing is held,
// or the mark row_held says that the slot is; go on with take_or_queue() in either case.
[[nodiscard]] Status take(const Ledger& ledger, std::uint32_t ticket, const TicketRequest& request) noexcept;

// ok (IN_TRANSACTION) | queued (QUEUED) | queue_full | deadline_unreachable | duplicate_ticket. A refusal leaves the
// record ended with nothing held.
[[nodiscard]] Outcome take_or_queue(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket,
                                    const TicketRequest& request, Wakes& wakes) noexcept;

// Owner only. queued: still waiting. ok: granted (EXECUTION_GRANTED is moved on to IN_TRANSACTION here). Otherwise why
// the wait was ended by somebody else (pushed_out, overdraft_exhausted).
[[nodiscard]] Outcome poll_wait(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket,
                                std::int64_t now_us) noexcept;

// Ends a wait: `why` is cancelled or queue_deadline. Exactly one outcome: the ticket had been granted (ok; the caller
// holds it and must release it if it does not go on) or it is ended (CANCELLED or QUEUE_EXPIRED, `why` with rule and
// numbers).
[[nodiscard]] Outcome end_wait(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, Status why,
                               std::int64_t now_us, Wakes& wakes) noexcept;

// Lock-free. ok: everything is returned and the ticket is REQUEST_RELEASED, also when it had been released before
// (idempotent, A8). contended: go on with release_locked(). A queued ticket is illegal_transition: end_wait() it.
// executed = false: its owner gave up before it ran anything. Its receipt then says CANCELLED, and a retry may run.
[[nodiscard]] Status release(const Ledger& ledger, std::uint32_t ticket, std::int64_t now_us) noexcept;
[[nodiscard]] Status release_locked(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket,
                                    std::int64_t now_us, Wakes& wakes, bool executed = true) noexcept;

// Grants what the class has free, or may borrow, to its waiters until nothing is left or wakes is full.
void dispatch(const Ledger& ledger, const Exclusive& lock, std::uint32_t klass, std::int64_t now_us,
              Wakes& wakes) noexcept;

// What only time makes possible: aging, and lending what has not been used for a while. Every 100 ms.
void tick(const Ledger& ledger, const Exclusive& lock, std::int64_t now_us, Wakes& wakes) noexcept;

// Hands the permit of `from` to a waiter of the caller's choice in one step, no third ticket in between. For hand-over
// by name.
[[nodiscard]] Status hand_over(const Ledger& ledger, const Exclusive& lock, std::uint32_t from, std::uint32_t to,
                               std::int64_t now_us) noexcept;

// Lock-free, owner only: IN_TRANSACTION -> COMMITTING. time_limit when the guard was first (EXPIRING): raise, do not
// commit.
[[nodiscard]] Status begin_commit(const Ledger& ledger, std::uint32_t ticket) noexcept;

// Owner only, in a procedure that commits inside: COMMITTING -> IN_TRANSACTION, the permit stays. IN_TRANSACTION and
// EXPIRING stay as they are (an inner rollback).
[[nodiscard]] Status continue_transaction(const Ledger& ledger, std::uint32_t ticket) noexcept;

// Guard: IN_TRANSACTION held longer than its limit -> EXPIRING. ok: signal it while still holding the lock. Called
// again on an EXPIRING ticket it answers ok as well (escalation); anything else is illegal_transition. The first one is
// counted and journalled here (time_limit_cancels); the caller counts escalations.
[[nodiscard]] Status expire(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket,
                            std::int64_t now_us) noexcept;

// The same for a borrowed permit that is older than its class's borrow.ttlMs while its lender queues, where
// borrow.onExpiry is cancel.
[[nodiscard]] Status expire_borrowed(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket,
                                     std::int64_t now_us) noexcept;

// Kill switch: grants every waiter over any limit. Returns how many; repeat while wakes.more.
std::uint32_t admit_waiters(const Ledger& ledger, const Exclusive& lock, std::int64_t now_us, Wakes& wakes) noexcept;

// Lock cycles. mark_blocker moves the ticket to the head of its row (eligible before parked) and remembers since when
// it blocks a holder. grant_overdraft gives it one of policy.overdraft_max extra permits; overdraft_exhausted when none
// is free.
[[nodiscard]] Status mark_blocker(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket,
                                  std::int64_t now_us) noexcept;
[[nodiscard]] Status grant_overdraft(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket,
                                     std::int64_t now_us, Wakes& wakes) noexcept;
// Ends the wait of a marked blocker with overdraft_exhausted (its owner sees it in poll_wait).
[[nodiscard]] Status refuse_blocker(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket,
                                    std::int64_t now_us, Wakes& wakes) noexcept;

// Adds the owner's statistics to its row's and starts them anew. By the owner, or on proof that the owner is gone.
void fold(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket) noexcept;

}  // namespace sluice::ledger
