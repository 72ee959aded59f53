#include "extension/pg.h"

#include "extension/shared.h"

#include <cstring>
#include <ctime>

#include "extension/errors.h"
#include "extension/settings.h"
#include "extension/stamp.h"

namespace sluice::extension {

SharedState* shared_state = nullptr;
ledger::Ledger the_ledger = {};

namespace {

constexpr char kTranche[] = "pg_sluice";
constexpr std::size_t kAlignment = 64;

shmem_request_hook_type previous_shmem_request = nullptr;
shmem_startup_hook_type previous_shmem_startup = nullptr;
bool ready = false;

void request() {
  if (previous_shmem_request != nullptr) previous_shmem_request();
  RequestAddinShmemSpace(add_size(MAXALIGN(sizeof(SharedState)), ledger::region_size(region_sizes()) + kAlignment));
  RequestNamedLWLockTranche(kTranche, 1);
}

// The server whose headers the library was compiled with. Read through a volatile pointer, so that no part of it
// becomes a constant of the code and the text in the library's file stays all there is of it.
constexpr char kBuiltFor[] = "built for PostgreSQL ";
const char* const volatile built_for = "built for PostgreSQL " PG_VERSION;

// PostgreSQL itself refuses a library of another major version. Another minor one is usual after an update of the
// server and has the same structures; should they ever differ, this line is where to begin.
void note_other_minor() {
  // What follows the number is the packager's: "15.8 (Debian 15.8-0+deb12u1)".
  const char* const built = built_for + sizeof(kBuiltFor) - 1;
  const char* const running = GetConfigOption("server_version", false, false);
  const int built_length = static_cast<int>(std::strcspn(built, " "));
  const int running_length = static_cast<int>(std::strcspn(running, " "));
  if (built_length == running_length && std::strncmp(built, running, std::strcspn(built, " ")) == 0) return;
  ereport(LOG, (errmsg("pg_sluice was built for PostgreSQL %.*s and runs in %.*s", built_length, built, running_length,
                       running)));
}

void make_region(void* memory, std::size_t bytes) {
  policy::Uuid boot_id = {};
  if (!pg_strong_random(boot_id.bytes, sizeof(boot_id.bytes)))
    ereport(FATAL, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("pg_sluice: no random bytes for the boot id")));
  // A crash restart makes fresh memory, so the epoch has to come from outside it: the wall clock in microseconds.
  const auto epoch = static_cast<std::uint64_t>(GetCurrentTimestamp());
  const policy::Status status =
      ledger::format(memory, bytes, region_sizes(), kBuildStamp, boot_id, epoch, now_us(), the_ledger);
  if (status != policy::Status::ok)
    ereport(FATAL, (errcode(ERRCODE_INTERNAL_ERROR),
                    errmsg("pg_sluice: the ledger could not be laid out: %s", policy::status_name(status))));
  const ledger::Sizes& sizes = the_ledger.header->sizes;
  ereport(LOG, (errmsg("pg_sluice %s: ledger of %zu kB for %u sessions, %u tenants, %u classes", kVersion, bytes / 1024,
                       sizes.sessions, sizes.tenants - 1, sizes.classes)));
  note_other_minor();
}

void startup() {
  if (previous_shmem_startup != nullptr) previous_shmem_startup();
  const std::size_t bytes = ledger::region_size(region_sizes());
  LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
  bool state_found = false;
  bool region_found = false;
  shared_state = static_cast<SharedState*>(ShmemInitStruct("pg_sluice state", sizeof(SharedState), &state_found));
  auto* block = static_cast<char*>(ShmemInitStruct("pg_sluice ledger", bytes + kAlignment, &region_found));
  void* memory = reinterpret_cast<void*>(TYPEALIGN(kAlignment, reinterpret_cast<std::uintptr_t>(block)));
  if (!state_found) {
    MemSet(shared_state, 0, sizeof(*shared_state));
    shared_state->lock = &(GetNamedLWLockTranche(kTranche))->lock;
    pg_atomic_init_u32(&shared_state->guard.pid, 0);
    pg_atomic_init_u32(&shared_state->publisher.pid, 0);
  }
  if (!region_found) {
    make_region(memory, bytes);
  } else if (ledger::attach(memory, kBuildStamp, the_ledger) != policy::Status::ok) {
    LWLockRelease(AddinShmemInitLock);
    raise_other_build(static_cast<ledger::Header*>(memory)->build_stamp, kBuildStamp);
  }
  LWLockRelease(AddinShmemInitLock);
  ready = true;
}

}  // namespace

bool ledger_ready() { return ready; }

void require_ledger() {
  if (!ready) raise_not_preloaded();
}

void install_shared_memory_hooks() {
  previous_shmem_request = shmem_request_hook;
  shmem_request_hook = request;
  previous_shmem_startup = shmem_startup_hook;
  shmem_startup_hook = startup;
}

TimestampTz to_timestamp(std::int64_t ledger_us) {
  return ledger_us == 0 ? 0 : GetCurrentTimestamp() - (now_us() - ledger_us);
}

namespace {

void set_latches(const ledger::Wakes& wakes) {
  for (std::uint32_t i = 0; i < wakes.count; i++) {
    if (wakes.tickets[i] < the_ledger.header->sizes.sessions)
      SetLatch(&proc_at(static_cast<int>(wakes.tickets[i]))->procLatch);
  }
}

}  // namespace

void wake(const ledger::Wakes& wakes) {
  set_latches(wakes);
  bool more = wakes.more;
  while (more) {
    ledger::Wakes rest = {};
    {
      ExclusiveLedger lock;
      ledger::tick(the_ledger, lock.token(), now_us(), rest);
    }
    set_latches(rest);
    more = rest.more;
  }
}

void wake_worker(WorkerStatus& worker) {
  if (pg_atomic_read_u32(&worker.pid) != 0) SetLatch(&proc_at(worker.proc)->procLatch);
}

}  // namespace sluice::extension
