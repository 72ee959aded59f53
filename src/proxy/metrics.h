// What the proxy counts: plain numbers of one worker, which only its own thread touches, and the snapshot of them that
// is published for whoever asks over HTTP. Names and labels are those of the documentation; OpenMetrics or Prometheus'
// text.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/time.h"

namespace sluice::proxy {

// Each list of reasons ends with `count`; the names are in metrics.cc, in the same order.
enum class ClientReject : std::uint8_t {
  tls_handshake,
  protocol,
  disconnected,
  too_many_clients,
  too_many_of_address,
  too_fast,
  too_many_logins,
  login_timeout,
  draining,
  count
};
enum class ConnectError : std::uint8_t { unreachable, timeout, tls, protocol, full, starting, rejected, count };
enum class RecycleReason : std::uint8_t {
  idle,
  lifetime,
  surplus,
  limit,
  check_failed,
  snapshot,
  dns,
  client_gone,
  cancelled,
  settings,
  broken,
  drain,
  count
};
enum class SessionError : std::uint8_t {
  wait_timeout,
  too_many_waiters,
  connect_failed,
  unsupported,
  protocol,
  idle_in_transaction,
  client_stalled,
  server_lost,
  server_fatal,
  server_protocol,
  count
};
[[nodiscard]] std::string_view session_error_name(SessionError error) noexcept;
enum class AuthFailure : std::uint8_t { rejected, rate_limited, verification_busy, unavailable, count };
enum class CacheResult : std::uint8_t { hit, miss, count };
enum class CancelResult : std::uint8_t { sent, unknown_key, too_late, rate_limited, failed, timeout, count };
// How a waiting client got its connection.
enum class WaitSource : std::uint8_t { idle, released, opened, count };

template <typename Reason>
class Counted {
 public:
  void add(Reason reason) noexcept { values_[static_cast<std::size_t>(reason)]++; }
  [[nodiscard]] std::uint64_t of(Reason reason) const noexcept { return values_[static_cast<std::size_t>(reason)]; }
  [[nodiscard]] const auto& values() const noexcept { return values_; }

 private:
  std::array<std::uint64_t, static_cast<std::size_t>(Reason::count)> values_{};
};

// Upper bounds of the buckets of waiting times, in microseconds; what is longer counts in the last one, without a
// bound.
inline constexpr std::array<Time, 12> kWaitBounds{100,     500,     1'000,     5'000,     10'000,     50'000,
                                                  100'000, 500'000, 1'000'000, 5'000'000, 15'000'000, 60'000'000};

struct WaitHistogram {
  std::array<std::uint64_t, kWaitBounds.size() + 1> buckets{};
  std::uint64_t sum = 0;  // microseconds

  void add(Time wait) noexcept;
};

struct Metrics {
  Counted<ClientReject> client_rejects;
  std::uint64_t server_connects = 0;
  Counted<ConnectError> connect_errors;
  Counted<RecycleReason> recycles;
  Counted<SessionError> session_errors;
  Counted<AuthFailure> auth_failures;
  Counted<CacheResult> credential_cache;
  std::uint64_t dns_changes = 0;
  Counted<CancelResult> cancels;
  std::uint64_t certificate_reloads_failed = 0;
  std::array<WaitHistogram, static_cast<std::size_t>(WaitSource::count)> pool_wait;
  // Gauges.
  std::uint64_t clients = 0;
  std::uint64_t clients_logging_in = 0;
  std::uint64_t servers = 0;
  std::uint64_t servers_max = 0;
  std::uint64_t clients_waiting_permit = 0;
  std::uint64_t memory_bytes = 0;
};

struct PoolMetrics {
  std::string database;
  std::string user;
  std::uint64_t transactions = 0;
  std::uint64_t clients = 0;
  std::uint64_t clients_active = 0;
  std::uint64_t clients_waiting = 0;
  std::uint64_t servers_active = 0;
  std::uint64_t servers_idle = 0;

  [[nodiscard]] bool empty() const noexcept { return clients == 0 && servers_active == 0 && servers_idle == 0; }
};

// One look at a worker. `ready` and `reason` are what /readyz says.
struct Snapshot {
  Time taken_at = 0;  // of the monotonic clock
  Metrics metrics;
  std::vector<PoolMetrics> pools;
  bool ready = false;
  std::string reason = "starting";
};

// Hands snapshots from the worker's thread to the one that answers.
class Published {
 public:
  void publish(std::shared_ptr<const Snapshot> snapshot);
  // Null before the first one.
  [[nodiscard]] std::shared_ptr<const Snapshot> latest() const;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Snapshot> snapshot_;
};

enum class MetricsFormat : std::uint8_t { prometheus, open_metrics };

[[nodiscard]] std::string metrics_text(const Snapshot& snapshot, MetricsFormat format);
[[nodiscard]] std::string_view metrics_content_type(MetricsFormat format) noexcept;
// {"pools":[{"database":…}]}
[[nodiscard]] std::string pools_json(const Snapshot& snapshot);

}  // namespace sluice::proxy
