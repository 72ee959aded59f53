#include "proxy/setting_table.h"

#include <algorithm>
#include <array>

#include "proxy/setting_row.h"

namespace sluice::proxy {
namespace {

using setting_row::boolean;
using setting_row::choice;
using setting_row::count;
using setting_row::count_or_unlimited;
using setting_row::list;
using setting_row::milliseconds;
using setting_row::milliseconds_or_never;
using setting_row::text;

constexpr std::int64_t kMinute = 60'000;
constexpr std::int64_t kHour = 60 * kMinute;
constexpr std::int64_t kDay = 24 * kHour;
constexpr std::int64_t kMaxSeconds = 32767;  // what the kernel takes for keepalive
constexpr std::int64_t kMaxPort = 65535;
constexpr std::int64_t kMaxConnections = 1'000'000;
constexpr std::int64_t kMegabyte = 1024LL * 1024;

constexpr SettingTraits kRestart{.restart = true};
constexpr SettingTraits kAllPools{.all_pools = true};
constexpr SettingTraits kSecret{.secret = true};

template <typename Enum>
constexpr SettingChoice named(std::string_view name, Enum value) {
  return {name, static_cast<std::int64_t>(value)};
}

constexpr SettingChoice kClientTlsModes[] = {named("disable", ClientTlsMode::disable),
                                             named("allow", ClientTlsMode::allow),
                                             named("require", ClientTlsMode::require)};
constexpr SettingChoice kServerTlsModes[] = {
    named("disable", ServerTlsMode::disable), named("prefer", ServerTlsMode::prefer),
    named("require", ServerTlsMode::require), named("verify-ca", ServerTlsMode::verify_ca),
    named("verify-full", ServerTlsMode::verify_full)};
constexpr SettingChoice kTlsVersions[] = {named("1.2", TlsVersion::tls12), named("1.3", TlsVersion::tls13)};
constexpr SettingChoice kMethods[] = {named("scram", ClientMethod::scram), named("password", ClientMethod::password)};
constexpr SettingChoice kSources[] = {named("function", AuthSource::function), named("query", AuthSource::query),
                                      named("file", AuthSource::file)};
constexpr SettingChoice kProfiles[] = {named("strict", Profile::strict), named("compatible", Profile::compatible)};
constexpr SettingChoice kPoolModes[] = {named("transaction", PoolMode::transaction),
                                        named("session", PoolMode::session)};
constexpr SettingChoice kUntracked[] = {named("refuse", Untracked::refuse), named("discard", Untracked::discard),
                                        named("session", Untracked::session)};
constexpr SettingChoice kLogLevels[] = {named("debug", LogLevel::debug), named("info", LogLevel::info),
                                        named("warning", LogLevel::warning), named("error", LogLevel::error)};
constexpr SettingChoice kLogFormats[] = {named("json", LogFormat::json), named("text", LogFormat::text)};

using Listen = ListenOptions;

const SettingRow kListen[] = {
    list<&Config::listen, &Listen::addresses>(
        "addresses", "where clients connect: numeric addresses, and folders of Unix sockets", kRestart),
    count<&Config::listen, &Listen::port>("port", 1, kMaxPort, "the port, also in the name of the Unix socket",
                                          kRestart),
    count<&Config::listen, &Listen::backlog>("backlog", 1, 65535,
                                             "connections the kernel keeps until they are accepted", kRestart),
    boolean<&Config::listen, &Listen::reuse_port>(
        "reuse_port", "several processes may listen on the same port, as a replacement without a gap needs", kRestart),
    count<&Config::listen, &Listen::unix_mode>("unix_mode", 0, 0777,
                                               "permissions of the Unix socket; TOML writes octal as 0o700", kRestart),
};

const SettingRow kClientTls[] = {
    choice<&Config::client_tls, &ClientTlsConfig::mode>(
        "mode", kClientTlsModes,
        "disable: no TLS; allow: the client decides; require: a start in the clear is refused with 28000 (Unix sockets "
        "are exempt)"),
    text<&Config::client_tls, &ClientTlsConfig::context, &TlsServerOptions::certificate_file>(
        "certificate_file", "PEM, the chain behind the certificate; read again at every reload"),
    text<&Config::client_tls, &ClientTlsConfig::context, &TlsServerOptions::key_file>("key_file",
                                                                                      "PEM, without a pass phrase"),
    choice<&Config::client_tls, &ClientTlsConfig::context, &TlsServerOptions::min_version>(
        "min_version", kTlsVersions, "the oldest version of TLS that is spoken"),
};

using Server = ServerConfig;

const SettingRow kServer[] = {
    text<&Config::server, &Server::host>("host", "a name, a numeric address, or the folder of a Unix socket", kRestart),
    count<&Config::server, &Server::port>("port", 1, kMaxPort, "the server's port", kRestart),
    milliseconds<&Config::server, &Server::dns_ttl>("dns_ttl_ms", 0, kDay, "how long a resolved name is used"),
    milliseconds<&Config::server, &Server::dns_refresh>("dns_refresh_ms", 1000, kDay,
                                                        "how often a name in use is resolved again"),
    milliseconds<&Config::server, &Server::dns_forget_after>(
        "dns_forget_after_ms", 0, kDay, "an address that the name has not had for so long loses its connections"),
    boolean<&Config::server, &Server::login, &ServerLoginOptions::allow_nothing>(
        "allow_no_password", "the server may ask for nothing, as peer and client certificates do"),
    boolean<&Config::server, &Server::login, &ServerLoginOptions::allow_cleartext>(
        "allow_cleartext_password", "the server may ask for the password itself, and only inside TLS"),
    boolean<&Config::server, &Server::login, &ServerLoginOptions::allow_md5>("allow_md5_password",
                                                                             "the server may ask for an MD5 digest"),
    count<&Config::server, &Server::login, &ServerLoginOptions::max_iterations>(
        "max_scram_iterations", 4096, 10'000'000, "a server that asks for more work than this is not used"),
};

const SettingRow kServerTls[] = {
    choice<&Config::server_tls, &TlsClientOptions::mode>(
        "mode", kServerTlsModes, "as PostgreSQL's sslmode; prefer and require check no certificate"),
    text<&Config::server_tls, &TlsClientOptions::root_file>("root_file",
                                                            "trusted authorities, PEM; empty: the system's"),
    text<&Config::server_tls, &TlsClientOptions::certificate_file>("certificate_file",
                                                                   "our own certificate, where servers ask for one"),
    text<&Config::server_tls, &TlsClientOptions::key_file>("key_file", "its key, without a pass phrase"),
    choice<&Config::server_tls, &TlsClientOptions::min_version>("min_version", kTlsVersions,
                                                                "the oldest version of TLS that is spoken"),
};

using Tcp = TcpConfig;
using Socket = SocketOptions;

const SettingRow kTcp[] = {
    count<&Config::tcp, &Tcp::client, &Socket::keepalive_idle_seconds>(
        "client_keepalive_idle_s", 0, kMaxSeconds, "silence before the first probe; 0: no keepalive"),
    count<&Config::tcp, &Tcp::client, &Socket::keepalive_interval_seconds>("client_keepalive_interval_s", 1,
                                                                           kMaxSeconds, "time between two probes"),
    count<&Config::tcp, &Tcp::client, &Socket::keepalive_count>("client_keepalive_count", 1, 127,
                                                                "probes without an answer that end the connection"),
    count<&Config::tcp, &Tcp::client, &Socket::user_timeout_ms>(
        "client_user_timeout_ms", 0, kDay,
        "how long sent bytes may stay unconfirmed (TCP_USER_TIMEOUT); it also ends a live client that reads nothing "
        "for "
        "so long; 0: the system's own rule, which does not"),
    count<&Config::tcp, &Tcp::server, &Socket::keepalive_idle_seconds>(
        "server_keepalive_idle_s", 0, kMaxSeconds, "silence before the first probe; 0: no keepalive"),
    count<&Config::tcp, &Tcp::server, &Socket::keepalive_interval_seconds>("server_keepalive_interval_s", 1,
                                                                           kMaxSeconds, "time between two probes"),
    count<&Config::tcp, &Tcp::server, &Socket::keepalive_count>("server_keepalive_count", 1, 127,
                                                                "probes without an answer that end the connection"),
    count<&Config::tcp, &Tcp::server, &Socket::user_timeout_ms>(
        "server_user_timeout_ms", 0, kDay, "how long sent bytes may stay unconfirmed; 0: the system's own rule"),
};

using Auth = AuthConfig;

const SettingRow kAuth[] = {
    choice<&Config::auth, &Auth::method>(
        "method", kMethods,
        "scram: SCRAM-SHA-256 and -PLUS, ended here; password: in cleartext inside TLS, verified by the server"),
    choice<&Config::auth, &Auth::source>(
        "source", kSources,
        "where verifiers are read: sluice.scram_verifier() of the extension, auth.query, or auth.file alone"),
    text<&Config::auth, &Auth::user>("user", "the role of the lookup connection", kRestart),
    text<&Config::auth, &Auth::database>("database", "its database", kRestart),
    text<&Config::auth, &Auth::password_file>("password_file", "a file with its password and nothing else"),
    text<&Config::auth, &Auth::query>(
        "query", "one parameter, the role's name; two columns: verifier, and until when it is valid or NULL", kRestart),
    text<&Config::auth, &Auth::file>(
        "file", "lines of \"role\" \"verifier or password\" that count before any lookup; read again at every reload"),
    milliseconds<&Config::auth, &Auth::lookup_timeout>("lookup_timeout_ms", 100, 5 * kMinute,
                                                       "time limit of one lookup"),
    milliseconds<&Config::auth, &Auth::credentials, &CredentialOptions::verifier_ttl>(
        "ttl_ms", 0, kDay,
        "how long a verifier counts; a changed password, NOLOGIN and VALID UNTIL act at the latest after this"),
    milliseconds<&Config::auth, &Auth::credentials, &CredentialOptions::unknown_ttl>(
        "negative_ttl_ms", 0, kHour, "how long an unknown role is not asked about again"),
    milliseconds<&Config::auth, &Auth::credentials, &CredentialOptions::reread_interval>(
        "reread_interval_ms", 0, kHour, "after a failed proof a role is read again, at most once in this time"),
    count<&Config::auth, &Auth::credentials, &CredentialOptions::max_verifiers>("max_verifiers", 1, kMaxConnections,
                                                                                "roles that are remembered", kRestart),
    count<&Config::auth, &Auth::credentials, &CredentialOptions::max_unknown>(
        "max_unknown", 1, kMaxConnections, "unknown names that are remembered", kRestart),
    count<&Config::auth, &Auth::credentials, &CredentialOptions::mock_iterations>(
        "mock_iterations", 4096, 1'000'000,
        "iterations that an unknown role is shown; as many as the server's scram_iterations", kRestart),
    milliseconds<&Config::auth, &Auth::passwords, &PasswordOptions::verify_ttl>(
        "verify_ttl_ms", 0, kDay, "method password: how long an accepted one counts without asking the server",
        kRestart),
    milliseconds<&Config::auth, &Auth::passwords, &PasswordOptions::verification_wait>(
        "verification_wait_ms", 0, 5 * kMinute, "method password: how long a login waits for its verification",
        kRestart),
    count<&Config::auth, &Auth::passwords, &PasswordOptions::max_verifications>(
        "max_verifications", 1, 10'000, "method password: verifications at once", kRestart),
    milliseconds<&Config::auth, &Auth::failures, &AuthFailureOptions::failure_window>(
        "failure_window_ms", 0, kDay, "failed logins are counted for so long", kRestart),
    count<&Config::auth, &Auth::failures, &AuthFailureOptions::max_failures_per_address>(
        "max_failures_per_address", 1, 10'000, "of one role from one address; then it is refused until the window ends",
        kRestart),
    count<&Config::auth, &Auth::failures, &AuthFailureOptions::max_failures>(
        "max_failures", 1, kMaxConnections, "of one role from all addresses", kRestart),
};

using Limits = LimitsConfig;

const SettingRow kLimits[] = {
    count<&Config::limits, &Limits::accept, &AcceptLimits::max_clients>("max_clients", 1, kMaxConnections,
                                                                        "clients at once, those logging in included"),
    count<&Config::limits, &Limits::accept, &AcceptLimits::max_clients_per_address>(
        "max_clients_per_address", 0, kMaxConnections, "of one IPv4 address or one IPv6 /64 network; 0: no limit"),
    count<&Config::limits, &Limits::max_clients_per_role>("max_clients_per_role", 0, kMaxConnections, "0: no limit"),
    count<&Config::limits, &Limits::max_clients_per_database>("max_clients_per_database", 0, kMaxConnections,
                                                              "0: no limit"),
    count<&Config::limits, &Limits::accept, &AcceptLimits::accept_rate>(
        "accept_rate", 0, kMaxConnections,
        "new connections per second, with a burst of one second's worth; who comes faster is refused; 0: no limit"),
    count<&Config::limits, &Limits::max_logins>("max_logins", 1, kMaxConnections, "logins in progress at once"),
    count<&Config::limits, &Limits::max_logins_per_address>("max_logins_per_address", 1, kMaxConnections,
                                                            "of them from one address or network"),
    milliseconds<&Config::limits, &Limits::login_timeout>("login_timeout_ms", 100, 10 * kMinute,
                                                          "one deadline over all phases of a login"),
    count<&Config::limits, &Limits::max_memory_bytes>(
        "max_memory_bytes", 16 * kMegabyte, 1024 * 1024 * kMegabyte,
        "of all buffers; at this limit clients are not read until others have drained"),
    count<&Config::limits, &Limits::client_buffer_bytes>(
        "client_buffer_bytes", 16 * 1024, 64 * kMegabyte,
        "buffered in each direction of one client before the other side is no longer read"),
};

using Pool = PoolConfig;
using Session = SessionOptions;

const SettingRow kPool[] = {
    choice<&Pool::session, &Session::profile>(
        "profile", kProfiles,
        "compatible: what drivers expect of PostgreSQL; strict: unnamed statements, no settings, a refusal ends the "
        "session"),
    choice<&Pool::pool, &PoolOptions::mode>(
        "mode", kPoolModes, "transaction: a connection is handed on after each; session: a client keeps its own"),
    choice<&Pool::session, &Session::untracked>(
        "untracked", kUntracked,
        "statements whose effect cannot move to another connection (advisory locks of the session, LISTEN, temporary "
        "tables, WITH HOLD): refuse them, discard the connection afterwards, or let the client keep it"),
    boolean<&Pool::read_only>("read_only",
                              "default_transaction_read_only on each connection: a guard against accidents only"),
    count<&Pool::pool, &PoolOptions::max_size>("max_size", 1, 100'000,
                                               "server connections of one pool: one role in one database"),
    count<&Pool::pool, &PoolOptions::max_waiters>("max_waiters", 1, kMaxConnections,
                                                  "clients that wait for one; the next is refused with 53300"),
    milliseconds<&Pool::pool, &PoolOptions::wait_timeout>("wait_timeout_ms", 1, kDay, "how long they wait, then 53300"),
    count<&Config::pool_limits, &PoolLimits::max_total>(
        "max_total", 1, 100'000, "server connections of all pools, logging in or closing included", kAllPools),
    count<&Config::pool_limits, &PoolLimits::max_connecting>("max_connecting", 1, 10'000, "of them logging in at once",
                                                             kAllPools),
    count<&Config::pool_limits, &PoolLimits::connects_per_second>(
        "connects_per_second", 0, 100'000, "new server connections per second over all pools; 0: no limit", kAllPools),
    count<&Config::pool_limits, &PoolLimits::max_pools>("max_pools", 1, kMaxConnections, "pools at once", kAllPools),
    milliseconds<&Config::pool_limits, &PoolLimits::starved_after>(
        "starved_after_ms", 0, kDay,
        "at max_total a pool without any connection gets another pool's next one once its oldest client waited so long",
        kAllPools),
    milliseconds<&Pool::pool, &PoolOptions::connect_timeout>("connect_timeout_ms", 10, 10 * kMinute,
                                                             "from connecting to a server to the end of the login"),
    milliseconds<&Pool::pool, &PoolOptions::retry_interval>("retry_interval_ms", 10, kMinute,
                                                            "between two attempts while a server is full or starting"),
    milliseconds<&Pool::pool, &PoolOptions::fail_early_after>(
        "fail_early_after_ms", 0, kDay, "clients of an unreachable server without open connections fail after this"),
    milliseconds<&Pool::pool, &PoolOptions::least_connect_time>(
        "least_connect_time_ms", 0, kMinute, "what a new connection is taken to cost at least, when one is considered"),
    milliseconds_or_never<&Pool::pool, &PoolOptions::grow_after>(
        "grow_after_ms", kDay, "a queue that never was empty for so long opens one more connection; 0: never"),
    count_or_unlimited<&Pool::pool, &PoolOptions::max_idle>("max_idle", 100'000,
                                                            "idle connections that are kept; -1: all"),
    milliseconds<&Pool::pool, &PoolOptions::idle_timeout>("idle_timeout_ms", 0, 30 * kDay,
                                                          "how long a connection may be idle"),
    milliseconds<&Pool::pool, &PoolOptions::lifetime>("lifetime_ms", 1000, 30 * kDay,
                                                      "how old a connection may become"),
    milliseconds<&Pool::pool, &PoolOptions::lifetime_jitter>("lifetime_jitter_ms", 0, 30 * kDay,
                                                             "up to so much is added at random"),
    milliseconds<&Pool::pool, &PoolOptions::surplus_after>(
        "surplus_after_ms", 0, kDay, "how long connections beyond the peak of the last 30 s may be idle"),
    milliseconds<&Pool::pool, &PoolOptions::check_after>(
        "check_after_ms", 0, kDay, "a connection idle for longer is asked for a sign of life before it is used"),
    milliseconds<&Pool::pool, &PoolOptions::check_timeout>("check_timeout_ms", 10, kMinute, "how long it may take"),
    milliseconds<&Pool::pool, &PoolOptions::gc_after>("gc_after_ms", 0, 30 * kDay,
                                                      "how long an empty pool without clients is remembered"),
    count<&Pool::pool, &PoolOptions::max_startup_sets>(
        "max_startup_sets", 0, 100, "strict profile: pools that differ in startup settings only; 0: any number"),
    milliseconds_or_never<&Pool::session, &Session::idle_transaction_timeout>(
        "idle_transaction_timeout_ms", 30 * kDay,
        "a client that holds a connection and says nothing for so long gets 25P03; 0: no limit"),
    milliseconds<&Pool::session, &Session::client_gone_grace>(
        "client_gone_grace_ms", 0, kHour, "how long the server may finish what a client sent that left in good order"),
    milliseconds_or_never<&Pool::client_stall_timeout>(
        "client_stall_timeout_ms", kDay,
        "a client that takes nothing of its result for so long gets 08006; 0: no limit"),
    milliseconds<&Pool::session, &Session::housekeeping_timeout>(
        "housekeeping_timeout_ms", 100, 10 * kMinute,
        "how long the proxy's own statements may take: applying settings, reading them back, rolling back"),
    count<&Pool::session, &Session::max_message_bytes>("max_message_bytes", 8192, 0x3FFFFFFE,
                                                       "of one message of a client; a longer one is refused"),
    count<&Pool::session, &Session::max_owed_replies>("max_owed_replies", 16, kMaxConnections,
                                                      "unanswered messages at which a client is not read any further"),
    count<&Pool::session, &Session::max_client_statements>("max_client_statements", 1, kMaxConnections,
                                                           "named statements of one client; beyond it 54000"),
    count<&Pool::session, &Session::max_client_statement_bytes>("max_client_statement_bytes", 64 * 1024,
                                                                1024 * kMegabyte, "and their texts"),
    count<&Pool::session, &Session::max_unnamed_statement_bytes>(
        "max_unnamed_statement_bytes", 0, 64 * kMegabyte,
        "a longer unnamed statement does not outlive its transaction"),
    count<&Pool::session, &Session::max_server_statements>(
        "max_server_statements", 1, kMaxConnections,
        "named statements on one server connection; the least recently used are closed"),
    count<&Pool::session, &Session::max_server_statement_bytes>("max_server_statement_bytes", 64 * 1024,
                                                                1024 * kMegabyte, "and their texts"),
    count<&Pool::session, &Session::max_settings>("max_settings", 16, 4096,
                                                  "settings of one client; beyond it its connection is not handed on"),
};

using Cancel = CancelConfig;

const SettingRow kCancel[] = {
    milliseconds<&Config::cancel, &Cancel::timeout>("timeout_ms", 100, 10 * kMinute, "time limit of one request"),
    count<&Config::cancel, &Cancel::max_at_once>("max_at_once", 1, 10'000, "requests to servers at once"),
    count<&Config::cancel, &Cancel::max_failures_per_second>(
        "max_failures_per_second", 1, 100'000, "requests with a key that nobody has; further ones are dropped unread"),
};

const SettingRow kDrain[] = {
    milliseconds<&Config::drain, &DrainConfig::wait>(
        "drain_wait_ms", 0, kDay,
        "after SIGTERM: not ready, new clients refused with 57P03, the others served for so long"),
    milliseconds<&Config::drain, &DrainConfig::shutdown_timeout>(
        "shutdown_timeout_ms", 0, kDay,
        "then clients end at their next idle point; whoever is left after this is cut off"),
};

const SettingRow kReadiness[] = {
    milliseconds<&Config::readiness, &ReadinessConfig::max_queue_time>(
        "max_queue_time_ms", 0, kHour, "not ready while clients wait so long on average; 0: that is no reason"),
    milliseconds<&Config::readiness, &ReadinessConfig::window>("window_ms", 100, 5 * kMinute, "averaged over this"),
};

using Admin = AdminConfig;

const SettingRow kAdmin[] = {
    boolean<&Config::admin, &Admin::enabled>("enabled", "/metrics, /healthz, /readyz and /pools over HTTP", kRestart),
    text<&Config::admin, &Admin::address>("address", "a numeric address", kRestart),
    count<&Config::admin, &Admin::port>("port", 1, kMaxPort, "its port", kRestart),
    text<&Config::admin, &Admin::token>("token", "asked for as \"Authorization: Bearer TOKEN\"; empty: none", kSecret),
    text<&Config::admin, &Admin::token_file>("token_file", "a file with the token and nothing else, instead"),
    text<&Config::admin, &Admin::certificate_file>("certificate_file", "PEM; then it is HTTPS", kRestart),
    text<&Config::admin, &Admin::key_file>("key_file", "its key", kRestart),
};

using Log = LogConfig;

const SettingRow kLog[] = {
    choice<&Config::log, &Log::level>("level", kLogLevels, "the least severe that is written"),
    choice<&Config::log, &Log::format>("format", kLogFormats, "lines of JSON, or for the eye", kRestart),
    list<&Config::log, &Log::filter>("filter", "other levels for single topics, as \"login=debug\""),
    count<&Config::log, &Log::max_per_message>(
        "max_per_message", 1, 100'000, "lines of one kind within the window; further ones are counted and summed up"),
    milliseconds<&Config::log, &Log::window>("window_ms", 100, kHour, "that window"),
    count<&Config::log, &Log::queue_lines>("queue_lines", 64, kMaxConnections,
                                           "lines that wait to be written; beyond it the oldest are dropped", kRestart),
};

const SettingSection kSections[] = {
    {"listen", "Where clients connect.", kListen},
    {"client_tls", "TLS with clients.", kClientTls},
    {"server", "The PostgreSQL server, and what it may ask for at a login.", kServer},
    {"server_tls", "TLS with the server.", kServerTls},
    {"tcp", "The sockets of both sides.", kTcp},
    {"auth", "Where the verifiers of clients' passwords come from, and what failures cost.", kAuth},
    {"limits", "Limits of the whole process.", kLimits},
    {"pool", "Pools of server connections. [[pools]] overrides this for one database, one role, or both.", kPool},
    {"cancel", "Cancel requests.", kCancel},
    {"drain", "The end: after SIGTERM or SIGINT. The defaults fit into 30 s, which is what Kubernetes grants.", kDrain},
    {"readiness", "When /readyz says 503.", kReadiness},
    {"admin", "HTTP for probes, scrapers and people.", kAdmin},
    {"log", "The log, on standard error.", kLog},
};

}  // namespace

std::span<const SettingSection> setting_sections() noexcept { return kSections; }

const SettingSection* find_section(std::string_view name) noexcept {
  const auto* found = std::ranges::find(kSections, name, &SettingSection::name);
  return found == std::end(kSections) ? nullptr : found;
}

const SettingRow* find_setting(const SettingSection& section, std::string_view key) noexcept {
  auto found = std::ranges::find(section.rows, key, &SettingRow::key);
  return found == section.rows.end() ? nullptr : &*found;
}

}  // namespace sluice::proxy
