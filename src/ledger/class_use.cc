#include "ledger/class_use.h"

#include "ledger/atomics.h"

namespace sluice::ledger {

std::uint32_t permits_in_use(const ClassState& state) noexcept {
  const std::int32_t in_use = permits_in_use(load(state.capacity), class_free(load(state.word)));
  return in_use > 0 ? static_cast<std::uint32_t>(in_use) : 0;
}

std::uint32_t permits_owed(const ClassState& state) noexcept { return unpack_class(load(state.word)).owed; }

// Out of line: the lock-free path comes here only where the peak may rise.
[[gnu::noinline]] void raise_peak(ClassState& state, std::int32_t before, std::int32_t free) noexcept {
  const std::int32_t after = load(state.capacity);
  const std::int32_t in_use = permits_in_use(after < before ? after : before, free);
  if (in_use > 0) raise_to(state.recent_peak, static_cast<std::uint32_t>(in_use));
}

std::uint32_t end_peak(ClassState& state) noexcept {
  const std::uint32_t recent =
      std::atomic_ref(state.recent_peak).exchange(permits_in_use(state), std::memory_order_acq_rel);
  if (recent > state.peak_in_use) state.peak_in_use = recent;
  return recent;
}

std::uint32_t peak_in_use(const ClassState& state) noexcept {
  const std::uint32_t recent = load_relaxed(state.recent_peak);
  return recent > state.peak_in_use ? recent : state.peak_in_use;
}

}  // namespace sluice::ledger
