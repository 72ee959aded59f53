// The client's messages: each is forwarded, dropped, or has something else sent in its place, and what the server will
// owe for it is noted. Payloads are looked at as little as the profile allows.
#include <algorithm>
#include <cstring>

#include "proxy/session.h"

namespace sluice::proxy {

using wire::Bytes;
using wire::TransactionStatus;

namespace {

constexpr std::size_t kHeaderBytes = 5;

// What a text is filled with that the server is not to understand: no NUL, so that it finds no end.
constexpr auto kFiller = [] {
  std::array<std::uint8_t, 1024> filler = {};
  filler.fill('x');
  return filler;
}();

// Messages that mean something without a server connection, or nothing at all.
bool needs_server(std::uint8_t type) noexcept { return std::strchr("QFPBDE", type) != nullptr; }

}  // namespace

bool Session::reads_client() const noexcept {
  // The answer that the barrier waits for comes when the client has ended its message, and its COPY.
  bool waits = barrier_ && !copy_in_ && rest_left_ == 0;
  if (over_ || gone_ || waits || ending_ == Ending::answered) return false;
  if (server_ == nullptr) return true;
  if (phase_ != Phase::relaying || wants_.release || wants_.discard != Discard::none) return false;
  if (replies_.empty() && !server_->walker.between_messages()) return false;
  return rest_left_ > 0 || replies_.size() < options_.max_owed_replies;
}

std::size_t Session::take_client(Bytes input, Time now, Output& out) {
  begin_call(now, out);
  std::size_t taken = 0;
  while (taken < input.size() && reads_client()) {
    Bytes rest = input.subspan(taken);
    std::size_t step = rest_left_ > 0 ? take_rest(rest) : take_message(rest);
    if (step == 0) break;
    taken += step;
    active_at_ = now;
  }
  // A client that sends nothing behind its last message would wait for ever: the server flushes at a Sync only.
  if (server_ != nullptr && replies_.size() >= options_.max_owed_replies && replies_.awaits_sync() && !flush_sent_ &&
      rest_left_ == 0) {
    wire::ByteWriter writer(scratch_.take(kHeaderBytes));
    wire::write_flush(writer);
    forward(writer.written());
    flush_sent_ = true;
  }
  bool unused = server_ != nullptr && phase_ == Phase::relaying && !over_ && !gone_ && taken > 0 && replies_.empty() &&
                !batch_open_ && !skipping_ && !barrier_ && rest_left_ == 0 &&
                server_->status == TransactionStatus::idle && !wants_.release && wants_.discard == Discard::none;
  if (unused) at_ready();
  end_call();
  return taken;
}

std::size_t Session::take_message(Bytes rest) {
  wire::TypeRule rule = wire::type_rule(wire::Direction::frontend, wire::Phase::relay, rest[0]);
  if (!rule.known) {
    end_in_order(SessionEnd::protocol, "08P01", "invalid frontend message type " + std::to_string(rest[0]));
    return 0;
  }
  if (rest.size() < kHeaderBytes) return 0;
  std::uint32_t length = wire::read_uint32(rest.data() + 1);
  if (length < rule.min_length || length > rule.max_length) {
    end_in_order(SessionEnd::protocol, "08P01", "invalid message length");
    return 0;
  }
  std::uint64_t total = std::uint64_t{length} + 1;
  if (length - wire::kMinLength > options_.max_message_bytes) {
    end_in_order(SessionEnd::protocol, "54000", "a message is longer than max_message_bytes allows");
    return 0;
  }
  bool whole = rest.size() >= total;
  bool stream = rest[0] == 'd' || rest[0] == 'F';
  if (!whole && !stream && total <= kInputBytes) return 0;
  Bytes raw = whole ? rest.first(static_cast<std::size_t>(total)) : rest;
  Message message = {rest[0], whole, length - wire::kMinLength, raw, raw.subspan(kHeaderBytes)};
  if (drop_next_) {
    drop_next_ = false;
    return start_rest(message, Rest::drop);
  }
  if (message.type == 'X') return take_terminate(message);
  return server_ == nullptr ? take_unassigned(message) : take_assigned(message);
}

// Takes what is there of a message; the rest of it goes the same way.
std::size_t Session::start_rest(const Message& message, Rest rest) noexcept {
  rest_left_ = std::uint64_t{message.payload_bytes} - message.payload.size();
  rest_ = rest;
  rest_type_ = message.type;
  return message.raw.size();
}

std::size_t Session::pass(const Message& message) noexcept {
  forward(message.raw);
  return start_rest(message, Rest::forward);
}

std::size_t Session::take_unassigned(const Message& message) {
  if (message.type == 'S') {
    skipping_ = false;
    wire::ByteWriter writer(scratch_.take(6));
    wire::write_ready_for_query(writer, TransactionStatus::idle);
    to_client(writer.written());
    return message.raw.size();
  }
  if (skipping_) return start_rest(message, Rest::drop);
  bool closes = message.type == 'C' && options_.profile == Profile::compatible;
  if (closes) return take_close(message);
  if (needs_server(message.type) || message.type == 'C') {
    waiting_type_ = message.type;
    wants_.server = true;
    return 0;
  }
  // Flush asks for what is there already; CopyData and its end are what a server passes over that has no COPY.
  return start_rest(message, Rest::drop);
}

std::size_t Session::take_assigned(const Message& message) {
  if (skipping_ && message.type != 'S') return start_rest(message, Rest::drop);
  if (options_.profile == Profile::strict && !strict_allows(message)) return 0;
  // What is not part of a COPY ends it with an error.
  if (copy_in_ && std::strchr("dcfHS", message.type) == nullptr) copy_in_ = false;
  switch (message.type) {
    case 'Q':
      return take_query(message);
    case 'P':
      return take_parse(message);
    case 'B':
      return take_bind(message);
    case 'D':
      return take_describe(message);
    case 'E':
      return take_execute(message);
    case 'C':
      return take_close(message);
    case 'S':
      return take_sync(message);
    case 'F':
      owe({Owed::function_call, 0, Reply::kNoSubject, 0});
      return pass(message);
    case 'H':
      return copy_in_ ? message.raw.size() : pass(message);
    default:
      return take_copy(message);
  }
}

void Session::owe(const Reply& reply) { replies_.push(reply); }

// A Sync during a COPY is nothing to the server. It is not forwarded, so that a COPY that has failed meanwhile does not
// answer it.
std::size_t Session::take_sync(const Message& message) {
  if (copy_in_) return message.raw.size();
  skipping_ = false;
  batch_open_ = false;
  batch_has_statement_ = batch_has_portal_ = false;
  flush_sent_ = false;
  batch_++;
  portal_closes_ = ClientStatements::kNone;
  owe({Owed::sync, 0, Reply::kNoSubject, 0});
  forward(message.raw);
  if (wants_barrier_) {
    barrier_ = true;
    wants_barrier_ = false;
  }
  return message.raw.size();
}

std::size_t Session::take_copy(const Message& message) {
  if (message.type != 'd') {
    if (copy_in_) {
      copy_in_ = false;
    } else if (!replies_.empty()) {
      owe({Owed::copy_end, 0, Reply::kNoSubject, 0});
    } else {
      return start_rest(message, Rest::drop);
    }
  }
  return pass(message);
}

std::size_t Session::take_terminate(const Message& message) {
  gone_ = true;
  wants_.close = true;
  wants_.server = false;
  if (server_ != nullptr) {
    cancel_at_ = now_ + options_.client_gone_grace;
    if (!server_is_busy()) abandon_transaction();
  }
  return message.raw.size();
}

// A Query drops the unnamed statement and ends a batch, unless it is skipped with it.
std::uint8_t Session::start_query() {
  std::uint8_t flags = replace_unnamed(0);
  batch_open_ = false;
  batch_++;
  return flags;
}

std::size_t Session::take_query(const Message& message) {
  Reply reply = {Owed::query, 0, Reply::kNoSubject, 0};
  if (!message.whole) {
    reply.flags = start_query();
    owe(reply);
    return take_text_stream(message, 0);
  }
  std::string_view text;
  bool read = options_.profile == Profile::compatible && wire::read_query(message.payload, text);
  if (unsafe_text_ && read) {
    touched_ = true;
    discard_at_ready_ = Discard::settings;
  }
  if (!read || is_plain(text)) {
    reply.flags = start_query();
    owe(reply);
    forward(message.raw);
    return message.raw.size();
  }
  TextEffects effects = read_effects(text);
  std::uint32_t closes = effects.has(kDeallocates) ? statements_.find(effects.name) : ClientStatements::kNone;
  if (closes != ClientStatements::kNone && is_unknown_yet(closes)) return 0;
  bool older = start_query() != 0;
  Refusal refusal;
  wire::ByteWriter writer(scratch_.take(32));
  if (refuses(effects, refusal)) {
    reply.flags = kRefused;
    reply.subject = keep_refusal(std::move(refusal));
    wire::write_query(writer, "refused");
  } else if (closes != ClientStatements::kNone) {
    reply.flags = kClosesName;
    reply.subject = closes;
    hide_statement(closes);
    wire::write_query(writer, "UNLISTEN sluice");
  }
  if (reply.flags == 0) apply_effects(effects);
  if (wants_barrier_) {
    barrier_ = true;
    wants_barrier_ = false;
  }
  forward(reply.flags == 0 ? message.raw : writer.written());
  if (older) reply.flags |= kHasOlder;
  owe(reply);
  return message.raw.size();
}

// A text that is longer than the input: it is read while it passes, and spoiled when it turns out to be refused.
std::size_t Session::take_text_stream(const Message& message, std::size_t head) {
  std::size_t taken = start_rest(message, Rest::text);
  text_ended_ = false;
  if (options_.profile == Profile::strict) {
    text_guard_ = std::make_unique<Guard>();
  } else {
    text_effects_ = std::make_unique<EffectsReader>();
  }
  std::size_t front = message.raw.size() - message.payload.size() + head;
  forward(message.raw.first(front));
  take_text_piece(message.raw.subspan(front));
  return taken;
}

void Session::take_text_piece(Bytes piece) {
  if (text_ended_) {
    forward(piece);
    return;
  }
  const void* end = std::memchr(piece.data(), 0, piece.size());
  std::size_t length =
      end == nullptr ? piece.size() : static_cast<std::size_t>(static_cast<const std::uint8_t*>(end) - piece.data());
  std::string_view text = wire::as_text(piece.first(length));
  text_ended_ = end != nullptr;
  if (text_guard_ != nullptr) {
    bool allowed = text_guard_->add(text) && (!text_ended_ || text_guard_->finish());
    if (!allowed) {
      std::string refused(text_guard_->refused());
      static_cast<void>(break_off(SessionEnd::unsupported, "0A000", refused + " is not supported in a strict pool"));
      return;
    }
    forward(piece);
    return;
  }
  text_effects_->add(text);
  if (text_ended_) text_effects_->finish();
  Refusal refusal;
  if (refuses(text_effects_->effects(), refusal)) {
    if (!replies_.empty()) {
      Reply& reply = replies_.at(replies_.size() - 1);
      reply.flags |= kRefused;
      reply.subject = keep_refusal(std::move(refusal));
    }
    rest_ = Rest::spoil;
    text_effects_.reset();
    spoil(piece.size());
    return;
  }
  forward(piece);
  if (text_ended_) end_text();
}

// The names in a long text's calls are not known, so what they made is treated as anything.
void Session::end_text() {
  TextEffects& effects = text_effects_->effects();
  if (effects.has(kTouchesSettings)) effects.flags |= kUnknownNames;
  effects.flags = static_cast<std::uint16_t>(effects.flags & ~kDeallocates);
  apply_effects(effects);
  if (wants_barrier_ && rest_type_ == 'Q') {
    barrier_ = true;
    wants_barrier_ = false;
  }
  text_effects_.reset();
}

void Session::spoil(std::size_t bytes) {
  while (bytes > 0) {
    std::size_t part = std::min(bytes, kFiller.size());
    forward(Bytes(kFiller).first(part));
    bytes -= part;
  }
}

std::size_t Session::take_rest(Bytes rest) {
  auto length = static_cast<std::size_t>(std::min<std::uint64_t>(rest_left_, rest.size()));
  Bytes piece = rest.first(length);
  rest_left_ -= length;
  switch (rest_) {
    case Rest::forward:
      forward(piece);
      break;
    case Rest::drop:
      break;
    case Rest::text:
      take_text_piece(piece);
      break;
    case Rest::spoil:
      spoil(length);
      break;
    case Rest::collect:
      collected_.insert(collected_.end(), piece.begin(), piece.end());
      if (rest_left_ == 0) {
        Bytes raw(collected_);
        Message message = {rest_type_, true, static_cast<std::uint32_t>(raw.size() - kHeaderBytes), raw,
                           raw.subspan(kHeaderBytes)};
        if (take_assigned(message) == 0) over_ = true;
      }
      break;
  }
  return length;
}

// A refusal of the strict profile, or a mistake that ends the connection.
std::size_t Session::break_off(SessionEnd end, std::string_view sqlstate, std::string_view text) {
  end_session(end, Discard::refused, {"FATAL", sqlstate, text, "", ""});
  if (server_ != nullptr && wants_.discard == Discard::none) discard_server(Discard::refused);
  return 0;
}

// What was sent before is answered first, as the server would.
void Session::end_in_order(SessionEnd end, std::string_view sqlstate, std::string_view text) {
  final_error_ = {"FATAL", std::string(sqlstate), std::string(text), "", ""};
  ending_ = Ending::answered;
  ending_as_ = end;
  // A COPY is answered when the client has ended it, and nothing more is read of this one.
  if (replies_.empty() || copy_in_) {
    end_now();
    return;
  }
  if (!replies_.awaits_sync()) return;
  wire::ByteWriter writer(scratch_.take(kHeaderBytes));
  wire::write_flush(writer);
  forward(writer.written());
}

// Unnamed objects, made in the same batch; no FunctionCall, no COPY, no Query inside a batch; and no text that the
// guard refuses. True when the message may pass.
bool Session::strict_allows(const Message& message) {
  auto refused = [this](std::string_view sqlstate, std::string_view text) {
    static_cast<void>(break_off(sqlstate == "08P01" ? SessionEnd::protocol : SessionEnd::unsupported, sqlstate, text));
    return false;
  };
  constexpr std::string_view kNamed = "named statements and portals are not supported in a strict pool";
  wire::ParseHead parse = {};
  wire::BindHead bind = {};
  wire::Named named = {};
  wire::Execute execute = {};
  switch (message.type) {
    case 'Q':
      if (batch_open_) return refused("08P01", "Query inside of an unfinished batch");
      return !message.whole || guard_allows(message.payload);
    case 'P':
      if (wire::read_parse_head(message.payload, message.whole, parse) != wire::Reading::complete) return true;
      if (!parse.statement.empty()) return refused("0A000", kNamed);
      if (message.whole && !guard_allows(message.payload.subspan(parse.size))) return false;
      batch_has_statement_ = true;
      return true;
    case 'B':
      if (wire::read_bind_head(message.payload, message.whole, bind) != wire::Reading::complete) return true;
      if (!bind.statement.empty() || !bind.portal.empty()) return refused("0A000", kNamed);
      if (!batch_has_statement_) return refused("26000", "the statement was not parsed in the same batch");
      batch_has_portal_ = true;
      return true;
    case 'D':
    case 'C':
      if (!wire::read_named(message.payload, named)) return true;
      if (!named.name.empty()) return refused("0A000", kNamed);
      if (message.type == 'D' &&
          !(named.target == wire::Target::statement ? batch_has_statement_ : batch_has_portal_)) {
        return refused("26000", "what is to be described was not made in the same batch");
      }
      return true;
    case 'E':
      if (!wire::read_execute(message.payload, execute)) return true;
      if (!execute.portal.empty()) return refused("0A000", kNamed);
      if (!batch_has_portal_) return refused("26000", "the portal was not bound in the same batch");
      return true;
    case 'F':
      return refused("0A000", "FunctionCall is not supported in a strict pool");
    case 'd':
    case 'c':
    case 'f':
      return refused("0A000", "COPY is not supported in a strict pool");
    default:
      return true;
  }
}

bool Session::guard_allows(Bytes payload) {
  const void* end = std::memchr(payload.data(), 0, payload.size());
  if (end == nullptr) return true;  // the server refuses it
  std::string_view text = wire::as_text(payload);
  text = text.substr(0, text.find('\0'));
  if (text.empty()) return true;
  Guard guard;
  if (guard.add(text) && guard.finish()) return true;
  std::string refused(guard.refused());
  static_cast<void>(break_off(SessionEnd::unsupported, "0A000", refused + " is not supported in a strict pool"));
  return false;
}

void Session::emit_local_answers() {
  while (!replies_.empty()) {
    Reply& reply = replies_.front();
    bool parse = reply.owed == Owed::local_parse;
    if (!parse && reply.owed != Owed::local_close && reply.owed != Owed::copy_end) return;
    if (reply.owed != Owed::copy_end) {
      wire::ByteWriter writer(scratch_.take(kHeaderBytes));
      wire::write_empty_message(writer, parse ? '1' : '3');
      to_client(writer.written());
      confirm(reply);
    }
    replies_.pop();
  }
}

}  // namespace sluice::proxy
