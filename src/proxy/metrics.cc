#include "proxy/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <utility>

#include "proxy/log.h"

namespace sluice::proxy {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

template <typename Reason>
using Names = std::array<std::string_view, static_cast<std::size_t>(Reason::count)>;

constexpr Names<ClientReject> kClientRejects{
    "tls_handshake", "protocol",        "disconnected",  "too_many_clients", "too_many_of_address",
    "too_fast",      "too_many_logins", "login_timeout", "draining"};
constexpr Names<ConnectError> kConnectErrors{"unreachable", "timeout",  "tls",     "protocol",
                                             "full",        "starting", "rejected"};
constexpr Names<RecycleReason> kRecycles{"idle", "lifetime",    "surplus",   "limit",    "check_failed", "snapshot",
                                         "dns",  "client_gone", "cancelled", "settings", "broken",       "drain"};
constexpr Names<SessionError> kSessionErrors{"wait_timeout", "too_many_waiters",    "connect_failed", "unsupported",
                                             "protocol",     "idle_in_transaction", "client_stalled", "server_lost",
                                             "server_fatal", "server_protocol"};
constexpr Names<AuthFailure> kAuthFailures{"rejected", "rate_limited", "verification_busy", "unavailable"};
constexpr Names<CacheResult> kCacheResults{"hit", "miss"};
constexpr Names<CancelResult> kCancelResults{"sent", "unknown_key", "too_late", "rate_limited", "failed", "timeout"};
constexpr Names<WaitSource> kWaitSources{"idle", "released", "new"};

}  // namespace

std::string_view session_error_name(SessionError error) noexcept {
  return kSessionErrors[static_cast<std::size_t>(error)];
}

namespace {

constexpr bool all_named(const auto& names) {
  return std::ranges::none_of(names, [](std::string_view name) { return name.empty(); });
}
static_assert(all_named(kClientRejects) && all_named(kConnectErrors) && all_named(kRecycles) &&
              all_named(kSessionErrors) && all_named(kAuthFailures) && all_named(kCacheResults) &&
              all_named(kCancelResults) && all_named(kWaitSources));

constexpr char kPrefix[] = "sluice_proxy_";

class Families {
 public:
  void counter(const char* name, const char* help, std::uint64_t value) {
    start(name, help, MetricType::Counter).emplace_back().counter.value = static_cast<double>(value);
  }

  template <typename Reason>
  void counters(const char* name, const char* help, const Counted<Reason>& counted, const Names<Reason>& names,
                const char* label) {
    auto& metrics = start(name, help, MetricType::Counter);
    for (std::size_t i = 0; i < names.size(); i++) {
      ClientMetric metric;
      metric.label = {{label, std::string(names[i])}};
      metric.counter.value = static_cast<double>(counted.values()[i]);
      metrics.push_back(std::move(metric));
    }
  }

  void gauge(const char* name, const char* help, std::uint64_t value) {
    start(name, help, MetricType::Gauge).emplace_back().gauge.value = static_cast<double>(value);
  }

