// The proxy's configuration: a TOML file, then the environment over it, then checks of what must fit together. Owns the
// values only; settings.h is the one list of every setting's name, default, unit, limits and meaning, from which the
// parser, the environment, the example file and the documentation come.
//
// Nothing here changes after load_config(). A reload loads anew and compares (needs_restart()).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/listener.h"
#include "proxy/login_options.h"
#include "proxy/pool_options.h"
#include "proxy/session_options.h"
#include "proxy/stream.h"
#include "proxy/time.h"
#include "proxy/tls_context.h"

namespace sluice::proxy {

inline constexpr std::size_t kMaxConfigBytes = 1024 * 1024;
inline constexpr std::size_t kMaxPoolExceptions = 4096;
inline constexpr char kEnvironmentPrefix[] = "SLUICE_PROXY_";

// [client_tls]: what clients are asked for.
enum class ClientTlsMode : std::uint8_t {
  disable,  // 'N' to SSLRequest; direct TLS is closed
  allow,    // the client decides
  require,  // a StartupMessage in the clear gets FATAL 28000; Unix sockets are exempt
};

struct ClientTlsConfig {
  ClientTlsMode mode = ClientTlsMode::require;
  TlsServerOptions context;
};

// [server]: the PostgreSQL server, and what it may ask for when we log in.
struct ServerConfig {
  std::string host = "127.0.0.1";  // a name, a numeric address, or the folder of a Unix socket
  std::uint16_t port = 5432;
  Time dns_ttl = 30 * kSecond;
  Time dns_refresh = 60 * kSecond;
  Time dns_forget_after = 300 * kSecond;
  ServerLoginOptions login;  // login.tls is decided by [server_tls]
};

// [tcp]: of both sides.
struct TcpConfig {
  SocketOptions client{60, 10, 3, 0};
  SocketOptions server{30, 10, 3, 60'000};
};

enum class AuthSource : std::uint8_t {
  function,  // sluice.scram_verifier(name), which the extension ships
  query,     // auth.query, of the same shape
  file,      // auth.file alone
};

// [auth]: where clients' SCRAM verifiers come from, and what failures cost.
struct AuthConfig {
  ClientMethod method = ClientMethod::scram;
  AuthSource source = AuthSource::function;
  std::string user = "sluice_lookup";  // the lookup connection's role and database
  std::string database = "postgres";
  std::string password_file;  // its password, alone in the file
  std::string query;
  std::string file;  // credentials that count before any lookup: see credential_file.h
  Time lookup_timeout = 5 * kSecond;
  CredentialOptions credentials;
  PasswordOptions passwords;
  AuthFailureOptions failures;
};

// [limits]: of the whole process.
struct LimitsConfig {
  AcceptLimits accept;
  std::uint32_t max_clients_per_role = 0;  // 0: no limit
  std::uint32_t max_clients_per_database = 0;
  std::uint32_t max_logins = 200;
  std::uint32_t max_logins_per_address = 50;
  Time login_timeout = 15 * kSecond;
  std::uint64_t max_memory_bytes = 1024ULL * 1024 * 1024;
  std::uint32_t client_buffer_bytes = 256 * 1024;  // in each direction of one client, before the other side is not read
};

// [pool], and over it the entries of [[pools]] for one database, one role, or both.
struct PoolConfig {
  bool read_only = false;
  Time client_stall_timeout = kNever;
  PoolOptions pool;
  SessionOptions session;  // session.pins is the pool's own
};

struct PoolException {
  std::string database = "*";
  std::string user = "*";
  PoolConfig pool;
};

// [cancel]
struct CancelConfig {
  Time timeout = 10 * kSecond;
  std::uint32_t max_at_once = 32;
  std::uint32_t max_failures_per_second = 10;  // requests with a key nobody has
};

// [drain]: after SIGTERM or SIGINT. The defaults end within the 30 s that Kubernetes grants.
struct DrainConfig {
  Time wait = 10 * kSecond;
  Time shutdown_timeout = 25 * kSecond;
};

// [readiness]
struct ReadinessConfig {
  Time max_queue_time = 200 * kMillisecond;  // 0 disables
  Time window = 5 * kSecond;
};

// [admin]: HTTP for people, probes and scrapers.
struct AdminConfig {
  bool enabled = true;
  std::string address = "127.0.0.1";
  std::uint16_t port = 6433;
  std::string token;       // empty: none is asked for
  std::string token_file;  // read at start and reload, instead of token
  std::string certificate_file;
  std::string key_file;
};

enum class LogLevel : std::uint8_t { debug, info, warning, error };
enum class LogFormat : std::uint8_t { json, text };

// [log]
struct LogConfig {
  LogLevel level = LogLevel::info;
  LogFormat format = LogFormat::json;
  std::vector<std::string> filter;     // "topic=level", over level
  std::uint32_t max_per_message = 10;  // lines of one kind within `window`, before they are only counted
  Time window = 10 * kSecond;
  std::uint32_t queue_lines = 8192;  // written by a thread of its own; beyond this the oldest are dropped and counted
};

struct Config {
  ListenOptions listen;
  ClientTlsConfig client_tls;
  ServerConfig server;
  TlsClientOptions server_tls;
  TcpConfig tcp;
  AuthConfig auth;
  LimitsConfig limits;
  PoolConfig pool;
  PoolLimits pool_limits;  // also of [pool]; they bound all pools together
  std::vector<PoolException> pools;
  CancelConfig cancel;
  DrainConfig drain;
  ReadinessConfig readiness;
  AdminConfig admin;
  LogConfig log;

  // The pool's rules for this database and role. An exception for both wins over one for the role, that over one for
  // the database, and that over [pool]; among equals the first in the file.
  [[nodiscard]] const PoolConfig& pool_for(std::string_view database, std::string_view user) const noexcept;
};

// One thing that is wrong or doubtful. `where` is a file's name or an environment variable.
struct ConfigFinding {
  std::string where;
  std::uint32_t line = 0;  // 1-based; 0: none
  std::uint32_t column = 0;
  std::string path;  // "pool.max_size"
  std::string message;
  std::string fix;  // may be empty
  bool warning = false;

  // "sluice.toml:12:1: error: pool.max_size: MESSAGE\n    fix: FIX"
  [[nodiscard]] std::string text() const;
};

struct LoadedConfig {
  Config config;
  std::vector<ConfigFinding> findings;

  // No errors; there may be warnings.
  [[nodiscard]] bool ok() const noexcept;
};

// The environment as main() got it: "NAME=value", ended by null.
using Environment = const char* const*;

// Reads the file (empty: defaults and environment only) and whatever the environment overrides, checks that it fits
// together, and that the files it names can be used. Never throws.
[[nodiscard]] LoadedConfig load_config(const std::string& file, Environment environment);
// The same for text that is at hand, without a look at other files; `name` is what findings call it.
[[nodiscard]] LoadedConfig read_config(std::string_view text, const std::string& name, Environment environment);

// The paths of settings that differ and that a running process cannot change.
[[nodiscard]] std::vector<std::string> needs_restart(const Config& running, const Config& loaded);

}  // namespace sluice::proxy
