#include "ledger/push_out.h"

#include "ledger/admission_locked.h"
#include "ledger/queue.h"
#include "ledger/scheduler.h"

namespace sluice::ledger {

namespace {

// left / left_weight <= right / right_weight
[[nodiscard]] bool is_no_more(std::uint64_t left, std::uint32_t left_weight, std::uint64_t right,
                              std::uint32_t right_weight) noexcept {
  return left * right_weight <= right * left_weight;
}

}  // namespace

bool push_out(const Ledger& ledger, const Exclusive& lock, std::uint32_t newcomer, std::int64_t now_us,
              Wakes& wakes) noexcept {
  const Ticket& arrival = ledger.tickets[newcomer];
  const std::uint32_t klass = arrival.klass;
  const std::uint32_t largest = largest_queue(ledger, lock, klass);
  if (largest == kNil || wakes.count == kMaxWakes) return false;
  const Row& row = ledger.rows[row_index(ledger, arrival)];
  const Row& flood = ledger.rows[largest];
  const std::uint32_t victim = youngest(ledger, lock, largest);
  if (victim == kNil || ledger.tickets[victim].blocks_holder) return false;

  const std::uint64_t after = std::uint64_t{row.queued} + 1;
  const bool keeps_its_share = is_no_more(after, row.weight, std::uint64_t{flood.queued} - 1, flood.weight);
  const bool is_older = arrival.queued_us != 0 && arrival.queued_us < ledger.tickets[victim].queued_us;
  if (!keeps_its_share && !(is_older && is_no_more(after, row.weight, flood.queued, flood.weight))) return false;

  const ClassState& state = ledger.classes[klass];
  const Outcome why = {Status::pushed_out, class_rule(ledger, klass, policy::RuleField::class_max_queue), state.queued,
                       state.max_queue};
  leave_queue(ledger, lock, victim, now_us);
  become_ended(ledger, lock, victim, TicketState::cancelled, why, now_us);
  add_wake(wakes, victim);
  return true;
}

}  // namespace sluice::ledger
