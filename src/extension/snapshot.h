// Giving a statement's snapshot back while it waits, so that a queue does not keep VACUUM from removing rows, and
// taking a new one afterwards. Only where a newer snapshot cannot change the answer; everywhere else the snapshot is
// kept.
#pragma once

#include "extension/pg.h"
#include "extension/waiting.h"

namespace sluice::extension {

// True when the snapshot was dropped; then retake_snapshot() must be called before the statement goes on.
bool drop_snapshot(WaitPlace& place);
void retake_snapshot(WaitPlace& place);

}  // namespace sluice::extension
