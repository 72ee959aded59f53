// The session's own exchanges with its server: giving it the client's settings, asking what became of them, and rolling
// back what a client left. Each is one Query whose answer is read before anything else is sent.
#include <algorithm>

#include "proxy/session.h"

namespace sluice::proxy {

using wire::Bytes;
using wire::TransactionStatus;

namespace {

// Encodings in which a byte of a longer character may look like a quote or a backslash.
constexpr std::string_view kUnsafeEncodings[] = {"SJIS", "BIG5", "GBK", "UHC", "GB18030", "JOHAB", "SHIFT_JIS_2004"};

constexpr std::size_t kMaxOwnRows = 2000;

}  // namespace

void Session::ask(const std::string& sql, Phase phase) {
  phase_ = phase;
  server_->unnamed_client = 0;  // a Query drops the unnamed statement
  own_deadline_ = now_ + options_.housekeeping_timeout;
  row_.clear();
  read_.clear();
  result_ = 0;
  own_failed_ = row_seen_ = false;
  own_error_ = {};
  wire::ByteWriter writer(scratch_.take(sql.size() + 6));
  wire::write_query(writer, sql);
  forward(writer.written());
}

void Session::start_setup() { ask(setup_query(server_->settings, settings_, asked_), Phase::setting_up); }

void Session::start_read_back() {
  asked_.clear();
  auto add = [this](const std::string& name) {
    if (std::find(asked_.begin(), asked_.end(), name) == asked_.end()) asked_.push_back(name);
  };
  for (const std::string& name : seen_placeholders_) add(name);
  for (const Settings::Entry& entry : server_->settings.entries()) {
    if (is_placeholder(entry.name)) add(entry.name);
  }
  ask(read_back_query(asked_), Phase::reading_back);
}

void Session::start_roll_back() { ask("ROLLBACK", Phase::rolling_back); }

// The client is gone and the server waits for more of it. Nothing may be committed that the client did not end with a
// Sync, so an open batch is made to fail first.
void Session::abandon_transaction() {
  bool keep = options_.profile == Profile::compatible;
  if (!keep && (copy_in_ || batch_open_ || server_->status != TransactionStatus::idle)) {
    discard_server(Discard::client_left);
    return;
  }
  if (copy_in_) {
    wire::ByteWriter writer(scratch_.take(32));
    writer.begin('f').text("the client is gone").end();
    forward(writer.written());
    copy_in_ = false;
  }
  if (batch_open_) {
    if (!skipping_) send_refused_parse(false, {"ERROR", "08006", "the client is gone", "", ""});
    wire::ByteWriter writer(scratch_.take(5));
    wire::write_sync(writer);
    forward(writer.written());
    owe({Owed::hidden_sync, 0, Reply::kNoSubject, 0});
    batch_open_ = skipping_ = false;
  }
  if (!replies_.empty()) return;
  if (server_->status == TransactionStatus::idle) {
    at_ready();
  } else {
    start_roll_back();
  }
}

void Session::take_own(const wire::Piece& piece) {
  if (piece.first) server_->partial.clear();
  constexpr std::size_t kMaxOwnBytes = 1 << 20;
  if (piece.length > kMaxOwnBytes) {
    own_failed_ = true;
    return;
  }
  if (piece.first && piece.last) {
    take_own_message(piece.type, piece.payload);
    return;
  }
  server_->partial.insert(server_->partial.end(), piece.payload.begin(), piece.payload.end());
  if (piece.last) take_own_message(piece.type, Bytes(server_->partial));
}

void Session::take_own_message(std::uint8_t type, Bytes payload) {
  wire::ErrorFields fields;
  wire::ParameterStatus parameter = {};
  switch (type) {
    case 'T':
      result_++;
      break;
    case 'D':
      take_row(payload);
      break;
    case 'S':
      if (wire::read_parameter_status(payload, parameter)) server_->parameters.set(parameter.name, parameter.value);
      break;
    case 'E':
      if (!own_failed_) {
        if (!wire::read_error(payload, fields)) {
          server_failed("the server sent an error that cannot be read");
          return;
        }
        own_error_ = {"FATAL", std::string(fields.sqlstate()), std::string(fields.message()),
                      std::string(fields.find('D')), std::string(fields.find('H'))};
        own_failed_ = true;
      }
      if (wire::read_error(payload, fields) && fields.is_fatal()) fail_own();
      break;
    case 'Z':
      if (!wire::read_ready_for_query(payload, server_->status)) {
        server_failed("the server sent a ReadyForQuery that cannot be read");
        return;
      }
      finish_own();
      break;
    case 'G':
    case 'H':
    case 'W':
      server_failed("the server began a COPY that nobody asked for");
      break;
    default:
      break;
  }
}

void Session::take_row(Bytes payload) {
  wire::ByteReader reader(payload);
  std::size_t columns = reader.uint16();
  std::vector<std::string> values;
  std::vector<bool> nulls;
  for (std::size_t i = 0; i < columns && !reader.failed(); i++) {
    std::uint32_t length = reader.uint32();
    nulls.push_back(length == 0xFFFFFFFF);
    values.emplace_back(nulls.back() ? std::string_view() : wire::as_text(reader.bytes(length)));
  }
  if (!reader.finished() || read_.size() > kMaxOwnRows) {
    own_failed_ = true;
  } else if (phase_ == Phase::setting_up) {
    row_ = std::move(values);
    row_seen_ = true;
  } else if (phase_ == Phase::reading_back && result_ == 1) {
    if (values.size() != asked_.size() + 2) {
      own_failed_ = true;
      return;
    }
    row_seen_ = true;
    row_ = {values[1]};
    if (values[0] != "none" && !nulls[0]) read_.set("role", values[0]);
    for (std::size_t i = 0; i < asked_.size(); i++) {
      if (!nulls[i + 2]) read_.set(asked_[i], values[i + 2]);
    }
  } else if (phase_ == Phase::reading_back && values.size() == 2) {
    // The transaction's own settings are not the session's.
    std::string name = folded_name(values[0]);
    if (!name.starts_with("transaction_")) read_.set(name, values[1]);
  }
}

void Session::finish_own() {
  own_deadline_ = kNever;
  if (own_failed_ || server_->status != TransactionStatus::idle) {
    fail_own();
    return;
  }
  switch (phase_) {
    case Phase::setting_up:
      finish_setup();
      break;
    case Phase::reading_back:
      finish_read_back();
      break;
    default:
      finish_roll_back();
      break;
  }
}

// The answer holds the values as the server spells them; from now on nothing is set again for the spelling's sake.
void Session::finish_setup() {
  if (row_.size() != asked_.size()) {
    fail_own();
    return;
  }
  Settings spelled = settings_;
  for (std::size_t i = 0; i < asked_.size(); i++) {
    spelled.set(asked_[i], row_[i]);
    if (startup_.find(asked_[i]) != nullptr && *startup_.find(asked_[i]) == *settings_.find(asked_[i])) {
      startup_.set(asked_[i], row_[i]);
    }
  }
  set_settings(std::move(spelled));
  server_->settings = settings_;
  start_relaying();
}

// What is set is the client's; what is not set any more is as the client's startup packet had it.
void Session::finish_read_back() {
  if (!row_seen_) {
    fail_own();
    return;
  }
  Settings now = startup_;
  for (const Settings::Entry& entry : read_.entries()) now.set(entry.name, entry.value);
  if (row_[0] != server_->login_role || now.size() > options_.max_settings) discard_at_ready_ = Discard::settings;
  server_->settings = read_;
  if (now.size() <= options_.max_settings) set_settings(std::move(now));
  touched_ = private_transaction_ = false;
  seen_placeholders_.clear();
  phase_ = Phase::relaying;
  release_or_discard();
}

void Session::finish_roll_back() {
  phase_ = Phase::relaying;
  at_ready();
}

// What failed can no longer be known of this connection. If it was to be found out what the client's settings are, or
// they cannot be given to it, the client must not go on as if they were.
void Session::fail_own() {
  own_deadline_ = kNever;
  bool fatal = phase_ == Phase::setting_up && own_error_.sqlstate.starts_with("57P0");
  if (fatal && ++setup_failures_ <= kMaxSetupFailures) {
    // The connection was ended before it was of use to anybody; another one may do.
    discard_server(Discard::server_fatal);
    return;
  }
  if (own_error_.sqlstate.empty()) {
    own_error_ = {"FATAL", "08006", "the session's settings could not be established", "", ""};
  }
  if (gone_) {
    discard_server(phase_ == Phase::rolling_back ? Discard::client_left : Discard::settings);
    return;
  }
  end_session(SessionEnd::setup_failed, Discard::settings,
              {own_error_.severity, own_error_.sqlstate, own_error_.message, own_error_.detail, own_error_.hint});
}

void Session::tell_parameters() {
  if (server_->parameters.same_as(told_)) return;
  for (const Settings::Entry& entry : server_->parameters.entries()) {
    const std::string* told = told_.find(entry.name);
    if (told != nullptr && *told == entry.value) continue;
    wire::ByteWriter writer(scratch_.take(entry.name.size() + entry.value.size() + 7));
    wire::write_parameter_status(writer, {entry.name, entry.value});
    to_client(writer.written());
    told_.set(entry.name, entry.value);
  }
}

void Session::judge_parameters() noexcept {
  ServerState::Judged& judged = server_->judged;
  if (!judged.valid || judged.fingerprint != server_->parameters.fingerprint()) judge_anew(judged);
  if (options_.profile == Profile::strict) {
    if (!judged.plain_strings || !judged.utf8) discard_at_ready_ = Discard::unsafe_text;
    return;
  }
  unsafe_text_ = !judged.plain_strings || judged.unsafe_encoding;
}

void Session::judge_anew(ServerState::Judged& judged) noexcept {
  const std::string* strings = server_->parameters.find("standard_conforming_strings");
  const std::string* encoding = server_->parameters.find("client_encoding");
  judged.plain_strings = strings == nullptr || *strings == "on";
  judged.utf8 = encoding == nullptr || *encoding == "UTF8";
  judged.unsafe_encoding = false;
  for (std::string_view unsafe : kUnsafeEncodings) {
    judged.unsafe_encoding = judged.unsafe_encoding || (encoding != nullptr && *encoding == unsafe);
  }
  judged.fingerprint = server_->parameters.fingerprint();
  judged.valid = true;
}

}  // namespace sluice::proxy
