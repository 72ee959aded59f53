// Cleartext passwords that a server verifies (the strict profile, L5 to L16). It remembers which ones the server
// accepted, as an HMAC under a key that dies with the process, lets equal ones share a verification, holds the number
// of verifications down, and asks the failures whether somebody is guessing. It never keeps a password. Owns the
// remembered ones and the verifications in progress; the conversation with the server is the caller's, and so is the
// cap on logins in progress, which bounds how many can wait here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "proxy/auth_failures.h"
#include "proxy/login_options.h"
#include "proxy/scram_keys.h"
#include "proxy/time.h"

namespace sluice::proxy {

enum class PasswordAnswer : std::uint8_t {
  accepted,      // it is the one the server accepted; keys() of it log in
  rejected,      // 28P01: the server has refused this one within the window
  rate_limited,  // 28P01 as well, for the metrics another thing
  verify,        // log in to the server with it, then call verified(), rejected() or unavailable()
  wait,          // another verification of the same, or too many: ask again when told, until the deadline: 53300
};

// Who asks: the caller's number for a login, so that it can be told to ask again.
using LoginNumber = std::uint64_t;

struct PasswordDecision {
  PasswordAnswer answer = PasswordAnswer::rejected;
  std::uint64_t verification = 0;  // verify: what to call back with
  Time deadline = kNever;          // wait
};

class PasswordCheck {
 public:
  // Throws std::runtime_error where there is no randomness.
  PasswordCheck(const PasswordOptions& options, const AuthFailureOptions& failures);

  // The same login may ask again: it keeps its place.
  [[nodiscard]] PasswordDecision ask(LoginNumber login, std::string_view user, std::string_view address,
                                     std::string_view password, Time now);
  // The login has gone, or its deadline has passed.
  void withdraw(LoginNumber login);

  // Each of these puts into `again` the logins that are to ask again now.
  void verified(std::uint64_t verification, const ClientKeys& keys, Time now, std::vector<LoginNumber>& again);
  void rejected(std::uint64_t verification, Time now, std::vector<LoginNumber>& again);
  // The server gave no verdict on the password (unreachable, 28000 before the exchange, full): nothing is remembered
  // and nothing counted. `shared` are the logins that waited for this very verification: they end with its error.
  void unavailable(std::uint64_t verification, Time now, std::vector<LoginNumber>& shared,
                   std::vector<LoginNumber>& again);

  // The keys of an accepted password of the user, for the pool's own connections; null where there are none.
  [[nodiscard]] const ClientKeys* keys(std::string_view user) const;
  // A server refused them: they and the password they belong to are forgotten.
  void server_refused(std::string_view user, const Verifier& verifier);

  [[nodiscard]] std::size_t running() const noexcept { return running_.size(); }

 private:
  struct Accepted {
    std::string user;
    ScramKey digest;
    ClientKeys keys;
    Time verified_at = 0;
    std::uint64_t verification = 0;  // a later one is not overwritten by an earlier one's answer
  };
  struct Rejected {
    std::string digest;
    Time at = 0;
  };
  struct Verification {
    std::string user;
    std::string address;
    ScramKey digest;
    std::vector<LoginNumber> shared;
  };
  struct Waiting {
    Time deadline = kNever;
    std::uint64_t verification = 0;  // whose answer it shares; 0: waits for one of its own
  };
  using AcceptedList = std::list<Accepted>;
  using RejectedList = std::list<Rejected>;

  [[nodiscard]] ScramKey digest_of(std::string_view user, std::string_view password) const;
  [[nodiscard]] bool was_rejected(const ScramKey& digest, Time now);
  [[nodiscard]] PasswordDecision wait(LoginNumber login, std::uint64_t shared, Time now);
  [[nodiscard]] PasswordDecision begin(LoginNumber login, std::string_view user, std::string_view address,
                                       const ScramKey& digest, Time now);
  void stop_waiting(LoginNumber login);
  // Ends the verification and returns it; its sharers and the queue ask again.
  [[nodiscard]] bool finish(std::uint64_t verification, Verification& ended);

  PasswordOptions options_;
  AuthFailures failures_;
  ScramKey key_;
  std::uint64_t last_verification_ = 0;
  AcceptedList accepted_;
  std::unordered_map<std::string, AcceptedList::iterator> accepted_index_;
  RejectedList rejected_;
  std::unordered_map<std::string, RejectedList::iterator> rejected_index_;
  std::unordered_map<std::uint64_t, Verification> running_;
  std::unordered_map<LoginNumber, Waiting> waiting_;
  std::deque<LoginNumber> queue_;  // for one of max_verifications
};

}  // namespace sluice::proxy
