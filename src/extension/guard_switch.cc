// The kill switch: pg_sluice.enforcement of the configuration file becomes the shared word, and whoever waits while the
// policy does not decide is admitted. It works on the state, not on the change: a statement that queued after the
// switch, because its backend had not read the file yet, is admitted in the next round.
#include <atomic>

#include "extension/guard.h"
#include "extension/settings.h"
#include "ledger/journal.h"

namespace sluice::extension {

namespace {

using ledger::kNil;

// In rounds of the lock, each followed by its wake-ups, so that nobody who asks for the lock waits for all of them.
std::uint64_t admit_everybody() {
  std::uint64_t admitted = 0;
  bool more = true;
  while (more) {
    ledger::Wakes wakes{};
    {
      ExclusiveLedger lock;
      admitted += ledger::admit_waiters(the_ledger, lock.token(), now_us(), wakes);
    }
    more = wakes.more;
    wakes.more = false;  // these are not grants to be dispatched: the next round admits the rest
    wake(wakes);
  }
  return admitted;
}

void note_switch() {
  ExclusiveLedger lock;
  const ledger::EventFacts facts{
      ledger::EventKind::switched, policy::outcome(policy::Status::ok), kNil, kNil, nullptr, false};
  ledger::record_event(the_ledger, lock.token(), facts, now_us());
}

}  // namespace

void watch_switch() {
  static LogThrottle late_log;
  ledger::Header& header = *the_ledger.header;
  const auto wanted = static_cast<std::uint32_t>(settings.enforcement);
  const bool changed = std::atomic_ref(header.switch_mode).exchange(wanted) != wanted;

  std::uint64_t admitted = 0;
  if (!policy_enforced() && std::atomic_ref(header.queued_total).load(std::memory_order_relaxed) > 0) {
    admitted = admit_everybody();
    shared_state->last_waiters_admitted = admitted;
  }
  if (changed) {
    if (admitted == 0) note_switch();  // admitting somebody is journalled by the ledger itself
    ereport(LOG, (errmsg("pg_sluice: enforcement is now \"%s\"; %llu waiting statements were admitted",
                         enforcement_name(settings.enforcement), static_cast<unsigned long long>(admitted))));
  } else if (std::uint64_t suppressed = 0; admitted > 0 && late_log.pass(now_us(), suppressed)) {
    ereport(LOG, (errmsg("pg_sluice: %llu waiting statements were admitted because the policy is not enforced",
                         static_cast<unsigned long long>(admitted))));
  }
}

}  // namespace sluice::extension
