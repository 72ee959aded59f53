// Cuts SQL text into tokens, in whatever pieces it arrives, in constant memory. The rules are those of PostgreSQL's
// documentation, "Lexical Structure", and of its scan.l with standard_conforming_strings on (a pool does not keep a
// connection on which it is off). Encodings whose later bytes may be quotes or backslashes are not PostgreSQL's
// client_encoding UTF8, which a pool requires as well.
//
// It is made to find where tokens begin and end, not to accept only what the server accepts: operators are not split
// into the server's ones, and of a number only the extent is known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice::wire {

enum class TokenKind : std::uint8_t {
  word,               // a keyword or an identifier without quotes; text is in lower case
  quoted_identifier,  // text is what stands between the quotes
  string,             // any form of string or bit string, with the lines that continue it
  number,
  parameter,    // $1
  symbol,       // one of ( ) [ ] , . : ; or a character that begins nothing
  operator_,    // a run of operator characters
  open_comment  // a block comment that the text ended in
};

struct Token {
  static constexpr std::size_t kTextBytes = 63;

  TokenKind kind;
  char symbol;            // symbol: the character
  bool cut;               // text is only the beginning
  bool escaped;           // U&"…": the name is not what text shows
  bool unterminated;      // the text ended inside of it
  bool calendar;          // string: may read as now, today, tomorrow, yesterday or allballs, whose meaning changes
  std::uint64_t begin;    // offsets into the whole text
  std::uint64_t end;      //
  std::string_view text;  // valid until the next call
};

class SqlLexer {
 public:
  // Takes from the front of `input` until a token is complete; false when the input is used up before that. A token is
  // complete when the byte behind it has been seen, so the last one comes from finish().
  [[nodiscard]] bool next(std::string_view& input, Token& token) noexcept;

  // Once no more input comes: the tokens that are still open, one a call; false when there is none left.
  [[nodiscard]] bool finish(Token& token) noexcept;

 private:
  enum class State : std::uint8_t {
    start,
    word,
    word_u_ampersand,  // u& : a quote makes it a prefix
    identifier,
    identifier_quote,  // a quote inside an identifier: the end, or half of a doubled one
    string,
    escape_string,
    escape_backslash,
    string_quote,  // the same for strings; then a string on a later line continues this one
    string_gap,
    string_gap_dash,
    string_gap_comment,
    dollar,
    dollar_tag,
    dollar_body,
    dollar_end,  // inside what may be the closing tag
    lost,        // a dollar quote whose tag is too long to be recognized again: the rest of the text belongs to it
    dot,
    integer,
    radix,
    fraction,
    exponent_mark,
    exponent_sign,
    exponent,
    parameter,
    operator_,
    line_comment,
    block_comment,
  };
  // What became of a byte.
  enum class Step : std::uint8_t { take, take_and_emit, emit };

  static constexpr std::size_t kTagBytes = 255;

  [[nodiscard]] Step advance(char c, Token& token) noexcept;
  [[nodiscard]] Step advance_start(char c, Token& token) noexcept;
  [[nodiscard]] Step advance_word(char c, Token& token) noexcept;
  [[nodiscard]] Step advance_identifier(char c, Token& token) noexcept;
  [[nodiscard]] Step advance_string(char c, Token& token) noexcept;
  [[nodiscard]] Step advance_string_end(char c, Token& token) noexcept;
  [[nodiscard]] Step advance_dollar(char c, Token& token) noexcept;
  [[nodiscard]] Step advance_dollar_body(char c, Token& token) noexcept;
  [[nodiscard]] Step advance_number(char c, Token& token) noexcept;
  [[nodiscard]] Step advance_operator(char c, Token& token) noexcept;
  [[nodiscard]] Step advance_comment(char c) noexcept;
  void begin(State state, std::uint64_t at) noexcept;
  void begin_string(State state) noexcept;
  void add_text(char c) noexcept;
  void add_content(char c) noexcept;
  void end_content_word() noexcept;
  void emit(Token& token, TokenKind kind, std::uint64_t end) noexcept;

  State state_ = State::start;
  State string_state_ = State::string;  // where a string goes on behind a quote
  char previous_ = 0;                   // the byte before, in operators and comments
  bool cut_ = false;
  bool escaped_ = false;
  bool calendar_ = false;
  bool newline_ = false;  // seen in the gap behind a string
  std::uint8_t text_length_ = 0;
  std::uint8_t tag_length_ = 0;
  std::uint8_t tag_matched_ = 0;
  std::uint8_t content_length_ = 0;  // of the word of letters inside a string, up to one more than the longest we know
  std::uint32_t comment_depth_ = 0;
  std::uint64_t position_ = 0;
  std::uint64_t begin_ = 0;
  std::uint64_t string_end_ = 0;
  char content_[10] = {};
  char text_[Token::kTextBytes] = {};
  char emitted_[Token::kTextBytes] = {};
  char tag_[kTagBytes] = {};
};

}  // namespace sluice::wire
