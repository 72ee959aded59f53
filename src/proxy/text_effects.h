// What a text of SQL does that a pool must know of, in the compatible profile: to settings, to named statements, and to
// what cannot be carried to another server. A trigger, not a parser; see wire/statement.h for what it cannot see.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "wire/statement.h"

namespace sluice::proxy {

// Which statement kind of a text cannot be carried to another server; the first one counts.
enum class UntrackedKind : std::uint8_t {
  none,
  advisory_lock,
  listen,
  temporary_table,
  held_cursor,
  prepare,
  load,
};

enum TextEffect : std::uint16_t {
  kTouchesSettings = 1U << 0U,         // something must be read back from the server afterwards
  kTouchesThisTransaction = 1U << 1U,  // SET LOCAL: statements parsed behind it are nobody else's
  kUnknownNames = 1U << 2U,            // a custom parameter may have been made whose name we do not know
  kChangesIdentity = 1U << 3U,         // SESSION AUTHORIZATION
  kResets = 1U << 4U,                  // RESET, DISCARD ALL: what the client began with is to be set again
  kDeallocates = 1U << 5U,             // DEALLOCATE name, and nothing else
  kDeallocatesAll = 1U << 6U,
  kChangesSchema = 1U << 7U,
  kCalendar = 1U << 8U,  // a literal such as 'now', which is a constant from Parse on
  kSeveralStatements = 1U << 9U,
  kRunsBlock = 1U << 10U,  // DO
};

struct TextEffects {
  std::uint16_t flags = 0;
  UntrackedKind untracked = UntrackedKind::none;
  std::string name;                       // kDeallocates: the statement's
  std::vector<std::string> placeholders;  // custom parameters that it may make

  [[nodiscard]] bool has(std::uint16_t any) const noexcept { return (flags & any) != 0; }
  [[nodiscard]] bool none() const noexcept { return flags == 0 && untracked == UntrackedKind::none; }
};

// A look at the first word and at characters that any effect needs; true for almost everything an application sends,
// and only then is the text not read closer.
[[nodiscard]] bool is_plain(std::string_view text) noexcept;

// Reads a text, in whatever pieces it comes.
class EffectsReader {
 public:
  void add(std::string_view text);
  void finish();
  // So far; untracked is final as soon as it is not none.
  [[nodiscard]] TextEffects& effects() noexcept { return effects_; }

 private:
  void note(const wire::Statement& statement);
  void note_untracked(const wire::Statement& statement) noexcept;
  void note_setting(const wire::Statement& statement);

  wire::StatementSplitter splitter_;
  TextEffects effects_;
  std::size_t statements_ = 0;
};

// The effects of a whole text. The names in calls of set_config are read from the text itself.
[[nodiscard]] TextEffects read_effects(std::string_view text);

}  // namespace sluice::proxy
