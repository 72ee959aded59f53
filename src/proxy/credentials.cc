#include "proxy/credentials.h"

#include <algorithm>
#include <stdexcept>

namespace sluice::proxy {
namespace {

constexpr std::size_t kMockSaltBytes = 16;  // as PostgreSQL's

Time later(Time now, Time after) noexcept { return after >= kNever - now ? kNever : now + after; }

// What a role without a usable verifier has, for the log. Never the secret itself.
std::string cause_of(std::string_view verifier) {
  if (verifier.empty()) return "the role has no password";
  if (verifier.starts_with("md5")) return "the role's password is an md5 hash: set it anew with SCRAM";
  return "the role's password is no SCRAM-SHA-256 verifier";
}

}  // namespace

Credentials::Credentials(const CredentialOptions& options) : options_(options) {
  if (!random_bytes(mock_key_.bytes)) throw std::runtime_error("no random bytes for the key of mock verifiers");
}

void Credentials::set_file(std::vector<FileCredential> entries) {
  std::unordered_map<std::string, FileRole> before = std::move(file_);
  file_.clear();
  for (FileCredential& entry : entries) {
    FileRole role;
    auto known = before.find(entry.user);
    bool same = known != before.end() && !entry.has_password && !known->second.credential.has_password &&
                same_verifier(known->second.credential.keys.verifier, entry.keys.verifier);
    if (same && known->second.has_key) {
      role.has_key = true;
      role.keys = known->second.keys;
    }
    std::string user = entry.user;
    role.credential = std::move(entry);
    file_.insert_or_assign(std::move(user), std::move(role));
  }
}

// The same for the same name as long as the process lives, so that nobody learns from two attempts what one hides.
FoundVerifier Credentials::mock(std::string_view user) const {
  constexpr std::string_view kSalt = "salt";
  constexpr std::string_view kStored = "stored";
  constexpr std::string_view kServer = "server";
  FoundVerifier found;
  wire::Bytes name = wire::as_bytes(user);
  ScramKey salt = hmac_sha256(mock_key_.bytes, {wire::as_bytes(kSalt), name});
  found.verifier.iterations = options_.mock_iterations;
  found.verifier.salt = to_base64(salt.view().first(kMockSaltBytes));
  found.verifier.stored_key = hmac_sha256(mock_key_.bytes, {wire::as_bytes(kStored), name});
  found.verifier.server_key = hmac_sha256(mock_key_.bytes, {wire::as_bytes(kServer), name});
  return found;
}

bool Credentials::counts(const Role& role, Time now) const noexcept {
  Time ttl = role.kind == FindKind::unknown ? options_.unknown_ttl : options_.verifier_ttl;
  return !role.stale && now - role.read_at < ttl;
}

FoundVerifier Credentials::find(std::string_view user, Time now) {
  // Made in any case: that a role exists must not show in the time it takes.
  FoundVerifier found = mock(user);
  std::string name(user);
  auto entry = file_.find(name);
  if (entry != file_.end()) {
    found.kind = FindKind::verifier;
    found.verifier = entry->second.credential.keys.verifier;
    return found;
  }
  auto known = index_.find(name);
  if (known == index_.end() || !counts(*known->second, now)) {
    found.kind = running_.insert(std::move(name)).second ? FindKind::lookup_needed : FindKind::lookup_running;
    return found;
  }
  const Role& role = *known->second;
  found.kind = role.kind;
  found.cause = role.cause;
  if (role.kind != FindKind::verifier) return found;
  if (now >= role.expires_at) {
    found.kind = FindKind::unknown;
    return found;
  }
  found.verifier = role.verifier;
  return found;
}

void Credentials::lookup_done(std::string_view user, const LookupResult& result, Time now) {
  std::string name(user);
  running_.erase(name);
  Role role;
  role.user = name;
  role.read_at = now;
  if (result.has_role) {
    role.kind = parse_verifier(result.verifier, role.verifier) ? FindKind::verifier : FindKind::unusable;
    if (role.kind == FindKind::unusable) role.cause = cause_of(result.verifier);
    role.expires_at = later(now, result.valid_for);
  }
  auto known = index_.find(name);
  if (known != index_.end()) {
    Role& before = *known->second;
    bool same = before.kind == FindKind::verifier && role.kind == FindKind::verifier &&
                same_verifier(before.verifier, role.verifier);
    if (same && before.has_key) {
      role.has_key = true;
      role.client_key = before.client_key;
    }
    Roles& list = before.kind == FindKind::unknown ? unknown_ : roles_;
    list.erase(known->second);
    index_.erase(known);
  }
  Roles& list = role.kind == FindKind::unknown ? unknown_ : roles_;
  list.push_back(std::move(role));
  index_[name] = std::prev(list.end());
  trim();
}

void Credentials::trim() {
  auto shorten = [this](Roles& list, std::size_t limit) {
    while (list.size() > std::max<std::size_t>(limit, 1)) {
      index_.erase(list.front().user);
      list.pop_front();
    }
  };
  shorten(roles_, options_.max_verifiers);
  shorten(unknown_, options_.max_unknown);
}

void Credentials::lookup_failed(std::string_view user) { running_.erase(std::string(user)); }

void Credentials::proved(std::string_view user, const ClientKeys& keys) {
  std::string name(user);
  auto entry = file_.find(name);
  if (entry != file_.end()) {
    FileRole& role = entry->second;
    // With the password at hand the server's own salt is used, which need not be the file's.
    if (role.credential.has_password || !same_verifier(role.credential.keys.verifier, keys.verifier)) return;
    role.has_key = true;
    role.keys = keys;
    return;
  }
  auto known = index_.find(name);
  if (known == index_.end()) return;
  Role& role = *known->second;
  if (role.kind != FindKind::verifier || !same_verifier(role.verifier, keys.verifier)) return;
  role.has_key = true;
  role.client_key = keys.client_key;
}

void Credentials::logged_in(std::string_view user, const ClientKeys& keys) {
  auto entry = file_.find(std::string(user));
  if (entry == file_.end() || !entry->second.credential.has_password) return;
  entry->second.has_key = true;
  entry->second.keys = keys;
}

void Credentials::want_reread(Role& role, Time now) noexcept {
  if (now - role.read_at >= options_.reread_interval) role.stale = true;
}

void Credentials::proof_failed(std::string_view user, Time now) {
  auto known = index_.find(std::string(user));
  if (known != index_.end()) want_reread(*known->second, now);
}

void Credentials::server_refused(std::string_view user, const Verifier& verifier, Time now) {
  std::string name(user);
  auto entry = file_.find(name);
  if (entry != file_.end()) {
    FileRole& role = entry->second;
    if (role.has_key && same_verifier(role.keys.verifier, verifier)) role.has_key = false;
    return;
  }
  auto known = index_.find(name);
  if (known == index_.end()) return;
  Role& role = *known->second;
  // A refusal of keys that have been replaced meanwhile says nothing about those that are here now.
  if (role.kind != FindKind::verifier || !same_verifier(role.verifier, verifier)) return;
  role.has_key = false;
  role.client_key = {};
  want_reread(role, now);
}

ScramSecret Credentials::server_secret(std::string_view user) const {
  ScramSecret secret;
  std::string name(user);
  auto entry = file_.find(name);
  if (entry != file_.end()) {
    secret.password = entry->second.credential.password;
    secret.has_keys = entry->second.has_key;
    if (secret.has_keys) secret.keys = entry->second.keys;
    return secret;
  }
  auto known = index_.find(name);
  if (known == index_.end() || !known->second->has_key) return secret;
  secret.has_keys = true;
  secret.keys = {known->second->verifier, known->second->client_key};
  return secret;
}

}  // namespace sluice::proxy
