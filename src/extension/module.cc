// The library's entry: settings, shared memory, hooks and workers, in the postmaster only.
#include "extension/pg.h"

#include "extension/errors.h"
#include "extension/guard.h"
#include "extension/hooks.h"
#include "extension/settings.h"
#include "extension/shared.h"
#include "extension/stamp.h"

extern "C" {
PG_MODULE_MAGIC;
PGDLLEXPORT void _PG_init(void);
}

namespace sluice::extension {

namespace {

constexpr char kRendezvous[] = "pg_sluice build";

// A second copy of the library in one process is a replaced file: the first one, from the postmaster, is what runs.
void refuse_late_load() {
  // pg_upgrade loads every library into a cluster that need not preload it yet, to see that it can be loaded (F22).
  if (IsBinaryUpgrade) return;
  const auto* running = static_cast<const char*>(*find_rendezvous_variable(kRendezvous));
  if (running != nullptr) raise_other_build(running, kBuildStamp);
  // session_preload_libraries and kin are loaded while the session is still being set up; an error would lock everybody
  // out.
  if (IsInitProcessingMode()) {
    warn_not_preloaded();
  } else {
    raise_not_preloaded();
  }
}

void start() {
  define_settings();
  // pg_upgrade starts the servers itself and must meet nobody's limits (F22).
  if (IsBinaryUpgrade) return;
  *find_rendezvous_variable(kRendezvous) = const_cast<char*>(kBuildStamp);
  install_shared_memory_hooks();
  install_authentication_hook();
  install_executor_hooks();
  install_utility_hook();
  install_fastpath_hook();
  install_log_throttle();
  watch_transactions();
  register_workers();
}

}  // namespace

}  // namespace sluice::extension

void _PG_init(void) {
  if (process_shared_preload_libraries_in_progress) {
    sluice::extension::start();
  } else {
    sluice::extension::refuse_late_load();
  }
}
