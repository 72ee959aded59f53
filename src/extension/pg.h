// The only door to PostgreSQL's headers, and the only place that knows versions. Include it first: PostgreSQL redefines
// names of the standard library (printf and kin), so standard headers come after it.
#pragma once

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wregister"
#pragma GCC diagnostic ignored "-Wvolatile"

extern "C" {
#include "postgres.h"
// libpq/libpq-be.h pulls in the GSSAPI headers, which the build need not have; nothing here looks at GSS state.
#undef ENABLE_GSS

#include "access/parallel.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "libpq/auth.h"
#include "libpq/libpq-be.h"
#include "libpq/libpq.h"
#include "miscadmin.h"
#include "nodes/plannodes.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "postmaster/postmaster.h"
#include "replication/walsender.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/backend_status.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/numeric.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"
#include "utils/wait_event.h"
}

#pragma GCC diagnostic pop

namespace sluice::extension {

// PGPROC indexes: pgprocno until 16, the backend's ProcNumber from 17.
inline int proc_index(const PGPROC* proc) {
#if PG_VERSION_NUM >= 170000
  return GetNumberFromPGProc(proc);
#else
  return proc->pgprocno;
#endif
}

inline bool is_background_worker(const PGPROC* proc) {
#if PG_VERSION_NUM >= 180000
  return !proc->isRegularBackend;
#else
  return proc->isBackgroundWorker;
#endif
}

// Has the process a transaction open?
inline bool in_transaction(const PGPROC* proc) {
#if PG_VERSION_NUM >= 170000
  return LocalTransactionIdIsValid(proc->vxid.lxid);
#else
  return LocalTransactionIdIsValid(proc->lxid);
#endif
}

inline PGPROC* proc_at(int index) { return &ProcGlobal->allProcs[index]; }

// The cluster's PGPROC slots that are free at this moment, counted up to `wanted`.
inline int free_proc_slots(int wanted) {
#if PG_VERSION_NUM >= 160000
  int free_slots = 0;
  (void)HaveNFreeProcs(wanted, &free_slots);
  return free_slots;
#else
  // 15 only answers yes or no; the count is searched for (the list is walked under a spinlock up to n each time).
  int low = 0;
  int high = wanted;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (HaveNFreeProcs(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
#endif
}

// Slots that PostgreSQL itself keeps from roles that are not superusers.
inline int reserved_slots() {
#if PG_VERSION_NUM >= 160000
  return SuperuserReservedConnections + ReservedConnections;
#else
  return ReservedBackends;
#endif
}

inline int superuser_reserved_slots() {
#if PG_VERSION_NUM >= 160000
  return SuperuserReservedConnections;
#else
  return ReservedBackends;
#endif
}

inline int role_reserved_slots() {
#if PG_VERSION_NUM >= 160000
  return ReservedConnections;
#else
  return 0;
#endif
}

// Is this process a client's backend (walsenders included)?
inline bool is_client_process() {
#if PG_VERSION_NUM >= 180000
  return MyBackendType == B_BACKEND || MyBackendType == B_WAL_SENDER;
#elif PG_VERSION_NUM >= 170000
  return MyProcPort != nullptr;
#else
  return MyProcPort != nullptr;
#endif
}

// 17 brought login event triggers, whose statements run before the client's first command.
inline constexpr bool kHasLoginTriggers = PG_VERSION_NUM >= 170000;

// ExecutorRun lost its last parameter in 18.
#if PG_VERSION_NUM >= 180000
#define SLUICE_RUN_PARAMETERS QueryDesc *query, ScanDirection direction, uint64 count
#define SLUICE_RUN_ARGUMENTS query, direction, count
#else
#define SLUICE_RUN_PARAMETERS QueryDesc *query, ScanDirection direction, uint64 count, bool execute_once
#define SLUICE_RUN_ARGUMENTS query, direction, count, execute_once
#endif

// What pg_stat_activity shows while a backend waits for a permit.
inline uint32 queue_wait_event() {
#if PG_VERSION_NUM >= 170000
  static uint32 event = 0;
  if (event == 0) event = WaitEventExtensionNew("SluiceQueue");
  return event;
#else
  return PG_WAIT_EXTENSION;
#endif
}

// Calls visit(PROCLOCK*) for everybody who holds or awaits a lock, visit(PGPROC*) for its waiters in queue order until
// visit answers false. The caller has the lock's partition locked, at least shared.
template <typename Visit>
inline void for_each_proclock(LOCK* lock, Visit visit) {
#if PG_VERSION_NUM >= 160000
  const dlist_node* const head = &lock->procLocks.head;
#else
  const SHM_QUEUE* const head = &lock->procLocks;
#endif
  for (auto* link = head->next; link != nullptr && link != head; link = link->next) {
    visit(reinterpret_cast<PROCLOCK*>(reinterpret_cast<char*>(link) - offsetof(PROCLOCK, lockLink)));
  }
}

template <typename Visit>
inline void for_each_lock_waiter(LOCK* lock, Visit visit) {
#if PG_VERSION_NUM >= 160000
  const dlist_node* const head = &lock->waitProcs.dlist.head;
#else
  const SHM_QUEUE* const head = &lock->waitProcs.links;
#endif
  for (auto* link = head->next; link != nullptr && link != head; link = link->next) {
    if (!visit(reinterpret_cast<PGPROC*>(reinterpret_cast<char*>(link) - offsetof(PGPROC, links)))) break;
  }
}

inline LocalTransactionId local_transaction_of(const PGPROC* proc) {
#if PG_VERSION_NUM >= 170000
  return proc->vxid.lxid;
#else
  return proc->lxid;
#endif
}

// How many children of the postmaster may be clients' backends or on their way to it; more are turned away after their
// startup packet.
inline int client_child_slots() {
#if PG_VERSION_NUM >= 180000
  return 2 * (MaxConnections + max_wal_senders);
#else
  return MaxLivePostmasterChildren();
#endif
}

// May the current user execute the function?
inline AclResult function_execute_right(Oid function) {
#if PG_VERSION_NUM >= 160000
  return object_aclcheck(ProcedureRelationId, function, GetUserId(), ACL_EXECUTE);
#else
  return pg_proc_aclcheck(function, GetUserId(), ACL_EXECUTE);
#endif
}

}  // namespace sluice::extension
