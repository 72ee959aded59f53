// What the schedule of the ledger needs time for: aging, smoothing, lent permits that come back, grants that only time
// makes possible. And the refusals that a storm left out of the log.
#include "extension/guard.h"
#include "extension/refusal_log.h"

namespace sluice::extension {

void watch_schedule() {
  ledger::Wakes wakes = {};
  {
    ExclusiveLedger lock;
    ledger::tick(the_ledger, lock.token(), now_us(), wakes);
  }
  wake(wakes);
  report_left_out(false);
}

}  // namespace sluice::extension
