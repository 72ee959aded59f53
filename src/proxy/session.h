// One client that is logged in, relayed to whichever server connection it is assigned, in transaction pooling. It takes
// bytes, events and the time, and answers with bytes and wishes; its owner has the descriptors and the pool.
//
// What the owner does:
//  - Bytes of the client go to take_client(), which may leave some: they are offered again, with what came behind them,
//    after anything else happened to the session. So the owner must be able to keep kInputBytes; more it need not.
//  - Bytes of the server go to take_server(), all of them.
//  - After each call it looks at wants(), and at next_deadline() when it goes to sleep.
//  - Spans given to Output stay valid until the call returns that gave them, so that they can be sent together.
// A session whose client is gone lives on until done(): the server may have to finish, or to be rolled back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/guard.h"
#include "proxy/output.h"
#include "proxy/reply_queue.h"
#include "proxy/scratch.h"
#include "proxy/server_state.h"
#include "proxy/session_options.h"
#include "proxy/settings.h"
#include "proxy/span_joiner.h"
#include "proxy/statements.h"
#include "proxy/text_effects.h"
#include "proxy/time.h"
#include "wire/error_response.h"
#include "wire/frontend_messages.h"

namespace sluice::proxy {

enum class Departure : std::uint8_t {
  in_order,  // Terminate or the end of the stream: what was sent is carried out
  reset,     // nobody is there to care
};

// Why a server connection must not be used again.
enum class Discard : std::uint8_t {
  none,
  client_left,         // in a message, in a query, or in a transaction that could not be rolled back
  cancelled,           // a cancel was sent during the assignment (strict)
  parameters_changed,  // strict: ParameterStatus differs
  unsafe_text,         // strict: standard_conforming_strings or client_encoding, if only for a moment
  settings,            // settings that cannot be established or undone
  untracked,           // it carries what the next client must not see
  idle_in_transaction,
  client_stalled,
  refused,  // strict: the client was refused in the middle of something
  server_fatal,
  server_protocol,
  copy,  // a COPY that the session's profile does not know, or that ended where none can tell
};

// Why a session was ended by the proxy; for the metrics.
enum class SessionEnd : std::uint8_t {
  none,
  refused_by_pool,
  unsupported,
  protocol,
  idle_in_transaction,
  client_stalled,
  server_lost,
  server_fatal,
  server_protocol,
  setup_failed,
  shut_down,
};

struct Wants {
  bool server = false;              // the next message needs a server connection
  bool release = false;             // the server connection is clean and idle: take it back
  Discard discard = Discard::none;  // take it back and close it
  bool cancel = false;              // what it runs is to be cancelled; until the connection was taken back
  bool close = false;               // send what was given out, then close the client's connection
  bool pause_client = false;        // nothing of the client is taken before the server answered
};

class Session {
 public:
  // The most that take_client() leaves behind because a message is not complete.
  static constexpr std::size_t kInputBytes = 32 << 10;

  // `id` tells sessions apart and is never 0. `startup` are the tracked settings of the client's startup packet (names
  // in any case; compatible profile only: strict has them in the pool's key). `greeted` is what the client was told in
  // ParameterStatus at login.
  Session(const SessionOptions& options, std::uint64_t id, const Settings& startup, Settings greeted);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // How many bytes were taken. Less than all when a message is not complete, when a server connection is needed, while
  // the session has something of its own to do with the server, at max_owed_replies, and when the session is over.
  [[nodiscard]] std::size_t take_client(wire::Bytes input, Time now, Output& out);
  void take_server(wire::Bytes input, Time now, Output& out);

  // `server` is idle and stays the session's until release(). Offer the client's bytes again afterwards.
  void assign(ServerState& server, Time now, Output& out);
  // Gives the server connection back; nullptr if there is none. Allowed at any time: the owner may have to.
  ServerState* release();
  [[nodiscard]] bool assigned() const noexcept { return server_ != nullptr; }

