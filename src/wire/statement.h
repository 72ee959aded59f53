// Splits SQL text into statements and says of each what a transaction pooler must know: what it does to the
// transaction, to the session's settings and to other state that outlives a transaction.
//
// This is a trigger, not a parser. It looks at leading keywords and at a few names anywhere, so what a function, a DO
// block or a rule does inside stays unseen; a caller that must be sure asks the server afterwards. Where the words
// themselves may mislead, a flag says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "wire/sql_lexer.h"

namespace sluice::wire {

enum class StatementKind : std::uint8_t {
  empty,
  // Transactions.
  begin,
  commit,
  rollback,
  savepoint,
  release_savepoint,
  rollback_to_savepoint,
  prepare_transaction,
  commit_prepared,
  rollback_prepared,
  // Settings. name is the parameter, in lower case.
  set,
  set_local,
  set_transaction,              // this transaction only
  set_session_characteristics,  // the session's default_transaction_…
  set_constraints,
  reset,
  reset_all,
  show,
  discard_all,
  discard_temporary,
  discard_other,  // PLANS, SEQUENCES
  // Statements and cursors that have names. name is theirs.
  prepare,
  execute,
  deallocate,
  deallocate_all,
  declare_cursor,
  fetch,
  close_cursor,
  // Notifications.
  listen,
  unlisten,
  notify,
  // COPY, by where the data goes.
  copy_from_client,
  copy_to_client,
  copy_on_server,
  // The rest.
  query,   // SELECT, VALUES, TABLE, WITH
  modify,  // INSERT, UPDATE, DELETE, MERGE
  explain,
  do_block,
  call,
  lock,
  load,
  create,
  change_schema,  // ALTER, DROP, TRUNCATE, GRANT and so on
  maintain,       // VACUUM, ANALYZE, CLUSTER, REINDEX, CHECKPOINT
  other,
};

// Facts that stand beside the kind.
enum StatementFlag : std::uint32_t {
  kHoldsCursor = 1U << 0U,        // DECLARE … WITH HOLD
  kTemporary = 1U << 1U,          // makes a temporary relation, or names the schema pg_temp
  kMentionsSetConfig = 1U << 2U,  // set_config, as a word or a quoted name
  kAdvisoryLock = 1U << 3U,       // pg_advisory_lock… or pg_try_advisory_lock…: held beyond the transaction
  kCalendarLiteral = 1U << 4U,    // a literal that may read as now, today, tomorrow, yesterday or allballs
  kChain = 1U << 5U,              // COMMIT or ROLLBACK AND CHAIN: a transaction goes on
  kEscapedName = 1U << 6U,        // U&"…": any of the names looked for may hide behind it
  kUnterminated = 1U << 7U,       // the text ended inside of a quote or comment
  kAtomicBody = 1U << 8U,  // CREATE … BEGIN ATOMIC: where it ends is a guess, more statements may follow inside it
  kNameCut = 1U << 9U,     // name is longer than fits, or cannot be known: treat it as any name
};

struct Statement {
  static constexpr std::size_t kNameBytes = 191;  // three identifiers with their dots

  StatementKind kind;
  std::uint32_t flags;
  std::uint64_t begin;  // offsets into the whole text: first token to the last one, without the semicolon
  std::uint64_t end;
  std::string_view name;  // valid until the next call
};

class StatementSplitter {
 public:
  // Takes from the front of `input` until a semicolon ends a statement; false when the input is used up before that.
  // Statements without a token are not reported: the server does not see them either.
  [[nodiscard]] bool next(std::string_view& input, Statement& statement) noexcept;
  // Once no more input comes: the last statement; false if there is none.
  [[nodiscard]] bool finish(Statement& statement) noexcept;

 private:
  struct Lead {
    TokenKind kind;
    char symbol;
    bool cut;
    bool escaped;
    std::uint8_t length;
    char text[Token::kTextBytes];
  };
  enum class CopyWay : std::uint8_t { unknown, from, to, from_client, to_client, on_server };
  static constexpr std::size_t kLeads = 16;

  [[nodiscard]] bool is_word(std::size_t index, std::string_view word) const noexcept;
  [[nodiscard]] bool is_symbol(std::size_t index, char symbol) const noexcept;
  [[nodiscard]] bool add(const Token& token, Statement& statement) noexcept;
  void note_lead(const Token& token) noexcept;
  void note_flags(const Token& token) noexcept;
  void note_sequences(const Token& token) noexcept;
  void note_body(const Token& token) noexcept;
  void note_copy(const Token& token) noexcept;
  void complete(Statement& statement) noexcept;
  [[nodiscard]] StatementKind classify() noexcept;
  [[nodiscard]] StatementKind classify_transaction() noexcept;
  [[nodiscard]] StatementKind classify_setting() noexcept;
  [[nodiscard]] StatementKind classify_set_rest(std::size_t at, StatementKind plain) noexcept;
  [[nodiscard]] StatementKind classify_named() noexcept;
  [[nodiscard]] bool begins_assignment(std::size_t at) const noexcept;
  void set_name(std::string_view name) noexcept;
  void take_name(std::size_t at) noexcept;
  void take_parameter_name(std::size_t at) noexcept;

  SqlLexer lexer_;
  Lead leads_[kLeads] = {};
  std::size_t lead_count_ = 0;
  std::uint64_t tokens_ = 0;
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
  std::uint32_t flags_ = 0;
  std::uint32_t parentheses_ = 0;
  std::uint32_t body_depth_ = 0;
  CopyWay copy_ = CopyWay::unknown;
  // The last words as far as sequences are looked for: "cursor with hold", "create temporary", "begin atomic".
  std::uint8_t cursor_words_ = 0;
  bool may_be_temporary_ = false;
  bool after_begin_ = false;
  std::size_t name_length_ = 0;
  char name_[Statement::kNameBytes] = {};
};

}  // namespace sluice::wire
