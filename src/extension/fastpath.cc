// Function calls by protocol message ('F') reach no executor and no utility hook; only the object access hook sees
// them.
#include "extension/pg.h"

#include "extension/execution.h"
#include "extension/hooks.h"

namespace sluice::extension {

namespace {

object_access_hook_type previous_access = nullptr;

// The hook fires for every function that is prepared for execution. Only a fastpath call has neither a query nor a
// portal; a login event trigger (17+) has neither as well, but its session does not report the fastpath state.
bool is_fastpath() {
  if (debug_query_string != nullptr || ActivePortal != nullptr) return false;
  return !kHasLoginTriggers || (MyBEEntry != nullptr && MyBEEntry->st_state == STATE_FASTPATH);
}

// PostgreSQL has looked at the right to execute before it calls this hook; while the call waited it may have been
// revoked.
void check_execute_right(Oid function) {
  const AclResult result = function_execute_right(function);
  if (result != ACLCHECK_OK) aclcheck_error(result, OBJECT_FUNCTION, get_func_name(function));
}

[[gnu::noinline]] void access_without_query(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id,
                                            void* argument) {
  if (previous_access != nullptr) previous_access(access, class_id, object_id, sub_id, argument);
  if (access != OAT_FUNCTION_EXECUTE || !is_fastpath() || !wants_permit()) return;
  WaitPlace place = {WaitPlace::Kind::function_call, nullptr};
  admit_transaction(place);
  check_execute_right(object_id);
}

// Nearly every call is made for a query and is nobody else's business either: that costs two comparisons.
void object_access(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id, void* argument) {
  if (debug_query_string != nullptr && previous_access == nullptr) [[likely]]
    return;
  access_without_query(access, class_id, object_id, sub_id, argument);
}

}  // namespace

void install_fastpath_hook() {
  previous_access = object_access_hook;
  object_access_hook = object_access;
}

}  // namespace sluice::extension
