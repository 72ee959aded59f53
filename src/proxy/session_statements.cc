// Prepared statements in the compatible profile: the client's names become the server's, what the server does not have
// is parsed again in front of what needs it, and whatever fails, fails on the server, so that the transaction's state
// and the order of answers are its own.
#include <utility>

#include "proxy/session.h"

namespace sluice::proxy {

using wire::Bytes;
using wire::Reading;
using wire::TransactionStatus;

namespace {

constexpr std::string_view kRefusedName = "sluice_refused";
// No statement of ours has the number 0.
constexpr std::string_view kAbsentName = "sluice_0";
constexpr std::string_view kNoOperation = "UNLISTEN sluice";
constexpr std::size_t kHeadBytes = 16;

std::string untracked_message(UntrackedKind kind) {
  switch (kind) {
    case UntrackedKind::advisory_lock:
      return "advisory locks of the session are not supported in transaction pooling";
    case UntrackedKind::listen:
      return "LISTEN is not supported in transaction pooling";
    case UntrackedKind::temporary_table:
      return "temporary tables are not supported in transaction pooling";
    case UntrackedKind::held_cursor:
      return "DECLARE ... WITH HOLD is not supported in transaction pooling";
    case UntrackedKind::prepare:
      return "PREPARE is not supported in transaction pooling";
    default:
      return "LOAD is not supported in transaction pooling";
  }
}

std::string untracked_hint(UntrackedKind kind) {
  std::string hint;
  if (kind == UntrackedKind::advisory_lock) hint = "Use pg_advisory_xact_lock, or ";
  if (kind == UntrackedKind::prepare) hint = "Use the protocol's prepared statements, or ";
  hint += hint.empty() ? "Let" : "let";
  return hint +
         " the pool's setting \"untracked\" be \"session\" or \"discard\", or connect to a pool in session mode.";
}

std::string absent_message(std::string_view name) {
  if (name.empty()) return "unnamed prepared statement does not exist";
  return "prepared statement \"" + std::string(name) + "\" does not exist";
}

}  // namespace

std::size_t Session::take_parse(const Message& message) {
  wire::ParseHead head = {};
  Reading reading = wire::read_parse_head(message.payload, message.whole, head);
  if (reading == Reading::need_more) {
    if (message.raw.size() >= kInputBytes)
      end_in_order(SessionEnd::unsupported, "54000", "a statement's name is too long");
    return 0;
  }
  bool strict = options_.profile == Profile::strict;
  if (!message.whole && reading == Reading::complete && !head.statement.empty()) {
    // A named statement is kept, so it is wanted whole.
    std::size_t taken = message.raw.size();
    if (message.payload_bytes <= options_.max_client_statement_bytes) {
      collected_.assign(message.raw.begin(), message.raw.end());
      return start_rest(message, Rest::collect);
    }
    send_refused_parse(false, {"ERROR", "54000", "a named statement is longer than a client may keep", "", ""});
    static_cast<void>(start_rest(message, Rest::drop));
    return taken;
  }
  wire::Parse parse = {};
  bool read = message.whole && wire::read_parse(message.payload, parse);
  if (read && !strict) return parse.statement.empty() ? parse_unnamed(message, parse) : parse_named(message, parse);
  std::uint8_t older = replace_unnamed(message.whole ? 0 : next_number_++);
  batch_open_ = true;
  owe({Owed::parse, static_cast<std::uint8_t>(kUnnamed | older), Reply::kNoSubject, unnamed_.number});
  // What cannot be read is the server's to refuse.
  return message.whole ? pass(message) : take_text_stream(message, head.size);
}

std::size_t Session::parse_unnamed(const Message& message, const wire::Parse& parse) {
  TextEffects effects;
  if (!is_plain(parse.query)) effects = read_effects(parse.query);
  Refusal refusal;
  if (refuses(effects, refusal)) {
    send_refused_parse(true, std::move(refusal));
    return message.raw.size();
  }
  std::uint32_t closes = effects.has(kDeallocates) ? statements_.find(effects.name) : ClientStatements::kNone;
  if (closes != ClientStatements::kNone && is_unknown_yet(closes)) return 0;
  std::uint8_t older = replace_unnamed(next_number_++);
  batch_open_ = true;
  unnamed_.kept = parse.query.size() <= options_.max_unnamed_statement_bytes;
  unnamed_.closes = closes;
  if (closes != ClientStatements::kNone) {
    unnamed_.query = kNoOperation;
    unnamed_.types.clear();
    send_parse({}, unnamed_.query, {});
  } else {
    apply_effects(effects);
    if (unnamed_.kept) {
      unnamed_.query.assign(parse.query);
      unnamed_.types.assign(wire::as_text(parse.types));
    }
    forward(message.raw);
  }
  unnamed_.effects = std::move(effects);
  owe({Owed::parse, static_cast<std::uint8_t>(kUnnamed | older), Reply::kNoSubject, unnamed_.number});
  return message.raw.size();
}

// The unnamed statement is another one from here on, or none. In the middle of a batch that may turn out not to be so.
std::uint8_t Session::replace_unnamed(std::uint64_t number) {
  bool may_be_skipped = batch_open_ && options_.profile == Profile::compatible;
  if (may_be_skipped) {
    older_unnamed_.push_back({std::move(unnamed_), server_->unnamed_client, server_->unnamed_number});
    unnamed_ = {};
  }
  unnamed_.number = number;
  unnamed_.kept = false;
  unnamed_.closes = ClientStatements::kNone;
  server_->unnamed_client = number == 0 ? 0 : id_;
  server_->unnamed_number = number;
  return may_be_skipped ? std::uint8_t{kHasOlder} : std::uint8_t{0};
}

// The youngest replacement did not take place, or it failed, and then there is no unnamed statement.
void Session::restore_unnamed(bool skipped) {
  if (skipped) {
    unnamed_ = std::move(older_unnamed_.back().statement);
    server_->unnamed_client = older_unnamed_.back().server_client;
    server_->unnamed_number = older_unnamed_.back().server_number;
  }
  older_unnamed_.pop_back();
}

// Whether the statement's Parse, sent in an earlier batch, may still fail.
bool Session::is_unknown_yet(std::uint32_t slot) noexcept {
  const ClientStatement& statement = statements_.at(slot);
  return !statement.parsed && statement.batch < batch_;
}

std::size_t Session::parse_named(const Message& message, const wire::Parse& parse) {
  std::uint32_t slot = statements_.find(parse.statement);
  bool known = slot == ClientStatements::kNone ? !closes_unknown_yet() : !is_unknown_yet(slot);
  if (!known) return 0;
  if (slot != ClientStatements::kNone && cleared_) {
    statements_.hide(slot);
    replaced_.push_back(slot);
    slot = ClientStatements::kNone;
  }
  TextEffects effects = read_effects(parse.query);
  std::size_t bytes = parse.query.size() + parse.types.size() + parse.statement.size();
  Refusal refusal;
  if (refuses(effects, refusal)) {
    send_refused_parse(false, std::move(refusal));
  } else if (slot != ClientStatements::kNone) {
    return parse_duplicate(message, parse);
  } else if (statements_.size() >= options_.max_client_statements ||
             statements_.bytes() + bytes > options_.max_client_statement_bytes) {
    send_refused_parse(false, {"ERROR", "54000", "too many prepared statements of one client", "",
                               "Close statements that are not used any more, or raise max_client_statements."});
  } else {
    send_named(parse, std::move(effects));
  }
  return message.raw.size();
}

// The server looks at the text first and at the name last, so it is given one that it has.
std::size_t Session::parse_duplicate(const Message& message, const wire::Parse& parse) {
  Reply reply = {Owed::parse, kDuplicate, Reply::kNoSubject, 0};
  if (bring_statement(parse.statement, reply.subject, reply.statement) != Found::here) return 0;
  batch_open_ = true;
  send_parse(ServerStatementName(reply.statement).view(), parse.query, parse.types);
  owe(reply);
  return message.raw.size();
}

// The statement becomes the client's now, and others' at ParseComplete. Nothing but a Parse on an idle connection can
// be answered without the server: within a batch or a transaction it might fail.
void Session::send_named(const wire::Parse& parse, TextEffects effects) {
  bool idle = replies_.empty() && !batch_open_ && server_->status == TransactionStatus::idle;
  std::uint32_t slot = statements_.add(parse.statement, parse.query, parse.types);
  ClientStatement& statement = statements_.at(slot);
  statement.effects = std::move(effects);
  statement.batch = batch_;
  bool shared = is_shared(statement) && !private_transaction_;
  apply_effects(statement.effects);
  batch_open_ = true;
  ServerStatement* there = shared ? server_->statements.find(shared_key(statement)) : nullptr;
  if (there != nullptr && there->parsed && idle) {
    owe({Owed::local_parse, 0, slot, 0});
    emit_local_answers();
    return;
  }
  if (there != nullptr) {
    // The server judges the text under no name, which is then not the client's unnamed statement any more.
    server_->unnamed_client = 0;
    send_parse({}, parse.query, parse.types);
    owe({Owed::parse, kOnlyProbes, slot, 0});
    return;
  }
  if (!shared) statement.private_number = next_number_++;
  const ServerStatement& added =
      server_->statements.add(shared ? shared_key(statement) : private_key(statement), statement.bytes(), batch_);
  send_parse(ServerStatementName(added.number).view(), parse.query, parse.types);
  owe({Owed::parse, 0, slot, added.number});
}

bool Session::is_shared(const ClientStatement& statement) const noexcept {
  return !statement.effects.has(kCalendar) && !unsafe_text_;
}

StatementKey Session::shared_key(const ClientStatement& statement) const noexcept {
  return {statement.text_digest, digest_};
}

StatementKey Session::private_key(const ClientStatement& statement) const noexcept {
  StatementKey key;
  key.settings.fill(0xFF);
  for (std::size_t i = 0; i < 8; i++) {
    key.text[i] = static_cast<std::uint8_t>(statement.private_number >> 8 * i);
    key.text[8 + i] = static_cast<std::uint8_t>(id_ >> 8 * i);
  }
  return key;
}

ServerStatement* Session::find_on_server(const ClientStatement& statement) {
  ServerStatement* found = nullptr;
  if (statement.private_number != 0) found = server_->statements.find(private_key(statement));
  if (found == nullptr && is_shared(statement)) found = server_->statements.find(shared_key(statement));
  return found;
}

// Sees to it that the server has the client's statement, whose number there is then in `number`.
Session::Found Session::bring_statement(std::string_view name, std::uint32_t& slot, std::uint64_t& number) {
  slot = statements_.find(name);
  if (slot == ClientStatements::kNone) return closes_unknown_yet() ? Found::unknown_yet : Found::absent;
  ClientStatement& statement = statements_.at(slot);
  ServerStatement* there = find_on_server(statement);
  if (there != nullptr) {
    if (!there->parsed && there->batch < batch_) return Found::unknown_yet;
    number = there->number;
  } else {
    bool shared = is_shared(statement) && !private_transaction_;
    if (!shared && statement.private_number == 0) statement.private_number = next_number_++;
    const ServerStatement& added =
        server_->statements.add(shared ? shared_key(statement) : private_key(statement), statement.bytes(), batch_);
    number = added.number;
    send_parse(ServerStatementName(number).view(), statement.query, wire::as_bytes(statement.types));
    owe({Owed::hidden_parse, 0, Reply::kNoSubject, number});
  }
  if (!statement.effects.none()) apply_effects(statement.effects);
  return Found::here;
}

Session::Found Session::bring_unnamed() {
  if (options_.profile == Profile::strict) return Found::here;
  if (unnamed_.number == 0) return Found::absent;
  if (server_->unnamed_client == id_ && server_->unnamed_number == unnamed_.number) return Found::here;
  if (!unnamed_.kept) return Found::absent;
  server_->unnamed_client = id_;
  server_->unnamed_number = unnamed_.number;
  send_parse({}, unnamed_.query, wire::as_bytes(unnamed_.types));
  owe({Owed::hidden_parse, kUnnamed, Reply::kNoSubject, unnamed_.number});
  apply_effects(unnamed_.effects);
  return Found::here;
}

std::size_t Session::take_bind(const Message& message) {
  wire::BindHead head = {};
  Reading reading = wire::read_bind_head(message.payload, message.whole, head);
  if (reading == Reading::need_more) {
    if (message.raw.size() >= kInputBytes)
      end_in_order(SessionEnd::unsupported, "54000", "a statement's name is too long");
    return 0;
  }
  Reply reply = {Owed::bind, 0, Reply::kNoSubject, 0};
  bool named = reading == Reading::complete && !head.statement.empty();
  Found found = Found::here;
  if (named) {
    found = bring_statement(head.statement, reply.subject, reply.statement);
  } else if (reading == Reading::complete) {
    found = bring_unnamed();
    if (unnamed_.number != 0 && unnamed_.closes != ClientStatements::kNone) {
      portal_closes_ = unnamed_.closes;
      closing_portal_ = head.portal;
    }
  }
  if (found == Found::unknown_yet) return 0;
  // The name it gets instead may be longer, and the server would take a message beyond its limit for no message.
  bool renamed = named || found == Found::absent;
  if (renamed && message.payload_bytes > wire::kLargeLength - wire::kMinLength - sizeof(ServerStatementName::text)) {
    end_in_order(SessionEnd::unsupported, "54000", "a Bind of a named or absent statement is too long");
    return 0;
  }
  batch_open_ = true;
  if (named && head.portal == closing_portal_) portal_closes_ = ClientStatements::kNone;
  if (found == Found::absent) {
    reply.flags = kRefused;
    reply.subject = keep_refusal({"ERROR", "26000", absent_message(head.statement), "", ""});
  }
  owe(reply);
  if (found == Found::here && !named) return pass(message);
  ServerStatementName ours(reply.statement);
  std::string_view name = found == Found::here ? ours.view() : kAbsentName;
  wire::ByteWriter writer(scratch_.take(kHeadBytes + head.portal.size() + name.size()));
  wire::write_bind_head(writer, head.portal, name, message.payload_bytes - static_cast<std::uint32_t>(head.size));
  forward(writer.written());
  forward(message.payload.subspan(head.size));
  return start_rest(message, Rest::forward);
}

std::size_t Session::take_describe(const Message& message) {
  wire::Named named = {};
  bool read = wire::read_named(message.payload, named);
  Reply reply = {Owed::describe, 0, Reply::kNoSubject, 0};
  if (!read || named.target == wire::Target::portal) {
    batch_open_ = true;
    owe(reply);
    return pass(message);
  }
  Found found = named.name.empty() ? bring_unnamed() : bring_statement(named.name, reply.subject, reply.statement);
  if (found == Found::unknown_yet) return 0;
  batch_open_ = true;
  if (found == Found::absent) {
    reply.flags = kRefused;
    reply.subject = keep_refusal({"ERROR", "26000", absent_message(named.name), "", ""});
  }
  owe(reply);
  if (found == Found::here && named.name.empty()) return pass(message);
  ServerStatementName ours(reply.statement);
  wire::ByteWriter writer(scratch_.take(kHeadBytes + ours.length));
  wire::write_describe(writer, {wire::Target::statement, found == Found::here ? ours.view() : kAbsentName});
  forward(writer.written());
  return message.raw.size();
}

std::size_t Session::take_execute(const Message& message) {
  batch_open_ = true;
  Reply reply = {Owed::execute, 0, Reply::kNoSubject, 0};
  wire::Execute execute = {};
  if (portal_closes_ != ClientStatements::kNone && wire::read_execute(message.payload, execute) &&
      execute.portal == closing_portal_) {
    reply.flags = kClosesName;
    reply.subject = portal_closes_;
    hide_statement(portal_closes_);
    portal_closes_ = unnamed_.closes = ClientStatements::kNone;
  }
  owe(reply);
  return pass(message);
}

// A statement is closed for the client only: on the server others may use it, and the least used go by themselves.
std::size_t Session::take_close(const Message& message) {
  wire::Named named = {};
  bool strict = options_.profile == Profile::strict;
  bool read = wire::read_named(message.payload, named);
  bool statement = read && !strict && named.target == wire::Target::statement;
  if (statement && named.name.empty()) unnamed_.number = 0;
  // During a COPY it is a mistake, and the server's to report.
  if (server_ != nullptr && (!statement || named.name.empty() || copying_)) {
    if (statement) server_->unnamed_client = 0;
    batch_open_ = true;
    owe({Owed::close, 0, Reply::kNoSubject, 0});
    return pass(message);
  }
  if (!read) {
    waiting_type_ = 'C';
    wants_.server = true;
    return 0;
  }
  std::uint32_t slot = statement ? statements_.find(named.name) : ClientStatements::kNone;
  if (slot != ClientStatements::kNone) {
    if (is_unknown_yet(slot)) return 0;
    hide_statement(slot);
  }
  if (server_ != nullptr) batch_open_ = true;
  owe({Owed::local_close, 0, slot, 0});
  emit_local_answers();
  return message.raw.size();
}

void Session::hide_statement(std::uint32_t slot) {
  statements_.hide(slot);
  statements_.at(slot).batch = batch_;
  last_close_batch_ = batch_;
}

// A Close of an earlier batch may still turn out to have been skipped, and then its name is taken.
bool Session::closes_unknown_yet() const noexcept { return statements_.closing() > 0 && last_close_batch_ < batch_; }

void Session::send_parse(std::string_view name, std::string_view query, Bytes types) {
  wire::ByteWriter writer(scratch_.take(kHeadBytes + name.size() + query.size() + types.size()));
  wire::write_parse(writer, {name, query, types});
  forward(writer.written());
}

void Session::send_refused_parse(bool unnamed, Refusal refusal) {
  std::uint8_t flags = kRefused;
  if (unnamed) flags |= kUnnamed | replace_unnamed(0);
  batch_open_ = true;
  send_parse(unnamed ? std::string_view() : kRefusedName, "refused", {});
  owe({Owed::parse, flags, keep_refusal(std::move(refusal)), 0});
}

std::uint32_t Session::keep_refusal(Refusal refusal) {
  refusals_.push_back(std::move(refusal));
  return static_cast<std::uint32_t>(refusals_.size() - 1);
}

bool Session::refuses(const TextEffects& effects, Refusal& refusal) {
  if (effects.untracked == UntrackedKind::none || options_.untracked == Untracked::discard || pinned_) return false;
  if (options_.untracked == Untracked::session && options_.pins != nullptr &&
      options_.pins->used < options_.pins->limit) {
    return false;
  }
  refusal = {"ERROR", "0A000", untracked_message(effects.untracked), "", untracked_hint(effects.untracked)};
  if (options_.untracked == Untracked::session) {
    refusal.sqlstate = "53000";
    refusal.hint = "Too many clients keep a server connection of this pool for themselves already.";
  }
  return true;
}

void Session::apply_effects(const TextEffects& effects) {
  if (unsafe_text_) {
    touched_ = true;
    discard_at_ready_ = Discard::settings;
  }
  if (effects.none()) return;
  if (effects.has(kTouchesSettings)) touched_ = true;
  if (effects.has(kTouchesSettings | kTouchesThisTransaction | kChangesSchema)) private_transaction_ = true;
  if (effects.has(kUnknownNames | kChangesIdentity)) discard_at_ready_ = Discard::settings;
  if (effects.has(kDeallocatesAll)) cleared_ = true;
  if (effects.has(kResets | kDeallocatesAll)) wants_barrier_ = true;
  for (const std::string& name : effects.placeholders) {
    bool seen = false;
    for (const std::string& other : seen_placeholders_) seen = seen || other == name;
    if (!seen && seen_placeholders_.size() >= options_.max_settings) discard_at_ready_ = Discard::settings;
    if (!seen && seen_placeholders_.size() < options_.max_settings) seen_placeholders_.push_back(name);
  }
  if (effects.untracked == UntrackedKind::none || pinned_) return;
  if (options_.untracked == Untracked::session && options_.pins != nullptr) {
    pin();
  } else {
    discard_at_ready_ = Discard::untracked;
  }
}

// Between two transactions: behind a Sync they could be in the middle of a COPY that passed over it. True when there is
// an answer to wait for.
bool Session::evict_statements() {
  bool any = false;
  auto close = [&](std::uint64_t number) {
    ServerStatementName name(number);
    wire::ByteWriter writer(scratch_.take(kHeadBytes + name.length));
    wire::write_close(writer, {wire::Target::statement, name.view()});
    forward(writer.written());
    owe({Owed::hidden_close, 0, Reply::kNoSubject, 0});
    any = true;
  };
  for (std::uint64_t number : server_->stale) close(number);
  server_->stale.clear();
  for (;;) {
    std::uint64_t number =
        server_->statements.evict(options_.max_server_statements, options_.max_server_statement_bytes);
    if (number == 0) break;
    close(number);
  }
  if (!any) return false;
  wire::ByteWriter writer(scratch_.take(kHeadBytes));
  wire::write_sync(writer);
  forward(writer.written());
  owe({Owed::hidden_sync, 0, Reply::kNoSubject, 0});
  return true;
}

void Session::confirm(const Reply& reply) {
  switch (reply.owed) {
    case Owed::parse:
    case Owed::local_parse:
      if (!reply.has(kUnnamed) && reply.subject != Reply::kNoSubject) statements_.at(reply.subject).parsed = true;
      [[fallthrough]];
    case Owed::hidden_parse:
      if (!reply.has(kUnnamed) && reply.statement != 0) server_->statements.parsed(reply.statement);
      break;
    case Owed::local_close:
      if (reply.subject != Reply::kNoSubject) statements_.forget(reply.subject);
      break;
    default:
      break;
  }
}

// The message that this answer was owed for was not carried out: it failed, or it was skipped because another one did.
void Session::undo(const Reply& reply, bool skipped) {
  switch (reply.owed) {
    case Owed::parse:
    case Owed::local_parse:
    case Owed::hidden_parse:
      if (reply.has(kUnnamed)) {
        if (reply.owed == Owed::hidden_parse) server_->unnamed_client = 0;
        // If it failed, a later one that came between was skipped and has brought this one back.
        if (reply.owed == Owed::parse && !skipped) unnamed_.number = server_->unnamed_client = 0;
        if (reply.has(kHasOlder)) restore_unnamed(skipped);
        break;
      }
      if (reply.has(kRefused | kDuplicate)) break;
      if (reply.subject != Reply::kNoSubject) statements_.forget(reply.subject);
      if (reply.statement != 0) server_->statements.erase(reply.statement);
      break;
    case Owed::local_close:
      if (reply.subject != Reply::kNoSubject) statements_.unhide(reply.subject);
      break;
    case Owed::query:
    case Owed::execute:
      if (reply.has(kClosesName)) statements_.unhide(reply.subject);
      if (reply.has(kHasOlder) && skipped) restore_unnamed(true);
      break;
    default:
      break;
  }
}

}  // namespace sluice::proxy
