// `sluice policy lint`: a policy file read, checked by the validator the server uses, and its findings printed.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>

#include "policy/document.h"
#include "policy/policy.h"
#include "policy/validator.h"

namespace sluice::cli {

// What the file is checked against; without max_connections only the document's own sums count.
struct LintOptions {
  std::string file;
  std::optional<std::uint32_t> max_connections;
  std::uint32_t superuser_reserved_connections = 3;
  std::uint32_t reserved_connections = 0;
  std::uint32_t max_wal_senders = 10;
  std::string label;  // empty: the document's own is taken as right
  std::uint64_t newest_generation = 0;
};

enum class Shown : std::uint8_t { everything, errors };

// A checked file: what publish needs of it.
struct CheckedPolicy {
  std::unique_ptr<policy::Document> document = std::make_unique<policy::Document>();
  std::unique_ptr<policy::Policy> policy = std::make_unique<policy::Policy>();
  std::unique_ptr<policy::Findings> findings = std::make_unique<policy::Findings>();
  bool valid = false;
};

// Checks the text and prints every finding to out, in the order of lines:
//   FILE:LINE: error: PATH: MESSAGE
//       fix: FIX
[[nodiscard]] CheckedPolicy check_policy(const LintOptions& options, const std::string& text, std::ostream& out,
                                         Shown shown = Shown::everything);

// The command: 0 valid (with or without warnings), 1 errors. Throws FileError.
[[nodiscard]] int lint(const LintOptions& options, std::ostream& out);

}  // namespace sluice::cli
