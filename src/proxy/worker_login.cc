// The logins of a worker's clients: verifiers, pools, and what a client is greeted with.
#include <openssl/crypto.h>

#include <utility>

#include "proxy/worker.h"

namespace sluice::proxy {
namespace {

// Startup settings as one text: the strict profile's part of the pool's key, and the name of a greeting. Names and
// values hold no NUL.
std::string canonical(const std::vector<Setting>& settings, bool with_application_name) {
  std::string text;
  for (const Setting& setting : settings) {
    if (!with_application_name && same_setting(setting.name, "application_name")) continue;
    text += folded_name(setting.name);
    text += '=';
    text += setting.value;
    text += '\0';
  }
  return text;
}

}  // namespace

void Worker::client_wants_verifier(ClientConnection& client) {
  if (refused_by_drain(client)) return;
  metrics_.credential_cache.add(find_verifier(client) ? CacheResult::hit : CacheResult::miss);
}

bool Worker::refused_by_drain(ClientConnection& client) {
  if (!draining_) return false;
  metrics_.client_rejects.add(ClientReject::draining);
  client.refuse_login(wire::ErrorText{"FATAL", "57P03", "the proxy is shutting down", {}, {}});
  return true;
}

// False if the client has to wait for a lookup.
bool Worker::find_verifier(ClientConnection& client) {
  const std::string user = client.user();
  FoundVerifier found = credentials_.find(user, hub_.loop().now());
  switch (found.kind) {
    case FindKind::verifier:
    case FindKind::unknown:
    case FindKind::unusable:
      client.verifier(found);
      return true;
    case FindKind::lookup_running:
      waiting_for_verifier_[user].push_back(client.id());
      return false;
    case FindKind::lookup_needed:
      break;
  }
  waiting_for_verifier_[user].push_back(client.id());
  if (config_.auth.source == AuthSource::file) {
    credentials_.lookup_done(user, {}, hub_.loop().now());  // whoever is not in the file is nobody
    verifier_found(user, nullptr);
    return false;
  }
  verifiers_.look_up(user);
  return false;
}

void Worker::verifier_found(const std::string& user, const LookupFailure* failure) {
  auto found = waiting_for_verifier_.find(user);
  if (found == waiting_for_verifier_.end()) return;
  std::vector<WaiterId> waiting = std::move(found->second);
  waiting_for_verifier_.erase(found);
  for (WaiterId id : waiting) {
    ClientConnection* client = client_of(id);
    if (client == nullptr) continue;
    if (failure == nullptr) {
      (void)find_verifier(*client);
      continue;
    }
    metrics_.auth_failures.add(AuthFailure::unavailable);
    log_.warning("login", "a role's verifier could not be read", hub_.loop().now(),
                 {{"user", user}, {"sqlstate", failure->sqlstate}, {"error", failure->message}});
    client->refuse_login(wire::ErrorText{"FATAL", "08006", "the role cannot be verified at the moment", {}, {}});
  }
}

void Worker::client_wants_password_checked(ClientConnection& client) {
  if (refused_by_drain(client)) return;
  passwords_.ask(client.id(), client.user(), client.database(), client.peer(), client.login().password());
}

PasswordVerifier::Events Worker::password_events() {
  PasswordVerifier::Events events;
  events.target = [this](const std::string& user, const std::string& database) { return target_for(user, database); };
  events.accepted = [this](LoginNumber login) {
    if (ClientConnection* client = client_of(login)) client->password_accepted();
  };
  events.rejected = [this](LoginNumber login, bool rate_limited) {
    metrics_.auth_failures.add(rate_limited ? AuthFailure::rate_limited : AuthFailure::rejected);
    if (ClientConnection* client = client_of(login)) client->refuse_password();
  };
  events.unavailable = [this](LoginNumber login, const wire::ErrorFields* error, const std::string& message) {
    metrics_.auth_failures.add(AuthFailure::unavailable);
    ClientConnection* client = client_of(login);
    if (client == nullptr) return;
    if (error != nullptr) {
      client->refuse_login(*error);
    } else {
      client->refuse_login(wire::ErrorText{"FATAL", "08006", message, {}, {}});
    }
  };
  events.busy = [this](LoginNumber login) {
    metrics_.auth_failures.add(AuthFailure::verification_busy);
    ClientConnection* client = client_of(login);
    if (client == nullptr) return;
    client->refuse_login(
        wire::ErrorText{"FATAL", "53300", "too many logins are being verified", {}, "Try again later."});
  };
  return events;
}

// Gives the client its place in a pool, or the reason why it gets none.
std::optional<wire::ErrorText> Worker::attach(ClientConnection& client) {
  const auto too_many = [](std::string_view message) {
    return wire::ErrorText{"FATAL", "53300", message, {}, "Try again later."};
  };
  const LimitsConfig& limits = config_.limits;
  if (limits.max_clients_per_role > 0 && clients_by_role_[client.user()] >= limits.max_clients_per_role) {
    return too_many("too many connections of this role to the proxy");
  }
  if (limits.max_clients_per_database > 0 &&
      clients_by_database_[client.database()] >= limits.max_clients_per_database) {
    return too_many("too many connections to this database through the proxy");
  }
  const PoolConfig& config = config_.pool_for(client.database(), client.user());
  PoolKey key{client.user(), client.database(), {}};
  if (config.session.profile == Profile::strict) key.startup = canonical(client.login().parameters().settings, false);
  Attachment attachment = pools_.attach(key, config.pool, hub_.loop().now());
  act();  // it may have got the number of a pool that was forgotten for it
  if (attachment.refused) {
    if (*attachment.refused == RefuseReason::too_many_pools) return too_many("too many pools");
    return wire::ErrorText{"FATAL",
                           "0A000",
                           "this role and database are in use with two other sets of startup options",
                           {},
                           "Use the same startup options in all clients, or the compatible profile."};
  }
  client.pool = attachment.pool;
  client.attached = true;
  clients_by_role_[client.user()]++;
  clients_by_database_[client.database()]++;
  PoolFacts& facts = facts_of(client.pool);
  if (facts.session == nullptr) set_facts(facts, config);
  return std::nullopt;
}

void Worker::client_wants_snapshot(ClientConnection& client) {
  if (config_.auth.method == ClientMethod::scram) credentials_.proved(client.user(), client.login().client_keys());
  if (std::optional<wire::ErrorText> refusal = attach(client)) {
    client.refuse_login(*refusal);
    return;
  }
  greet(client);
}

void Worker::greet(ClientConnection& client) {
  PoolFacts& facts = facts_of(client.pool);
  const std::vector<Setting>& startup = client.login().parameters().settings;
  if (facts.has_snapshot) {
    if (facts.session->profile == Profile::strict || needs_no_server(facts.snapshot, startup)) {
      finish_greeting(client, overlaid(facts.snapshot, startup));
      return;
    }
    auto known = facts.greetings.find(canonical(startup, false));
    if (known != facts.greetings.end()) {
      finish_greeting(client, overlaid(known->second, startup));
      return;
    }
  }
  pools_.acquire(client.pool, client.id(), hub_.loop().now());
  act();
}

void Worker::finish_greeting(ClientConnection& client, const std::vector<Setting>& parameters) {
  std::optional<wire::BackendKey> key = keys_.issue(client.id(), client.login().version());
  if (!key) {
    client.refuse_login(wire::ErrorText{"FATAL", "58000", "the proxy has no source of randomness", {}, {}});
    return;
  }
  PoolFacts& facts = facts_of(client.pool);
  Settings startup;
  if (facts.session->profile == Profile::compatible) startup = to_settings(client.login().parameters().settings);
  client.snapshot(parameters, *key, facts.session, facts.limits, startup, to_settings(parameters));
}

// The server connection of a greeting said something, or ended.
void Worker::greeting_progress(ServerEntry& entry) {
  Greeting& greeting = *entry.greeting;
  if (!greeting.finished()) return;
  ClientConnection* client = client_of(std::exchange(entry.greeted, 0));
  std::unique_ptr<Greeting> kept = std::move(entry.greeting);
  if (entry.connection->is_open()) give_back(entry, kept->discard() == Discard::none);
  if (client == nullptr) return;
  wire::ErrorFields fields;
  if (!kept->error().empty() && wire::read_error(kept->error(), fields)) {
    (void)fields.set('S', "FATAL");
    (void)fields.set('V', "FATAL");
    client->refuse_login(fields);
    return;
  }
  if (kept->discard() != Discard::none) {
    client->refuse_login(wire::ErrorText{"FATAL", "08006", "the startup settings could not be applied", {}, {}});
    return;
  }
  constexpr std::size_t kMaxGreetings = 64;  // of one pool; drivers have a handful
  PoolFacts& facts = facts_of(client->pool);
  if (facts.greetings.size() >= kMaxGreetings) facts.greetings.clear();
  const std::vector<Setting>& startup = client->login().parameters().settings;
  facts.greetings[canonical(startup, false)] = kept->parameters();
  finish_greeting(*client, overlaid(kept->parameters(), startup));
}

void Worker::client_login_ended(ClientConnection& client) {
  logins_--;
  auto found = logins_by_peer_.find(client.peer());
  if (found != logins_by_peer_.end() && --found->second == 0) logins_by_peer_.erase(found);
  // A wait for a snapshot ends with the login.
  if (client.attached) (void)pools_.leave(client.id(), hub_.loop().now());
  passwords_.withdraw(client.id());
  note_login_end(client);
}

void Worker::note_login_end(ClientConnection& client) {
  const ClientLogin& login = client.login();
  Time now = hub_.loop().now();
  switch (login.outcome()) {
    case LoginOutcome::accepted:
      log_.debug("login", "a client has logged in", now,
                 {{"user", client.user()}, {"database", client.database()}, {"peer", client.peer()}});
      return;
    case LoginOutcome::cancel:
      return;
    case LoginOutcome::rejected:
      credentials_.proof_failed(client.user(), now);
      [[fallthrough]];
    case LoginOutcome::unknown_role:
    case LoginOutcome::unusable_role:
    case LoginOutcome::channel_binding:
      metrics_.auth_failures.add(AuthFailure::rejected);
      break;
    case LoginOutcome::running:
      metrics_.client_rejects.add(login.phase() == LoginPhase::tls_handshake ? ClientReject::tls_handshake
                                                                             : ClientReject::disconnected);
      break;
    case LoginOutcome::refused:
      if (client.login_timed_out()) metrics_.client_rejects.add(ClientReject::login_timeout);
      break;
    case LoginOutcome::tls_required:
    case LoginOutcome::protocol:
    case LoginOutcome::unsupported:
      metrics_.client_rejects.add(ClientReject::protocol);
      break;
  }
  log_.info("login", "a login did not succeed", now,
            {{"user", client.user()},
             {"database", client.database()},
             {"peer", client.peer()},
             {"phase", phase_name(login.phase())},
             {"reason", login.reason()}});
}

// What the pools' connections of a role log in with.
ScramSecret Worker::secret_of(const std::string& user) {
  if (config_.auth.method == ClientMethod::password) {
    ScramSecret secret;
    if (const ClientKeys* keys = passwords_.check().keys(user)) {
      secret.has_keys = true;
      secret.keys = *keys;
    }
    return secret;
  }
  return credentials_.server_secret(user);
}

void Worker::forget_keys(const std::string& user, const Verifier& verifier) {
  if (config_.auth.method == ClientMethod::password) {
    passwords_.check().server_refused(user, verifier);
  } else {
    credentials_.server_refused(user, verifier, hub_.loop().now());
  }
}

ServerTarget Worker::lookup_target() {
  ServerTarget target = target_for(config_.auth.user, config_.auth.database);
  target.secret = {};
  target.secret.password = lookup_password_;
  return target;
}

}  // namespace sluice::proxy
