#include "proxy/guard.h"

namespace sluice::proxy {

using wire::StatementKind;

bool Guard::add(std::string_view text) noexcept {
  wire::Statement statement = {};
  while (refused_.empty() && splitter_.next(text, statement)) judge(statement);
  return refused_.empty();
}

bool Guard::finish() noexcept {
  wire::Statement statement = {};
  while (refused_.empty() && splitter_.finish(statement)) judge(statement);
  return refused_.empty();
}

void Guard::judge(const wire::Statement& statement) noexcept {
  // Where the body of such a function ends is a guess, so anything might stand behind it.
  if ((statement.flags & wire::kAtomicBody) != 0) refused_ = "BEGIN ATOMIC";
  if ((statement.flags & wire::kHoldsCursor) != 0) refused_ = "DECLARE ... WITH HOLD";
  switch (statement.kind) {
    case StatementKind::set:
    case StatementKind::set_session_characteristics:
      refused_ = "SET";
      break;
    case StatementKind::set_constraints:
      refused_ = "SET CONSTRAINTS";
      break;
    case StatementKind::reset:
    case StatementKind::reset_all:
      refused_ = "RESET";
      break;
    case StatementKind::discard_all:
    case StatementKind::discard_temporary:
    case StatementKind::discard_other:
      refused_ = "DISCARD";
      break;
    case StatementKind::prepare:
      refused_ = "PREPARE";
      break;
    case StatementKind::listen:
      refused_ = "LISTEN";
      break;
    case StatementKind::copy_from_client:
    case StatementKind::copy_to_client:
      refused_ = "COPY";
      break;
    default:
      break;
  }
}

}  // namespace sluice::proxy