  // The pool does not give a server connection to the message that waits for one. strict: FATAL, and the session is
  // over. compatible: an ERROR in the message's place, and the client goes on.
  void refuse(const wire::ErrorText& error, Time now, Output& out);
  // The server's connection ended or failed. Takes the ServerState away.
  void server_lost(Time now, Output& out);
  // Nothing more comes from the client; what take_client() left behind is dropped.
  void client_gone(Departure departure, Time now, Output& out);
  // The client does not read its answers (the owner sees that, the session cannot).
  void client_stalled(Time now, Output& out);
  // A FATAL for the client as soon as nothing of it is under way, at once if that is now. Draining.
  void shut_down(const wire::ErrorText& error, Time now, Output& out);
  // A cancel was sent to the server of this assignment.
  void cancel_sent() noexcept;
  // A cancel would meet the client's own query, and not one of the session's.
  [[nodiscard]] bool accepts_cancel() const noexcept;

  [[nodiscard]] const Wants& wants() const noexcept { return wants_; }
  [[nodiscard]] bool done() const noexcept { return wants_.close && server_ == nullptr; }
  // The client keeps its server connection until it leaves (Untracked::session).
  [[nodiscard]] bool pinned() const noexcept { return pinned_; }
  [[nodiscard]] SessionEnd end() const noexcept { return end_; }
  // Nothing of the client is under way: no server, no refusal that waits for its Sync.
  [[nodiscard]] bool idle() const noexcept { return server_ == nullptr && !skipping_ && !drop_next_; }
  [[nodiscard]] std::size_t owed_replies() const noexcept { return replies_.size(); }
  [[nodiscard]] const Settings& settings() const noexcept { return settings_; }

  [[nodiscard]] Time next_deadline() const noexcept;
  void tick(Time now, Output& out);

 private:
  // How often another server connection is asked for when one fails before anything of the client was sent.
  static constexpr std::uint32_t kMaxSetupFailures = 3;

  // What the session does with its server connection.
  enum class Phase : std::uint8_t {
    relaying,
    setting_up,    // giving it the client's settings, before anything of the client
    reading_back,  // asking what the client's transaction did to them, before it is given back
    rolling_back,  // the client left inside a transaction
  };
  // What becomes of the rest of a client's message that is longer than what was offered.
  enum class Rest : std::uint8_t {
    forward,
    drop,
    text,     // forward, reading the SQL up to its end
    spoil,    // forward so many bytes that no end of a text is among them: the server is to refuse the message
    collect,  // it is wanted whole
  };
  // When the session ends: once nothing is owed, or between two transactions.
  enum class Ending : std::uint8_t { none, answered, idle };
  // What becomes of a server's message.
  enum class Way : std::uint8_t { forward, swallow, whole };

  struct Refusal {
    std::string severity, sqlstate, message, detail, hint;
  };
  struct Unnamed {
    std::uint64_t number = 0;  // 0: there is none
    bool kept = false;         // query is its text; else it was too long to keep
    std::string query;
    std::string types;
    TextEffects effects;
    std::uint32_t closes = ClientStatements::kNone;  // DEALLOCATE of this statement
  };
  // An unnamed statement that was replaced in the middle of a batch, and whose one the server had then.
  struct OlderUnnamed {
    Unnamed statement;
    std::uint64_t server_client;
    std::uint64_t server_number;
  };
  // A client's message as it is being taken.
  struct Message {
    std::uint8_t type;
    bool whole;
    std::uint32_t payload_bytes;  // of all of it
    wire::Bytes raw;              // of it what is there, with its header
    wire::Bytes payload;
  };

  // Calls (session.cc).
  void begin_call(Time now, Output& out) noexcept;
  void end_call();
  void hold_release();
  void to_client(wire::Bytes bytes) noexcept;
  void error_to_client(const wire::ErrorText& error);
  void end_session(SessionEnd end, Discard discard, const wire::ErrorText& error);
  void discard_server(Discard reason) noexcept;
  void end_now();
  void clear_assignment() noexcept;
  void release_or_discard();
  [[nodiscard]] bool server_is_busy() const noexcept;
  [[nodiscard]] bool client_holds_server() const noexcept;

