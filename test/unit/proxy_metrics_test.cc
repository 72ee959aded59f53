#include "proxy/metrics.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

namespace sluice::proxy {
namespace {

Snapshot example() {
  Snapshot snapshot;
  Metrics& metrics = snapshot.metrics;
  metrics.clients = 7;
  metrics.client_rejects.add(ClientReject::protocol);
  metrics.client_rejects.add(ClientReject::protocol);
  metrics.session_errors.add(SessionError::server_protocol);
  metrics.pool_wait[static_cast<std::size_t>(WaitSource::opened)].add(2 * kSecond);
  snapshot.pools.push_back({"d\"b", "u", 5, 3, 1, 1, 1, 2});
  snapshot.pools.push_back({"empty", "u", 9, 0, 0, 0, 0, 0});
  return snapshot;
}

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST(ProxyMetrics, EveryNameThatIsPromisedIsThere) {
  std::string text = metrics_text(example(), MetricsFormat::prometheus);
  for (const char* name : {"clients",
                           "client_rejects_total",
                           "server_connects_total",
                           "server_connect_errors_total",
                           "server_recycles_total",
                           "servers",
                           "servers_max",
                           "clients_waiting_permit",
                           "session_errors_total",
                           "auth_failures_total",
                           "credential_cache_total",
                           "dns_changes_total",
                           "cancels_total",
                           "pool_wait_seconds",
                           "pool_transactions_total",
                           "pool_clients",
                           "pool_clients_active",
                           "pool_clients_waiting",
                           "pool_servers_active",
                           "pool_servers_idle",
                           "ready"}) {
    EXPECT_NE(text.find("# TYPE sluice_proxy_" + std::string(name) + " "), std::string::npos) << name;
  }
  for (const char* label :
       {"tls_handshake", "protocol", "disconnected", "wait_timeout", "too_many_waiters", "connect_failed",
        "unsupported", "idle_in_transaction", "client_stalled", "server_lost", "server_fatal", "server_protocol",
        "rejected", "rate_limited", "verification_busy", "unavailable"}) {
    EXPECT_NE(text.find("{reason=\"" + std::string(label) + "\"}"), std::string::npos) << label;
  }
  for (const char* source : {"idle", "released", "new"}) {
    EXPECT_TRUE(text.find("sluice_proxy_pool_wait_seconds_count{source=\"" + std::string(source) + "\"}") !=
                std::string::npos);
  }
}

TEST(ProxyMetrics, NumbersAndReasonsBelongTogether) {
  std::string text = metrics_text(example(), MetricsFormat::prometheus);
  EXPECT_TRUE(has_line(text, "sluice_proxy_clients 7")) << text;
  EXPECT_TRUE(has_line(text, "sluice_proxy_client_rejects_total{reason=\"protocol\"} 2"));
  EXPECT_TRUE(has_line(text, "sluice_proxy_client_rejects_total{reason=\"tls_handshake\"} 0"));
  EXPECT_TRUE(has_line(text, "sluice_proxy_session_errors_total{reason=\"server_protocol\"} 1"));
  EXPECT_TRUE(has_line(text, "sluice_proxy_ready 0"));
}

TEST(ProxyMetrics, PoolsHaveUserAndDatabaseAndEmptyOnesAreLeftOut) {
  std::string text = metrics_text(example(), MetricsFormat::prometheus);
  EXPECT_TRUE(has_line(text, "sluice_proxy_pool_transactions_total{user=\"u\",database=\"d\\\"b\"} 5")) << text;
  EXPECT_TRUE(has_line(text, "sluice_proxy_pool_servers_idle{user=\"u\",database=\"d\\\"b\"} 2"));
  EXPECT_EQ(text.find("empty"), std::string::npos);
}

TEST(ProxyMetrics, WaitsFallIntoTheBucketWhoseBoundTheyDoNotExceed) {
  WaitHistogram histogram;
  histogram.add(kWaitBounds[0]);
  histogram.add(kWaitBounds[0] + 1);
  histogram.add(kWaitBounds.back() + 1);
  histogram.add(-1);
  EXPECT_EQ(histogram.buckets[0], 2U);
  EXPECT_EQ(histogram.buckets[1], 1U);
  EXPECT_EQ(histogram.buckets.back(), 1U);
  std::string text = metrics_text(example(), MetricsFormat::prometheus);
  EXPECT_TRUE(has_line(text, "sluice_proxy_pool_wait_seconds_bucket{source=\"new\",le=\"1\"} 0")) << text;
  EXPECT_TRUE(has_line(text, "sluice_proxy_pool_wait_seconds_bucket{source=\"new\",le=\"5\"} 1"));
  EXPECT_TRUE(has_line(text, "sluice_proxy_pool_wait_seconds_bucket{source=\"new\",le=\"+Inf\"} 1"));
  EXPECT_TRUE(has_line(text, "sluice_proxy_pool_wait_seconds_sum{source=\"new\"} 2"));
}

TEST(ProxyMetrics, OpenMetricsNamesCountersWithoutTotalAndSaysWhereItEnds) {
  std::string text = metrics_text(example(), MetricsFormat::open_metrics);
  EXPECT_TRUE(text.ends_with("\n# EOF\n"));
  EXPECT_TRUE(has_line(text, "# TYPE sluice_proxy_client_rejects counter")) << text;
  EXPECT_TRUE(has_line(text, "sluice_proxy_client_rejects_total{reason=\"protocol\"} 2"));
  std::set<std::string> types;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("# TYPE ")) continue;
    EXPECT_EQ(line.find("_total "), std::string::npos) << line;
    EXPECT_TRUE(types.insert(line).second) << line;
  }
  EXPECT_NE(metrics_content_type(MetricsFormat::open_metrics).find("openmetrics-text"), std::string_view::npos);
}

TEST(ProxyMetrics, PoolsAreJson) {
  EXPECT_EQ(pools_json({}), "{\"pools\":[]}\n");
  EXPECT_TRUE(pools_json(example()).starts_with(
      R"({"pools":[{"database":"d\"b","user":"u","transactions":5,"clients":3,"clients_active":1,"clients_waiting":1,)"
      R"("servers_active":1,"servers_idle":2},{"database":"empty",)"))
      << pools_json(example());
}

TEST(ProxyMetrics, TheLatestSnapshotIsTheOneThatWasPublishedLast) {
  Published published;
  EXPECT_EQ(published.latest(), nullptr);
  auto first = std::make_shared<Snapshot>();
  published.publish(first);
  EXPECT_EQ(published.latest(), first);
  published.publish(std::make_shared<Snapshot>());
  EXPECT_NE(published.latest(), first);
  EXPECT_EQ(first.use_count(), 1) << "nobody keeps the old one";
}

}  // namespace
}  // namespace sluice::proxy
