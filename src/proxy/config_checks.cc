#include "proxy/config_checks.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "proxy/address.h"
#include "proxy/credential_file.h"

namespace sluice::proxy {
namespace {

class Checks {
 public:
  Checks(const Config& config, const SettingOrigins& origins, const std::string& name,
         std::vector<ConfigFinding>& findings)
      : config_(config), origins_(origins), name_(name), findings_(findings) {}

  void listen();
  void tls();
  void auth();
  void pools();
  void operation();
  void files();

 private:
  ConfigFinding& add(const std::string& path, std::string message, std::string fix = "") {
    auto found = origins_.find(path);
    SettingOrigin origin = found == origins_.end() ? SettingOrigin{name_, 0, 0} : found->second;
    findings_.push_back({origin.where, origin.line, origin.column, path, std::move(message), std::move(fix), false});
    return findings_.back();
  }
  void warn(const std::string& path, std::string message, std::string fix) {
    add(path, std::move(message), std::move(fix)).warning = true;
  }
  void pair(const std::string& section, const std::string& certificate, const std::string& key);
  void one_pool(const std::string& path, const PoolConfig& pool);
  void readable(const std::string& path, const std::string& file);

  const Config& config_;
  const SettingOrigins& origins_;
  const std::string& name_;
  std::vector<ConfigFinding>& findings_;
};

bool is_folder(const std::string& text) { return text.starts_with('/'); }

// Whether only this host can connect to it.
bool is_loopback(const std::string& text) { return text.starts_with("127.") || text == "::1" || is_folder(text); }

void Checks::listen() {
  if (config_.listen.addresses.empty()) {
    add("listen.addresses", "is empty: nobody could connect", "name at least one address, as \"127.0.0.1\"");
  }
  for (const std::string& text : config_.listen.addresses) {
    std::string tried = is_folder(text) ? unix_socket_path(text, config_.listen.port) : text;
    if (!Address::parse(tried, config_.listen.port)) {
      add("listen.addresses", "\"" + text + "\" is neither a numeric address nor a usable folder for a Unix socket",
          "write an address as 0.0.0.0 or ::, or a path that begins with / and is not too long");
    }
  }
  if (config_.server.host.empty()) add("server.host", "is empty", "name the PostgreSQL server");
}

void Checks::pair(const std::string& section, const std::string& certificate, const std::string& key) {
  if (certificate.empty() == key.empty()) return;
  const char* given = certificate.empty() ? "key_file" : "certificate_file";
  const char* missing = certificate.empty() ? "certificate_file" : "key_file";
  add(section + "." + missing, std::string("is missing: ") + given + " is given without it", "give both, or neither");
}

void Checks::tls() {
  const TlsServerOptions& client = config_.client_tls.context;
  pair("client_tls", client.certificate_file, client.key_file);
  pair("server_tls", config_.server_tls.certificate_file, config_.server_tls.key_file);
  pair("admin", config_.admin.certificate_file, config_.admin.key_file);
  bool only_local = std::ranges::all_of(config_.listen.addresses, is_folder);
  bool none = client.certificate_file.empty() && client.key_file.empty();
  if (config_.client_tls.mode != ClientTlsMode::disable && none && !only_local) {
    add("client_tls.certificate_file", "is needed, because client_tls.mode is not disable",
        "name certificate_file and key_file; or set client_tls.mode = \"disable\", where passwords of clients and all "
        "data then travel in the clear");
  }
  if (config_.auth.method == ClientMethod::password && config_.client_tls.mode != ClientTlsMode::require) {
    add("auth.method", "password needs client_tls.mode = \"require\": the password itself is sent",
        "set client_tls.mode = \"require\", or auth.method = \"scram\"");
  }
  bool unverified = config_.server_tls.mode < ServerTlsMode::verify_ca;
  if (unverified && config_.auth.method == ClientMethod::password && !is_loopback(config_.server.host)) {
    add("server_tls.mode", "must verify the server, because auth.method = \"password\" hands passwords on to it",
        "set server_tls.mode = \"verify-full\"");
  }
  if (unverified && config_.server.login.allow_cleartext) {
    add("server_tls.mode", "must verify the server, because server.allow_cleartext_password is set",
        "set server_tls.mode = \"verify-full\"");
  }
}

void Checks::auth() {
  const AuthConfig& auth = config_.auth;
  if (auth.source == AuthSource::query && auth.query.find("$1") == std::string::npos) {
    add("auth.query", "must have $1 where the role's name goes",
        "write a query as SELECT verifier, valid_until FROM some_schema.some_function($1)");
  }
  if (auth.source != AuthSource::query && !auth.query.empty()) {
    warn("auth.query", "is not used: auth.source is not \"query\"", "set auth.source = \"query\", or remove it");
  }
  if (auth.source == AuthSource::file && auth.file.empty()) {
    add("auth.file", "is needed, because auth.source = \"file\"", "name a file of \"role\" \"verifier\" lines");
  }
  if (auth.source != AuthSource::file && (auth.user.empty() || auth.database.empty())) {
    add(auth.user.empty() ? "auth.user" : "auth.database", "is empty: lookups need a role and a database", "name it");
  }
  if (auth.failures.max_failures < auth.failures.max_failures_per_address) {
    warn("auth.max_failures", "is less than auth.max_failures_per_address, which then never acts",
         "raise it, or lower the other");
  }
}

void Checks::one_pool(const std::string& path, const PoolConfig& pool) {
  if (pool.pool.max_size > config_.pool_limits.max_total) {
    warn(path + ".max_size",
         std::to_string(pool.pool.max_size) + " is more than pool.max_total " +
             std::to_string(config_.pool_limits.max_total) + ", which bounds all pools together",
         "raise pool.max_total, or lower it");
  }
  if (pool.client_stall_timeout == kNever) return;
  auto stall = static_cast<std::uint32_t>(pool.client_stall_timeout / kMillisecond);
  for (const auto& [side, options] : {std::pair("client", &config_.tcp.client), {"server", &config_.tcp.server}}) {
    if (options->user_timeout_ms == 0 || options->user_timeout_ms > stall) continue;
    add(path + ".client_stall_timeout_ms",
        std::to_string(stall) + " is not less than tcp." + side + "_user_timeout_ms " +
            std::to_string(options->user_timeout_ms) + ", which would end the connection first",
        std::string("raise tcp.") + side + "_user_timeout_ms");
  }
}

void Checks::pools() {
  one_pool("pool", config_.pool);
  for (std::size_t i = 0; i < config_.pools.size(); i++) {
    one_pool("pools[" + std::to_string(i) + "]", config_.pools[i].pool);
  }
  if (config_.pool_limits.max_connecting > config_.pool_limits.max_total) {
    warn("pool.max_connecting", "is more than pool.max_total", "lower it");
  }
}

void Checks::operation() {
  const DrainConfig& drain = config_.drain;
  if (drain.shutdown_timeout < drain.wait) {
    add("drain.shutdown_timeout_ms",
        std::to_string(drain.shutdown_timeout / kMillisecond) + " is less than drain.drain_wait_ms " +
            std::to_string(drain.wait / kMillisecond) + ": nobody would be given the time to finish",
        "it counts from the signal as well, so make it larger");
  }
  for (const std::string& each : config_.log.filter) {
    std::size_t equals = each.find('=');
    std::string level = equals == std::string::npos ? "" : each.substr(equals + 1);
    bool known = level == "debug" || level == "info" || level == "warning" || level == "error";
    if (equals == 0 || !known) {
      add("log.filter", "\"" + each + "\" is not of the form topic=level", "write it as \"login=debug\"");
    }
  }
  const AdminConfig& admin = config_.admin;
  if (!admin.enabled) return;
  if (is_folder(admin.address) || !Address::parse(admin.address, admin.port)) {
    add("admin.address", "\"" + admin.address + "\" is no numeric address", "write it as 127.0.0.1 or ::1");
  } else if (!is_loopback(admin.address) && admin.token.empty() && admin.token_file.empty()) {
    warn("admin.address", "everybody who reaches it may read the metrics and the names of pools",
         "set admin.token_file");
  }
  bool same = std::ranges::find(config_.listen.addresses, admin.address) != config_.listen.addresses.end();
  if (same && admin.port == config_.listen.port) {
    add("admin.port", std::to_string(admin.port) + " is the clients' port as well", "choose another");
  }
  if (!admin.token.empty() && !admin.token_file.empty()) {
    add("admin.token", "and admin.token_file are both given", "keep one of the two");
  }
}

void Checks::readable(const std::string& path, const std::string& file) {
  if (file.empty()) return;
  errno = 0;
  std::ifstream in(file);
  in.peek();
  if (!in.good() && !in.eof()) {
    add(path, "\"" + file + "\": " + (errno != 0 ? std::strerror(errno) : "cannot be read"),
        "name a file that the proxy's user can read");
  }
}

void Checks::files() {
  if (config_.client_tls.mode != ClientTlsMode::disable && !config_.client_tls.context.certificate_file.empty()) {
    TlsServerContext context;
    std::string reason = context.load(config_.client_tls.context);
    if (!reason.empty()) add("client_tls.certificate_file", reason);
  }
  TlsClientContext context;
  std::string reason = is_folder(config_.server.host) ? "" : context.load(config_.server_tls);
  if (!reason.empty()) add("server_tls.mode", reason);
  readable("auth.password_file", config_.auth.password_file);
  readable("auth.file", config_.auth.file);
  readable("admin.token_file", config_.admin.token_file);
  if (config_.admin.enabled && !config_.admin.certificate_file.empty()) {
    TlsServerContext admin;
    reason = admin.load({config_.admin.certificate_file, config_.admin.key_file, TlsVersion::tls12});
    if (!reason.empty()) add("admin.certificate_file", reason);
  }
}

}  // namespace

void check_config(const Config& config, const SettingOrigins& origins, const std::string& name,
                  std::vector<ConfigFinding>& findings) {
  Checks checks(config, origins, name, findings);
  checks.listen();
  checks.tls();
  checks.auth();
  checks.pools();
  checks.operation();
}

void check_files(const Config& config, const SettingOrigins& origins, const std::string& name,
                 std::vector<ConfigFinding>& findings) {
  Checks(config, origins, name, findings).files();
}

}  // namespace sluice::proxy
