#include "policy/status.h"

namespace sluice::policy {

const char* status_name(Status status) noexcept {
  switch (status) {
    case Status::ok:
      return "ok";
    case Status::queued:
      return "queued";
    case Status::contended:
      return "contended";
    case Status::session_limit:
      return "session_limit";
    case Status::tenant_session_limit:
      return "tenant_session_limit";
    case Status::role_session_limit:
      return "role_session_limit";
    case Status::role_connect_rate:
      return "role_connect_rate";
    case Status::database_session_limit:
      return "database_session_limit";
    case Status::admin_reserve:
      return "admin_reserve";
    case Status::queue_full:
      return "queue_full";
    case Status::deadline_unreachable:
      return "deadline_unreachable";
    case Status::pushed_out:
      return "pushed_out";
    case Status::queue_deadline:
      return "queue_deadline";
    case Status::overdraft_exhausted:
      return "overdraft_exhausted";
    case Status::cancelled:
      return "cancelled";
    case Status::time_limit:
      return "time_limit";
    case Status::duplicate_ticket:
      return "duplicate_ticket";
    case Status::illegal_transition:
      return "illegal_transition";
    case Status::not_found:
      return "not_found";
    case Status::table_full:
      return "table_full";
    case Status::corrupt:
      return "corrupt";
    case Status::layout_mismatch:
      return "layout_mismatch";
  }
  return "unknown";
}

}  // namespace sluice::policy
