#include "wire/sql_lexer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace sluice::wire {
namespace {

using namespace std::string_literals;

struct Found {
  TokenKind kind;
  std::string source;
  std::string text;
  bool cut, escaped, unterminated, calendar;
  std::uint64_t begin, end;
  bool operator==(const Found&) const = default;
};

// Lexes `sql` in pieces of the sizes that `cut` gives.
template <typename Cut>
std::vector<Found> lex(const std::string& sql, Cut cut) {
  std::vector<Found> found;
  SqlLexer lexer;
  Token token = {};
  auto keep = [&] {
    // Tokens come in order, hold at least a byte, and stay inside the text.
    EXPECT_LT(token.begin, token.end);
    EXPECT_LE(token.end, sql.size());
    EXPECT_LE(found.empty() ? 0 : found.back().end, token.begin);
    found.push_back({token.kind, sql.substr(token.begin, token.end - token.begin), std::string(token.text), token.cut,
                     token.escaped, token.unterminated, token.calendar, token.begin, token.end});
  };
  for (std::size_t at = 0; at < sql.size();) {
    std::vector<char> part(sql.begin() + static_cast<std::ptrdiff_t>(at),
                           sql.begin() + static_cast<std::ptrdiff_t>(std::min(sql.size(), at + cut())));
    at += part.size();
    std::string_view input(part.data(), part.size());
    while (lexer.next(input, token)) keep();
    EXPECT_TRUE(input.empty());
  }
  while (lexer.finish(token)) keep();
  EXPECT_FALSE(lexer.finish(token));
  return found;
}

std::vector<Found> lex(const std::string& sql) {
  return lex(sql, [] { return std::size_t{1} << 20U; });
}

// What a text consists of: the source of each token.
std::vector<std::string> sources(const std::string& sql) {
  std::vector<std::string> all;
  for (const Found& token : lex(sql)) all.push_back(token.source);
  return all;
}

using Strings = std::vector<std::string>;

Found only(const std::string& sql) {
  std::vector<Found> found = lex(sql);
  EXPECT_EQ(found.size(), 1U) << sql;
  return found.empty() ? Found{} : found[0];
}

TEST(WireSqlLexer, IdentifiersAsTheDocumentationDefinesThem) {
  EXPECT_EQ(only("Foo_1$x").text, "foo_1$x");
  EXPECT_EQ(only("_x").kind, TokenKind::word);
  EXPECT_EQ(only("\xC3\xA4rger").kind, TokenKind::word);
  EXPECT_EQ(only("\"Fo\"\"o;\"").text, "Fo\"o;");
  EXPECT_EQ(only("\"Fo\"\"o\"").kind, TokenKind::quoted_identifier);
  EXPECT_FALSE(only("\"a\"").escaped);
  Found escaped = only("U&\"d\\0061t\\+000061\"");
  EXPECT_EQ(escaped.kind, TokenKind::quoted_identifier);
  EXPECT_TRUE(escaped.escaped);
  EXPECT_EQ(sources("U & \"x\""), (Strings{"U", "&", "\"x\""}));
  EXPECT_EQ(sources("u&x"), (Strings{"u", "&", "x"}));
  EXPECT_EQ(sources("u&--x'\n'y'"), (Strings{"u", "&", "'y'"}));
  EXPECT_FALSE(only(std::string(63, 'a')).cut);
  EXPECT_TRUE(only(std::string(64, 'a')).cut);
  EXPECT_EQ(only(std::string(64, 'a')).text, std::string(63, 'a'));
  EXPECT_EQ(sources("a$b$c$"), (Strings{"a$b$c$"}));
}

TEST(WireSqlLexer, StringsAsTheDocumentationDefinesThem) {
  const std::string whole[] = {"'Dianne''s horse'",
                               "''",
                               "''''",
                               "'a\\'",
                               "E'it\\'s'",
                               "e'\\\\'",
                               "E'a''b'",
                               "B'1001'",
                               "x'1FF'",
                               "n'abc;'",
                               "U&'d\\0061t'",
                               "u&'!+000061'",
                               "'a;--b/*'",
                               "'foo'\n'bar'",
                               "'foo' -- comment\n  'bar'",
                               "'a'\n-- b\n\n'c'",
                               "E'a'\n'\\''",
                               "'a'\r'b'",
                               "$$Dianne's horse$$",
                               "$SomeTag$Dianne's horse$SomeTag$",
                               "$$a$b$$",
                               "$a$ $b$ $$ $A$ $a$",
                               "$function$\nBEGIN\n RETURN ($1 ~ $q$[\\t\\r\\n\\v\\\\]$q$);\nEND;\n$function$",
                               "$a$$a$",
                               "$a$$$a$",
                               "$ab$ $a$ab$",
                               "$\xC3\xA4_1$x$\xC3\xA4_1$"};
  for (const std::string& sql : whole) {
    Found token = only(sql);
    EXPECT_EQ(token.kind, TokenKind::string) << sql;
    EXPECT_EQ(token.source, sql);
    EXPECT_FALSE(token.unterminated) << sql;
  }
  EXPECT_EQ(sources("'foo' 'bar'"), (Strings{"'foo'", "'bar'"}));
  EXPECT_EQ(sources("'foo' /* \n */ 'bar'"), (Strings{"'foo'", "'bar'"}));
  EXPECT_EQ(sources("'foo' - 1"), (Strings{"'foo'", "-", "1"}));
  EXPECT_EQ(sources("'foo'\n-'bar'"), (Strings{"'foo'", "-", "'bar'"}));
  EXPECT_EQ(sources("'a\\';'b'"), (Strings{"'a\\'", ";", "'b'"}));
  EXPECT_EQ(sources("se'a\\'"), (Strings{"se", "'a\\'"}));
  EXPECT_EQ(sources("E 'a\\'"), (Strings{"E", "'a\\'"}));
  EXPECT_EQ(sources("a$$;$$"), (Strings{"a$$", ";", "$$"}));
}

TEST(WireSqlLexer, DollarsThatQuoteNothing) {
  EXPECT_EQ(only("$1").kind, TokenKind::parameter);
  EXPECT_EQ(sources("$1$$;$$"), (Strings{"$1", "$$;$$"}));
  EXPECT_EQ(sources("$ab c"), (Strings{"$", "ab", "c"}));
  EXPECT_EQ(sources("$e'\\';'"), (Strings{"$", "e'\\';'"}));
  EXPECT_EQ(sources("$ $"), (Strings{"$", "$"}));
  std::string tag(255, 't');
  EXPECT_FALSE(only("$" + tag + "$ x $" + tag + "$").unterminated);
  // A longer tag cannot be recognized again; nothing behind it may be taken for a statement.
  Found lost = only("$" + tag + "t$ x $" + tag + "t$; set a = b");
  EXPECT_TRUE(lost.unterminated);
  EXPECT_TRUE(lost.cut);
}

TEST(WireSqlLexer, NumbersAsTheDocumentationDefinesThem) {
  for (const char* sql :
       {"42", "3.5", "4.", ".001", "5e2", "1.925e-3", "0x42F", "0o273", "0b1001_0110", "1_500_000_000", "1E+7"}) {
    Found token = only(sql);
    EXPECT_EQ(token.kind, TokenKind::number) << sql;
  }
  EXPECT_EQ(sources("1..2"), (Strings{"1.", ".2"}));
  EXPECT_EQ(sources("1e'\\''"), (Strings{"1", "e'\\''"}));
  EXPECT_EQ(sources("1e+x"), (Strings{"1", "+", "x"}));
  EXPECT_EQ(sources("1e--x\n;"), (Strings{"1", ";"}));
  EXPECT_EQ(sources("a.b.1"), (Strings{"a", ".", "b", ".1"}));
}

TEST(WireSqlLexer, CommentsAndOperators) {
  EXPECT_EQ(sources("a -- b ' ; \" $$\nc"), (Strings{"a", "c"}));
  EXPECT_EQ(sources("a -- b"), (Strings{"a"}));
  EXPECT_EQ(sources("a --b\rc"), (Strings{"a", "c"}));
  EXPECT_EQ(sources("a /* b /* ; ' */ -- */ c"), (Strings{"a", "c"}));
  EXPECT_EQ(sources("a /*/ b */ c"), (Strings{"a", "c"}));
  EXPECT_EQ(sources("a /**/ c"), (Strings{"a", "c"}));
  EXPECT_EQ(sources("a /***/ c"), (Strings{"a", "c"}));
  EXPECT_EQ(sources("/*/*/*/ x */ y */ z */ a"), (Strings{"a"}));
  EXPECT_EQ(sources("a*/*x*/b"), (Strings{"a", "*", "b"}));
  EXPECT_EQ(sources("a+--x\nb"), (Strings{"a", "+", "b"}));
  EXPECT_EQ(sources("a<>b||c"), (Strings{"a", "<>", "b", "||", "c"}));
  EXPECT_EQ(sources("(a[1:2],b::text)"), (Strings{"(", "a", "[", "1", ":", "2", "]", ",", "b", ":", ":", "text", ")"}));
  EXPECT_EQ(sources("- - -"), (Strings{"-", "-", "-"}));
}

TEST(WireSqlLexer, WhatTheTextEndsInIsSaid) {
  for (const char* sql :
       {"'a", "E'a\\", "'a''", "\"a", "U&\"a", "$$a", "$a$ $a", "$a$ $a b", "/* a", "/* /* */", "B'1"}) {
    EXPECT_TRUE(only(sql).unterminated) << sql;
  }
  for (const char* sql : {"'a' ", "'a' --", "'a'\n-- x", "\"a\"", "$$$$", "1e", "u&", "$", "."}) {
    for (const Found& token : lex(sql)) EXPECT_FALSE(token.unterminated) << sql;
  }
  EXPECT_TRUE(lex("").empty());
  EXPECT_TRUE(lex("--").empty());
  EXPECT_EQ(sources("'a'-"), (Strings{"'a'", "-"}));
  EXPECT_EQ(sources("1e+"), (Strings{"1", "+"}));
}

TEST(WireSqlLexer, LiteralsWhoseMeaningChangesWithTime) {
  for (const char* sql :
       {"'now'", "'NOW'", "' today '", "'tomorrow 04:05'", "'yesterday'", "'allballs'", "'today10:00'", "E'now'",
        "E'n\\157w'", "E'\\x6eow'", "E'n\\ow'", "E'a\\tnow'", "U&'n\\006fw'", "U&'n!006fw'", "$$now$$", "$t$ Today $t$",
        "'no'\n'w'", "'{now}'", "'a''now'"}) {
    EXPECT_TRUE(only(sql).calendar) << sql;
  }
  for (const char* sql :
       {"'nowhere'", "'know'", "'2024-01-01'", "''", "'no' ", "E'a\\n'", "E'it\\'s'", "'tomorrows'", "'no''w'"}) {
    EXPECT_FALSE(only(sql).calendar) << sql;
  }
  EXPECT_FALSE(only("now").calendar);
  EXPECT_FALSE(only("\"now\"").calendar);
  std::vector<Found> two = lex("'now' 'x'");
  ASSERT_EQ(two.size(), 2U);
  EXPECT_TRUE(two[0].calendar);
  EXPECT_FALSE(two[1].calendar);
}

// Fragments of everything that has a meaning, in random order: what comes out may not depend on where the text is cut.
TEST(WireSqlLexer, CuttingTheTextChangesNothing) {
  const std::string parts[] = {"'",  "''", "\"",  "$$", "$a$", "$",        "E'", "U&'", "u&\"", "B'", "--",  "/*", "*/",
                               "\n", " ",  "\\",  ";",  "(",   ")",        "a",  "e",   "1",    ".",  "+",   "-",  "*",
                               "/",  "e5", "now", "0x", "_",   "\xC3\xA4", "&",  "u",   "1e",   "\r", "\0"s, "set"};
  std::uint32_t state = 2024;
  auto random = [&state](std::size_t below) { return state = state * 1664525U + 1013904223U, (state >> 8U) % below; };
  for (int round = 0; round < 6000; round++) {
    std::string sql;
    for (std::size_t i = random(14); i > 0; i--) sql += parts[random(std::size(parts))];
    std::vector<Found> whole = lex(sql);
    EXPECT_EQ(lex(sql, [] { return std::size_t{1}; }), whole) << sql;
    EXPECT_EQ(lex(sql, [&] { return 1 + random(5); }), whole) << sql;
    for (std::size_t cut = 0; cut < sql.size(); cut++) static_cast<void>(lex(sql.substr(0, cut)));
  }
}

TEST(WireSqlLexer, RandomBytesEndAndStayInside) {
  std::uint32_t state = 77;
  auto random = [&state](std::size_t below) { return state = state * 1664525U + 1013904223U, (state >> 8U) % below; };
  for (int round = 0; round < 3000; round++) {
    std::string sql(random(64), '\0');
    for (char& c : sql) c = static_cast<char>(random(round % 2 == 0 ? 256 : 128));
    EXPECT_EQ(lex(sql, [&] { return 1 + random(7); }), lex(sql));
  }
}

}  // namespace
}  // namespace sluice::wire
