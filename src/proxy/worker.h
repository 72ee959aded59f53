// The clients and server connections of one loop, and everything decided between them: logins against the credentials,
// the pools, cancels, and how it all ends. Carries out what the pools ask for; decides nothing that they, the logins or
// the sessions decide. Belongs to the loop's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "proxy/cancel_keys.h"
#include "proxy/cancel_request.h"
#include "proxy/client_connection.h"
#include "proxy/config.h"
#include "proxy/connect_gate.h"
#include "proxy/credentials.h"
#include "proxy/greeting.h"
#include "proxy/log.h"
#include "proxy/metrics.h"
#include "proxy/password_verifier.h"
#include "proxy/pools.h"
#include "proxy/readiness.h"
#include "proxy/resolver.h"
#include "proxy/server_connection.h"
#include "proxy/verifier_source.h"

namespace sluice::proxy {

class Worker final : private ClientOwner, private ServerOwner {
 public:
  // All of them outlive the worker.
  Worker(ChannelHub& hub, Log& log, const Config& config, std::uint64_t seed);
  ~Worker();

  // Certificates and files anew. An empty answer is success; otherwise what was loaded before stays in use.
  [[nodiscard]] std::string load_files();
  // Everything that may change while it runs.
  [[nodiscard]] std::string reload(const Config& config);

  void accept(AcceptedClient accepted);

  // New logins get 57P03 from now on.
  void begin_drain() noexcept { draining_ = true; }
  // Idle clients are told to go now, busy ones at the end of what they are doing.
  void end_sessions();
  void drop_all();
  [[nodiscard]] std::size_t clients() const noexcept { return clients_.size(); }
  [[nodiscard]] ClientCounts& counts() noexcept { return counts_; }
  void note_failed_reload() noexcept { metrics_.certificate_reloads_failed++; }
  // What /metrics, /readyz and /pools show.
  [[nodiscard]] std::shared_ptr<const Snapshot> snapshot();

 private:
  // What is kept for a pool while there is one.
  struct PoolFacts {
    PinBudget pins;
    std::shared_ptr<const SessionOptions> session;  // of sessions that begin from now on
    ClientLimits limits;
    std::vector<Setting> snapshot;  // what its newest connection reported at its login
    bool has_snapshot = false;
    std::uint64_t transactions = 0;
    std::unordered_map<std::string, std::vector<Setting>> greetings;  // by startup settings
  };
  // What a server connection is doing for whom.
  struct ServerEntry {
    std::unique_ptr<ServerConnection> connection;
    PoolId pool = 0;
    ClientConnection* client = nullptr;
    WaiterId greeted = 0;  // the client whose greeting it finds out
    std::unique_ptr<Greeting> greeting;
    std::unique_ptr<CancelRequest> cancel;
    bool checking = false;
    bool pinned = false;  // the pools know that its client keeps it
    bool held = false;    // given back, but a cancel is still on its way
    bool held_reusable = false;
  };

  void client_wants_verifier(ClientConnection& client) override;
  void client_wants_password_checked(ClientConnection& client) override;
  void client_wants_snapshot(ClientConnection& client) override;
  void client_cancels(const wire::CancelTarget& target) override;
  void client_login_ended(ClientConnection& client) override;
  void client_waits(ClientConnection& client) override;
  void client_leaves_queue(ClientConnection& client) override;
  void client_released(ClientConnection& client, ServerConnection& server, Discard discard) override;
  void client_wants_cancel(ClientConnection& client) override;
  void client_finished(ClientConnection& client) override;

  void server_opened(ServerConnection& server) override;
  void server_open_failed(ServerConnection& server, const ConnectFailure& failure) override;
  void server_received(ServerConnection& server, wire::Bytes bytes) override;
  void server_ended(ServerConnection& server) override;
  void server_drained(ServerConnection& server) override;

  void retire_forgotten(const std::vector<Address>& found, Time now);
  void resolved(const std::vector<Address>& found, const std::string& error);
  [[nodiscard]] PasswordVerifier::Events password_events();
  [[nodiscard]] bool refused_by_drain(ClientConnection& client);
  [[nodiscard]] bool find_verifier(ClientConnection& client);
  void note_login_end(ClientConnection& client);
  void note_session_end(ClientConnection& client);
  void verifier_found(const std::string& user, const LookupFailure* failure);
  [[nodiscard]] std::optional<wire::ErrorText> attach(ClientConnection& client);
  void greet(ClientConnection& client);
  void finish_greeting(ClientConnection& client, const std::vector<Setting>& parameters);
  void greeting_progress(ServerEntry& entry);

  void act();
  void act_on(const PoolAction& action);
  void open(const PoolAction& action);
  void assign(const PoolAction& action);
  void check(ServerId id);
  void refuse(const PoolAction& action);
  void close(ServerId id);
  void give_back(ServerEntry& entry, bool reusable);
  void forget_server(ServerId id);
  void start_cancel(ServerEntry& entry);
  void cancel_done(ServerId id, CancelOutcome result);

  [[nodiscard]] ServerTarget target_for(const std::string& user, const std::string& database);
  [[nodiscard]] ServerTarget lookup_target();
  [[nodiscard]] ScramSecret secret_of(const std::string& user);
  void forget_keys(const std::string& user, const Verifier& verifier);
  [[nodiscard]] ServerEntry* entry_of(ServerId id);
  [[nodiscard]] ClientConnection* client_of(WaiterId id);
  [[nodiscard]] PoolFacts& facts_of(PoolId pool);
  void set_facts(PoolFacts& facts, const PoolConfig& config) const;
  void set_deadline();

  ChannelHub& hub_;
  Log& log_;
  Config config_;
  TlsServerContext client_tls_;
  TlsClientContext server_tls_;
  ClientCounts counts_;
  Credentials credentials_;
  Resolver resolver_;
  VerifierSource verifiers_;
  PasswordVerifier passwords_;
  OpenGate gate_;
  Pools pools_;
  CancelKeys keys_;
  Metrics metrics_;
  Readiness readiness_;

  std::unordered_map<WaiterId, std::unique_ptr<ClientConnection>> clients_;
  std::unordered_map<ServerId, ServerEntry> servers_;
  std::vector<std::unique_ptr<PoolFacts>> facts_;  // by PoolId
  std::unordered_map<std::string, std::vector<WaiterId>> waiting_for_verifier_;
  std::unordered_map<std::string, std::uint32_t> logins_by_peer_;
  std::unordered_map<std::string, std::uint32_t> clients_by_role_;
  std::unordered_map<std::string, std::uint32_t> clients_by_database_;
  std::uint32_t logins_ = 0;  // in progress
  // What the server's name stood for last, and when each address was last among it.
  std::vector<Address> addresses_;
  std::vector<std::pair<Address, Time>> addresses_seen_;
  Secret lookup_password_;
  WaiterId last_client_ = 0;

  // What is gone but may still be on the stack, until the turn has ended.
  std::vector<std::unique_ptr<ClientConnection>> gone_clients_;
  std::vector<ServerEntry> gone_servers_;
  std::vector<std::unique_ptr<CancelRequest>> gone_cancels_;
  Task clean_up_;
  Timer pools_due_;
  bool acting_ = false;
  bool draining_ = false;
};

}  // namespace sluice::proxy
