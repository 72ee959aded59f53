#include "proxy/client_connection.h"

#include <algorithm>
#include <utility>

#include "wire/bytes.h"

namespace sluice::proxy {
namespace {

// How long a client may take to read the last words and to close its side.
constexpr Time kClosingTime = 5 * kSecond;
constexpr std::size_t kHeaderBytes = 5;

// The message at the front is all there, so it is not the session's waiting for more that it was left.
bool holds_whole_message(wire::Bytes bytes) noexcept {
  return bytes.size() >= kHeaderBytes && bytes.size() - 1 >= wire::read_uint32(bytes.data() + 1);
}

}  // namespace

ClientConnection::ClientConnection(ChannelHub& hub, WaiterId id, AcceptedClient accepted,
                                   const ClientLoginOptions& options, const TlsServerContext* tls,
                                   const ClientLimits& limits, ClientOwner& owner)
    : hub_(hub),
      id_(id),
      slot_(std::move(accepted.slot)),
      peer_(accepted.address.peer()),
      tls_(tls),
      limits_(limits),
      owner_(owner),
      held_(hub.memory()),
      timer_(hub.loop(), [this] { due(); }),
      channel_(hub, Stream(accepted.descriptor), *this) {
  channel_.stream().set_options(limits.socket);
  channel_.yield_memory(true);
  login_.emplace(options);
  timer_.set(hub.loop().now() + limits.login_timeout);
  channel_.begin_step(false);
}

ClientConnection::~ClientConnection() = default;

// --- Login ---

void ClientConnection::channel_step(Channel&) {
  if (stage_ == Stage::first_byte) {
    look_at_first_byte();
  } else if (stage_ == Stage::tls_handshake) {
    handshake();
  }
}

// A client that begins with TLS must find its first bytes still in the socket.
void ClientConnection::look_at_first_byte() {
  std::uint8_t first = 0;
  Moved moved = channel_.stream().peek({&first, 1});
  if (moved.status == StreamStatus::would_block) return;
  channel_.end_step();
  stage_ = Stage::login;
  if (moved.status != StreamStatus::done) return;  // reading will find out
  wire::Bytes input(&first, 1);
  if (wire::read_startup(input).kind == wire::StartupKind::direct_tls) take_step(login_->receive(input, *this));
}

void ClientConnection::start_tls() {
  channel_.flush();
  if (!channel_.stream().start_tls(*tls_, direct_tls_)) {
    begin_closing();
    return;
  }
  stage_ = Stage::tls_handshake;
  channel_.begin_step(false);
  handshake();
}

void ClientConnection::handshake() {
  StreamStatus status = channel_.stream().handshake();
  if (status == StreamStatus::would_block) return;
  if (status != StreamStatus::done) {
    drop();
    return;
  }
  channel_.end_step();
  stage_ = Stage::login;
  TlsFacts facts;
  facts.postgresql_alpn = direct_tls_;  // the context refuses direct TLS without it
  if (X509* certificate = channel_.stream().own_certificate()) facts.end_point = server_end_point(certificate);
  take_step(login_->tls_started(std::move(facts)));
}

void ClientConnection::go_on_with_login() {
  while (stage_ == Stage::login) {
    std::size_t before = inbox_.size();
    wire::Bytes input = inbox_;
    LoginStep step = login_->receive(input, *this);
    channel_.flush();
    std::size_t taken = before - input.size();
    inbox_.erase(inbox_.begin(), inbox_.begin() + static_cast<std::ptrdiff_t>(taken));
    if (step == LoginStep::need_more && (taken == 0 || inbox_.empty())) return;
    take_step(step);
  }
}

void ClientConnection::take_step(LoginStep step) {
  switch (step) {
    case LoginStep::need_more:
      if (stage_ == Stage::owner) stage_ = Stage::login;
      return;
    case LoginStep::start_tls:
      direct_tls_ = !login_->in_tls() && inbox_.empty() && channel_.bytes_received() == 0;
      start_tls();
      return;
    case LoginStep::lookup_verifier:
      stage_ = Stage::owner;
      user_ = login_->user();
      database_ = login_->database();
      owner_.client_wants_verifier(*this);
      return;
    case LoginStep::verify_password:
      stage_ = Stage::owner;
      user_ = login_->user();
      database_ = login_->database();
      owner_.client_wants_password_checked(*this);
      return;
    case LoginStep::pool_snapshot:
      stage_ = Stage::owner;
      owner_.client_wants_snapshot(*this);
      return;
    case LoginStep::accepted:
      return;  // snapshot() goes on
    case LoginStep::cancel_request:
      owner_.client_cancels(login_->cancel_target());
      begin_closing();
      return;
    case LoginStep::close:
      begin_closing();
      return;
  }
}

void ClientConnection::end_login() {
  if (!std::exchange(login_over_, true)) owner_.client_login_ended(*this);
}

void ClientConnection::verifier(const FoundVerifier& found) {
  if (stage_ != Stage::owner) return;
  stage_ = Stage::login;
  take_step(login_->verifier(found, *this));
  if (stage_ == Stage::login) go_on_with_login();
}

void ClientConnection::password_accepted() {
  if (stage_ != Stage::owner) return;
  stage_ = Stage::login;
  take_step(login_->password_accepted(*this));
}

void ClientConnection::refuse_password() {
  if (stage_ == Stage::owner) take_step(login_->refuse_password(*this));
}

void ClientConnection::refuse_login(const wire::ErrorText& error) {
  if (stage_ == Stage::owner) take_step(login_->refuse(error, *this));
}

void ClientConnection::refuse_login(const wire::ErrorFields& error) {
  if (stage_ == Stage::owner) take_step(login_->refuse(error, *this));
}

void ClientConnection::abort_login(const wire::ErrorText& error) {
  if (stage_ == Stage::login || stage_ == Stage::owner) {
    take_step(login_->refuse(error, *this));
  } else if (stage_ == Stage::first_byte || stage_ == Stage::tls_handshake) {
    drop();
  }
}

void ClientConnection::snapshot(std::span<const Setting> parameters, const wire::BackendKey& key,
                                std::shared_ptr<const SessionOptions> options, const ClientLimits& limits,
                                const Settings& startup, const Settings& greeted) {
  if (stage_ != Stage::owner) return;
  if (login_->snapshot(parameters, key, *this) != LoginStep::accepted) {
    begin_closing();
    return;
  }
  channel_.flush();
  end_login();
  limits_ = limits;
  session_options_ = std::move(options);
  session_ = std::make_unique<Session>(*session_options_, id_, startup, greeted);
  login_.reset();
  stage_ = Stage::session;
  pump_inbox();
}

// --- Session ---

void ClientConnection::channel_received(Channel&, wire::Bytes bytes) {
  switch (stage_) {
    case Stage::session:
      take(bytes);
      return;
    case Stage::first_byte:
    case Stage::login:
    case Stage::tls_handshake:
    case Stage::owner:
      inbox_.insert(inbox_.end(), bytes.begin(), bytes.end());
      if (stage_ == Stage::login) go_on_with_login();
      // Whoever sends more than a login has waits with it.
      if (stage_ != Stage::session && inbox_.size() > Session::kInputBytes) channel_.read(false);
      held_.set(inbox_.capacity());
      return;
    case Stage::closing:
    case Stage::finished:
      return;
  }
}

void ClientConnection::take(wire::Bytes bytes) {
  if (!inbox_.empty() || pumping_) {
    inbox_.insert(inbox_.end(), bytes.begin(), bytes.end());
    pump_inbox();
    return;
  }
  std::size_t taken = pump(bytes);
  if (stage_ == Stage::session && taken < bytes.size())
    inbox_.assign(bytes.begin() + static_cast<std::ptrdiff_t>(taken), bytes.end());
  update_flow();
}

void ClientConnection::pump_inbox() {
  if (pumping_ || stage_ != Stage::session) return;
  if (!inbox_.empty() || departure_) {
    // Taken out of the member: what the session sends on may point into it until the channels have it.
    std::vector<std::uint8_t> input = std::move(inbox_);
    inbox_.clear();
    std::size_t taken = pump(input);
    input.erase(input.begin(), input.begin() + static_cast<std::ptrdiff_t>(taken));
    inbox_.insert(inbox_.begin(), input.begin(), input.end());
  }
  consider_departure();
  update_flow();
}

std::size_t ClientConnection::pump(wire::Bytes input) {
  pumping_ = true;
  std::size_t taken = 0;
  // Who does not take the answers is asked for no more: each query's may fit although all together do not.
  while (stage_ == Stage::session && !channel_.backed_up(limits_.buffer_bytes)) {
    std::size_t step = session_->take_client(input.subspan(taken), hub_.loop().now(), *this);
    taken += step;
    bool changed = settle();
    if (taken == input.size() || (step == 0 && !changed)) break;
  }
  pumping_ = false;
  return taken;
}

// Carries out what the session wants. True if it may now take what it has left.
bool ClientConnection::settle() {
  bool changed = false;
  while (stage_ == Stage::session) {
    const Wants wants = session_->wants();
    if (wants.cancel && !std::exchange(cancelled_, true)) owner_.client_wants_cancel(*this);
    if (server_ != nullptr && (wants.release || wants.discard != Discard::none)) {
      ServerConnection* server = std::exchange(server_, nullptr);
      (void)session_->release();
      cancelled_ = false;
      server->channel().read(true);
      changed = true;
      owner_.client_released(*this, *server, wants.discard);
      continue;
    }
    if (wants.server && !waiting_ && server_ == nullptr) {
      waiting_ = true;
      owner_.client_waits(*this);
      if (waiting_) break;
      changed = true;
      continue;
    }
    if (wants.close && server_ == nullptr) begin_closing();
    break;
  }
  if (stage_ == Stage::session) {
    Time deadline = session_->next_deadline();
    if (channel_.unsent() > 0 && limits_.stall_timeout != kNever) {
      deadline = std::min(deadline, channel_.progress_at() + limits_.stall_timeout);
    }
    timer_.set(deadline);
  }
  return changed;
}

void ClientConnection::assign(ServerConnection& server) {
  waiting_ = false;
  server_ = &server;
  session_->assign(server.state(), hub_.loop().now(), *this);
  if (!pumping_) {
    (void)settle();
    pump_inbox();
  }
}

void ClientConnection::refuse_wait(const wire::ErrorText& error) {
  waiting_ = false;
  session_->refuse(error, hub_.loop().now(), *this);
  if (!pumping_) {
    (void)settle();
    pump_inbox();
  }
}

void ClientConnection::server_received(wire::Bytes bytes) {
  session_->take_server(bytes, hub_.loop().now(), *this);
  if (settle() || !inbox_.empty() || departure_) pump_inbox();
  update_flow();
}

void ClientConnection::server_lost() {
  server_ = nullptr;
  cancelled_ = false;
  session_->server_lost(hub_.loop().now(), *this);
  (void)settle();
  pump_inbox();
}

void ClientConnection::server_drained() { update_flow(); }

void ClientConnection::channel_drained(Channel&) {
  if (stage_ == Stage::closing) {
    if (departure_) {
      finish();
    } else {
      channel_.stream().shut_down();
    }
    return;
  }
  pump_inbox();
}

// Each side is read only while the other takes what it sends.
void ClientConnection::update_flow() {
  if (stage_ != Stage::session) return;
  held_.set(inbox_.capacity());
  channel_.yield_memory(server_ == nullptr);
  bool client_takes = !channel_.backed_up(limits_.buffer_bytes);
  if (server_ != nullptr) server_->channel().read(client_takes);
  if (departure_) return;
  bool server_takes = server_ == nullptr || !server_->channel().backed_up(limits_.buffer_bytes);
  channel_.read(server_takes && client_takes && !session_->wants().pause_client &&
                inbox_.size() < Session::kInputBytes);
}

void ClientConnection::due() {
  if (stage_ == Stage::closing) {
    finish();
    return;
  }
  if (stage_ != Stage::session) {
    login_timed_out_ = true;
    abort_login({"FATAL", "57014", "canceling authentication due to timeout", {}, {}});
    return;
  }
  Time now = hub_.loop().now();
  if (limits_.stall_timeout != kNever && channel_.unsent() > 0 &&
      now >= channel_.progress_at() + limits_.stall_timeout) {
    session_->client_stalled(now, *this);
  } else {
    session_->tick(now, *this);
  }
  (void)settle();
  pump_inbox();
}

// --- Endings ---

void ClientConnection::channel_ended(Channel&, StreamStatus how) {
  if (stage_ == Stage::finished) return;
  if (stage_ != Stage::session) {
    finish();
    return;
  }
  departure_ = how == StreamStatus::end ? Departure::in_order : Departure::reset;
  if (*departure_ == Departure::reset) {
    channel_.close();
    inbox_.clear();
  }
  pump_inbox();
}

// A client that closed in good order had its complete messages carried out first.
void ClientConnection::consider_departure() {
  if (!departure_ || told_gone_ || stage_ != Stage::session) return;
  if (*departure_ == Departure::in_order && holds_whole_message(inbox_)) return;
  if (waiting_ && *departure_ == Departure::in_order && !inbox_.empty()) return;
  told_gone_ = true;
  inbox_.clear();
  if (std::exchange(waiting_, false)) owner_.client_leaves_queue(*this);
  session_->client_gone(*departure_, hub_.loop().now(), *this);
  (void)settle();
}

void ClientConnection::shut_down(const wire::ErrorText& error) {
  if (stage_ == Stage::session) {
    session_->shut_down(error, hub_.loop().now(), *this);
    (void)settle();
  } else {
    abort_login(error);
  }
}

void ClientConnection::drop() {
  if (stage_ == Stage::finished) return;
  if (stage_ == Stage::session) {
    channel_.close();
    departure_ = Departure::reset;
    inbox_.clear();
    pump_inbox();
    return;
  }
  finish();
}

// The last words are sent, then FIN; what the client still sends is read and dropped, for a RST might overtake them.
void ClientConnection::begin_closing() {
  if (stage_ == Stage::closing || stage_ == Stage::finished) return;
  if (std::exchange(waiting_, false)) owner_.client_leaves_queue(*this);
  end_login();
  stage_ = Stage::closing;
  std::vector<std::uint8_t>().swap(inbox_);
  held_.set(0);
  if (channel_.closed() || departure_) {
    channel_.flush();
    if (channel_.closed() || channel_.unsent() == 0) {
      finish();
      return;
    }
  }
  channel_.flush();
  if (channel_.closed()) return;
  channel_.read(true);
  if (channel_.unsent() == 0) channel_.stream().shut_down();
  timer_.set(hub_.loop().now() + kClosingTime);
}

void ClientConnection::finish() {
  if (stage_ == Stage::finished) return;
  if (std::exchange(waiting_, false)) owner_.client_leaves_queue(*this);
  end_login();
  stage_ = Stage::finished;
  timer_.cancel();
  channel_.close();
  slot_.release();
  owner_.client_finished(*this);
}

}  // namespace sluice::proxy