  // The client's messages (session_client.cc).
  [[nodiscard]] bool reads_client() const noexcept;
  [[nodiscard]] std::size_t take_message(wire::Bytes rest);
  [[nodiscard]] std::size_t take_rest(wire::Bytes rest);
  [[nodiscard]] std::size_t take_unassigned(const Message& message);
  [[nodiscard]] std::size_t take_assigned(const Message& message);
  [[nodiscard]] std::size_t start_rest(const Message& message, Rest rest) noexcept;
  [[nodiscard]] std::size_t pass(const Message& message) noexcept;
  [[nodiscard]] std::size_t take_query(const Message& message);
  [[nodiscard]] std::uint8_t start_query();
  [[nodiscard]] std::uint8_t replace_unnamed(std::uint64_t number);
  void restore_unnamed(bool skipped);
  [[nodiscard]] std::size_t take_sync(const Message& message);
  [[nodiscard]] std::size_t take_terminate(const Message& message);
  [[nodiscard]] std::size_t take_copy(const Message& message);
  [[nodiscard]] std::size_t take_text_stream(const Message& message, std::size_t head);
  [[nodiscard]] std::size_t break_off(SessionEnd end, std::string_view sqlstate, std::string_view text);
  void end_in_order(SessionEnd end, std::string_view sqlstate, std::string_view text);
  void take_text_piece(wire::Bytes piece);
  void end_text();
  void spoil(std::size_t bytes);
  [[nodiscard]] bool guard_allows(wire::Bytes payload);
  void forward(wire::Bytes bytes) noexcept { server_run_.add(bytes); }
  void owe(const Reply& reply);
  void emit_local_answers();
  [[nodiscard]] bool strict_allows(const Message& message);

  // Named and unnamed statements (session_statements.cc).
  [[nodiscard]] std::size_t take_parse(const Message& message);
  [[nodiscard]] std::size_t parse_unnamed(const Message& message, const wire::Parse& parse);
  [[nodiscard]] std::size_t parse_named(const Message& message, const wire::Parse& parse);
  [[nodiscard]] std::size_t take_bind(const Message& message);
  [[nodiscard]] std::size_t take_describe(const Message& message);
  [[nodiscard]] std::size_t take_execute(const Message& message);
  [[nodiscard]] std::size_t take_close(const Message& message);
  enum class Found : std::uint8_t { here, absent, unknown_yet };
  [[nodiscard]] Found bring_statement(std::string_view name, std::uint32_t& slot, std::uint64_t& number);
  [[nodiscard]] Found bring_unnamed();
  [[nodiscard]] StatementKey shared_key(const ClientStatement& statement) const noexcept;
  [[nodiscard]] StatementKey private_key(const ClientStatement& statement) const noexcept;
  [[nodiscard]] ServerStatement* find_on_server(const ClientStatement& statement);
  [[nodiscard]] bool is_shared(const ClientStatement& statement) const noexcept;
  void send_parse(std::string_view name, std::string_view query, wire::Bytes types);
  void send_refused_parse(bool unnamed, Refusal refusal);
  [[nodiscard]] std::size_t parse_duplicate(const Message& message, const wire::Parse& parse);
  void send_named(const wire::Parse& parse, TextEffects effects);
  void hide_statement(std::uint32_t slot);
  [[nodiscard]] bool is_unknown_yet(std::uint32_t slot) noexcept;
  [[nodiscard]] bool closes_unknown_yet() const noexcept;
  [[nodiscard]] std::uint32_t keep_refusal(Refusal refusal);
  [[nodiscard]] bool refuses(const TextEffects& effects, Refusal& refusal);
  void apply_effects(const TextEffects& effects);
  [[nodiscard]] bool evict_statements();
  void undo(const Reply& reply, bool skipped);
  void confirm(const Reply& reply);

  // The server's messages (session_server.cc).
  void take_piece(const wire::Piece& piece);
  [[nodiscard]] Way judge(const wire::Piece& piece);
  [[nodiscard]] Way judge_answer(std::uint8_t type);
  [[nodiscard]] Way judge_copy(std::uint8_t type);
  void take_whole(const wire::Piece& piece, wire::Bytes payload);
  void take_error(const wire::Piece& piece, wire::Bytes payload);
  void take_ready(const wire::Piece& piece, wire::Bytes payload);
  void take_tag(const wire::Piece& piece, wire::Bytes payload);
  void take_parameter(const wire::Piece& piece, wire::Bytes payload);
  void give_client(const wire::Piece& piece, wire::Bytes payload);
  void give_error(const wire::ErrorFields& fields);
  [[nodiscard]] bool rewrite_error(const Reply& reply, wire::ErrorFields& fields, std::string& text);
  void skip_to_sync();
  void pop_reply();
  void server_failed(std::string_view text);
  void at_ready();

