#include "proxy/cancel_keys.h"

#include <openssl/rand.h>

namespace sluice::proxy {
namespace {

// With at most some ten thousand clients among 2^31 numbers the first try nearly always fits.
constexpr int kMaxTries = 16;

}  // namespace

std::optional<wire::BackendKey> CancelKeys::issue(WaiterId client, std::uint32_t version) {
  std::vector<std::uint8_t> key(version >= wire::kProtocol32 ? kLongCancelKeyBytes : kShortCancelKeyBytes);
  if (RAND_bytes(key.data(), static_cast<int>(key.size())) != 1) return std::nullopt;
  for (int i = 0; i < kMaxTries; i++) {
    std::uint32_t number = 0;
    if (RAND_bytes(reinterpret_cast<unsigned char*>(&number), sizeof number) != 1) return std::nullopt;
    number &= 0x7FFFFFFFU;  // some drivers keep it as a signed number
    if (number == 0) continue;
    auto [place, added] = by_process_.try_emplace(number, Issued{client, key});
    if (!added) continue;
    by_client_[client] = number;
    return wire::BackendKey{number, place->second.key};
  }
  return std::nullopt;
}

void CancelKeys::forget(WaiterId client) {
  auto found = by_client_.find(client);
  if (found == by_client_.end()) return;
  by_process_.erase(found->second);
  by_client_.erase(found);
}

CancelKeys::Found CancelKeys::find(const wire::CancelTarget& target, Time now) {
  if (now - second_ >= kSecond) {
    second_ = now;
    unknown_ = 0;
  }
  if (unknown_ >= max_unknown_) return {CancelLookup::rate_limited, 0};
  auto found = by_process_.find(target.process_id);
  if (found != by_process_.end() && wire::equal_in_constant_time(found->second.key, target.key)) {
    return {CancelLookup::found, found->second.client};
  }
  unknown_++;
  return {CancelLookup::unknown, 0};
}

}  // namespace sluice::proxy
