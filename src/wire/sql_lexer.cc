#include "wire/sql_lexer.h"

#include <algorithm>
#include <cstring>

namespace sluice::wire {
namespace {

bool is_blank(char c) noexcept { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_newline(char c) noexcept { return c == '\n' || c == '\r'; }
bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
char lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool is_letter(char c) noexcept { return lower(c) >= 'a' && lower(c) <= 'z'; }
bool begins_word(char c) noexcept { return is_letter(c) || c == '_' || static_cast<unsigned char>(c) >= 0x80; }
bool continues_tag(char c) noexcept { return begins_word(c) || is_digit(c); }
bool continues_word(char c) noexcept { return continues_tag(c) || c == '$'; }
bool is_operator(char c) noexcept { return c != 0 && std::strchr("~!@#^&|`?+-*/%<>=", c) != nullptr; }

}  // namespace

void SqlLexer::begin(State state, std::uint64_t at) noexcept {
  state_ = state;
  begin_ = at;
  text_length_ = content_length_ = 0;
  cut_ = escaped_ = calendar_ = false;
}

// A prefix keeps its begin: E'…' begins with the E.
void SqlLexer::begin_string(State state) noexcept {
  state_ = string_state_ = state;
  text_length_ = 0;
}

void SqlLexer::add_text(char c) noexcept {
  if (text_length_ < sizeof(text_)) {
    text_[text_length_++] = c;
  } else {
    cut_ = true;
  }
}

// The server takes a run of letters in a date for a word, whatever stands around it ("today 10:00").
void SqlLexer::add_content(char c) noexcept {
  if (!is_letter(c)) {
    end_content_word();
  } else if (content_length_ < sizeof(content_)) {
    content_[content_length_++] = lower(c);
  }
}

void SqlLexer::end_content_word() noexcept {
  std::string_view word(content_, content_length_);
  if (word == "now" || word == "today" || word == "tomorrow" || word == "yesterday" || word == "allballs") {
    calendar_ = true;
  }
  content_length_ = 0;
}

void SqlLexer::emit(Token& token, TokenKind kind, std::uint64_t end) noexcept {
  if (kind == TokenKind::string) end_content_word();
  std::memcpy(emitted_, text_, text_length_);
  bool named = kind == TokenKind::word || kind == TokenKind::quoted_identifier;
  token = {kind, 0, cut_, escaped_, false, kind == TokenKind::string && calendar_, begin_, end, {}};
  if (named) token.text = {emitted_, text_length_};
  if (kind == TokenKind::symbol) token.symbol = text_[0];
  state_ = State::start;
}

SqlLexer::Step SqlLexer::advance_start(char c, Token& token) noexcept {
  if (is_blank(c)) return Step::take;
  begin(State::start, position_);
  if (begins_word(c)) {
    state_ = State::word;
    add_text(lower(c));
  } else if (is_digit(c)) {
    state_ = State::integer;
    previous_ = c;
  } else if (c == '\'') {
    begin_string(State::string);
  } else if (c == '"') {
    state_ = State::identifier;
  } else if (c == '$') {
    state_ = State::dollar;
  } else if (c == '.') {
    state_ = State::dot;
  } else if (is_operator(c)) {
    state_ = State::operator_;
    previous_ = c;
  } else {
    add_text(c);
    emit(token, TokenKind::symbol, position_ + 1);
    return Step::take_and_emit;
  }
  return Step::take;
}

SqlLexer::Step SqlLexer::advance_word(char c, Token& token) noexcept {
  char only = text_length_ == 1 ? text_[0] : '\0';
  if (state_ == State::word_u_ampersand) {
    if (c == '\'' || c == '"') {
      // What the escapes stand for depends on a UESCAPE that may follow: it could be anything.
      escaped_ = calendar_ = true;
      if (c == '\'') {
        begin_string(State::string);
      } else {
        text_length_ = 0;
        state_ = State::identifier;
      }
      return Step::take;
    }
    emit(token, TokenKind::word, position_ - 1);
    begin(State::operator_, position_ - 1);
    previous_ = '&';
    return Step::emit;
  }
  if (continues_word(c)) {
    add_text(lower(c));
    return Step::take;
  }
  if (c == '\'' && (only == 'e' || only == 'b' || only == 'x' || only == 'n')) {
    begin_string(only == 'e' ? State::escape_string : State::string);
    return Step::take;
  }
  if (c == '&' && only == 'u') {
    state_ = State::word_u_ampersand;
    return Step::take;
  }
  emit(token, TokenKind::word, position_);
  return Step::emit;
}

SqlLexer::Step SqlLexer::advance_identifier(char c, Token& token) noexcept {
  if (state_ == State::identifier) {
    if (c == '"') {
      state_ = State::identifier_quote;
    } else {
      add_text(c);
    }
    return Step::take;
  }
  if (c == '"') {
    add_text(c);
    state_ = State::identifier;
    return Step::take;
  }
  emit(token, TokenKind::quoted_identifier, position_);
  return Step::emit;
}

SqlLexer::Step SqlLexer::advance_string(char c, Token& token) noexcept {
  switch (state_) {
    case State::escape_backslash:
      // Apart from the control characters an escape may stand for any letter.
      if ((is_letter(c) || is_digit(c)) && std::strchr("bfnrt", c) == nullptr) calendar_ = true;
      add_content(' ');
      state_ = State::escape_string;
      return Step::take;
    case State::string:
    case State::escape_string:
      if (c == '\'') {
        string_end_ = position_ + 1;
        state_ = State::string_quote;
      } else if (c == '\\' && state_ == State::escape_string) {
        state_ = State::escape_backslash;
      } else {
        add_content(c);
      }
      return Step::take;
    default:
      return advance_string_end(c, token);
  }
}

// Behind a quote. Another quote at once is a doubled one; one after blanks with a line break, and after comments of the
// "--" form, goes on with the same string.
SqlLexer::Step SqlLexer::advance_string_end(char c, Token& token) noexcept {
  if (state_ == State::string_quote) {
    if (c == '\'') {
      add_content(c);
      state_ = string_state_;
      return Step::take;
    }
    newline_ = false;
    state_ = State::string_gap;
  }
  if (state_ == State::string_gap_comment) {
    if (is_newline(c)) {
      newline_ = true;
      state_ = State::string_gap;
    }
    return Step::take;
  }
  if (state_ == State::string_gap_dash) {
    if (c == '-') {
      state_ = State::string_gap_comment;
      return Step::take;
    }
    emit(token, TokenKind::string, string_end_);
    begin(State::operator_, position_ - 1);
    previous_ = '-';
    return Step::emit;
  }
  if (is_blank(c)) {
    newline_ = newline_ || is_newline(c);
  } else if (c == '-') {
    state_ = State::string_gap_dash;
  } else if (c == '\'' && newline_) {
    state_ = string_state_;
  } else {
    emit(token, TokenKind::string, string_end_);
    return Step::emit;
  }
  return Step::take;
}

SqlLexer::Step SqlLexer::advance_dollar(char c, Token& token) noexcept {
  if (state_ == State::dollar) {
    tag_length_ = 0;
    if (is_digit(c)) {
      state_ = State::parameter;
      return Step::take;
    }
    if (begins_word(c)) state_ = State::dollar_tag;
  }
  if (c == '$') {
    state_ = cut_ ? State::lost : State::dollar_body;
    return Step::take;
  }
  if (state_ == State::dollar_tag && continues_tag(c)) {
    if (tag_length_ < kTagBytes) {
      tag_[tag_length_++] = c;
    } else {
      cut_ = true;
    }
    return Step::take;
  }
  // No dollar quote after all: the server takes the dollar for a character of its own and the rest for a word.
  bool was_cut = cut_;
  text_length_ = 0;
  add_text('$');
  cut_ = false;
  bool word = state_ == State::dollar_tag;
  emit(token, TokenKind::symbol, begin_ + 1);
  if (word) {
    begin(State::word, begin_ + 1);
    for (std::size_t i = 0; i < tag_length_; i++) add_text(lower(tag_[i]));
    cut_ = cut_ || was_cut;
  }
  return Step::emit;
}

SqlLexer::Step SqlLexer::advance_dollar_body(char c, Token& token) noexcept {
  if (state_ == State::lost) return Step::take;
  if (state_ == State::dollar_end) {
    if (tag_matched_ == tag_length_ && c == '$') {
      emit(token, TokenKind::string, position_ + 1);
      return Step::take_and_emit;
    }
    if (tag_matched_ < tag_length_ && c == tag_[tag_matched_]) {
      tag_matched_++;
      add_content(c);
      return Step::take;
    }
    state_ = State::dollar_body;
  }
  // A tag holds no dollar, so a new one is the only place where the closing tag can begin.
  if (c == '$') {
    state_ = State::dollar_end;
    tag_matched_ = 0;
  }
  add_content(c);
  return Step::take;
}

SqlLexer::Step SqlLexer::advance_number(char c, Token& token) noexcept {
  bool exponent = c == 'e' || c == 'E';
  switch (state_) {
    case State::dot:
      if (!is_digit(c)) {
        add_text('.');
        emit(token, TokenKind::symbol, position_);
        return Step::emit;
      }
      state_ = State::fraction;
      return Step::take;
    case State::integer:
      if (is_digit(c) || c == '_') return Step::take;
      if (c == '.') state_ = State::fraction;
      if (exponent) state_ = State::exponent_mark;
      if (previous_ == '0' && position_ == begin_ + 1 && std::strchr("xXoObB", c) != nullptr && c != 0) {
        state_ = State::radix;
      }
      if (state_ != State::integer) return Step::take;
      break;
    case State::radix:
      if (continues_tag(c)) return Step::take;
      break;
    case State::fraction:
      if (exponent) state_ = State::exponent_mark;
      if (exponent || is_digit(c) || c == '_') return Step::take;
      break;
    case State::exponent_mark:
    case State::exponent_sign:
      if (is_digit(c) || (state_ == State::exponent_mark && (c == '+' || c == '-'))) {
        state_ = is_digit(c) ? State::exponent : State::exponent_sign;
        previous_ = c;
        return Step::take;
      }
      // Not an exponent: the letter begins a word, or a string if a quote follows; the sign is an operator.
      if (state_ == State::exponent_mark) {
        emit(token, TokenKind::number, position_ - 1);
        begin(State::word, position_ - 1);
        add_text('e');
      } else {
        emit(token, TokenKind::number, position_ - 2);
        begin(State::operator_, position_ - 1);
      }
      return Step::emit;
    default:
      if (is_digit(c) || (c == '_' && state_ == State::exponent)) return Step::take;
      break;
  }
  emit(token, state_ == State::parameter ? TokenKind::parameter : TokenKind::number, position_);
  return Step::emit;
}

SqlLexer::Step SqlLexer::advance_operator(char c, Token& token) noexcept {
  bool line = previous_ == '-' && c == '-';
  bool block = previous_ == '/' && c == '*';
  if (line || block) {
    State comment = line ? State::line_comment : State::block_comment;
    bool operator_before = position_ - begin_ > 1;
    if (operator_before) emit(token, TokenKind::operator_, position_ - 1);
    begin(comment, position_ - 1);
    comment_depth_ = 1;
    previous_ = 0;
    return operator_before ? Step::take_and_emit : Step::take;
  }
  if (is_operator(c)) {
    previous_ = c;
    return Step::take;
  }
  emit(token, TokenKind::operator_, position_);
  return Step::emit;
}

SqlLexer::Step SqlLexer::advance_comment(char c) noexcept {
  if (state_ == State::line_comment) {
    if (is_newline(c)) state_ = State::start;
    return Step::take;
  }
  char before = previous_;
  previous_ = c;
  if (before == '*' && c == '/') {
    comment_depth_--;
    previous_ = 0;
  } else if (before == '/' && c == '*') {
    comment_depth_++;
    previous_ = 0;
  }
  if (comment_depth_ == 0) state_ = State::start;
  return Step::take;
}

SqlLexer::Step SqlLexer::advance(char c, Token& token) noexcept {
  switch (state_) {
    case State::start:
      return advance_start(c, token);
    case State::word:
    case State::word_u_ampersand:
      return advance_word(c, token);
    case State::identifier:
    case State::identifier_quote:
      return advance_identifier(c, token);
    case State::string:
    case State::escape_string:
    case State::escape_backslash:
    case State::string_quote:
    case State::string_gap:
    case State::string_gap_dash:
    case State::string_gap_comment:
      return advance_string(c, token);
    case State::dollar:
    case State::dollar_tag:
      return advance_dollar(c, token);
    case State::dollar_body:
    case State::dollar_end:
    case State::lost:
      return advance_dollar_body(c, token);
    case State::operator_:
      return advance_operator(c, token);
    case State::line_comment:
    case State::block_comment:
      return advance_comment(c);
    default:
      return advance_number(c, token);
  }
}

bool SqlLexer::next(std::string_view& input, Token& token) noexcept {
  Step step = Step::take;
  std::size_t at = 0;
  while (step == Step::take && at < input.size()) {
    step = advance(input[at], token);
    if (step == Step::emit) break;
    at++;
    position_++;
  }
  input.remove_prefix(at);
  return step != Step::take;
}

bool SqlLexer::finish(Token& token) noexcept {
  switch (state_) {
    case State::start:
    case State::line_comment:
      state_ = State::start;
      return false;
    case State::block_comment:
      emit(token, TokenKind::open_comment, position_);
      token.unterminated = true;
      return true;
    case State::identifier:
      emit(token, TokenKind::quoted_identifier, position_);
      token.unterminated = true;
      return true;
    case State::string:
    case State::escape_string:
    case State::escape_backslash:
    case State::dollar_body:
    case State::dollar_end:
    case State::lost:
      emit(token, TokenKind::string, position_);
      token.unterminated = true;
      return true;
    case State::string_gap_comment:
      emit(token, TokenKind::string, string_end_);
      return true;
    default:
      // A line break ends whatever is left and begins nothing; it is not counted as text. A string may be continued on
      // the next line, so it takes a comma.
      static_cast<void>(advance(state_ == State::string_quote || state_ == State::string_gap ? ',' : '\n', token));
      return true;
  }
}

}  // namespace sluice::wire