  // The session's own exchanges with the server (session_housekeeping.cc).
  void start_setup();
  void start_read_back();
  void start_roll_back();
  void ask(const std::string& sql, Phase phase);
  void take_own(const wire::Piece& piece);
  void take_own_message(std::uint8_t type, wire::Bytes payload);
  void take_row(wire::Bytes payload);
  void finish_own();
  void finish_setup();
  void finish_read_back();
  void finish_roll_back();
  void fail_own();
  void tell_parameters();
  void abandon_transaction();
  void pin();
  void start_relaying();
  void set_settings(Settings settings);
  void judge_parameters() noexcept;
  void judge_anew(ServerState::Judged& judged) noexcept;

  const SessionOptions& options_;
  const std::uint64_t id_;

  // Of the call in progress.
  Output* out_ = nullptr;
  Time now_ = 0;
  SpanJoiner client_run_{SpanJoiner::Way::to_client};
  SpanJoiner server_run_{SpanJoiner::Way::to_server};
  Scratch scratch_;

  Wants wants_;
  SessionEnd end_ = SessionEnd::none;
  bool over_ = false;   // nothing more is read of the client, nothing more is given to it
  bool gone_ = false;   // nothing more comes from the client; what it sent in good order is still answered
  bool reset_ = false;  // and nobody reads the answers
  bool pinned_ = false;
  bool client_within_ = false;  // the client has the beginning of a message: nothing may come but the rest of it
  bool release_waits_ = false;  // for the end of a message that the server sent on its own
  Ending ending_ = Ending::none;
  SessionEnd ending_as_ = SessionEnd::none;
  Refusal final_error_;

  // The client's stream.
  std::uint64_t rest_left_ = 0;
  Rest rest_ = Rest::forward;
  std::uint8_t rest_type_ = 0;
  bool text_ended_ = false;
  std::unique_ptr<EffectsReader> text_effects_;
  std::unique_ptr<Guard> text_guard_;
  std::vector<std::uint8_t> collected_;
  bool drop_next_ = false;            // the message that waits was refused
  std::uint8_t waiting_type_ = 0;     // of the message that waits for a server connection
  bool skipping_ = false;             // until the client's next Sync
  bool batch_open_ = false;           // an extended message without its Sync
  bool flush_sent_ = false;           // at the limit of replies
  bool wants_barrier_ = false;        // the statement that needs it is in the batch
  bool barrier_ = false;              // nothing of the client is taken before the server has answered
  bool copying_ = false;              // a COPY from the client has begun and not ended
  bool copy_in_ = false;              // and the client has not said that it ends
  bool batch_has_statement_ = false;  // strict
  bool batch_has_portal_ = false;     // strict
  std::uint64_t batch_ = 1;
  std::uint64_t last_close_batch_ = 0;

  // The assignment.
  ServerState* server_ = nullptr;
  Phase phase_ = Phase::relaying;
  ReplyQueue replies_;
  std::vector<Refusal> refusals_;
  Discard discard_at_ready_ = Discard::none;
  bool touched_ = false;              // settings are to be read back
  bool private_transaction_ = false;  // what is parsed now is nobody else's
  bool unsafe_text_ = false;          // what the lexer says of a text may be wrong
  bool cleared_ = false;              // DEALLOCATE ALL is under way in this batch
  std::uint64_t parameters_before_ = 0;
  Way way_ = Way::forward;
  bool pops_ = false;         // the message in progress is all that its entry was owed
  bool early_syncs_ = false;  // the COPY was begun behind a Sync
  Time active_at_ = 0;
  Time cancel_at_ = kNever;
  Time own_deadline_ = kNever;
  std::uint32_t setup_failures_ = 0;

  // The session's own exchange in progress.
  std::vector<std::string> asked_;
  std::vector<std::string> row_;  // of the first result
  Settings read_;
  std::size_t result_ = 0;
  bool own_failed_ = false;
  bool row_seen_ = false;
  Refusal own_error_;

  // What the client has.
  Settings startup_;
  Settings settings_;
  Settings told_;
  SettingsDigest digest_ = {};
  ClientStatements statements_;
  Unnamed unnamed_;
  std::vector<OlderUnnamed> older_unnamed_;
  std::vector<std::uint32_t> replaced_;  // statements whose names were used again behind a DEALLOCATE ALL
  std::uint64_t next_number_ = 1;
  std::uint32_t portal_closes_ = ClientStatements::kNone;  // the statement that executing closing_portal_ closes
  std::string closing_portal_;
  std::vector<std::string> seen_placeholders_;
};

}  // namespace sluice::proxy