  // One value of each pool that is not empty.
  void of_pools(const char* name, const char* help, MetricType type, const std::vector<PoolMetrics>& pools,
                std::uint64_t PoolMetrics::*member) {
    auto& metrics = start(name, help, type);
    for (const PoolMetrics& pool : pools) {
      if (pool.empty()) continue;
      ClientMetric metric;
      metric.label = {{"user", pool.user}, {"database", pool.database}};
      double value = static_cast<double>(pool.*member);
      (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
      metrics.push_back(std::move(metric));
    }
  }

  void waits(const char* name, const char* help, const Metrics& from) {
    auto& metrics = start(name, help, MetricType::Histogram);
    for (std::size_t source = 0; source < from.pool_wait.size(); source++) {
      const WaitHistogram& histogram = from.pool_wait[source];
      ClientMetric metric;
      metric.label = {{"source", std::string(kWaitSources[source])}};
      std::uint64_t cumulative = 0;
      for (std::size_t i = 0; i < histogram.buckets.size(); i++) {
        cumulative += histogram.buckets[i];
        double bound = i < kWaitBounds.size() ? static_cast<double>(kWaitBounds[i]) / kSecond
                                              : std::numeric_limits<double>::infinity();
        metric.histogram.bucket.push_back({cumulative, bound});
      }
      metric.histogram.sample_count = cumulative;
      metric.histogram.sample_sum = static_cast<double>(histogram.sum) / kSecond;
      metrics.push_back(std::move(metric));
    }
  }

  [[nodiscard]] const std::vector<MetricFamily>& all() const noexcept { return families_; }

 private:
  std::vector<ClientMetric>& start(const char* name, const char* help, MetricType type) {
    families_.push_back({std::string(kPrefix) + name, help, type, {}});
    return families_.back().metric;
  }

  std::vector<MetricFamily> families_;
};

void add_clients(Families& families, const Metrics& metrics) {
  families.gauge("clients", "Clients connected, those logging in included.", metrics.clients);
  families.gauge("clients_logging_in", "Clients whose login is in progress.", metrics.clients_logging_in);
  families.gauge("clients_waiting_permit", "Clients waiting for a server connection.", metrics.clients_waiting_permit);
  families.counters("client_rejects_total", "Clients that did not get as far as a login's end.", metrics.client_rejects,
                    kClientRejects, "reason");
  families.counters("auth_failures_total", "Logins that failed.", metrics.auth_failures, kAuthFailures, "reason");
  families.counters("credential_cache_total", "Logins by whether what they needed was known.", metrics.credential_cache,
                    kCacheResults, "result");
  families.counters("session_errors_total", "Errors that the proxy itself told to sessions.", metrics.session_errors,
                    kSessionErrors, "reason");
  families.counters("cancels_total", "Cancel requests by what became of them.", metrics.cancels, kCancelResults,
                    "result");
  families.waits("pool_wait_seconds", "Time from a client's message to its server connection, by where that came from.",
                 metrics);
}

void add_servers(Families& families, const Metrics& metrics) {
  families.gauge("servers", "Server connections, those logging in included.", metrics.servers);
  families.gauge("servers_max", "How many there may be.", metrics.servers_max);
  families.counter("server_connects_total", "Server connections that were opened.", metrics.server_connects);
  families.counters("server_connect_errors_total", "Server connections that could not be opened.",
                    metrics.connect_errors, kConnectErrors, "reason");
  families.counters("server_recycles_total", "Server connections that the proxy closed.", metrics.recycles, kRecycles,
                    "reason");
  families.counter("dns_changes_total", "Times the server's name got other addresses.", metrics.dns_changes);
  families.counter("certificate_reload_failures_total", "Reloads that kept the old certificate.",
                   metrics.certificate_reloads_failed);
  families.gauge("memory_bytes", "Bytes in the buffers of connections.", metrics.memory_bytes);
}

void add_pools(Families& families, const std::vector<PoolMetrics>& pools) {
  families.of_pools("pool_transactions_total", "Transactions, or statements outside of one.", MetricType::Counter,
                    pools, &PoolMetrics::transactions);
  families.of_pools("pool_clients", "Clients of the pool.", MetricType::Gauge, pools, &PoolMetrics::clients);
  families.of_pools("pool_clients_active", "Those with a server connection.", MetricType::Gauge, pools,
                    &PoolMetrics::clients_active);
  families.of_pools("pool_clients_waiting", "Those waiting for one.", MetricType::Gauge, pools,
                    &PoolMetrics::clients_waiting);
  families.of_pools("pool_servers_active", "Server connections in use.", MetricType::Gauge, pools,
                    &PoolMetrics::servers_active);
  families.of_pools("pool_servers_idle", "Server connections not in use.", MetricType::Gauge, pools,
                    &PoolMetrics::servers_idle);
}

// OpenMetrics names a counter's family without _total, has no help for what has no sample, and says where it ends.
std::string as_open_metrics(const std::string& text) {
  std::string result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# ")) {
      std::size_t name_end = line.find(' ', 7);
      std::string name = line.substr(0, name_end);
      if (name.ends_with("_total")) line.erase(name.size() - 6, 6);
    }
    result += line + "\n";
  }
  return result + "# EOF\n";
}

}  // namespace

void WaitHistogram::add(Time wait) noexcept {
  std::size_t bucket = 0;
  while (bucket < kWaitBounds.size() && wait > kWaitBounds[bucket]) bucket++;
  buckets[bucket]++;
  sum += static_cast<std::uint64_t>(std::max<Time>(wait, 0));
}

void Published::publish(std::shared_ptr<const Snapshot> snapshot) {
  std::lock_guard lock(mutex_);
  snapshot_.swap(snapshot);
}

std::shared_ptr<const Snapshot> Published::latest() const {
  std::lock_guard lock(mutex_);
  return snapshot_;
}

std::string metrics_text(const Snapshot& snapshot, MetricsFormat format) {
  Families families;
  add_clients(families, snapshot.metrics);
  add_servers(families, snapshot.metrics);
  add_pools(families, snapshot.pools);
  families.gauge("ready", "What /readyz says: 1 ready, 0 not.", snapshot.ready ? 1 : 0);
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families.all());
  return format == MetricsFormat::prometheus ? out.str() : as_open_metrics(out.str());
}

std::string_view metrics_content_type(MetricsFormat format) noexcept {
  return format == MetricsFormat::prometheus ? "text/plain; version=0.0.4; charset=utf-8"
                                             : "application/openmetrics-text; version=1.0.0; charset=utf-8";
}

std::string pools_json(const Snapshot& snapshot) {
  std::string result = "{\"pools\":[";
  bool first = true;
  for (const PoolMetrics& pool : snapshot.pools) {
    if (!std::exchange(first, false)) result += ',';
    result += "{\"database\":\"" + json_text(pool.database) + "\",\"user\":\"" + json_text(pool.user) + '"';
    const std::pair<const char*, std::uint64_t> numbers[] = {
        {"transactions", pool.transactions},     {"clients", pool.clients},
        {"clients_active", pool.clients_active}, {"clients_waiting", pool.clients_waiting},
        {"servers_active", pool.servers_active}, {"servers_idle", pool.servers_idle}};
    for (const auto& [name, value] : numbers) {
      result += ",\"";
      result += name;
      result += "\":" + std::to_string(value);
    }
    result += '}';
  }
  return result + "]}\n";
}

}  // namespace sluice::proxy
