#include "proxy/text_effects.h"

#include <algorithm>
#include <array>

namespace sluice::proxy {
namespace {

using wire::StatementKind;

// First words of statements that have no effect by themselves; what stands behind them is looked at as well.
constexpr std::string_view kPlainWords[] = {"select", "insert", "update",   "delete",    "with",    "begin",
                                            "commit", "values", "rollback", "savepoint", "release", "start",
                                            "end",    "abort",  "show",     "fetch",     "table",   "merge",
                                            "move",   "close",  "explain",  "lock",      "notify"};

char lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool is_blank(char c) noexcept { return c == ' ' || (c >= '\t' && c <= '\r'); }

bool begins_with(std::string_view text, std::string_view word) noexcept {
  if (text.size() < word.size()) return false;
  for (std::size_t i = 0; i < word.size(); i++) {
    if (lower(text[i]) != word[i]) return false;
  }
  return true;
}

bool contains(std::string_view text, std::string_view word) noexcept {
  for (std::size_t i = 0; i + word.size() <= text.size(); i++) {
    if (begins_with(text.substr(i), word)) return true;
  }
  return false;
}

constexpr std::array<bool, 256> suspicious() noexcept {
  std::array<bool, 256> table = {};
  for (char c : {';', '&', '_', 'm', 'M'}) table[static_cast<std::uint8_t>(c)] = true;
  return table;
}
constexpr std::array<bool, 256> kSuspicious = suspicious();

// Whether the character at `at`, one of the suspicious, is part of what an effect needs.
bool needs_reading(std::string_view text, std::size_t at) noexcept {
  std::string_view behind = text.substr(at + 1);
  switch (text[at]) {
    case ';':
      return std::any_of(behind.begin(), behind.end(), [](char c) { return !is_blank(c); });
    case '&':
      return at > 0 && lower(text[at - 1]) == 'u' && !behind.empty() && behind[0] == '"';
    case '_':
      return begins_with(behind, "config") || begins_with(behind, "advisory") || begins_with(behind, "temp");
    default:
      return at > 1 && begins_with(text.substr(at - 2), "temp");
  }
}

std::size_t skip_blanks(std::string_view text, std::size_t at) noexcept {
  while (at < text.size() && is_blank(text[at])) at++;
  return at;
}

// The first argument of the call whose name ends at `at`, when it is a literal without escapes.
bool read_first_literal(std::string_view text, std::size_t at, std::string_view& literal) noexcept {
  if (at < text.size() && text[at] == '"') at++;
  at = skip_blanks(text, at);
  if (at >= text.size() || text[at] != '(') return false;
  at = skip_blanks(text, at + 1);
  if (at >= text.size() || text[at] != '\'') return false;
  std::size_t end = text.find('\'', at + 1);
  if (end == std::string_view::npos) return false;
  literal = text.substr(at + 1, end - at - 1);
  // A doubled quote, a continued or concatenated literal, a cast: then it is not what it looks like.
  std::size_t behind = skip_blanks(text, end + 1);
  return behind < text.size() && text[behind] == ',' && literal.find('\\') == std::string_view::npos;
}

void note_set_config_calls(std::string_view text, TextEffects& effects) {
  constexpr std::string_view kName = "set_config";
  for (std::size_t at = 0; at + kName.size() <= text.size(); at++) {
    if (lower(text[at]) != 's' || !begins_with(text.substr(at), kName)) continue;
    std::string_view name;
    if (!read_first_literal(text, at + kName.size(), name)) {
      effects.flags |= kUnknownNames;
    } else if (name.find('.') != std::string_view::npos) {
      std::string folded(name);
      for (char& c : folded) c = lower(c);
      effects.placeholders.push_back(std::move(folded));
    }
  }
}

bool ends_word(std::string_view text, std::size_t at) noexcept {
  if (at >= text.size()) return true;
  char c = lower(text[at]);
  return !((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_');
}

std::size_t skip_word(std::string_view text, std::size_t at, std::string_view word) noexcept {
  bool found = begins_with(text.substr(at), word) && ends_word(text, at + word.size());
  return found ? skip_blanks(text, at + word.size()) : at;
}

// What a DO block sets by name. More than there is does no harm: a parameter that nobody made is read back as nothing.
void note_block(std::string_view text, TextEffects& effects) {
  if (contains(text, "execute") && contains(text, "set")) effects.flags |= kUnknownNames;
  for (std::size_t at = 0; at < text.size(); at++) {
    std::size_t name = skip_word(text, at, "set");
    if (name == at || (at > 0 && !ends_word(text, at - 1))) continue;
    name = skip_word(text, skip_word(text, name, "local"), "session");
    std::size_t end = name;
    while (end < text.size() && (text[end] == '.' || text[end] == '"' || !ends_word(text, end))) end++;
    std::string folded;
    for (char c : text.substr(name, end - name)) {
      if (c != '"') folded.push_back(lower(c));
    }
    if (folded.find('.') != std::string::npos) effects.placeholders.push_back(std::move(folded));
  }
}

}  // namespace

bool is_plain(std::string_view text) noexcept {
  std::size_t at = skip_blanks(text, 0);
  if (at == text.size()) return true;
  std::string_view from_word = text.substr(at);
  bool known = from_word[0] == '(';
  for (std::string_view word : kPlainWords) {
    if (known) break;
    known = lower(from_word[0]) == word[0] && begins_with(from_word, word);
  }
  if (!known) return false;
  for (; at < text.size(); at++) {
    if (kSuspicious[static_cast<std::uint8_t>(text[at])] && needs_reading(text, at)) return false;
  }
  return true;
}

void EffectsReader::add(std::string_view text) {
  wire::Statement statement = {};
  while (splitter_.next(text, statement)) note(statement);
}

void EffectsReader::finish() {
  wire::Statement statement = {};
  while (splitter_.finish(statement)) note(statement);
  // Alone it can be carried out as the protocol's Close; in a longer text it is the server's business.
  if (statements_ > 1)
    effects_.flags = static_cast<std::uint16_t>((effects_.flags & ~kDeallocates) | kSeveralStatements);
}

void EffectsReader::note_untracked(const wire::Statement& statement) noexcept {
  UntrackedKind kind = UntrackedKind::none;
  if (statement.kind == StatementKind::listen) kind = UntrackedKind::listen;
  if (statement.kind == StatementKind::prepare) kind = UntrackedKind::prepare;
  if (statement.kind == StatementKind::load) kind = UntrackedKind::load;
  if ((statement.flags & wire::kHoldsCursor) != 0) kind = UntrackedKind::held_cursor;
  if ((statement.flags & wire::kTemporary) != 0) kind = UntrackedKind::temporary_table;
  if ((statement.flags & wire::kAdvisoryLock) != 0) kind = UntrackedKind::advisory_lock;
  if (effects_.untracked == UntrackedKind::none) effects_.untracked = kind;
}

void EffectsReader::note_setting(const wire::Statement& statement) {
  bool lasting = statement.kind != StatementKind::set_local;
  bool resets = statement.kind == StatementKind::reset;
  effects_.flags |= lasting ? kTouchesSettings : kTouchesThisTransaction;
  if (resets) effects_.flags |= kResets;
  if (statement.name == "session_authorization" && lasting && !resets) effects_.flags |= kChangesIdentity;
  if ((statement.flags & wire::kNameCut) != 0) {
    effects_.flags |= kUnknownNames | kTouchesSettings;
  } else if (statement.name.find('.') != std::string_view::npos) {
    effects_.placeholders.emplace_back(statement.name);
  }
}

void EffectsReader::note(const wire::Statement& statement) {
  statements_++;
  note_untracked(statement);
  if ((statement.flags & wire::kCalendarLiteral) != 0) effects_.flags |= kCalendar;
  if ((statement.flags & wire::kMentionsSetConfig) != 0) effects_.flags |= kTouchesSettings;
  if ((statement.flags & (wire::kEscapedName | wire::kAtomicBody)) != 0) {
    effects_.flags |= kTouchesSettings | kUnknownNames;
  }
  switch (statement.kind) {
    case StatementKind::set:
    case StatementKind::set_local:
    case StatementKind::reset:
      note_setting(statement);
      break;
    case StatementKind::reset_all:
      effects_.flags |= kTouchesSettings | kResets;
      break;
    case StatementKind::discard_all:
      effects_.flags |= kTouchesSettings | kResets | kDeallocatesAll;
      break;
    case StatementKind::do_block:
      effects_.flags |= kTouchesSettings | kRunsBlock;
      break;
    case StatementKind::set_session_characteristics:
    case StatementKind::call:
    case StatementKind::execute:
      effects_.flags |= kTouchesSettings;
      break;
    case StatementKind::deallocate:
      effects_.flags |= kDeallocates;
      effects_.name = statement.name;
      break;
    case StatementKind::deallocate_all:
      effects_.flags |= kDeallocatesAll;
      break;
    case StatementKind::create:
    case StatementKind::change_schema:
      effects_.flags |= kChangesSchema;
      break;
    default:
      break;
  }
}

TextEffects read_effects(std::string_view text) {
  EffectsReader reader;
  reader.add(text);
  reader.finish();
  TextEffects& effects = reader.effects();
  if (effects.has(kTouchesSettings)) note_set_config_calls(text, effects);
  if (effects.has(kRunsBlock)) note_block(text, effects);
  return std::move(effects);
}

}  // namespace sluice::proxy
