#include "extension/pg.h"

#include "extension/snapshot.h"

#include "extension/backend.h"
#include "extension/errors.h"

namespace sluice::extension {

namespace {

// A plan made before the wait and a snapshot taken after it may disagree about which relations make up a partitioned
// table or an inheritance tree: a reader that waited across ATTACH PARTITION lost rows. Such plans keep their snapshot.
bool plan_may_grow_children(const PlannedStmt* plan) {
  if (plan->appendRelations != NIL) return true;
  ListCell* cell = nullptr;
  foreach (cell, plan->rtable) {
    const auto* entry = static_cast<const RangeTblEntry*>(lfirst(cell));
    if (entry->rtekind != RTE_RELATION) continue;
    if (entry->relkind == RELKIND_PARTITIONED_TABLE || entry->inh || has_subclass(entry->relid)) return true;
  }
  return false;
}

// Is this the statement that the client sent, with no other on the stack below it?
bool is_outermost(const QueryDesc* query) {
  return backend.utility_depth == 0 && ActivePortal != nullptr && ActivePortal->holdSnapshot == nullptr &&
         list_member_ptr(ActivePortal->stmts, query->plannedstmt) && query->crosscheck_snapshot == InvalidSnapshot;
}

bool drop_executor_snapshot(QueryDesc* query) {
  if (!is_outermost(query) || plan_may_grow_children(query->plannedstmt)) return false;
  if (query->snapshot == InvalidSnapshot || !ActiveSnapshotSet()) return false;
  PopActiveSnapshot();
  if (ActiveSnapshotSet()) {
    // Nested after all (a cursor opened by a function that runs while planning): the query's own reference kept xmin in
    // place.
    PushCopiedSnapshot(query->snapshot);
    return false;
  }
  UnregisterSnapshot(query->snapshot);
  query->snapshot = InvalidSnapshot;
  InvalidateCatalogSnapshot();
  return true;
}

bool drop_utility_snapshot() {
  Portal portal = ActivePortal;
  if (backend.utility_depth > 0 || portal == nullptr || portal->holdSnapshot != nullptr) return false;
  if (portal->portalSnapshot == nullptr || !ActiveSnapshotSet() || GetActiveSnapshot() != portal->portalSnapshot)
    return false;
  portal->portalSnapshot = nullptr;
  PopActiveSnapshot();
  InvalidateCatalogSnapshot();
  return true;
}

bool drop_call_snapshot() {
  if (!ActiveSnapshotSet()) return false;
  PopActiveSnapshot();
  InvalidateCatalogSnapshot();
  return true;
}

// Relations that had no children when the plan was made may have been given some while it waited.
void check_plan_still_complete(const PlannedStmt* plan) {
  if (plan_may_grow_children(plan)) raise_plan_outdated();
}

}  // namespace

bool drop_snapshot(WaitPlace& place) {
  // Beyond READ COMMITTED the first snapshot is the transaction's; it cannot be exchanged.
  if (IsolationUsesXactSnapshot()) return false;
  switch (place.kind) {
    case WaitPlace::Kind::executor:
      return drop_executor_snapshot(place.query);
    case WaitPlace::Kind::utility:
      return drop_utility_snapshot();
    case WaitPlace::Kind::function_call:
      return drop_call_snapshot();
    case WaitPlace::Kind::keep_snapshot:
      break;
  }
  return false;
}

void retake_snapshot(WaitPlace& place) {
  switch (place.kind) {
    case WaitPlace::Kind::executor:
      PushCopiedSnapshot(GetTransactionSnapshot());
      place.query->snapshot = RegisterSnapshot(GetActiveSnapshot());
      check_plan_still_complete(place.query->plannedstmt);
      break;
    case WaitPlace::Kind::utility:
      EnsurePortalSnapshotExists();
      break;
    case WaitPlace::Kind::function_call:
      PushActiveSnapshot(GetTransactionSnapshot());
      break;
    case WaitPlace::Kind::keep_snapshot:
      break;
  }
}

}  // namespace sluice::extension
