// The retry contract: the one machine-readable DETAIL line that server and proxy give with every refusal (design: "The
// contract with callers"), and the delay in it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "policy/rule.h"

namespace sluice::policy {

enum class Retry : std::uint8_t { after, now, never };

struct Uuid {
  std::uint8_t bytes[16];
};

struct Refusal {
  Outcome outcome;
  Retry retry;
  std::uint32_t retry_after_ms;
  const char* class_name;   // nullptr: leave out
  const char* tenant_name;  // nullptr: leave out
  const Uuid* ticket;       // nullptr: leave out
};

[[nodiscard]] Retry retry_of(Status status) noexcept;

// base_ms .. 2 * base_ms, uniform over the 32 random bits the caller supplies.
[[nodiscard]] std::uint32_t jittered_delay_ms(std::uint32_t base_ms, std::uint32_t random) noexcept;

// "sluice reason=queue_full retry=after retry_after_ms=317 rule=… used=100 limit=100 class=batch tenant=acme ticket=…
// generation=27". Values with blanks, control characters or '%' are percent-encoded. Always NUL-terminated.
std::size_t format_detail(const Policy& policy, const Refusal& refusal, char* out, std::size_t size) noexcept;

}  // namespace sluice::policy
