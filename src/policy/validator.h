// The one validator: document + what the server has -> compiled policy and findings. Pure and deterministic, used by
// sluice.validate/publish and by `sluice policy lint`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "policy/document.h"
#include "policy/policy.h"

namespace sluice::policy {

enum class Severity : std::uint8_t { error, warning };

struct Finding {
  Severity severity;
  std::uint32_t line;  // in the source, 0 where unknown
  char path[192];      // "executionClasses.batch.permits"; empty: the document itself
  char message[320];   // what is wrong, with the arithmetic
  char fix[192];       // what to do
};

inline constexpr std::uint32_t kMaxFindings = 64;

struct Findings {
  std::uint32_t count;    // entries that are set
  std::uint32_t errors;   // all errors, also those beyond kMaxFindings
  std::uint32_t dropped;  // findings beyond kMaxFindings
  Finding entries[kMaxFindings];
};

// What the policy is checked against. Without a server (lint) known is false and only the document's own sums count.
struct ServerFacts {
  bool known;
  std::uint32_t max_connections;
  std::uint32_t superuser_reserved_connections;
  std::uint32_t reserved_connections;  // 16+, else 0
  std::uint32_t max_wal_senders;
  std::uint64_t newest_generation;  // 0: none was published
  char label[kNameBytes];           // pg_sluice.label
  bool in_recovery;
};

// Compiles document into policy. Returns true when there is no error; policy is then complete (generation 0 where the
// document leaves it out: the publisher assigns it). Otherwise policy's content is unspecified.
[[nodiscard]] bool validate(const Document& document, const ServerFacts& facts, Policy& policy,
                            Findings& findings) noexcept;

}  // namespace sluice::policy
