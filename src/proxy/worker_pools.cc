// What a worker's pools ask for, carried out on its connections; and the cancels, which concern assignments.
#include <array>
#include <utility>

#include "proxy/worker.h"
#include "wire/frontend_messages.h"

namespace sluice::proxy {
namespace {

// The startup settings that are part of a pool's key (strict profile): name, '=', value and a NUL each.
std::vector<Setting> settings_of(std::string_view startup) {
  std::vector<Setting> settings;
  while (!startup.empty()) {
    std::string_view pair = startup.substr(0, startup.find('\0'));
    startup.remove_prefix(pair.size() + 1);
    std::size_t equals = pair.find('=');
    settings.push_back({std::string(pair.substr(0, equals)), std::string(pair.substr(equals + 1))});
  }
  return settings;
}

ConnectError connect_error_of(const ConnectFailure& failure) {
  if (failure.kind == FailureKind::rejected) return ConnectError::rejected;
  if (failure.kind == FailureKind::full) {
    return failure.sqlstate == "57P03" ? ConnectError::starting : ConnectError::full;
  }
  return failure.sqlstate == "08P01" ? ConnectError::protocol : ConnectError::unreachable;
}

RecycleReason recycle_reason_of(CloseReason reason) {
  switch (reason) {
    case CloseReason::idle_timeout:
      return RecycleReason::idle;
    case CloseReason::lifetime:
      return RecycleReason::lifetime;
    case CloseReason::surplus:
      return RecycleReason::surplus;
    case CloseReason::over_limit:
    case CloseReason::evicted:
      return RecycleReason::limit;
    case CloseReason::check_failed:
      return RecycleReason::check_failed;
    case CloseReason::snapshot_moved:
      return RecycleReason::snapshot;
    case CloseReason::not_reusable:
    case CloseReason::retired:
    case CloseReason::connect_timeout:
      break;
  }
  return RecycleReason::broken;
}

RecycleReason recycle_reason_of(Discard discard) {
  switch (discard) {
    case Discard::client_left:
    case Discard::client_stalled:
    case Discard::idle_in_transaction:
      return RecycleReason::client_gone;
    case Discard::cancelled:
      return RecycleReason::cancelled;
    case Discard::settings:
    case Discard::parameters_changed:
    case Discard::unsafe_text:
    case Discard::untracked:
      return RecycleReason::settings;
    default:
      return RecycleReason::broken;
  }
}

WaitSource wait_source_of(AssignSource source) {
  switch (source) {
    case AssignSource::idle:
      return WaitSource::idle;
    case AssignSource::released:
      return WaitSource::released;
    case AssignSource::opened:
      break;
  }
  return WaitSource::opened;
}

SessionError session_error_of(RefuseReason reason) {
  if (reason == RefuseReason::connect_failed) return SessionError::connect_failed;
  return reason == RefuseReason::wait_timeout ? SessionError::wait_timeout : SessionError::too_many_waiters;
}

}  // namespace

// --- What clients ask of their pool ---

void Worker::client_waits(ClientConnection& client) {
  pools_.acquire(client.pool, client.id(), hub_.loop().now());
  act();
}

void Worker::client_leaves_queue(ClientConnection& client) {
  (void)pools_.leave(client.id(), hub_.loop().now());
  act();
}

void Worker::client_released(ClientConnection&, ServerConnection& server, Discard discard) {
  ServerEntry* entry = entry_of(server.id());
  if (entry == nullptr) return;
  entry->client = nullptr;
  facts_of(entry->pool).transactions++;
  if (discard != Discard::none) metrics_.recycles.add(recycle_reason_of(discard));
  give_back(*entry, discard == Discard::none);
}

// A backend that a cancel is still on its way to is nobody's until that cancel has arrived. One that is not to be used
// again is cancelled all the same: closing its connection would not end what it runs.
void Worker::give_back(ServerEntry& entry, bool reusable) {
  ServerId id = entry.connection->id();
  entry.pinned = false;
  if (entry.cancel != nullptr && (!reusable || !entry.cancel->withdraw())) {
    entry.held = true;
    entry.held_reusable = reusable;
    return;
  }
  pools_.released(id, reusable, hub_.loop().now());
  act();
}

// --- What the pools ask for ---

void Worker::act() {
  if (std::exchange(acting_, true)) return;
  while (std::optional<PoolAction> action = pools_.next_action()) act_on(*action);
  acting_ = false;
  set_deadline();
}

void Worker::set_deadline() { pools_due_.set(pools_.next_deadline()); }

void Worker::act_on(const PoolAction& action) {
  switch (action.kind) {
    case PoolActionKind::open:
      open(action);
      return;
    case PoolActionKind::assign:
      assign(action);
      return;
    case PoolActionKind::check:
      check(action.server);
      return;
    case PoolActionKind::close:
      if (action.close_reason != CloseReason::not_reusable) {
        metrics_.recycles.add(recycle_reason_of(action.close_reason));
      }
      close(action.server);
      return;
    case PoolActionKind::refuse:
      refuse(action);
      return;
    case PoolActionKind::forget:
      if (action.pool < facts_.size()) facts_[action.pool].reset();
      return;
  }
}

ServerTarget Worker::target_for(const std::string& user, const std::string& database) {
  ServerTarget target;
  if (std::optional<Address> address = resolver_.address()) target.address = *address;
  target.host = config_.server.host;
  target.socket = config_.tcp.server;
  target.tls = &server_tls_;
  target.login = config_.server.login;
  target.login.tls = server_tls_.loaded() && !target.address.is_local();
  target.user = user;
  target.database = database;
  target.secret = secret_of(user);
  return target;
}

void Worker::open(const PoolAction& action) {
  const PoolKey& key = pools_.key_of(action.pool);
  ServerTarget target = target_for(key.user, key.database);
  target.settings = settings_of(key.startup);
  if (config_.pool_for(key.database, key.user).read_only) {
    target.settings.push_back({"default_transaction_read_only", "on"});
  }
  Time now = hub_.loop().now();
  metrics_.server_connects++;
  if (target.address.length() == 0) {
    std::string why = resolver_.asked() ? resolver_.error() : "its address is not known yet";
    pools_.open_failed(action.server, {FailureKind::unreachable, "08006", config_.server.host + ": " + why}, now);
    return;
  }
  if (!target.secret.has_keys && target.secret.password.empty()) {
    pools_.open_failed(action.server, {FailureKind::rejected, "28P01", "the role's password has changed: log in again"},
                       now);
    return;
  }
  ServerEntry& entry = servers_[action.server];
  entry.pool = action.pool;
  entry.connection =
      std::make_unique<ServerConnection>(hub_, action.server, std::move(target), static_cast<ServerOwner&>(*this));
  entry.connection->open();
}

void Worker::server_opened(ServerConnection& server) {
  ServerEntry* entry = entry_of(server.id());
  if (entry == nullptr) return;
  Time now = hub_.loop().now();
  PoolFacts& facts = facts_of(entry->pool);
  bool moved = facts.has_snapshot && facts.snapshot != server.login().parameters();
  facts.snapshot = server.login().parameters();
  if (config_.auth.method == ClientMethod::scram && server.login().has_keys()) {
    credentials_.logged_in(server.user(), server.login().keys());
  }
  facts.has_snapshot = true;
  pools_.opened(server.id(), now);
  if (moved) {
    facts.greetings.clear();
    pools_.snapshot_moved(server.id(), now);
  }
  act();
}

void Worker::server_open_failed(ServerConnection& server, const ConnectFailure& failure) {
  ServerId id = server.id();
  Time now = hub_.loop().now();
  metrics_.connect_errors.add(connect_error_of(failure));
  log_.warning("server", "a server connection could not be opened", now,
               {{"user", server.user()},
                {"database", server.target().database},
                {"sqlstate", failure.sqlstate},
                {"error", failure.message}});
  if (server.keys_outdated() || (failure.sqlstate == "28P01" && server.secret_sent())) {
    forget_keys(server.user(), server.login().keys().verifier);
  }
  forget_server(id);
  pools_.open_failed(id, failure, now);
  act();
}

void Worker::assign(const PoolAction& action) {
  ServerEntry* entry = entry_of(action.server);
  ClientConnection* client = client_of(action.waiter);
  readiness_.waited(action.waited, hub_.loop().now());
  metrics_.pool_wait[static_cast<std::size_t>(wait_source_of(action.source))].add(action.waited);
  if (entry == nullptr) return;
  if (client == nullptr) {
    give_back(*entry, true);
    return;
  }
  if (client->logged_in()) {
    entry->client = client;
    client->assign(*entry->connection);
    return;
  }
  // It waits for what it is to be greeted with.
  PoolFacts& facts = facts_of(client->pool);
  const std::vector<Setting>& startup = client->login().parameters().settings;
  if (facts.session->profile == Profile::strict || needs_no_server(facts.snapshot, startup)) {
    give_back(*entry, true);
    finish_greeting(*client, overlaid(facts.snapshot, startup));
    return;
  }
  entry->greeted = client->id();
  entry->greeting = std::make_unique<Greeting>(*facts.session, client->id(), startup, facts.snapshot);
  entry->greeting->assign(entry->connection->state(), hub_.loop().now(), *entry->connection);
  greeting_progress(*entry);
}

// One round trip: a Sync, whose only answer is that nothing is under way.
void Worker::check(ServerId id) {
  ServerEntry* entry = entry_of(id);
  if (entry == nullptr) return;
  entry->checking = true;
  std::array<std::uint8_t, 5> sync;
  wire::ByteWriter out(sync);
  wire::write_sync(out);
  entry->connection->send(out.written());
}

void Worker::refuse(const PoolAction& action) {
  ClientConnection* client = client_of(action.waiter);
  if (client == nullptr) return;
  readiness_.waited(action.waited, hub_.loop().now());
  metrics_.session_errors.add(session_error_of(action.refuse_reason));
  wire::ErrorText error = {"FATAL", "53300", "timed out waiting for a server connection", {}, {}};
  switch (action.refuse_reason) {
    case RefuseReason::wait_timeout:
      break;
    case RefuseReason::too_many_waiters:
      error = {"FATAL", "53300", "too many clients wait for a server connection", {}, "Try again later."};
      if (facts_of(client->pool).session->profile == Profile::compatible) error.sqlstate = "53000";
      break;
    case RefuseReason::connect_failed:
      error = {"FATAL", "08006", "the server cannot be reached", {}, {}};
      break;
    case RefuseReason::too_many_startup_sets:
      error = {"FATAL", "0A000", "too many different sets of startup options", {}, {}};
      break;
    case RefuseReason::too_many_pools:
      error = {"FATAL", "53300", "too many pools", {}, {}};
      break;
  }
  if (action.failure != nullptr) {
    error.sqlstate = action.failure->sqlstate;
    error.message = action.failure->message;
  }
  if (client->logged_in()) {
    client->refuse_wait(error);
  } else {
    client->refuse_login(error);
  }
}

void Worker::close(ServerId id) {
  ServerEntry* entry = entry_of(id);
  if (entry != nullptr) {
    entry->connection->close();
    forget_server(id);
  }
  pools_.lost(id, hub_.loop().now());
}

void Worker::forget_server(ServerId id) {
  auto found = servers_.find(id);
  if (found == servers_.end()) return;
  if (found->second.cancel != nullptr) gone_cancels_.push_back(std::move(found->second.cancel));
  gone_servers_.push_back(std::move(found->second));
  servers_.erase(found);
  clean_up_.at_turn_end();
}

// --- What servers say ---

void Worker::server_received(ServerConnection& server, wire::Bytes bytes) {
  ServerEntry* entry = entry_of(server.id());
  if (entry == nullptr) return;
  if (ClientConnection* client = entry->client) {
    client->server_received(bytes);
    // What the client did may have made the connection its own; or the connection may be gone by now.
    entry = entry_of(server.id());
    if (entry != nullptr && entry->client == client && !entry->pinned && client->session()->pinned()) {
      entry->pinned = pools_.pin(server.id());
    }
    return;
  }
  if (entry->greeting != nullptr) {
    entry->greeting->take_server(bytes, hub_.loop().now(), *entry->connection);
    greeting_progress(*entry);
    return;
  }
  constexpr std::array<std::uint8_t, 6> kReady = {'Z', 0, 0, 0, 5, 'I'};
  if (entry->checking && std::equal(bytes.begin(), bytes.end(), kReady.begin(), kReady.end())) {
    entry->checking = false;
    pools_.checked(server.id(), true, hub_.loop().now());
    act();
    return;
  }
  if (entry->held) return;  // the rest of what is being cancelled
  // Nobody asked: it is not to be trusted with anybody's query. Most often it is the server's farewell.
  ServerId id = server.id();
  server.close();
  forget_server(id);
  pools_.lost(id, hub_.loop().now());
  act();
}

void Worker::server_ended(ServerConnection& server) {
  ServerId id = server.id();
  ServerEntry* entry = entry_of(id);
  if (entry == nullptr) return;
  ClientConnection* client = std::exchange(entry->client, nullptr);
  if (entry->greeting != nullptr) {
    entry->greeting->server_lost(hub_.loop().now(), *entry->connection);
    greeting_progress(*entry);
  }
  if (client != nullptr) client->server_lost();
  forget_server(id);
  pools_.lost(id, hub_.loop().now());
  act();
}

void Worker::server_drained(ServerConnection& server) {
  ServerEntry* entry = entry_of(server.id());
  if (entry != nullptr && entry->client != nullptr) entry->client->server_drained();
}

// --- Cancels ---

void Worker::client_cancels(const wire::CancelTarget& target) {
  CancelKeys::Found found = keys_.find(target, hub_.loop().now());
  ClientConnection* client = found.kind == CancelLookup::found ? client_of(found.client) : nullptr;
  if (client == nullptr || !client->logged_in()) {
    metrics_.cancels.add(found.kind == CancelLookup::rate_limited ? CancelResult::rate_limited
                                                                  : CancelResult::unknown_key);
    return;
  }
  if (client->waiting()) {
    (void)pools_.leave(client->id(), hub_.loop().now());
    client->refuse_wait({"ERROR", "57014", "canceling statement due to user request", {}, {}});
    act();
    return;
  }
  ServerEntry* entry = client->server() == nullptr ? nullptr : entry_of(client->server()->id());
  if (entry == nullptr || !client->session()->accepts_cancel()) {
    metrics_.cancels.add(CancelResult::too_late);
    return;
  }
  start_cancel(*entry);
}

void Worker::client_wants_cancel(ClientConnection& client) {
  ServerEntry* entry = client.server() == nullptr ? nullptr : entry_of(client.server()->id());
  if (entry != nullptr) start_cancel(*entry);
}

void Worker::start_cancel(ServerEntry& entry) {
  if (entry.cancel != nullptr) return;  // one is on its way already
  ServerConnection& server = *entry.connection;
  ServerId id = server.id();
  entry.cancel = std::make_unique<CancelRequest>(
      hub_, server.target(), server.login().process_id(), server.login().cancel_key(), config_.cancel.timeout,
      [this, id](CancelRequest&, CancelOutcome result) { cancel_done(id, result); });
  if (entry.client != nullptr) entry.client->session()->cancel_sent();
  entry.cancel->start();
}

void Worker::cancel_done(ServerId id, CancelOutcome result) {
  metrics_.cancels.add(result == CancelOutcome::delivered   ? CancelResult::sent
                       : result == CancelOutcome::timed_out ? CancelResult::timeout
                                                            : CancelResult::failed);
  ServerEntry* entry = entry_of(id);
  if (entry == nullptr) return;
  gone_cancels_.push_back(std::move(entry->cancel));
  clean_up_.at_turn_end();
  if (!std::exchange(entry->held, false)) return;
  // One that may still arrive some day makes the backend nobody's for good.
  pools_.released(id, entry->held_reusable && result != CancelOutcome::timed_out, hub_.loop().now());
  act();
}

}  // namespace sluice::proxy
