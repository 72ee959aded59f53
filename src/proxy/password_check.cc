#include "proxy/password_check.h"

#include <algorithm>
#include <stdexcept>

namespace sluice::proxy {
namespace {

std::string as_key(const ScramKey& digest) { return std::string(wire::as_text(digest.bytes)); }

}  // namespace

PasswordCheck::PasswordCheck(const PasswordOptions& options, const AuthFailureOptions& failures)
    : options_(options), failures_(failures) {
  if (!random_bytes(key_.bytes)) throw std::runtime_error("no random bytes for the key of remembered passwords");
}

ScramKey PasswordCheck::digest_of(std::string_view user, std::string_view password) const {
  const std::uint8_t nothing = 0;  // between them: it is in no user's name
  return hmac_sha256(key_.bytes, {wire::as_bytes(user), {&nothing, 1}, wire::as_bytes(password)});
}

bool PasswordCheck::was_rejected(const ScramKey& digest, Time now) {
  auto found = rejected_index_.find(as_key(digest));
  if (found == rejected_index_.end()) return false;
  if (now - found->second->at < failures_.options().failure_window) return true;
  rejected_.erase(found->second);
  rejected_index_.erase(found);
  return false;
}

PasswordDecision PasswordCheck::ask(LoginNumber login, std::string_view user, std::string_view address,
                                    std::string_view password, Time now) {
  PasswordDecision decision;
  ScramKey digest = digest_of(user, password);
  auto known = accepted_index_.find(std::string(user));
  bool matches = known != accepted_index_.end() && equal_keys(known->second->digest, digest);
  bool fresh = matches && now - known->second->verified_at < options_.verify_ttl;
  if (failures_.is_locked_out(user, address, now)) {
    decision.answer = PasswordAnswer::rate_limited;
  } else if (was_rejected(digest, now)) {
    failures_.failed_again(user, address, now);
    decision.answer = PasswordAnswer::rejected;
  } else if (fresh) {
    decision.answer = PasswordAnswer::accepted;
  } else {
    std::size_t tried = failures_.failures_of(user, now);
    for (const auto& [number, verification] : running_) {
      if (verification.user != user) continue;
      if (equal_keys(verification.digest, digest)) return wait(login, number, now);
      tried++;
    }
    if (matches || tried < failures_.options().max_failures) return begin(login, user, address, digest, now);
    decision.answer = PasswordAnswer::rate_limited;
  }
  stop_waiting(login);
  return decision;
}

PasswordDecision PasswordCheck::wait(LoginNumber login, std::uint64_t shared, Time now) {
  Waiting& waiting = waiting_.try_emplace(login, Waiting{now + options_.verification_wait, 0}).first->second;
  if (shared == 0) {
    if (std::find(queue_.begin(), queue_.end(), login) == queue_.end()) queue_.push_back(login);
  } else if (waiting.verification != shared) {
    std::erase(queue_, login);
    running_[shared].shared.push_back(login);
  }
  waiting.verification = shared;
  return {PasswordAnswer::wait, 0, waiting.deadline};
}

// Those who asked before have a right to the free places before a newcomer.
PasswordDecision PasswordCheck::begin(LoginNumber login, std::string_view user, std::string_view address,
                                      const ScramKey& digest, Time now) {
  auto place = static_cast<std::size_t>(std::find(queue_.begin(), queue_.end(), login) - queue_.begin());
  if (running_.size() + place >= options_.max_verifications) return wait(login, 0, now);
  stop_waiting(login);
  running_.emplace(++last_verification_, Verification{std::string(user), std::string(address), digest, {}});
  return {PasswordAnswer::verify, last_verification_, kNever};
}

void PasswordCheck::stop_waiting(LoginNumber login) {
  auto found = waiting_.find(login);
  if (found == waiting_.end()) return;
  auto running = running_.find(found->second.verification);
  if (running != running_.end()) std::erase(running->second.shared, login);
  std::erase(queue_, login);
  waiting_.erase(found);
}

void PasswordCheck::withdraw(LoginNumber login) { stop_waiting(login); }

bool PasswordCheck::finish(std::uint64_t verification, Verification& ended) {
  auto found = running_.find(verification);
  if (found == running_.end()) return false;
  ended = std::move(found->second);
  running_.erase(found);
  // They keep their deadline, and stand in nobody's list until they ask again.
  for (LoginNumber login : ended.shared) waiting_[login].verification = 0;
  return true;
}

void PasswordCheck::verified(std::uint64_t verification, const ClientKeys& keys, Time now,
                             std::vector<LoginNumber>& again) {
  Verification ended;
  if (!finish(verification, ended)) return;
  again.insert(again.end(), ended.shared.begin(), ended.shared.end());
  again.insert(again.end(), queue_.begin(), queue_.end());
  auto known = accepted_index_.find(ended.user);
  if (known != accepted_index_.end() && known->second->verification > verification) return;
  if (known != accepted_index_.end()) {
    accepted_.erase(known->second);
    accepted_index_.erase(known);
  } else if (accepted_.size() >= std::max<std::size_t>(options_.max_passwords, 1)) {
    accepted_index_.erase(accepted_.front().user);
    accepted_.pop_front();
  }
  accepted_.push_back({ended.user, ended.digest, keys, now, verification});
  accepted_index_[ended.user] = std::prev(accepted_.end());
}

void PasswordCheck::rejected(std::uint64_t verification, Time now, std::vector<LoginNumber>& again) {
  Verification ended;
  if (!finish(verification, ended)) return;
  again.insert(again.end(), ended.shared.begin(), ended.shared.end());
  again.insert(again.end(), queue_.begin(), queue_.end());
  failures_.failed(ended.user, ended.address, now);
  // What the server accepted once and rejects now must not count any longer.
  auto known = accepted_index_.find(ended.user);
  if (known != accepted_index_.end() && equal_keys(known->second->digest, ended.digest)) {
    accepted_.erase(known->second);
    accepted_index_.erase(known);
  }
  std::string key = as_key(ended.digest);
  if (rejected_index_.contains(key)) return;
  if (rejected_.size() >= std::max<std::size_t>(options_.max_rejected, 1)) {
    rejected_index_.erase(rejected_.front().digest);
    rejected_.pop_front();
  }
  rejected_.push_back({key, now});
  rejected_index_[key] = std::prev(rejected_.end());
}

void PasswordCheck::unavailable(std::uint64_t verification, Time now, std::vector<LoginNumber>& shared,
                                std::vector<LoginNumber>& again) {
  static_cast<void>(now);
  Verification ended;
  if (!finish(verification, ended)) return;
  for (LoginNumber login : ended.shared) waiting_.erase(login);
  shared.insert(shared.end(), ended.shared.begin(), ended.shared.end());
  again.insert(again.end(), queue_.begin(), queue_.end());
}

const ClientKeys* PasswordCheck::keys(std::string_view user) const {
  auto known = accepted_index_.find(std::string(user));
  return known == accepted_index_.end() ? nullptr : &known->second->keys;
}

void PasswordCheck::server_refused(std::string_view user, const Verifier& verifier) {
  auto known = accepted_index_.find(std::string(user));
  if (known == accepted_index_.end() || !same_verifier(known->second->keys.verifier, verifier)) return;
  accepted_.erase(known->second);
  accepted_index_.erase(known);
}

}  // namespace sluice::proxy
