// What the proxy knows of the roles of one server cluster: verifiers that were looked up, keys that clients proved, and
// entries of a file. Owns the rules of how long that counts; the lookups themselves are the caller's, one at a time for
// a role. Every table is bounded.
//
// A verifier counts for verifier_ttl and never beyond the role's VALID UNTIL, so what an administrator takes away
// (password, LOGIN, validity) is gone for new logins at the latest after verifier_ttl. A key lives with the verifier it
// was proved against and dies with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "proxy/credential_file.h"
#include "proxy/login_options.h"
#include "proxy/scram_client.h"
#include "proxy/scram_keys.h"
#include "proxy/time.h"

namespace sluice::proxy {

enum class FindKind : std::uint8_t {
  verifier,        // found.verifier is set
  unknown,         // no such role, NOLOGIN, or no longer valid: found.verifier is a mock that nothing proves
  unusable,        // a role without a SCRAM verifier: a mock as well, and cause says for the log what it has
  lookup_needed,   // look the role up, then call lookup_done() or lookup_failed(); marked as running from now on
  lookup_running,  // somebody has been told so: ask again when that lookup has ended
};

// What a client is measured against. A copy: the credentials may move on while the client thinks.
struct FoundVerifier {
  FindKind kind = FindKind::unknown;
  Verifier verifier;
  std::string cause;
};

// What a lookup brought. valid_for is measured by the server's clock: kNever for a role without VALID UNTIL.
struct LookupResult {
  bool has_role = false;
  std::string verifier;  // pg_authid.rolpassword or its like; empty for NULL
  Time valid_for = kNever;
};

class Credentials {
 public:
  // Throws std::runtime_error where there is no randomness: the proxy must not start then.
  explicit Credentials(const CredentialOptions& options);

  // Entries that count before every lookup, for as long as they are there: replaces those of an earlier file, whose
  // keys stay only where the verifier does.
  void set_file(std::vector<FileCredential> entries);

  [[nodiscard]] FoundVerifier find(std::string_view user, Time now);
  void lookup_done(std::string_view user, const LookupResult& result, Time now);
  // Nothing was learned; the next find() asks for a lookup again. What was known before counts on for its time.
  void lookup_failed(std::string_view user);

  // A client proved to have the key of `keys.verifier`. Kept only where that is still the role's verifier, so a login
  // that began with the old password never overwrites the new one's key.
  void proved(std::string_view user, const ClientKeys& keys);
  // A client failed against this verifier: perhaps the password is newer than what is known here. The next find() reads
  // again, at most once in reread_interval.
  void proof_failed(std::string_view user, Time now);
  // The server refused the role's key (28P01), or showed another salt than the key was made with. The key goes at once.
  void server_refused(std::string_view user, const Verifier& verifier, Time now);

  // We logged in to the server with the password of the file; what it was turned into saves doing that again.
  void logged_in(std::string_view user, const ClientKeys& keys);

  // What a server connection of the role is to be logged in with; empty: nothing is known that could.
  [[nodiscard]] ScramSecret server_secret(std::string_view user) const;

  // How many roles, and names without one, are remembered, and how many lookups run.
  [[nodiscard]] std::size_t remembered() const noexcept { return roles_.size(); }
  [[nodiscard]] std::size_t unknown() const noexcept { return unknown_.size(); }
  [[nodiscard]] std::size_t running() const noexcept { return running_.size(); }

 private:
  struct Role {
    std::string user;
    FindKind kind = FindKind::unknown;
    Verifier verifier;
    std::string cause;
    Time read_at = 0;
    Time expires_at = kNever;  // VALID UNTIL, by our clock
    bool stale = false;        // to be read again before it counts
    bool has_key = false;
    ScramKey client_key;
  };
  using Roles = std::list<Role>;  // the one that was read longest ago is in front

  struct FileRole {
    FileCredential credential;
    bool has_key = false;
    ClientKeys keys;  // proved by a client, or made from the password for the server's own verifier
  };

  [[nodiscard]] FoundVerifier mock(std::string_view user) const;
  [[nodiscard]] bool counts(const Role& role, Time now) const noexcept;
  void want_reread(Role& role, Time now) noexcept;
  void trim();

  CredentialOptions options_;
  ScramKey mock_key_;
  Roles roles_;
  Roles unknown_;
  std::unordered_map<std::string, Roles::iterator> index_;  // both lists
  std::unordered_set<std::string> running_;
  std::unordered_map<std::string, FileRole> file_;
};

}  // namespace sluice::proxy
