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

// What a duplicate repeats. `state` is the first request's own ("IN_TRANSACTION", "REQUEST_RELEASED").
struct FirstRequest {
  const char* state;  // nullptr: leave all of it out
  bool ended;         // false: it is alive
  std::uint64_t ended_ms_ago;
};

struct Refusal {
  Outcome outcome;
  Retry retry;
  std::uint32_t retry_after_ms;
  const char* class_name;   // nullptr: leave out
  const char* tenant_name;  // nullptr: leave out
  const Uuid* ticket;       // nullptr: leave out
  FirstRequest first;
};

// What a refused caller should do. `after` for everything that passes by itself, `never` where a retry would only
// repeat the outcome (cancelled by the caller, over the time limit, a live ticket of the same id). A caller that ends
// an idle session and loses nothing by it (eviction: 57P01) says `now` itself.
[[nodiscard]] Retry retry_of(Status status) noexcept;

// base_ms .. 2 * base_ms, uniform over the 32 random bits the caller supplies.
[[nodiscard]] std::uint32_t jittered_delay_ms(std::uint32_t base_ms, std::uint32_t random) noexcept;

// Reads a UUID in any form that PostgreSQL's type takes: 32 hexadecimal digits in either case, a hyphen allowed after
// each group of four, braces around the whole allowed. False for anything else, for nullptr and for the nil UUID, which
// names nothing.
[[nodiscard]] bool parse_uuid(const char* text, Uuid& out) noexcept;

// "sluice reason=queue_full retry=after retry_after_ms=317 rule=… used=100 limit=100 class=batch tenant=acme ticket=…
// generation=27". A duplicate says after its ticket "state=IN_TRANSACTION" of a request that is alive, or
// "outcome=REQUEST_RELEASED ended_ms_ago=1200" of one that has ended. Values with blanks, control characters or '%' are
// percent-encoded. rule, used and limit are left out where no rule refused; retry_after_ms is 0 with retry=now and left
// out with retry=never. Always NUL-terminated; a pair that does not fit is left out whole, which cannot happen in a
// buffer of kDetailBytes.
inline constexpr std::size_t kDetailBytes = 2048;
std::size_t format_detail(const Policy& policy, const Refusal& refusal, char* out, std::size_t size) noexcept;

}  // namespace sluice::policy
