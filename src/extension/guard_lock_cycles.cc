// Lock cycles that PostgreSQL cannot see: a permit holder waits for a heavyweight lock of a transaction that waits for
// a permit. Queued tickets that keep a holder waiting go to the head of their rows and take normal releases; what still
// blocks after half a second takes an overdraft permit, first come first served, and each that comes back is given out
// again at once. Where every holder of the class waits for a lock no normal release can come, and the half second is
// cut to a tenth. A blocker is refused only when nothing moves any more: the overdraft is used up, none came back for a
// second, and every holder of the class and of the overdraft waits for a lock itself. While one of them runs, its end
// serves the next, so that one DDL in front of many readers does not flush the queue.
//
// Facts are collected first, without the ledger's lock; under it only tickets that are still the same and still queued
// are touched.
#include <algorithm>
#include <atomic>
#include <new>

#include "extension/guard.h"
#include "extension/guard_lock_graph.h"

namespace sluice::extension {

namespace {

using ledger::TicketState;
using policy::Status;

constexpr std::int64_t kScanEveryUs = 90'000;
constexpr std::int64_t kOverdraftAfterUs = 500'000;
constexpr std::int64_t kStandstillAfterUs = 100'000;
constexpr std::int64_t kRefuseAfterUs = 1'000'000;
constexpr std::int64_t kRefuseNextAfterUs = 100'000;

struct Blocker {
  std::uint32_t slot;
  std::uint32_t klass;
  policy::Uuid ticket;
  std::int64_t since_us;
  std::int64_t queued_us;
  bool blocks_overdraft;
};

struct Cycles {
  std::uint32_t slots;
  LockGraph* graph;
  bool* roots;
  bool* overdraft_roots;
  bool* blocks;
  bool* blocks_overdraft;
  policy::Uuid* queued_ids;  // as they were before the graph was walked
  bool* queued;
  Blocker* blockers;  // of the last scan, in the order in which they are served
  std::uint32_t blocker_count;
  bool standstill[policy::kMaxClasses];
  bool overdraft_waits;  // every holder of an overdraft permit waits for a lock
  std::int64_t scanned_us;
  std::int64_t exhausted_since_us;  // 0: the overdraft was not used up at the last look
};

Cycles cycles{};

TicketState state_of(ledger::Ticket& ticket) {
  return ledger::phase_state(std::atomic_ref(ticket.phase).load(std::memory_order_acquire));
}

void size_tables() {
  cycles.slots = the_ledger.header->sizes.sessions;
  cycles.graph = new (worker_memory(sizeof(LockGraph))) LockGraph(static_cast<int>(cycles.slots));
  bool** const flags[] = {&cycles.roots, &cycles.overdraft_roots, &cycles.blocks, &cycles.blocks_overdraft,
                          &cycles.queued};
  for (bool** flag : flags) *flag = static_cast<bool*>(worker_memory(cycles.slots * sizeof(bool)));
  cycles.queued_ids = static_cast<policy::Uuid*>(worker_memory(cycles.slots * sizeof(policy::Uuid)));
  cycles.blockers = static_cast<Blocker*>(worker_memory(cycles.slots * sizeof(Blocker)));
}

// Roots are the permit holders that wait for a lock. Also notes per class whether any of its holders goes on.
bool find_roots() {
  bool any = false;
  cycles.overdraft_waits = true;
  for (bool& still : cycles.standstill) still = true;
  for (std::uint32_t slot = 0; slot < cycles.slots; ++slot) {
    ledger::Ticket& ticket = the_ledger.tickets[slot];
    const TicketState state = state_of(ticket);
    const bool waits = cycles.graph->waits(static_cast<int>(slot));
    const bool holds = ledger::holds_permit(state);
    const bool overdraft = holds && ticket.source == ledger::PermitSource::overdraft;
    const std::uint32_t klass = ticket.klass;
    cycles.roots[slot] = holds && waits;
    cycles.overdraft_roots[slot] = overdraft && waits;
    cycles.queued[slot] = state == TicketState::queued;
    if (cycles.queued[slot]) cycles.queued_ids[slot] = ticket.id;
    if (holds && !waits && klass < policy::kMaxClasses) cycles.standstill[klass] = false;
    if (overdraft && !waits) cycles.overdraft_waits = false;
    any = any || cycles.roots[slot];
  }
  return any;
}

bool is_older(const Blocker& a, const Blocker& b) {
  return a.queued_us != b.queued_us ? a.queued_us < b.queued_us : a.slot < b.slot;
}

// Under the lock: the blockers that are still queued, oldest first, so that marking one after another keeps their
// order.
void collect_blockers() {
  cycles.blocker_count = 0;
  for (std::uint32_t slot = 0; slot < cycles.slots; ++slot) {
    ledger::Ticket& ticket = the_ledger.tickets[slot];
    if (!cycles.blocks[slot] || !cycles.queued[slot] || state_of(ticket) != TicketState::queued) continue;
    if (memcmp(&ticket.id, &cycles.queued_ids[slot], sizeof ticket.id) != 0) continue;
    cycles.blockers[cycles.blocker_count++] = {slot,
                                               ticket.klass,
                                               ticket.id,
                                               ticket.blocks_holder ? ticket.blocking_since_us : 0,
                                               ticket.queued_us,
                                               cycles.blocks_overdraft[slot]};
  }
  std::sort(cycles.blockers, cycles.blockers + cycles.blocker_count, is_older);
}

// Returns how many were not known as blockers before.
std::uint32_t mark_blockers(const ledger::Exclusive& lock, std::int64_t now) {
  std::uint32_t fresh = 0;
  for (std::uint32_t i = 0; i < cycles.blocker_count; ++i) {
    Blocker& blocker = cycles.blockers[i];
    if (blocker.since_us != 0) continue;
    if (ledger::mark_blocker(the_ledger, lock, blocker.slot, now) != Status::ok) continue;
    blocker.since_us = now;
    ++fresh;
  }
  std::sort(cycles.blockers, cycles.blockers + cycles.blocker_count, [](const Blocker& a, const Blocker& b) {
    return a.since_us != b.since_us ? a.since_us < b.since_us : is_older(a, b);
  });
  return fresh;
}

bool still_waits(const Blocker& blocker) {
  ledger::Ticket& ticket = the_ledger.tickets[blocker.slot];
  return state_of(ticket) == TicketState::queued && memcmp(&ticket.id, &blocker.ticket, sizeof ticket.id) == 0;
}

bool is_due(const Blocker& blocker, std::int64_t now) {
  const bool standstill = blocker.klass < policy::kMaxClasses && cycles.standstill[blocker.klass];
  return blocker.since_us != 0 && now - blocker.since_us >= (standstill ? kStandstillAfterUs : kOverdraftAfterUs);
}

// Serves the due blockers in their order until the overdraft is used up (false) or none is left (true). Drops from the
// list who no longer waits.
bool grant_overdraft(const ledger::Exclusive& lock, std::int64_t now, ledger::Wakes& wakes, std::uint32_t& granted) {
  std::uint32_t kept = 0;
  bool free = true;
  for (std::uint32_t i = 0; i < cycles.blocker_count; ++i) {
    const Blocker blocker = cycles.blockers[i];
    if (!still_waits(blocker)) continue;
    if (free && is_due(blocker, now) && wakes.count < ledger::kMaxWakes) {
      const Status status = ledger::grant_overdraft(the_ledger, lock, blocker.slot, now, wakes);
      if (status == Status::ok) {
        ++granted;
        continue;
      }
      free = status != Status::overdraft_exhausted;
    }
    cycles.blockers[kept++] = blocker;
  }
  cycles.blocker_count = kept;
  return free;
}

// The one to refuse when nothing moves: whoever blocks a holder of the overdraft first, because its end gives that
// permit back.
const Blocker* choose_refused(std::int64_t now) {
  if (!cycles.overdraft_waits) return nullptr;
  const Blocker* chosen = nullptr;
  for (std::uint32_t i = 0; i < cycles.blocker_count; ++i) {
    const Blocker& blocker = cycles.blockers[i];
    const bool standstill = blocker.klass < policy::kMaxClasses && cycles.standstill[blocker.klass];
    if (!standstill || !is_due(blocker, now) || now - blocker.since_us < kRefuseAfterUs) continue;
    if (chosen == nullptr || (blocker.blocks_overdraft && !chosen->blocks_overdraft)) chosen = &blocker;
  }
  return chosen;
}

// The scan's facts are fresh only in the round that collected them, so only that round refuses.
bool refuse_one(const ledger::Exclusive& lock, std::int64_t now, ledger::Wakes& wakes) {
  const std::int64_t last_release = std::max(the_ledger.header->overdraft_released_us, cycles.exhausted_since_us);
  if (now - last_release < kRefuseAfterUs) return false;
  const Blocker* chosen = choose_refused(now);
  if (chosen == nullptr || ledger::refuse_blocker(the_ledger, lock, chosen->slot, now, wakes) != Status::ok)
    return false;
  cycles.exhausted_since_us = now - kRefuseAfterUs + kRefuseNextAfterUs;
  return true;
}

struct Served {
  std::uint32_t marked;
  std::uint32_t granted;
  bool refused;
};

void log_served(const Served& served, std::int64_t now) {
  static LogThrottle overdraft_log;
  static LogThrottle refused_log;
  std::uint64_t suppressed = 0;
  if (served.granted > 0 && overdraft_log.pass(now, suppressed)) {
    ereport(
        LOG,
        (errmsg("pg_sluice: queued transactions block running ones; %u of them got an overdraft permit, %u are left",
                served.granted, cycles.blocker_count)));
  }
  if (served.refused && refused_log.pass(now, suppressed)) {
    ereport(LOG, (errmsg("pg_sluice: refused a queued transaction that blocks a running one, because no overdraft "
                         "permit came back")));
  }
}

// One turn under the lock: after a scan it marks first and may refuse; between scans it only hands returned overdraft
// on.
void serve(bool scanned) {
  Served served{};
  ledger::Wakes wakes{};
  const std::int64_t now = now_us();
  {
    ExclusiveLedger lock;
    if (scanned) {
      collect_blockers();
      served.marked = mark_blockers(lock.token(), now);
    }
    const bool free = grant_overdraft(lock.token(), now, wakes, served.granted);
    if (free) {
      cycles.exhausted_since_us = 0;
    } else if (cycles.exhausted_since_us == 0) {
      cycles.exhausted_since_us = now;
    }
    if (scanned && !free) served.refused = refuse_one(lock.token(), now, wakes);
  }
  wake(wakes);
  log_served(served, now);
}

}  // namespace

void watch_lock_cycles() {
  if (cycles.graph == nullptr) size_tables();
  if (!policy_enforced() || std::atomic_ref(the_ledger.header->queued_total).load(std::memory_order_relaxed) == 0) {
    cycles.blocker_count = 0;
    cycles.exhausted_since_us = 0;
    return;
  }
  const std::int64_t now = now_us();
  if (now - cycles.scanned_us < kScanEveryUs) {
    if (cycles.blocker_count > 0) serve(false);
    return;
  }
  cycles.scanned_us = now;
  if (!cycles.graph->find_waiters() || !find_roots()) {
    cycles.blocker_count = 0;
    cycles.exhausted_since_us = 0;
    return;
  }
  cycles.graph->find_blockers(cycles.overdraft_roots, cycles.blocks_overdraft);
  cycles.graph->find_blockers(cycles.roots, cycles.blocks);
  serve(true);
}

}  // namespace sluice::extension
