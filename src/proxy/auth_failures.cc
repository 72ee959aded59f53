#include "proxy/auth_failures.h"

#include <algorithm>

namespace sluice::proxy {
namespace {

// A NUL is in no user's name and in no address, so a user alone and a pair never share a key.
std::string pair_key(std::string_view user, std::string_view address) {
  return std::string(user) + '\0' + std::string(address);
}

}  // namespace

std::size_t AuthFailures::count(const std::string& key, Time now) {
  auto found = index_.find(key);
  if (found == index_.end()) return 0;
  std::deque<Time>& failed_at = found->second->failed_at;
  while (!failed_at.empty() && now - failed_at.front() >= options_.failure_window) failed_at.pop_front();
  std::size_t left = failed_at.size();
  if (left == 0) {
    histories_.erase(found->second);
    index_.erase(found);
  }
  return left;
}

void AuthFailures::record(std::string key, std::size_t keep, Time now) {
  auto found = index_.find(key);
  if (found == index_.end()) {
    if (histories_.size() >= std::max<std::size_t>(options_.max_tracked, 1)) {
      index_.erase(histories_.front().key);
      histories_.pop_front();
    }
    histories_.push_back({key, {}});
    found = index_.emplace(std::move(key), std::prev(histories_.end())).first;
  } else {
    histories_.splice(histories_.end(), histories_, found->second);
  }
  std::deque<Time>& failed_at = found->second->failed_at;
  failed_at.push_back(now);
  // Only whether there are that many is ever asked.
  while (failed_at.size() > std::max<std::size_t>(keep, 1)) failed_at.pop_front();
}

bool AuthFailures::is_locked_out(std::string_view user, std::string_view address, Time now) {
  return count(pair_key(user, address), now) >= options_.max_failures_per_address;
}

std::size_t AuthFailures::failures_of(std::string_view user, Time now) { return count(std::string(user), now); }

void AuthFailures::failed(std::string_view user, std::string_view address, Time now) {
  record(std::string(user), options_.max_failures, now);
  failed_again(user, address, now);
}

void AuthFailures::failed_again(std::string_view user, std::string_view address, Time now) {
  record(pair_key(user, address), options_.max_failures_per_address, now);
}

}  // namespace sluice::proxy
