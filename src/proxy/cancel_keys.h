// The keys that clients were given to cancel with. Owns which key belongs to which client; a key is random, longer
// where the client speaks protocol 3.2, and compared in constant time. Keys that nobody has are counted, and while
// there are too many of them in a second nobody's are looked at: guessing 32 bits must not be cheap.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "proxy/pool_actions.h"
#include "proxy/time.h"
#include "wire/backend_messages.h"
#include "wire/startup.h"

namespace sluice::proxy {

inline constexpr std::size_t kShortCancelKeyBytes = 4;
inline constexpr std::size_t kLongCancelKeyBytes = 32;

enum class CancelLookup : std::uint8_t { found, unknown, rate_limited };

class CancelKeys {
 public:
  explicit CancelKeys(std::uint32_t max_unknown_per_second) noexcept : max_unknown_(max_unknown_per_second) {}

  // A key for this client, valid until forget(). The views live as long. Nothing where there is no randomness.
  [[nodiscard]] std::optional<wire::BackendKey> issue(WaiterId client, std::uint32_t version);
  void forget(WaiterId client);

  struct Found {
    CancelLookup kind;
    WaiterId client;
  };
  [[nodiscard]] Found find(const wire::CancelTarget& target, Time now);

  void set_limit(std::uint32_t max_unknown_per_second) noexcept { max_unknown_ = max_unknown_per_second; }
  [[nodiscard]] std::size_t size() const noexcept { return by_process_.size(); }

 private:
  struct Issued {
    WaiterId client;
    std::vector<std::uint8_t> key;
  };

  std::unordered_map<std::uint32_t, Issued> by_process_;
  std::unordered_map<WaiterId, std::uint32_t> by_client_;
  std::uint32_t max_unknown_;
  std::uint32_t unknown_ = 0;  // since second_
  Time second_ = 0;
};

}  // namespace sluice::proxy
