#include "extension/guard_lock_graph.h"

#include "extension/guard.h"

namespace sluice::extension {

namespace {

LOCK* awaited_lock(const PGPROC* proc) { return *const_cast<LOCK* const volatile*>(&proc->waitLock); }

}  // namespace

LockGraph::LockGraph(int proc_count)
    : proc_count_(proc_count),
      first_waiter_(static_cast<int*>(worker_memory(static_cast<std::size_t>(proc_count) * sizeof(int)))),
      next_waiter_(static_cast<int*>(worker_memory(static_cast<std::size_t>(proc_count) * sizeof(int)))),
      expanded_(static_cast<bool*>(worker_memory(static_cast<std::size_t>(proc_count)))),
      to_expand_(static_cast<int*>(worker_memory(static_cast<std::size_t>(proc_count) * sizeof(int)))),
      to_expand_count_(0),
      seen_count_(0) {}

// The index that stands for a process: its lock group's leader, whose transaction it is. kNone for a prepared
// transaction or an auxiliary process.
int LockGraph::leader_of(const PGPROC* proc) const {
  const PGPROC* leader = *const_cast<PGPROC* const volatile*>(&proc->lockGroupLeader);
  const int index = proc_index(leader != nullptr ? leader : proc);
  return index >= 0 && index < proc_count_ ? index : kNone;
}

bool LockGraph::find_waiters() {
  bool any = false;
  for (int proc = 0; proc < proc_count_; ++proc) first_waiter_[proc] = kNone;
  for (int proc = 0; proc < proc_count_; ++proc) {
    next_waiter_[proc] = kNone;
    if (awaited_lock(proc_at(proc)) == nullptr) continue;
    const int leader = leader_of(proc_at(proc));
    if (leader == kNone) continue;
    next_waiter_[proc] = first_waiter_[leader];
    first_waiter_[leader] = proc;
    any = true;
  }
  return any;
}

void LockGraph::find_blockers(const bool* roots, bool* blocks) {
  to_expand_count_ = 0;
  seen_count_ = 0;
  for (int proc = 0; proc < proc_count_; ++proc) {
    blocks[proc] = false;
    expanded_[proc] = roots[proc] && waits(proc);
    if (expanded_[proc]) to_expand_[to_expand_count_++] = proc;
  }
  // Every process enters the list once at most, so the list never outgrows its array and the walk ends.
  for (int next = 0; next < to_expand_count_; ++next) {
    for (int waiter = first_waiter_[to_expand_[next]]; waiter != kNone; waiter = next_waiter_[waiter])
      expand(waiter, blocks);
  }
}

void LockGraph::reach(const PGPROC* proc, bool* blocks) {
  const int leader = leader_of(proc);
  if (leader == kNone) return;
  blocks[leader] = true;
  if (expanded_[leader] || !waits(leader)) return;
  expanded_[leader] = true;
  to_expand_[to_expand_count_++] = leader;
}

// Many processes wait for the same lock in the same mode, and the same holders block them all. (All but their own
// group: but who waits for a lock does not wait for a permit, so the first look misses nobody that matters.)
bool LockGraph::already_seen(const LOCK* lock, LOCKMODE mode) {
  for (int i = 0; i < seen_count_; ++i) {
    if (seen_[i].lock == lock && seen_[i].mode == mode) return true;
  }
  if (seen_count_ < kMaxSeen) seen_[seen_count_++] = {lock, mode};
  return false;
}

void LockGraph::add_holders(const PGPROC* waiter, LOCK* lock, LOCKMASK conflicts, bool* blocks) {
  const int group = leader_of(waiter);
  for_each_proclock(lock, [&](const PROCLOCK* holder) {
    if ((holder->holdMask & conflicts) != 0 && leader_of(holder->tag.myProc) != group)
      reach(holder->tag.myProc, blocks);
  });
}

// Holders of a conflicting mode, and whoever waits ahead for a conflicting mode.
void LockGraph::expand(int waiter, bool* blocks) {
  PGPROC* proc = proc_at(waiter);
  LOCK* lock = awaited_lock(proc);
  if (lock == nullptr) return;
  // Locks are recycled within the table: what was read without the partition's lock is confirmed under it.
  const uint32 hash = LockTagHashCode(&lock->tag);
  LWLock* partition = LockHashPartitionLock(hash);
  LWLockAcquire(partition, LW_SHARED);
  if (awaited_lock(proc) == lock && LockTagHashCode(&lock->tag) == hash) {
    const LOCKMASK conflicts = GetLocksMethodTable(lock)->conflictTab[proc->waitLockMode];
    if (!already_seen(lock, proc->waitLockMode)) add_holders(proc, lock, conflicts, blocks);
    for_each_lock_waiter(lock, [&](const PGPROC* ahead) {
      if (ahead == proc) return false;
      if ((LOCKBIT_ON(ahead->waitLockMode) & conflicts) != 0) reach(ahead, blocks);
      return true;
    });
  }
  LWLockRelease(partition);
}

}  // namespace sluice::extension
