// Who keeps whom from going on in PostgreSQL's lock manager: read from its shared tables, one partition lock at a time
// (shared), never with the ledger's lock held. The picture is not one moment's: an edge is true when it is read, and
// whoever acts on it checks again. Fast-path locks need no look: a conflicting requester has moved them into the tables
// before it waits.
#pragma once

#include "extension/pg.h"

namespace sluice::extension {

class LockGraph {
 public:
  explicit LockGraph(int proc_count);  // PGPROC indexes below it are looked at

  // Looks for processes that wait for a heavyweight lock. False: there are none.
  [[nodiscard]] bool find_waiters();

  // A process, or a parallel worker of its lock group, waits for a heavyweight lock.
  [[nodiscard]] bool waits(int proc) const { return first_waiter_[proc] != kNone; }

  // Marks in blocks[] every process that a root waits for, directly or through other waiters. Roots are not marked
  // unless another one waits for them.
  void find_blockers(const bool* roots, bool* blocks);

 private:
  static constexpr int kNone = -1;
  static constexpr int kMaxSeen = 64;

  struct SeenLock {
    const LOCK* lock;
    LOCKMODE mode;
  };

  [[nodiscard]] int leader_of(const PGPROC* proc) const;
  [[nodiscard]] bool already_seen(const LOCK* lock, LOCKMODE mode);
  void reach(const PGPROC* proc, bool* blocks);
  void expand(int waiter, bool* blocks);
  void add_holders(const PGPROC* waiter, LOCK* lock, LOCKMASK conflicts, bool* blocks);

  int proc_count_;
  int* first_waiter_;  // by lock group leader: the first waiting process of its group
  int* next_waiter_;   // by process: the next one of the same group
  bool* expanded_;
  int* to_expand_;
  int to_expand_count_;
  int seen_count_;
  SeenLock seen_[kMaxSeen];
};

}  // namespace sluice::extension
