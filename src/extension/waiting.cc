#include "extension/pg.h"

#include "extension/waiting.h"

#include <algorithm>

#include "extension/backend.h"
#include "extension/execution.h"
#include "extension/settings.h"
#include "extension/shared.h"
#include "extension/snapshot.h"

namespace sluice::extension {

namespace {

constexpr std::int64_t kFirstTickUs = 100 * 1000;
constexpr std::int64_t kLastTickUs = 1000 * 1000;
constexpr std::int64_t kTimeoutMarginUs = 20 * 1000;

policy::Outcome poll() {
  if (ticket_state() == ledger::TicketState::queued) return policy::outcome(policy::Status::queued);
  ExclusiveLedger lock;
  return ledger::poll_wait(the_ledger, lock.token(), backend.slot, now_us());
}

policy::Outcome leave_queue(policy::Status why) {
  ledger::Wakes wakes = {};
  policy::Outcome outcome = {};
  {
    ExclusiveLedger lock;
    outcome = ledger::end_wait(the_ledger, lock.token(), backend.slot, why, now_us(), wakes);
  }
  wake(wakes);
  return outcome;
}

// The ledger knows the class's deadline and the ticket's age, which a retry brings along. What the caller is told is
// how long this request waited and how long it was allowed to.
policy::Outcome give_up(const ledger::TicketRequest& request, std::int64_t now) {
  policy::Outcome outcome = leave_queue(policy::Status::queue_deadline);
  if (outcome.status != policy::Status::queue_deadline) return outcome;
  outcome.used = static_cast<std::uint32_t>((now - request.now_us) / 1000);
  outcome.limit = static_cast<std::uint32_t>((request.deadline_us - request.now_us) / 1000);
  return outcome;
}

policy::Outcome wait_loop(const ledger::TicketRequest& request) {
  const std::int64_t deadline_us = request.deadline_us;
  std::int64_t tick_us = kFirstTickUs;
  std::int64_t next_client_check_us = now_us() + tick_us;
  for (;;) {
    const policy::Outcome outcome = poll();
    if (outcome.status != policy::Status::queued) return outcome;
    const std::int64_t now = now_us();
    if (now >= deadline_us) return give_up(request, now);
    const std::int64_t wait_us = std::min(std::min(next_client_check_us, deadline_us) - now, kLastTickUs);
    const long wait_ms = static_cast<long>(std::max<std::int64_t>(1, (wait_us + 999) / 1000));
    (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, wait_ms, queue_wait_event());
    ResetLatch(MyLatch);
    CHECK_FOR_INTERRUPTS();
    if (now_us() < next_client_check_us) continue;
    if (!pq_check_connection())
      ereport(FATAL, (errcode(ERRCODE_CONNECTION_FAILURE), errmsg("connection to client lost while queued")));
    tick_us = std::min(tick_us * 2, kLastTickUs);
    next_client_check_us = now_us() + tick_us;
  }
}

}  // namespace

policy::Outcome wait_for_permit(const ledger::TicketRequest& request, WaitPlace& place) {
  policy::Outcome outcome = {};
  PG_TRY();
  {
    const bool dropped = drop_snapshot(place);
    outcome = wait_loop(request);
    // Revocations and changes of definition that were committed meanwhile must be seen.
    AcceptInvalidationMessages();
    if (dropped) retake_snapshot(place);
  }
  PG_CATCH();
  {
    abandon_ticket();
    PG_RE_THROW();
  }
  PG_END_TRY();
  return outcome;
}

std::int64_t queue_deadline(std::int64_t now, std::int64_t class_deadline_us) {
  std::int64_t wait_us = class_deadline_us;
  if (settings.queue_deadline_ms > 0) wait_us = std::min(wait_us, std::int64_t{settings.queue_deadline_ms} * 1000);
  if (get_timeout_active(STATEMENT_TIMEOUT)) {
    const std::int64_t left_us = get_timeout_finish_time(STATEMENT_TIMEOUT) - GetCurrentTimestamp();
    wait_us = std::min(wait_us, left_us - std::min(kTimeoutMarginUs, left_us / 2));
  }
  return now + std::max<std::int64_t>(wait_us, 0);
}

}  // namespace sluice::extension
