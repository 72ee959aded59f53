#include "extension/guard_silent_sockets.h"

#include "extension/guard.h"
#include "extension/guard_procfs.h"

namespace sluice::extension {

namespace {

constexpr std::int64_t kLookEveryUs = 500'000;
constexpr std::int64_t kMinAgeUs = 1'000'000;
constexpr int kMaxChildren = 8192;
constexpr int kMaxEndedARound = 256;

int children[kMaxChildren];
LoginInProgress silent[kMaxChildren];
int* proc_pids = nullptr;

// Half of the child slots are as many as there are PGPROCs for clients; of the other half a good part stays free.
int allowed_silent() {
  const int slots = client_child_slots();
  return std::max(1, slots / 2 - std::max(10, slots / 8));
}

// Sorted pids of every PGPROC, auxiliary processes included. One that was freed may still carry its old pid; it only
// makes us spare a process.
int collect_proc_pids() {
  const int total = static_cast<int>(ProcGlobal->allProcCount);
  if (proc_pids == nullptr) proc_pids = static_cast<int*>(worker_memory(static_cast<std::size_t>(total) * sizeof(int)));
  int count = 0;
  for (int index = 0; index < total; ++index) {
    const int pid = *const_cast<const volatile int*>(&proc_at(index)->pid);
    if (pid != 0) proc_pids[count++] = pid;
  }
  std::sort(proc_pids, proc_pids + count);
  return count;
}

// A child of the postmaster that still runs under the postmaster's own command line: every process of the server gets a
// title of its own as soon as it knows what it is. The startup process and its kin do so within milliseconds, hence the
// age.
bool is_silent_child(int pid, std::int64_t& age_us) {
  ProcessFacts facts;
  if (!read_process(pid, facts) || facts.parent != PostmasterPid || !facts.sleeping || facts.age_us < kMinAgeUs) {
    return false;
  }
  age_us = facts.age_us;
  return same_command_line(pid, PostmasterPid);
}

bool confirm(int pid, const void*) {
  std::int64_t age_us = 0;
  const int count = collect_proc_pids();
  return !std::binary_search(proc_pids, proc_pids + count, pid) && is_silent_child(pid, age_us);
}

// Compacts `children` to those without a PGPROC.
int without_proc(int child_count) {
  const int count = collect_proc_pids();
  int kept = 0;
  for (int i = 0; i < child_count; ++i) {
    if (!std::binary_search(proc_pids, proc_pids + count, children[i])) children[kept++] = children[i];
  }
  return kept;
}

}  // namespace

int end_silent_sockets(std::int64_t now) {
  static std::int64_t last_look_us = 0;
  if (now - last_look_us < kLookEveryUs) return 0;
  last_look_us = now;

  const int allowed = allowed_silent();
  int child_count = list_children(PostmasterPid, children, kMaxChildren);
  if (child_count <= allowed) return 0;
  child_count = without_proc(child_count);
  if (child_count <= allowed) return 0;

  int silent_count = 0;
  for (int i = 0; i < child_count; ++i) {
    std::int64_t age_us = 0;
    if (is_silent_child(children[i], age_us)) silent[silent_count++] = {children[i], -1, now - age_us, {}, false};
  }
  const int wanted = std::min(child_count - allowed, kMaxEndedARound);
  find_sources(silent, silent_count);
  const int chosen = choose_logins(silent, silent_count, wanted, now, kMinAgeUs);
  int ended = 0;
  for (int i = 0; i < chosen; ++i) {
    if (terminate_confirmed(silent[i].pid, confirm, nullptr)) ++ended;
  }
  return ended;
}

}  // namespace sluice::extension
