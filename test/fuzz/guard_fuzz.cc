// SQL texts in the lexer and in what reads its tokens: cut anywhere they must mean the same, positions must lie inside
// the text, and a text taken for plain must have no effect.
#include <string>
#include <vector>

#include "fuzz/input.h"
#include "fuzz/require.h"
#include "proxy/guard.h"
#include "proxy/text_effects.h"
#include "wire/sql_lexer.h"
#include "wire/statement.h"

namespace sluice::fuzz {
namespace {

std::string shown(const wire::Token& token) {
  return std::to_string(static_cast<int>(token.kind)) + ' ' + std::to_string(token.begin) + ' ' +
         std::to_string(token.end) + ' ' + std::to_string(token.cut) + std::to_string(token.escaped) +
         std::to_string(token.unterminated) + std::to_string(token.calendar) + ' ' + std::string(token.text);
}

std::string shown(const wire::Statement& statement) {
  return std::to_string(static_cast<int>(statement.kind)) + ' ' + std::to_string(statement.flags) + ' ' +
         std::to_string(statement.begin) + ' ' + std::to_string(statement.end) + ' ' + std::string(statement.name);
}

// All that a reader finds, whatever it reads, in a text that comes in pieces.
template <typename Reader, typename Found>
std::vector<std::string> read_all(Input input, std::uint8_t seed) {
  input.cut_by(seed);
  std::size_t size = input.rest().size();
  Reader reader;
  Found found = {};
  std::vector<std::string> all;
  std::uint64_t last_end = 0;
  auto note = [&] {
    require(found.begin >= last_end && found.begin < found.end && found.end <= size, "it lies in the text, in order");
    last_end = found.end;
    all.push_back(shown(found));
  };
  while (!input.empty()) {
    std::string_view piece = wire::as_text(input.piece());
    while (reader.next(piece, found)) note();
    require(piece.empty(), "a piece is used up");
  }
  for (std::size_t left = 0; reader.finish(found); left++) {
    require(left < 8, "what is open comes to its end");
    note();
  }
  return all;
}

std::string guarded(Input input, std::uint8_t seed) {
  input.cut_by(seed);
  proxy::Guard guard;
  while (!input.empty()) {
    if (!guard.add(wire::as_text(input.piece()))) break;
  }
  bool allowed = guard.finish();
  require(allowed == guard.refused().empty(), "what is refused has a name");
  return std::string(guard.refused());
}

proxy::TextEffects effects_of(Input input, std::uint8_t seed) {
  input.cut_by(seed);
  proxy::EffectsReader reader;
  while (!input.empty()) reader.add(wire::as_text(input.piece()));
  reader.finish();
  return reader.effects();
}

void read_text(Input input) {
  std::uint8_t seed = input.byte();
  require(read_all<wire::SqlLexer, wire::Token>(input, 0) == read_all<wire::SqlLexer, wire::Token>(input, seed),
          "tokens are the same however the text is cut");
  require(read_all<wire::StatementSplitter, wire::Statement>(input, 0) ==
              read_all<wire::StatementSplitter, wire::Statement>(input, seed),
          "statements are the same however the text is cut");
  require(guarded(input, 0) == guarded(input, seed), "the guard refuses the same however the text is cut");
  std::string_view text = wire::as_text(input.rest());
  proxy::TextEffects whole = proxy::read_effects(text);
  proxy::TextEffects cut = effects_of(input, seed);
  proxy::TextEffects uncut = effects_of(input, 0);
  require(cut.flags == uncut.flags && cut.untracked == uncut.untracked && cut.name == uncut.name,
          "effects are the same however the text is cut");
  require((whole.flags | proxy::kUnknownNames) == (uncut.flags | proxy::kUnknownNames) &&
              whole.untracked == uncut.untracked,
          "only names of parameters are read from the whole text");
  // A literal such as 'now' matters to statements that are parsed once only.
  constexpr std::uint16_t kHarmless = proxy::kCalendar | proxy::kSeveralStatements;
  if (proxy::is_plain(text)) {
    require((whole.flags & ~kHarmless) == 0 && whole.untracked == proxy::UntrackedKind::none,
            "a plain text has no effect");
  }
}

}  // namespace
}  // namespace sluice::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  sluice::fuzz::read_text({data, size});
  return 0;
}
