#include "proxy/worker.h"

#include <sys/socket.h>
#include <unistd.h>

#include <openssl/crypto.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <utility>

#include "proxy/admin.h"
#include "wire/error_response.h"

namespace sluice::proxy {
namespace {

constexpr wire::ErrorText kTooMany = {"FATAL", "53300", "too many connections to the proxy", {}, "Try again later."};

// Whoever is refused at the door is told so and costs nothing more: no buffer, no login, no place in the loop.
void refuse_at_the_door(int descriptor) {
  std::array<std::uint8_t, 256> buffer;
  wire::ByteWriter out(buffer);
  wire::write_error(out, kTooMany);
  // What has arrived is taken, for unread bytes would make close() send a RST that overtakes the answer.
  std::array<std::uint8_t, 512> unread;
  while (::recv(descriptor, unread.data(), unread.size(), MSG_DONTWAIT) > 0) {
  }
  (void)!::send(descriptor, buffer.data(), out.length(), MSG_DONTWAIT | MSG_NOSIGNAL);
  ::shutdown(descriptor, SHUT_WR);
  ::close(descriptor);
}

ClientReject reject_of(Admitted admitted) {
  switch (admitted) {
    case Admitted::too_many_clients:
      return ClientReject::too_many_clients;
    case Admitted::too_many_of_address:
      return ClientReject::too_many_of_address;
    case Admitted::too_fast:
      return ClientReject::too_fast;
    case Admitted::yes:
      break;
  }
  return ClientReject::too_many_logins;
}

std::string read_text_file(const std::string& path, std::string& text) {
  std::ifstream file(path);
  if (!file) return "cannot read " + path;
  std::ostringstream content;
  content << file.rdbuf();
  text = content.str();
  return {};
}

}  // namespace

Worker::Worker(ChannelHub& hub, Log& log, const Config& config, std::uint64_t seed)
    : hub_(hub),
      log_(log),
      config_(config),
      counts_(config.limits.accept),
      credentials_(config.auth.credentials),
      resolver_(hub.loop(),
                [this](const std::vector<Address>& found, const std::string& error) { resolved(found, error); }),
      verifiers_(hub, credentials_,
                 {[this] { return lookup_target(); },
                  [this](const std::string& user, const LookupFailure* failure) { verifier_found(user, failure); }}),
      passwords_(hub, config.auth.passwords, config.auth.failures, password_events()),
      pools_(config.pool_limits, gate_, seed),
      keys_(config.cancel.max_failures_per_second),
      readiness_(config.readiness.max_queue_time, config.readiness.window),
      clean_up_(hub.loop(),
                [this] {
                  gone_clients_.clear();
                  gone_servers_.clear();
                  gone_cancels_.clear();
                }),
      pools_due_(hub.loop(), [this] {
        pools_.tick(hub_.loop().now());
        act();
      }) {
  hub_.memory().set_limit(config.limits.max_memory_bytes);
  resolver_.set({config.server.host, config.server.port, config.server.dns_ttl, config.server.dns_refresh});
  verifiers_.set_query(config.auth.source == AuthSource::query ? config.auth.query : std::string(),
                       config.auth.lookup_timeout);
}

Worker::~Worker() { drop_all(); }

void Worker::resolved(const std::vector<Address>& found, const std::string& error) {
  Time now = hub_.loop().now();
  if (found.empty()) {
    log_.warning("server", "the server's name cannot be resolved", now,
                 {{"host", config_.server.host}, {"error", error}});
  } else if (found != addresses_) {
    if (!addresses_.empty()) metrics_.dns_changes++;
    addresses_ = found;
  }
  retire_forgotten(found, now);
  pools_.tick(now);
  act();
}

// An address that the name has not had for dns_forget_after is gone: its connections end when they are idle.
void Worker::retire_forgotten(const std::vector<Address>& found, Time now) {
  for (const Address& address : found) {
    auto seen = std::ranges::find(addresses_seen_, address, &std::pair<Address, Time>::first);
    if (seen == addresses_seen_.end()) {
      addresses_seen_.emplace_back(address, now);
    } else {
      seen->second = now;
    }
  }
  for (std::size_t i = addresses_seen_.size(); i-- > 0;) {
    if (now - addresses_seen_[i].second < config_.server.dns_forget_after) continue;
    for (auto& [id, entry] : servers_) {
      if (!(entry.connection->target().address == addresses_seen_[i].first)) continue;
      metrics_.recycles.add(RecycleReason::dns);
      pools_.retire(id, now);
    }
    addresses_seen_.erase(addresses_seen_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

std::shared_ptr<const Snapshot> Worker::snapshot() {
  Time now = hub_.loop().now();
  auto result = std::make_shared<Snapshot>();
  result->taken_at = now;
  PoolTotals totals = pools_.totals();
  metrics_.clients = clients_.size();
  metrics_.clients_logging_in = logins_;
  metrics_.servers = totals.servers;
  metrics_.memory_bytes = hub_.memory().held();
  metrics_.servers_max = config_.pool_limits.max_total;
  metrics_.clients_waiting_permit = totals.waiting;
  result->metrics = metrics_;
  Time oldest_wait = 0;
  pools_.for_each_pool([&](PoolId pool) {
    PoolStatus status = pools_.status(pool, now);
    const PoolKey& key = pools_.key_of(pool);
    oldest_wait = std::max(oldest_wait, status.oldest_wait);
    result->pools.push_back({key.database, key.user, facts_of(pool).transactions, status.clients, status.active,
                             status.waiting, status.active, status.idle});
  });
  bool degraded = readiness_.degraded(now, oldest_wait);
  result->ready = !draining_ && !degraded;
  result->reason = draining_ ? "draining" : degraded ? "clients wait too long" : "ready";
  return result;
}

std::string Worker::load_files() {
  std::string error;
  if (config_.client_tls.mode != ClientTlsMode::disable) {
    error = client_tls_.load(config_.client_tls.context);
    if (!error.empty()) return error;
  }
  error = server_tls_.load(config_.server_tls);
  if (!error.empty()) return error;
  const AuthConfig& auth = config_.auth;
  if (!auth.file.empty()) {
    std::string text;
    error = read_text_file(auth.file, text);
    if (!error.empty()) return error;
    CredentialFile file = read_credential_file(text);
    OPENSSL_cleanse(text.data(), text.size());
    if (!file.error.empty()) return auth.file + ": " + file.error;
    credentials_.set_file(std::move(file.entries));
  }
  if (!auth.password_file.empty()) {
    std::string password;
    if (!read_secret_file(auth.password_file, password)) return "cannot read a password from " + auth.password_file;
    lookup_password_ = Secret(password);
    OPENSSL_cleanse(password.data(), password.size());
  }
  return {};
}

std::string Worker::reload(const Config& config) {
  Config before = std::exchange(config_, config);
  std::string error = load_files();
  if (!error.empty()) {
    config_ = std::move(before);
    return error;
  }
  Time now = hub_.loop().now();
  counts_.set_limits(config_.limits.accept);
  hub_.memory().set_limit(config_.limits.max_memory_bytes);
  keys_.set_limit(config_.cancel.max_failures_per_second);
  readiness_.set(config_.readiness.max_queue_time, config_.readiness.window);
  resolver_.set({config_.server.host, config_.server.port, config_.server.dns_ttl, config_.server.dns_refresh});
  verifiers_.set_query(config_.auth.source == AuthSource::query ? config_.auth.query : std::string(),
                       config_.auth.lookup_timeout);
  verifiers_.reconnect();
  pools_.set_limits(config_.pool_limits, now);
  pools_.for_each_pool([&](PoolId pool) {
    const PoolKey& key = pools_.key_of(pool);
    const PoolConfig& pool_config = config_.pool_for(key.database, key.user);
    set_facts(facts_of(pool), pool_config);
    pools_.set_options(pool, pool_config.pool, now);
  });
  act();
  return {};
}

void Worker::accept(AcceptedClient accepted) {
  const std::string peer = accepted.address.peer();
  auto of_peer = logins_by_peer_.find(peer);
  bool too_many_logins = logins_ >= config_.limits.max_logins ||
                         (of_peer != logins_by_peer_.end() && of_peer->second >= config_.limits.max_logins_per_address);
  if (accepted.admitted != Admitted::yes || too_many_logins) {
    metrics_.client_rejects.add(reject_of(accepted.admitted));
    log_.info("login", "a client was refused at the door", hub_.loop().now(), {{"peer", peer}});
    refuse_at_the_door(accepted.descriptor);
    return;
  }
  logins_++;
  logins_by_peer_[peer]++;
  bool local = accepted.address.is_local();
  ClientLoginOptions options;
  options.tls_available = client_tls_.loaded();
  options.tls_required = config_.client_tls.mode == ClientTlsMode::require && !local;
  options.profile = config_.pool.session.profile;
  options.method = config_.auth.method;
  ClientLimits limits;
  limits.buffer_bytes = config_.limits.client_buffer_bytes;
  limits.login_timeout = config_.limits.login_timeout;
  limits.socket = config_.tcp.client;
  WaiterId id = ++last_client_;
  clients_.emplace(id, std::make_unique<ClientConnection>(hub_, id, std::move(accepted), options, &client_tls_, limits,
                                                          static_cast<ClientOwner&>(*this)));
}

void Worker::note_session_end(ClientConnection& client) {
  SessionError error = SessionError::count;
  switch (client.session()->end()) {
    case SessionEnd::none:
    case SessionEnd::shut_down:
    case SessionEnd::refused_by_pool:  // counted when the pool refused
      return;
    case SessionEnd::unsupported:
      error = SessionError::unsupported;
      break;
    case SessionEnd::protocol:
      error = SessionError::protocol;
      break;
    case SessionEnd::idle_in_transaction:
      error = SessionError::idle_in_transaction;
      break;
    case SessionEnd::client_stalled:
      error = SessionError::client_stalled;
      break;
    case SessionEnd::server_lost:
      error = SessionError::server_lost;
      break;
    case SessionEnd::server_fatal:
    case SessionEnd::setup_failed:
      error = SessionError::server_fatal;
      break;
    case SessionEnd::server_protocol:
      error = SessionError::server_protocol;
      break;
  }
  metrics_.session_errors.add(error);
  log_.info("session", "a session was ended", hub_.loop().now(),
            {{"user", client.user()},
             {"database", client.database()},
             {"peer", client.peer()},
             {"error", session_error_name(error)}});
}

void Worker::client_finished(ClientConnection& client) {
  keys_.forget(client.id());
  if (client.session() != nullptr) note_session_end(client);
  Time now = hub_.loop().now();
  if (client.attached) {
    client.attached = false;
    pools_.detach(client.pool, now);
    auto leave = [](std::unordered_map<std::string, std::uint32_t>& counts, const std::string& name) {
      auto found = counts.find(name);
      if (found != counts.end() && --found->second == 0) counts.erase(found);
    };
    leave(clients_by_role_, client.user());
    leave(clients_by_database_, client.database());
  }
  auto found = clients_.find(client.id());
  if (found == clients_.end()) return;
  gone_clients_.push_back(std::move(found->second));
  clients_.erase(found);
  clean_up_.at_turn_end();
  act();
}

void Worker::end_sessions() {
  const wire::ErrorText error = {"FATAL", "57P01", "terminating connection due to administrator command", {}, {}};
  std::vector<WaiterId> ids;
  for (const auto& [id, client] : clients_) ids.push_back(id);
  for (WaiterId id : ids) {
    if (ClientConnection* client = client_of(id)) client->shut_down(error);
  }
}

void Worker::drop_all() {
  std::vector<WaiterId> ids;
  for (const auto& [id, client] : clients_) ids.push_back(id);
  for (WaiterId id : ids) {
    if (ClientConnection* client = client_of(id)) client->drop();
  }
  for (auto& [id, entry] : servers_) entry.connection->close();
}

Worker::ServerEntry* Worker::entry_of(ServerId id) {
  auto found = servers_.find(id);
  return found == servers_.end() ? nullptr : &found->second;
}

ClientConnection* Worker::client_of(WaiterId id) {
  auto found = clients_.find(id);
  return found == clients_.end() ? nullptr : found->second.get();
}

Worker::PoolFacts& Worker::facts_of(PoolId pool) {
  if (pool >= facts_.size()) facts_.resize(pool + 1);
  if (facts_[pool] == nullptr) facts_[pool] = std::make_unique<PoolFacts>();
  return *facts_[pool];
}

void Worker::set_facts(PoolFacts& facts, const PoolConfig& config) const {
  facts.pins.limit = config.pool.mode == PoolMode::session ? config.pool.max_size : config.pool.max_size / 2;
  auto session = std::make_shared<SessionOptions>(config.session);
  session->pins = &facts.pins;
  session->keeps_server = config.pool.mode == PoolMode::session;
  facts.session = std::move(session);
  facts.limits.buffer_bytes = config_.limits.client_buffer_bytes;
  facts.limits.login_timeout = config_.limits.login_timeout;
  facts.limits.socket = config_.tcp.client;
  facts.limits.stall_timeout = config.client_stall_timeout;
}

}  // namespace sluice::proxy
