#include "proxy/session.h"

#include <algorithm>
#include <utility>

#include "wire/backend_messages.h"
#include "wire/frontend_messages.h"

namespace sluice::proxy {

using wire::Bytes;
using wire::TransactionStatus;

namespace {

constexpr std::size_t kErrorOverhead = 64;

}  // namespace

Session::Session(const SessionOptions& options, std::uint64_t id, const Settings& startup, Settings greeted)
    : options_(options), id_(id), told_(std::move(greeted)) {
  for (const Settings::Entry& entry : startup.entries()) startup_.set(folded_name(entry.name), entry.value);
  set_settings(startup_);
}

Session::~Session() { clear_assignment(); }

void Session::begin_call(Time now, Output& out) noexcept {
  now_ = now;
  out_ = &out;
  client_run_.begin(&out);
  server_run_.begin(&out);
  scratch_.clear();
}

// What the server sends on its own, as a notice, may have begun behind its last answer. The rest of it is this
// client's, so until it has come the server is not given back, and nothing is begun with it.
void Session::hold_release() {
  if (server_ == nullptr || wants_.discard != Discard::none) return;
  bool whole = server_->walker.between_messages();
  if (wants_.release && !whole) {
    wants_.release = false;
    release_waits_ = true;
  } else if (release_waits_ && whole) {
    release_waits_ = false;
    wants_.release = true;
    if (ending_ == Ending::idle) end_now();
  }
}

void Session::end_call() {
  hold_release();
  server_run_.flush();
  client_run_.flush();
  wants_.pause_client = server_ != nullptr && !reads_client();
  out_ = nullptr;
}

void Session::to_client(Bytes bytes) noexcept {
  if (!reset_ && !over_) client_run_.add(bytes);
}

void Session::error_to_client(const wire::ErrorText& error) {
  if (client_within_) return;  // it would be read as the rest of a row
  std::size_t room = kErrorOverhead + 2 * error.severity.size() + error.sqlstate.size() + error.message.size() +
                     error.detail.size() + error.hint.size();
  wire::ByteWriter writer(scratch_.take(room));
  wire::write_error(writer, error);
  to_client(writer.written());
}

void Session::end_session(SessionEnd end, Discard discard, const wire::ErrorText& error) {
  if (over_) return;
  error_to_client(error);
  over_ = true;
  end_ = end;
  wants_.close = true;
  wants_.server = false;
  if (server_ != nullptr && discard != Discard::none) discard_server(discard);
}

// The error of shut_down() or of a client's mistake whose turn has come.
void Session::end_now() {
  Discard discard = ending_ == Ending::answered ? Discard::client_left : Discard::none;
  ending_ = Ending::none;
  end_session(
      ending_as_, discard,
      {final_error_.severity, final_error_.sqlstate, final_error_.message, final_error_.detail, final_error_.hint});
}

void Session::discard_server(Discard reason) noexcept {
  wants_.release = false;
  wants_.discard = reason;
  if (server_is_busy()) wants_.cancel = true;
}

// The server has something to do that does not need the client.
bool Session::server_is_busy() const noexcept {
  if (phase_ != Phase::relaying) return true;
  return !replies_.empty() && !replies_.awaits_sync() && !copy_in_;
}

bool Session::client_holds_server() const noexcept {
  if (server_ == nullptr || phase_ != Phase::relaying || wants_.release || wants_.discard != Discard::none)
    return false;
  if (copy_in_ || (batch_open_ && replies_.awaits_sync())) return true;
  bool within = server_->status != TransactionStatus::idle || rest_left_ > 0 || skipping_;
  return replies_.empty() && within;
}

void Session::assign(ServerState& server, Time now, Output& out) {
  begin_call(now, out);
  server_ = &server;
  wants_.server = false;
  phase_ = Phase::relaying;
  active_at_ = now;
  bool custom = false;
  if (options_.profile == Profile::compatible) {
    for (const Settings::Entry& entry : server.settings.entries()) {
      custom = custom || (is_placeholder(entry.name) && settings_.find(entry.name) == nullptr);
    }
  }
  if (custom) {
    // The client never made this parameter, so it must not exist; and it cannot be unmade.
    discard_server(Discard::settings);
  } else if (options_.profile == Profile::compatible && !server.settings.same_as(settings_)) {
    start_setup();
  } else {
    start_relaying();
  }
  end_call();
}

void Session::pin() {
  pinned_ = true;
  options_.pins->used++;
}

void Session::start_relaying() {
  phase_ = Phase::relaying;
  own_deadline_ = kNever;
  setup_failures_ = 0;
  server_->last_client = id_;
  parameters_before_ = server_->parameters.fingerprint();
  if (options_.keeps_server && !pinned_ && options_.pins != nullptr) pin();
  if (options_.profile == Profile::compatible) tell_parameters();
  judge_parameters();
  if (gone_ || ending_ == Ending::idle) release_or_discard();
}

void Session::clear_assignment() noexcept {
  if (pinned_ && options_.pins != nullptr) options_.pins->used--;
  server_ = nullptr;
  pinned_ = touched_ = private_transaction_ = cleared_ = false;
  batch_open_ = flush_sent_ = barrier_ = wants_barrier_ = copy_in_ = false;
  batch_has_statement_ = batch_has_portal_ = false;
  discard_at_ready_ = Discard::none;
  phase_ = Phase::relaying;
  cancel_at_ = own_deadline_ = kNever;
  portal_closes_ = ClientStatements::kNone;
  pops_ = early_syncs_ = copying_ = release_waits_ = false;
  seen_placeholders_.clear();
  replies_.clear();
  older_unnamed_.clear();
  for (std::uint32_t slot : replaced_) statements_.forget(slot);
  replaced_.clear();
  refusals_.clear();
  wants_.release = wants_.cancel = wants_.pause_client = false;
  wants_.discard = Discard::none;
}

ServerState* Session::release() {
  ServerState* server = server_;
  clear_assignment();
  // Only a connection that is not used again can be taken away in the middle of a message.
  if (rest_left_ > 0) rest_ = Rest::drop;
  return server;
}

void Session::release_or_discard() {
  Discard reason = discard_at_ready_;
  if (pinned_) reason = Discard::untracked;
  if (reason != Discard::none) {
    discard_server(reason);
  } else {
    wants_.release = true;
  }
  if (ending_ == Ending::idle) end_now();
}

void Session::refuse(const wire::ErrorText& error, Time now, Output& out) {
  if (server_ != nullptr || over_ || gone_) return;
  begin_call(now, out);
  wants_.server = false;
  wire::ErrorText shown = error;
  if (options_.profile == Profile::strict) {
    shown.severity = "FATAL";
    end_session(SessionEnd::refused_by_pool, Discard::none, shown);
  } else {
    shown.severity = "ERROR";
    error_to_client(shown);
    if (waiting_type_ == 'Q' || waiting_type_ == 'F') {
      drop_next_ = true;
      wire::ByteWriter writer(scratch_.take(6));
      wire::write_ready_for_query(writer, TransactionStatus::idle);
      to_client(writer.written());
    } else {
      skipping_ = true;
    }
  }
  end_call();
}

void Session::server_lost(Time now, Output& out) {
  if (server_ == nullptr) return;
  begin_call(now, out);
  bool nothing_sent = phase_ == Phase::setting_up && ++setup_failures_ <= kMaxSetupFailures;
  bool unused = phase_ == Phase::relaying && replies_.empty() && server_->status == TransactionStatus::idle &&
                !batch_open_ && rest_left_ == 0 && !pinned_ && !client_within_;
  bool ours = over_ || gone_ || nothing_sent || unused;
  clear_assignment();
  if (gone_) {
    wants_.close = true;
  } else if (!ours) {
    end_session(SessionEnd::server_lost, Discard::none,
                {"FATAL", "08006", "the connection to the server was lost", "", ""});
  } else if (!over_ && nothing_sent) {
    wants_.server = true;
  } else if (!over_ && ending_ == Ending::idle) {
    end_now();
  }
  end_call();
}

void Session::client_gone(Departure departure, Time now, Output& out) {
  if (gone_) return;
  begin_call(now, out);
  gone_ = true;
  reset_ = departure == Departure::reset;
  wants_.close = true;
  wants_.server = false;
  if (server_ == nullptr || wants_.release || wants_.discard != Discard::none) {
    end_call();
    return;
  }
  bool within_message = rest_left_ > 0 && rest_ != Rest::drop && rest_ != Rest::collect;
  if (within_message || (departure == Departure::reset && phase_ == Phase::relaying && server_is_busy())) {
    discard_server(Discard::client_left);
  } else if (phase_ == Phase::relaying) {
    cancel_at_ = now + options_.client_gone_grace;
    if (!server_is_busy()) abandon_transaction();
  }
  end_call();
}

void Session::client_stalled(Time now, Output& out) {
  begin_call(now, out);
  end_session(SessionEnd::client_stalled, Discard::client_stalled,
              {"FATAL", "08006", "the client does not read its answers", "", ""});
  end_call();
}

void Session::shut_down(const wire::ErrorText& error, Time now, Output& out) {
  if (over_ || gone_ || ending_ != Ending::none) return;
  begin_call(now, out);
  final_error_ = {std::string(error.severity), std::string(error.sqlstate), std::string(error.message),
                  std::string(error.detail), std::string(error.hint)};
  ending_ = Ending::idle;
  ending_as_ = SessionEnd::shut_down;
  if (idle()) {
    end_now();
  } else if (pinned_ && replies_.empty() && !batch_open_ && server_->status == TransactionStatus::idle) {
    release_or_discard();
  } else if (wants_.release) {
    end_now();
  }
  end_call();
}

void Session::cancel_sent() noexcept {
  if (server_ != nullptr && options_.profile == Profile::strict) discard_at_ready_ = Discard::cancelled;
}

bool Session::accepts_cancel() const noexcept {
  return server_ != nullptr && phase_ == Phase::relaying && !wants_.release && !replies_.empty();
}

Time Session::next_deadline() const noexcept {
  Time next = std::min(cancel_at_, own_deadline_);
  if (!gone_ && options_.idle_transaction_timeout != kNever && client_holds_server()) {
    next = std::min(next, active_at_ + options_.idle_transaction_timeout);
  }
  return next;
}

void Session::tick(Time now, Output& out) {
  if (server_ == nullptr || wants_.discard != Discard::none || now < next_deadline()) return;
  begin_call(now, out);
  if (now >= cancel_at_) {
    cancel_at_ = own_deadline_ = kNever;
    wants_.cancel = true;
    discard_server(Discard::client_left);
  } else if (now >= own_deadline_) {
    own_deadline_ = kNever;
    own_error_ = {"FATAL", "08006", "the server did not answer in time", "", ""};
    fail_own();
  } else {
    end_session(SessionEnd::idle_in_transaction, Discard::idle_in_transaction,
                {"FATAL", "25P03", "terminating connection due to idle-in-transaction timeout", "", ""});
  }
  end_call();
}

void Session::set_settings(Settings settings) {
  settings_ = std::move(settings);
  digest_ = settings_.digest();
}

}  // namespace sluice::proxy
