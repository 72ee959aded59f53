// Inside of the validator: typed, checked reading of a document's fields, and the findings this yields. Not included by
// anything but src/policy/validator*.cc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "policy/document.h"
#include "policy/policy.h"
#include "policy/text.h"
#include "policy/validator.h"

namespace sluice::policy {

// Where a value stands in the document, linked from the value up to the root through the callers' stack frames.
struct Path {
  const Path* parent;
  const char* name;     // nullptr: an entry of a list
  std::uint32_t index;  // position in that list
};

[[nodiscard]] constexpr Path child(const Path& parent, const char* name) noexcept { return {&parent, name, 0}; }
[[nodiscard]] constexpr Path entry(const Path& parent, std::uint32_t index) noexcept {
  return {&parent, nullptr, index};
}

struct Range {
  std::uint32_t least;
  std::uint32_t most;
  const char* unit;
};

inline constexpr std::uint32_t kMostSessions = 262143;  // PostgreSQL's MAX_BACKENDS
inline constexpr std::uint32_t kMostQueued = 1000000;
inline constexpr std::uint32_t kDayMs = 86400000;

enum class Field : std::uint8_t { absent, valid, invalid };

// The two texts of one finding, to be filled in by the caller.
struct FindingText {
  TextWriter message;
  TextWriter fix;
};

class Validation {
 public:
  Validation(const Document& document, const ServerFacts& facts, Policy& policy, Findings& findings) noexcept
      : document(document), facts(facts), policy(policy), findings_(findings) {}

  const Document& document;
  const ServerFacts& facts;
  Policy& policy;

  [[nodiscard]] FindingText error(std::uint32_t node, const Path& path) noexcept;
  [[nodiscard]] FindingText warning(std::uint32_t node, const Path& path) noexcept;
  [[nodiscard]] std::uint32_t errors() const noexcept { return findings_.errors; }

  // Is this node an object (a list)? If not: a finding, and false.
  [[nodiscard]] bool expect_object(std::uint32_t node, const Path& path) noexcept;
  [[nodiscard]] bool expect_array(std::uint32_t node, const Path& path) noexcept;

  // Refuses fields that are not among `known` and fields that are given twice.
  void check_fields(std::uint32_t object, const Path& path, const char* const* known, std::size_t count) noexcept;
  void check_duplicates(std::uint32_t object, const Path& path) noexcept;

  // Reads object.name; `out` keeps the value it has (the default) unless the answer is Field::valid.
  Field read_number(std::uint32_t object, const Path& path, const char* name, Range range, std::uint32_t& out) noexcept;
  Field read_switch(std::uint32_t object, const Path& path, const char* name, bool& out) noexcept;
  Field read_choice(std::uint32_t object, const Path& path, const char* name, const char* const* choices,
                    std::size_t count, std::uint32_t& out) noexcept;
  Field read_name(std::uint32_t object, const Path& path, const char* name, std::size_t size, char* out) noexcept;

  // A text node, or the key of a node, as a name of at most size - 1 bytes without control characters.
  [[nodiscard]] bool copy_name(std::uint32_t node, const Path& path, std::size_t size, char* out) noexcept;
  [[nodiscard]] bool copy_key(std::uint32_t node, const Path& path, std::size_t size, char* out) noexcept;

  // The class a node names; -1 and a finding when there is none of that name.
  [[nodiscard]] int read_class(std::uint32_t node, const Path& path) noexcept;

  // " (did you mean …?)" material: the closest of count names, or nullptr when none is close.
  [[nodiscard]] static const char* closest(const char* wrong, const char* const* names, std::size_t count) noexcept;

 private:
  [[nodiscard]] FindingText add(Severity severity, std::uint32_t node, const Path& path) noexcept;
  [[nodiscard]] bool check_name(const char* text, std::uint32_t node, const Path& path, std::size_t size) noexcept;
  void add_found(TextWriter& message, const Node& node) const noexcept;

  Findings& findings_;
  Finding beyond_;  // takes the texts of findings for which there is no room
};

// The sections of the document, one per file. Each reads its part into policy and reports what is wrong with it alone.
void read_classes(Validation& validation, std::uint32_t root, const Path& top) noexcept;
void read_default_class(Validation& validation, std::uint32_t root, const Path& top) noexcept;
void read_assign(Validation& validation, std::uint32_t root, const Path& top) noexcept;
void read_admin_roles(Validation& validation, std::uint32_t root, const Path& top) noexcept;
void read_tenants(Validation& validation, std::uint32_t root, const Path& top) noexcept;
void read_declare(Validation& validation, std::uint32_t root, const Path& top) noexcept;
void read_caps(Validation& validation, std::uint32_t root, const Path& top) noexcept;

// What the sums start from: whether their four numbers are usable, and whether the document states the hard limit.
struct Budget {
  bool sound;
  bool hard_limit_given;
};

// Rules over several sections: sums that must fit, and doubtful combinations.
void check_sums(Validation& validation, std::uint32_t root, const Path& top, Budget budget) noexcept;
void check_doubtful(Validation& validation, std::uint32_t root, const Path& top) noexcept;

// `bulkheads: off`: one class in place of all of them. Done last, so that everything above was checked as written.
void merge_classes(Policy& policy) noexcept;

}  // namespace sluice::policy
