// The server's messages: each answers what is owed next. Rows and other bulk are forwarded as they come; what changes
// the session's state is read, and what was never the client's is kept back.
#include <algorithm>

#include "proxy/session.h"
#include "wire/backend_messages.h"

namespace sluice::proxy {

using wire::Bytes;
using wire::PieceKind;
using wire::TransactionStatus;

namespace {

// Of a message that is read. Only errors may be longer, and then they are forwarded unread.
constexpr std::size_t kMaxWholeBytes = 64 << 10;

// What the server says to a message that was made to fail: not parsed, no such statement, not understood.
bool is_expected_failure(std::string_view sqlstate) noexcept {
  return sqlstate == "42601" || sqlstate == "26000" || sqlstate == "08P01";
}

}  // namespace

void Session::take_server(Bytes input, Time now, Output& out) {
  begin_call(now, out);
  active_at_ = now;
  while (server_ != nullptr && wants_.discard == Discard::none && !input.empty()) {
    wire::Piece piece = server_->walker.next(input);
    if (piece.kind == PieceKind::unknown_type || piece.kind == PieceKind::invalid_length) {
      server_failed("the server sent what is no message");
    } else if (piece.kind == PieceKind::partial_header) {
      server_->header_kept = true;
    } else if (piece.kind == PieceKind::message) {
      if (phase_ == Phase::relaying) {
        take_piece(piece);
      } else {
        take_own(piece);
      }
      if (piece.last) server_->header_kept = false;
    }
  }
  end_call();
}

void Session::take_piece(const wire::Piece& piece) {
  if (piece.first) {
    way_ = judge(piece);
    if (way_ == Way::whole && piece.length > kMaxWholeBytes) {
      take_error(piece, {});
      way_ = Way::forward;
      client_within_ = !piece.last;
      return;
    }
    server_->partial.clear();
  }
  switch (way_) {
    case Way::forward:
      give_client(piece, piece.payload);
      break;
    case Way::swallow:
      break;
    case Way::whole:
      if (piece.first && piece.last) {
        take_whole(piece, piece.payload);
        break;
      }
      server_->partial.insert(server_->partial.end(), piece.payload.begin(), piece.payload.end());
      if (piece.last) take_whole(piece, Bytes(server_->partial));
      break;
  }
  client_within_ = way_ == Way::forward && !piece.last;
  if (piece.last && pops_) {
    pops_ = false;
    pop_reply();
  }
}

// A piece as it came, or a message that was put together: then the header has to be written again.
void Session::give_client(const wire::Piece& piece, Bytes payload) {
  bool as_it_came = payload.data() == piece.payload.data() && payload.size() == piece.payload.size();
  if (as_it_came && (!piece.first || !server_->header_kept)) {
    to_client(piece.raw);
    return;
  }
  to_client(scratch_.copy(server_->walker.header()));
  to_client(as_it_came ? payload : scratch_.copy(payload));
}

Session::Way Session::judge(const wire::Piece& piece) {
  switch (piece.type) {
    case 'N':
    case 'A':
      return Way::forward;
    case 'S':
    case 'E':
    case 'Z':
    case 'C':
      return Way::whole;
    default:
      break;
  }
  if (replies_.empty()) {
    server_failed("the server sent what nobody asked for");
    return Way::swallow;
  }
  switch (piece.type) {
    case 'D':
    case 'd':
    case 'c':
    case 't':
    case 'V':
      return Way::forward;
    case 'G':
    case 'H':
    case 'W':
      return judge_copy(piece.type);
    default:
      return judge_answer(piece.type);
  }
}

Session::Way Session::judge_answer(std::uint8_t type) {
  Reply reply = replies_.front();
  bool expected = false;
  bool ours = false;
  switch (type) {
    case '1':
      ours = reply.owed == Owed::hidden_parse;
      // What was sent to be refused has no statement that could be confirmed.
      expected = ours || (reply.owed == Owed::parse && !reply.has(kRefused));
      break;
    case '2':
      expected = reply.owed == Owed::bind;
      break;
    case '3':
      ours = reply.owed == Owed::hidden_close;
      expected = ours || reply.owed == Owed::close;
      break;
    case 'T':
    case 'I':
      if (reply.owed == Owed::query) return Way::forward;
      expected = reply.owed == (type == 'T' ? Owed::describe : Owed::execute);
      break;
    case 'n':
      expected = reply.owed == Owed::describe;
      break;
    case 's':
      expected = reply.owed == Owed::execute;
      break;
    default:
      break;
  }
  if (!expected) {
    server_failed("the server's answer is none to what was asked");
    return Way::swallow;
  }
  confirm(reply);
  pops_ = true;
  return ours ? Way::swallow : Way::forward;
}

Session::Way Session::judge_copy(std::uint8_t type) {
  Owed owed = replies_.front().owed;
  if (type == 'W' || options_.profile == Profile::strict) {
    end_session(SessionEnd::unsupported, Discard::copy,
                {"FATAL", "0A000", "this form of COPY is not supported by the pool", "", ""});
    return Way::swallow;
  }
  if (owed != Owed::query && owed != Owed::execute) {
    server_failed("the server began a COPY that nobody asked for");
    return Way::swallow;
  }
  if (type == 'G') {
    ReplyQueue::CopyIn copy = replies_.enter_copy_in();
    copy_in_ = !copy.ended;
    if (copy_in_ && ending_ == Ending::answered) {
      end_now();
      return Way::swallow;
    }
    copying_ = true;
    early_syncs_ = copy.syncs > 0;
    // The Sync that was passed over did not end the batch.
    if (owed == Owed::execute && early_syncs_ && replies_.awaits_sync()) {
      batch_open_ = true;
      wants_barrier_ = wants_barrier_ || barrier_;
      barrier_ = false;
    }
  }
  return Way::forward;
}

void Session::pop_reply() {
  // What it replaced cannot come back any more.
  if (replies_.front().has(kHasOlder)) older_unnamed_.erase(older_unnamed_.begin());
  replies_.pop();
  emit_local_answers();
  if (replies_.empty() && ending_ == Ending::answered) end_now();
}

void Session::take_whole(const wire::Piece& piece, Bytes payload) {
  switch (piece.type) {
    case 'S':
      take_parameter(piece, payload);
      break;
    case 'E':
      take_error(piece, payload);
      break;
    case 'Z':
      take_ready(piece, payload);
      break;
    default:
      take_tag(piece, payload);
      break;
  }
}

void Session::take_parameter(const wire::Piece& piece, Bytes payload) {
  wire::ParameterStatus parameter = {};
  if (!wire::read_parameter_status(payload, parameter)) {
    server_failed("the server sent a ParameterStatus that cannot be read");
    return;
  }
  server_->parameters.set(parameter.name, parameter.value);
  told_.set(parameter.name, parameter.value);
  judge_parameters();
  give_client(piece, payload);
}

void Session::take_tag(const wire::Piece& piece, Bytes payload) {
  std::string_view tag;
  bool in_place = !replies_.empty() && (replies_.front().owed == Owed::execute || replies_.front().owed == Owed::query);
  if (!in_place || !wire::read_command_complete(payload, tag)) {
    server_failed("the server ended a command that nobody gave");
    return;
  }
  copy_in_ = copying_ = false;
  Reply reply = replies_.front();
  if (reply.has(kRefused)) {
    server_failed("the server carried out what it was sent to refuse");
    return;
  }
  if (tag == "DISCARD ALL" || tag == "DEALLOCATE ALL") {
    // What is not confirmed yet was parsed behind it.
    server_->statements.forget_parsed();
    server_->stale.clear();
    statements_.forget_parsed();
  }
  if (reply.has(kClosesName) && tag == "UNLISTEN") {
    statements_.forget(reply.subject);
    replies_.front().flags &= kHasOlder;
    wire::ByteWriter writer(scratch_.take(20));
    wire::write_command_complete(writer, "DEALLOCATE");
    to_client(writer.written());
  } else {
    give_client(piece, payload);
  }
  if (reply.owed == Owed::execute) pop_reply();
}

void Session::take_error(const wire::Piece& piece, Bytes payload) {
  wire::ErrorFields fields;
  bool unread = piece.length > kMaxWholeBytes;
  if (!unread && !wire::read_error(payload, fields)) {
    server_failed("the server sent an error that cannot be read");
    return;
  }
  if (fields.is_fatal()) {
    // The one error the client gets; what the connection's end says is the same once more.
    give_client(piece, payload);
    over_ = true;
    end_ = SessionEnd::server_fatal;
    wants_.close = true;
    discard_server(Discard::server_fatal);
    wants_.cancel = false;
    return;
  }
  if (replies_.empty()) {
    server_failed("the server reported an error that belongs to nothing");
    return;
  }
  Reply& reply = replies_.front();
  std::string text;
  if (!unread && rewrite_error(reply, fields, text)) {
    give_error(fields);
  } else {
    give_client(piece, piece.length > kMaxWholeBytes ? piece.payload : payload);
  }
  // Whether the server passed over a Sync before or after it failed cannot be known.
  if (early_syncs_) discard_at_ready_ = Discard::copy;
  copy_in_ = copying_ = early_syncs_ = false;
  if (reply.owed == Owed::query || reply.owed == Owed::function_call) {
    undo(reply, false);
    reply.flags &= kHasOlder;
  } else {
    skip_to_sync();
  }
}

// True when the client is to see something else than the server sent.
bool Session::rewrite_error(const Reply& reply, wire::ErrorFields& fields, std::string& text) {
  std::string_view sqlstate = fields.sqlstate();
  if (reply.has(kRefused) && is_expected_failure(sqlstate)) {
    const Refusal& refusal = refusals_[reply.subject];
    fields.clear();
    bool set = fields.set('S', refusal.severity) && fields.set('V', refusal.severity) &&
               fields.set('C', refusal.sqlstate) && fields.set('M', refusal.message);
    if (!refusal.hint.empty()) set = fields.set('H', refusal.hint) && set;
    return set;
  }
  bool named_by_us = reply.owed == Owed::bind || reply.owed == Owed::describe || reply.has(kDuplicate);
  if (!named_by_us || reply.statement == 0) return false;
  if (sqlstate == "0A000" && fields.find('R') == "RevalidateCachedQuery") {
    // Others shared it before its tables changed. Whoever parses the text again gets a new one.
    server_->statements.erase(reply.statement);
    server_->stale.push_back(reply.statement);
  }
  ServerStatementName ours(reply.statement);
  std::string_view message = fields.message();
  std::size_t at = message.find(ours.view());
  bool named = at != std::string_view::npos && at > 0 && message[at - 1] == '"' &&
               message.substr(at + ours.length).starts_with('"');
  if (!named || reply.subject == Reply::kNoSubject) return false;
  text.assign(message.substr(0, at)).append(statements_.at(reply.subject).name);
  text.append(message.substr(at + ours.length));
  return fields.set('M', text);
}

void Session::give_error(const wire::ErrorFields& fields) {
  std::size_t room = 16;
  for (std::size_t i = 0; i < fields.size(); i++) room += fields.text(i).size() + 2;
  wire::ByteWriter writer(scratch_.take(room));
  wire::write_error(writer, 'E', fields);
  to_client(writer.written());
}

// What was sent behind the message that failed, up to the next Sync, is not carried out.
void Session::skip_to_sync() {
  std::size_t lost = replies_.before_sync();
  for (std::size_t i = lost; i > 0; i--) undo(replies_.at(i - 1), i > 1);
  bool before_sync = lost == replies_.size();
  replies_.drop_front(lost);
  if (before_sync) {
    skipping_ = true;
    batch_open_ = true;
    barrier_ = wants_barrier_ = false;
  }
  if (replies_.empty() && ending_ == Ending::answered) end_now();
}

void Session::take_ready(const wire::Piece& piece, Bytes payload) {
  emit_local_answers();
  bool expected = !replies_.empty() && ends_with_ready(replies_.front().owed);
  if (!expected || !wire::read_ready_for_query(payload, server_->status)) {
    server_failed("the server is ready for a query that nobody waits for");
    return;
  }
  if (replies_.front().owed != Owed::hidden_sync) give_client(piece, payload);
  early_syncs_ = false;
  pop_reply();
  if (!replies_.empty() || over_) return;
  flush_sent_ = false;
  refusals_.clear();
  bool open = batch_open_ || skipping_ || rest_left_ > 0;
  barrier_ = cleared_ = false;
  for (std::uint32_t slot : replaced_) statements_.forget(slot);
  replaced_.clear();
  if (gone_ && rest_left_ == 0) {
    abandon_transaction();
  } else if (!open && server_->status == TransactionStatus::idle) {
    at_ready();
  }
}

// Nothing is owed, no transaction is open: the server can be given back, once it is known what was done to it.
void Session::at_ready() {
  bool reported = server_->parameters.fingerprint() != parameters_before_;
  if (options_.profile == Profile::compatible && evict_statements()) return;
  if (pinned_ && !gone_ && ending_ == Ending::none) {
    private_transaction_ = false;
    return;
  }
  if (options_.profile == Profile::strict) {
    if (reported && discard_at_ready_ == Discard::none) discard_at_ready_ = Discard::parameters_changed;
    release_or_discard();
    return;
  }
  if ((touched_ || reported) && !(gone_ && discard_at_ready_ != Discard::none) && !pinned_) {
    start_read_back();
    return;
  }
  // SET LOCAL is over with its transaction, but the parameter it made exists from now on, and is empty.
  Settings settings = settings_;
  bool made = false;
  for (const std::string& name : seen_placeholders_) {
    if (server_->settings.find(name) != nullptr) continue;
    server_->settings.set(name, "");
    settings.set(name, "");
    made = true;
  }
  seen_placeholders_.clear();
  private_transaction_ = false;
  if (made) set_settings(std::move(settings));
  release_or_discard();
}

// A server that does not keep to the protocol is not to be trusted with anything more.
void Session::server_failed(std::string_view text) {
  if (!gone_) {
    end_session(SessionEnd::server_protocol, Discard::server_protocol, {"FATAL", "08006", text, "", ""});
  }
  discard_server(Discard::server_protocol);
  wants_.cancel = false;
}

}  // namespace sluice::proxy
