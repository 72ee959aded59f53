#include "extension/pg.h"

#include "extension/refusal_log.h"

#include <atomic>
#include <cinttypes>
#include <cstring>

#include "extension/shared.h"

namespace sluice::extension {

namespace {

constexpr std::int64_t kWindowUs = 10 * 1000000;
constexpr std::uint32_t kLinesPerWindow = 5;
constexpr char kDetailStart[] = "sluice reason=";

emit_log_hook_type previous_emit_log = nullptr;

// The kind of a refusal by its DETAIL, where the reason stands first; kRefusalKinds: it is none of ours.
std::uint32_t kind_of(const ErrorData* edata) {
  if (edata->funcname == nullptr || std::strcmp(edata->funcname, "raise_refusal") != 0 || edata->detail == nullptr ||
      std::strncmp(edata->detail, kDetailStart, sizeof(kDetailStart) - 1) != 0) {
    return kRefusalKinds;
  }
  const char* reason = edata->detail + sizeof(kDetailStart) - 1;
  for (std::uint32_t kind = 0; kind < kRefusalKinds; kind++) {
    const char* name = policy::status_name(static_cast<policy::Status>(kind));
    const std::size_t length = std::strlen(name);
    if (std::strncmp(reason, name, length) == 0 && reason[length] == ' ') return kind;
  }
  return kRefusalKinds;
}

// `left_out`: how many of the windows before this line has to account for.
bool is_written(RefusalLog& log, std::uint64_t& left_out) {
  std::atomic_ref<std::int64_t> window(log.window_us);
  std::atomic_ref<std::uint32_t> lines(log.lines);
  std::atomic_ref<std::uint64_t> counted(log.left_out);
  const std::int64_t now = now_us();
  std::int64_t started = window.load(std::memory_order_relaxed);
  if ((started == 0 || now - started > kWindowUs) && window.compare_exchange_strong(started, now)) {
    lines.store(0);
    left_out = counted.exchange(0);
    // Whatever the others have written since: this line is written, because it takes the count with it.
    lines.fetch_add(1);
    return true;
  }
  if (lines.fetch_add(1) < kLinesPerWindow) return true;
  counted.fetch_add(1);
  return false;
}

void throttle_log(ErrorData* edata) {
  const std::uint32_t kind = kind_of(edata);
  if (kind < kRefusalKinds && shared_state != nullptr) {
    std::uint64_t left_out = 0;
    edata->output_to_server = is_written(shared_state->refusal_log[kind], left_out);
    if (left_out > 0) {
      edata->detail_log = MemoryContextStrdup(
          edata->assoc_context,
          psprintf("%s (%" PRIu64 " more with reason=%s were left out of the log before)", edata->detail, left_out,
                   policy::status_name(static_cast<policy::Status>(kind))));
    }
  }
  if (previous_emit_log != nullptr && edata->output_to_server) previous_emit_log(edata);
}

}  // namespace

void install_log_throttle() {
  previous_emit_log = emit_log_hook;
  emit_log_hook = throttle_log;
}

void report_left_out(bool all) {
  for (std::uint32_t kind = 0; kind < kRefusalKinds; kind++) {
    RefusalLog& log = shared_state->refusal_log[kind];
    std::atomic_ref<std::uint64_t> counted(log.left_out);
    if (counted.load(std::memory_order_relaxed) == 0) continue;
    const std::int64_t started = std::atomic_ref<std::int64_t>(log.window_us).load(std::memory_order_relaxed);
    if (!all && now_us() - started <= kWindowUs) continue;
    const std::uint64_t left_out = counted.exchange(0);
    if (left_out == 0) continue;
    ereport(LOG, (errmsg("pg_sluice: %" PRIu64 " more refusals with reason=%s were left out of the log", left_out,
                         policy::status_name(static_cast<policy::Status>(kind))),
                  errhint("sluice.refusals counts all of them.")));
  }
}

}  // namespace sluice::extension
