// Counts failed logins within a window, per user and address and per user. Owns the counts; what follows from them is
// the password check's, or whoever asks. Bounded: the oldest are forgotten first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>

#include "proxy/login_options.h"
#include "proxy/time.h"

namespace sluice::proxy {

class AuthFailures {
 public:
  explicit AuthFailures(const AuthFailureOptions& options) : options_(options) {}

  // Too many failures of this user from this address: also the right password is refused, and that refusal is not
  // recorded, so that it does not make the time any longer.
  [[nodiscard]] bool is_locked_out(std::string_view user, std::string_view address, Time now);
  // Failures of this user over all addresses within the window.
  [[nodiscard]] std::size_t failures_of(std::string_view user, Time now);

  // A failure that the server judged: counts for the pair and for the user.
  void failed(std::string_view user, std::string_view address, Time now);
  // A failure that was known before: counts for its address only.
  void failed_again(std::string_view user, std::string_view address, Time now);

  [[nodiscard]] const AuthFailureOptions& options() const noexcept { return options_; }

 private:
  struct History {
    std::string key;
    std::deque<Time> failed_at;  // the newest ones, as many as matter
  };
  using Histories = std::list<History>;  // the one that failed longest ago is in front

  [[nodiscard]] std::size_t count(const std::string& key, Time now);
  void record(std::string key, std::size_t keep, Time now);

  AuthFailureOptions options_;
  Histories histories_;
  std::unordered_map<std::string, Histories::iterator> index_;
};

}  // namespace sluice::proxy
