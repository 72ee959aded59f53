#include "wire/statement.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <iterator>

namespace sluice::wire {
namespace {

struct Leading {
  std::string_view word;
  StatementKind kind;
};

// Statements that their first word tells. The ones that need a second look are classified by functions of their own.
constexpr Leading kLeading[] = {
    {"select", StatementKind::query},
    {"values", StatementKind::query},
    {"table", StatementKind::query},
    {"with", StatementKind::query},
    {"insert", StatementKind::modify},
    {"update", StatementKind::modify},
    {"delete", StatementKind::modify},
    {"merge", StatementKind::modify},
    {"create", StatementKind::create},
    {"explain", StatementKind::explain},
    {"do", StatementKind::do_block},
    {"call", StatementKind::call},
    {"lock", StatementKind::lock},
    {"load", StatementKind::load},
    {"show", StatementKind::show},
    {"fetch", StatementKind::fetch},
    {"move", StatementKind::fetch},
    {"notify", StatementKind::notify},
    {"alter", StatementKind::change_schema},
    {"drop", StatementKind::change_schema},
    {"truncate", StatementKind::change_schema},
    {"grant", StatementKind::change_schema},
    {"revoke", StatementKind::change_schema},
    {"comment", StatementKind::change_schema},
    {"security", StatementKind::change_schema},
    {"reassign", StatementKind::change_schema},
    {"import", StatementKind::change_schema},
    {"refresh", StatementKind::change_schema},
    {"vacuum", StatementKind::maintain},
    {"analyze", StatementKind::maintain},
    {"analyse", StatementKind::maintain},
    {"cluster", StatementKind::maintain},
    {"reindex", StatementKind::maintain},
    {"checkpoint", StatementKind::maintain},
};

}  // namespace

bool StatementSplitter::is_word(std::size_t index, std::string_view word) const noexcept {
  return index < lead_count_ && leads_[index].kind == TokenKind::word &&
         std::string_view(leads_[index].text, leads_[index].length) == word;
}

bool StatementSplitter::is_symbol(std::size_t index, char symbol) const noexcept {
  return index < lead_count_ && leads_[index].kind == TokenKind::symbol && leads_[index].symbol == symbol;
}

void StatementSplitter::set_name(std::string_view name) noexcept {
  std::size_t room = std::min(name.size(), sizeof(name_) - name_length_);
  if (room < name.size()) flags_ |= kNameCut;
  if (room > 0) std::memcpy(name_ + name_length_, name.data(), room);
  name_length_ += room;
}

// An identifier, quoted or not. Whatever else stands there, the server will not take it for a name.
void StatementSplitter::take_name(std::size_t at) noexcept {
  if (at >= lead_count_) return;
  const Lead& lead = leads_[at];
  if (lead.kind != TokenKind::word && lead.kind != TokenKind::quoted_identifier) return;
  set_name({lead.text, lead.length});
  if (lead.cut || lead.escaped) flags_ |= kNameCut;
}

// Names of parameters may have parts, and are compared without regard to case even when quoted.
void StatementSplitter::take_parameter_name(std::size_t at) noexcept {
  take_name(at);
  while (is_symbol(at + 1, '.')) {
    set_name(".");
    at += 2;
    take_name(at);
  }
  if (at + 1 >= kLeads) flags_ |= kNameCut;
  for (std::size_t i = 0; i < name_length_; i++) {
    if (name_[i] >= 'A' && name_[i] <= 'Z') name_[i] = static_cast<char>(name_[i] - 'A' + 'a');
  }
}

// Words such as "local" or "role" are keywords of SET only where no assignment to a parameter of that name follows.
bool StatementSplitter::begins_assignment(std::size_t at) const noexcept {
  if (at < lead_count_ && leads_[at].kind == TokenKind::quoted_identifier) return true;
  bool equals = at + 1 < lead_count_ && leads_[at + 1].kind == TokenKind::operator_ && leads_[at + 1].length == 0;
  return equals || is_symbol(at + 1, '.') || is_word(at + 1, "to") ||
         (is_word(at + 1, "from") && is_word(at + 2, "current"));
}

StatementKind StatementSplitter::classify_set_rest(std::size_t at, StatementKind plain) noexcept {
  if (begins_assignment(at)) {
    take_parameter_name(at);
  } else if (is_word(at, "transaction")) {
    return StatementKind::set_transaction;
  } else if (is_word(at, "session") && is_word(at + 1, "characteristics")) {
    return StatementKind::set_session_characteristics;
  } else if (is_word(at, "session") && is_word(at + 1, "authorization")) {
    set_name("session_authorization");
  } else if (is_word(at, "time") && is_word(at + 1, "zone")) {
    set_name("timezone");
  } else if (is_word(at, "names")) {
    set_name("client_encoding");
  } else if (is_word(at, "schema")) {
    set_name("search_path");
  } else if (is_word(at, "xml")) {
    set_name("xmloption");
  } else {
    take_parameter_name(at);  // ROLE, and whatever the server will refuse
  }
  return plain;
}

StatementKind StatementSplitter::classify_setting() noexcept {
  if (is_word(0, "set")) {
    if (begins_assignment(1)) return classify_set_rest(1, StatementKind::set);
    if (is_word(1, "constraints")) return StatementKind::set_constraints;
    if (is_word(1, "local")) return classify_set_rest(2, StatementKind::set_local);
    bool session = is_word(1, "session") && !is_word(2, "characteristics") && !is_word(2, "authorization");
    return classify_set_rest(session ? 2 : 1, StatementKind::set);
  }
  if (is_word(0, "reset")) {
    if (is_word(1, "all")) return StatementKind::reset_all;
    if (is_word(1, "time")) {
      set_name("timezone");
    } else if (is_word(1, "session") && is_word(2, "authorization")) {
      set_name("session_authorization");
    } else if (is_word(1, "transaction") && is_word(2, "isolation")) {
      set_name("transaction_isolation");
    } else {
      take_parameter_name(1);
    }
    return StatementKind::reset;
  }
  if (is_word(1, "all")) return StatementKind::discard_all;
  return is_word(1, "temp") || is_word(1, "temporary") ? StatementKind::discard_temporary
                                                       : StatementKind::discard_other;
}

StatementKind StatementSplitter::classify_transaction() noexcept {
  if (is_word(0, "begin") || is_word(0, "start")) return StatementKind::begin;
  if (is_word(0, "savepoint")) {
    take_name(1);
    return StatementKind::savepoint;
  }
  if (is_word(0, "release")) {
    // "savepoint" may be left out, and may be a name.
    take_name(is_word(1, "savepoint") && lead_count_ > 2 ? 2 : 1);
    return StatementKind::release_savepoint;
  }
  bool commits = is_word(0, "commit") || is_word(0, "end");
  if (is_word(1, "prepared")) return commits ? StatementKind::commit_prepared : StatementKind::rollback_prepared;
  std::size_t at = is_word(1, "work") || is_word(1, "transaction") ? 2 : 1;
  if (!commits && is_word(at, "to")) {
    at++;
    take_name(is_word(at, "savepoint") && lead_count_ > at + 1 ? at + 1 : at);
    return StatementKind::rollback_to_savepoint;
  }
  if (is_word(at, "and") && is_word(at + 1, "chain")) flags_ |= kChain;
  return commits ? StatementKind::commit : StatementKind::rollback;
}

StatementKind StatementSplitter::classify_named() noexcept {
  if (is_word(0, "prepare")) {
    if (is_word(1, "transaction") && lead_count_ > 2 && leads_[2].kind == TokenKind::string) {
      return StatementKind::prepare_transaction;
    }
    take_name(1);
    return StatementKind::prepare;
  }
  if (is_word(0, "deallocate")) {
    std::size_t at = is_word(1, "prepare") && lead_count_ > 2 ? 2 : 1;
    if (is_word(at, "all")) return StatementKind::deallocate_all;
    take_name(at);
    return StatementKind::deallocate;
  }
  take_name(1);
  if (is_word(0, "execute")) return StatementKind::execute;
  if (is_word(0, "declare")) return StatementKind::declare_cursor;
  if (is_word(0, "close")) return StatementKind::close_cursor;
  return is_word(0, "listen") ? StatementKind::listen : StatementKind::unlisten;
}

StatementKind StatementSplitter::classify() noexcept {
  if (lead_count_ == 0) return StatementKind::empty;
  if (is_symbol(0, '(')) return StatementKind::query;
  if (leads_[0].kind != TokenKind::word) return StatementKind::other;
  std::string_view first(leads_[0].text, leads_[0].length);
  for (std::string_view word : {"begin", "start", "commit", "end", "rollback", "abort", "savepoint", "release"}) {
    if (first == word) return classify_transaction();
  }
  for (std::string_view word : {"prepare", "execute", "deallocate", "declare", "close", "listen", "unlisten"}) {
    if (first == word) return classify_named();
  }
  if (first == "set" || first == "reset" || first == "discard") return classify_setting();
  if (first == "copy") {
    if (copy_ == CopyWay::from_client) return StatementKind::copy_from_client;
    return copy_ == CopyWay::to_client ? StatementKind::copy_to_client : StatementKind::copy_on_server;
  }
  for (const Leading& leading : kLeading) {
    if (first == leading.word) return leading.kind;
  }
  return StatementKind::other;
}

void StatementSplitter::note_lead(const Token& token) noexcept {
  if (lead_count_ == kLeads) return;
  Lead& lead = leads_[lead_count_++];
  lead.kind = token.kind;
  lead.symbol = token.symbol;
  lead.cut = token.cut;
  lead.escaped = token.escaped;
  lead.length = static_cast<std::uint8_t>(token.text.size());
  if (!token.text.empty()) std::memcpy(lead.text, token.text.data(), token.text.size());
}

void StatementSplitter::note_flags(const Token& token) noexcept {
  if (token.unterminated) flags_ |= kUnterminated;
  if (token.calendar) flags_ |= kCalendarLiteral;
  if (token.kind != TokenKind::word && token.kind != TokenKind::quoted_identifier) return;
  if (token.escaped) flags_ |= kEscapedName;
  if (token.text == "set_config") flags_ |= kMentionsSetConfig;
  if (token.text == "pg_temp" || token.text.starts_with("pg_temp_")) flags_ |= kTemporary;
  if (token.text.starts_with("pg_advisory_lock") || token.text.starts_with("pg_try_advisory_lock")) {
    flags_ |= kAdvisoryLock;
  }
}

// Words that mean something one behind the other, anywhere in a statement.
void StatementSplitter::note_sequences(const Token& token) noexcept {
  std::string_view word = token.kind == TokenKind::word ? token.text : std::string_view();
  if (is_word(0, "declare")) {
    constexpr std::string_view kHold[] = {"cursor", "with", "hold"};
    bool goes_on = word == kHold[cursor_words_];
    cursor_words_ = static_cast<std::uint8_t>(goes_on ? cursor_words_ + 1 : (word == kHold[0] ? 1 : 0));
    if (cursor_words_ == std::size(kHold)) {
      flags_ |= kHoldsCursor;
      cursor_words_ = 0;
    }
  }
  // CREATE [OR REPLACE] and SELECT … INTO, with GLOBAL or LOCAL between, also below EXPLAIN ANALYZE. A table of that
  // name in INSERT INTO is none.
  bool into = word == "into" && !is_word(0, "insert") && !is_word(0, "merge");
  if (may_be_temporary_ && (word == "temp" || word == "temporary")) flags_ |= kTemporary;
  bool between = may_be_temporary_ && (word == "local" || word == "global");
  may_be_temporary_ = into || between || word == "create" || word == "replace";
}

// BEGIN ATOMIC … END holds semicolons that end no statement. Counted as psql does it; a column that is called "case" or
// "end" misleads both, hence the flag.
void StatementSplitter::note_body(const Token& token) noexcept {
  if (parentheses_ > 0 || !is_word(0, "create")) return;
  std::string_view word = token.kind == TokenKind::word ? token.text : std::string_view();
  if (body_depth_ > 0) {
    if (word == "case") body_depth_++;
    if (word == "end") body_depth_--;
  } else if (after_begin_ && word == "atomic") {
    body_depth_ = 1;
    flags_ |= kAtomicBody;
  }
  after_begin_ = word == "begin";
}

// COPY … FROM or TO, outside of parentheses, and what follows it: the server takes STDIN and STDOUT for the same.
void StatementSplitter::note_copy(const Token& token) noexcept {
  if (parentheses_ > 0 || !is_word(0, "copy")) return;
  std::string_view word = token.kind == TokenKind::word ? token.text : std::string_view();
  if (copy_ == CopyWay::unknown && tokens_ > 1) {
    if (word == "from") copy_ = CopyWay::from;
    if (word == "to") copy_ = CopyWay::to;
  } else if (copy_ == CopyWay::from || copy_ == CopyWay::to) {
    bool client = word == "stdin" || word == "stdout";
    CopyWay way = copy_ == CopyWay::from ? CopyWay::from_client : CopyWay::to_client;
    copy_ = client ? way : CopyWay::on_server;
  }
}

void StatementSplitter::complete(Statement& statement) noexcept {
  name_length_ = 0;
  StatementKind kind = classify();
  statement = {kind, flags_, begin_, end_, {name_, name_length_}};
  lead_count_ = 0;
  tokens_ = 0;
  flags_ = 0;
  parentheses_ = body_depth_ = 0;
  copy_ = CopyWay::unknown;
  cursor_words_ = 0;
  may_be_temporary_ = after_begin_ = false;
}

// True when the token ended a statement.
bool StatementSplitter::add(const Token& token, Statement& statement) noexcept {
  bool symbol = token.kind == TokenKind::symbol;
  if (symbol && token.symbol == ';' && parentheses_ == 0 && body_depth_ == 0) {
    if (tokens_ == 0) return false;
    complete(statement);
    return true;
  }
  if (tokens_++ == 0) begin_ = token.begin;
  end_ = token.end;
  note_lead(token);
  note_flags(token);
  note_sequences(token);
  note_body(token);
  note_copy(token);
  if (symbol && token.symbol == '(') parentheses_++;
  if (symbol && token.symbol == ')' && parentheses_ > 0) parentheses_--;
  return false;
}

bool StatementSplitter::next(std::string_view& input, Statement& statement) noexcept {
  Token token = {};
  while (lexer_.next(input, token)) {
    if (add(token, statement)) return true;
  }
  return false;
}

bool StatementSplitter::finish(Statement& statement) noexcept {
  Token token = {};
  while (lexer_.finish(token)) {
    if (add(token, statement)) return true;
  }
  if (tokens_ == 0) return false;
  complete(statement);
  return true;
}

}  // namespace sluice::wire
