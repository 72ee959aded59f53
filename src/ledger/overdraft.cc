// Waiters that block a holder: moved ahead, lent an overdraft permit, or refused.
#include <cstdint>

#include "ledger/admission_locked.h"
#include "ledger/atomics.h"
#include "ledger/journal.h"
#include "ledger/queue.h"

namespace sluice::ledger {

namespace {

[[nodiscard]] bool is_queued(const Ledger& ledger, std::uint32_t ticket) noexcept {
  return ticket < ticket_count(ledger) && phase_state(load(ledger.tickets[ticket].phase)) == TicketState::queued;
}

[[nodiscard]] Outcome overdraft_outcome(const Ledger& ledger) noexcept {
  return {Status::overdraft_exhausted,
          {policy::RuleField::overdraft_max, 0},
          ledger.header->overdraft_in_use,
          ledger.header->policy.overdraft_max};
}

}  // namespace

Status mark_blocker(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, std::int64_t now_us) noexcept {
  if (!is_queued(ledger, ticket)) return Status::illegal_transition;
  Ticket& entry = ledger.tickets[ticket];
  if (entry.blocks_holder) return Status::ok;
  move_to_head(ledger, lock, ticket, now_us);
  entry.blocks_holder = true;
  entry.blocking_since_us = now_us;
  ledger.header->overdraft_waiters++;
  record_event(
      ledger, lock,
      {EventKind::blocker_promoted, policy::outcome(Status::ok), entry.tenant, entry.klass, nullptr, false, &entry.id},
      now_us);
  return Status::ok;
}

Status grant_overdraft(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, std::int64_t now_us,
                       Wakes& wakes) noexcept {
  Header& header = *ledger.header;
  if (!is_queued(ledger, ticket)) return Status::illegal_transition;
  if (wakes.count == kMaxWakes) return Status::contended;
  if (header.overdraft_in_use >= header.policy.overdraft_max) return Status::overdraft_exhausted;
  const Ticket& entry = ledger.tickets[ticket];
  leave_queue(ledger, lock, ticket, now_us);
  header.overdraft_in_use++;
  header.overdraft_granted++;
  become_granted(ledger, lock, ticket, PermitSource::overdraft, now_us, wakes);
  record_event(
      ledger, lock,
      {EventKind::overdraft_granted, policy::outcome(Status::ok), entry.tenant, entry.klass, nullptr, false, &entry.id},
      now_us);
  dispatch(ledger, lock, entry.klass, now_us, wakes);
  return Status::ok;
}

Status refuse_blocker(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket, std::int64_t now_us,
                      Wakes& wakes) noexcept {
  if (!is_queued(ledger, ticket) || !ledger.tickets[ticket].blocks_holder) return Status::illegal_transition;
  if (wakes.count == kMaxWakes) return Status::contended;
  const std::uint32_t klass = ledger.tickets[ticket].klass;
  leave_queue(ledger, lock, ticket, now_us);
  become_ended(ledger, lock, ticket, TicketState::cancelled, overdraft_outcome(ledger), now_us);
  add_wake(wakes, ticket);
  dispatch(ledger, lock, klass, now_us, wakes);
  return Status::ok;
}

}  // namespace sluice::ledger
