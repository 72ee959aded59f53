#include "proxy/admin.h"

#include <gtest/gtest.h>
#include <httplib.h>
#include <uv.h>

#include <fstream>

#include "proxy/stream.h"
#include "unit/proxy_certificates.h"

namespace sluice::proxy {
namespace {

using test::TemporaryFolder;

class ProxyAdmin : public testing::Test {
 protected:
  void start(const std::string& token = "") {
    config.port = 0;
    ASSERT_EQ(admin.start(config, token), "");
  }

  void publish(bool ready, const std::string& reason = "", Time age = 0) {
    auto snapshot = std::make_shared<Snapshot>();
    snapshot->taken_at = static_cast<Time>(uv_hrtime() / 1000) - age;
    snapshot->ready = ready;
    snapshot->reason = reason;
    snapshot->metrics.clients = 3;
    published.publish(snapshot);
  }

  // Status and body.
  std::pair<int, std::string> get(const std::string& path, const httplib::Headers& headers = {}) {
    httplib::Client client("127.0.0.1", admin.port());
    httplib::Result result = client.Get(path, headers);
    if (!result) return {0, ""};
    type = result->get_header_value("Content-Type");
    return {result->status, result->body};
  }

  AdminConfig config;
  Published published;
  AdminServer admin{published};
  std::string type;
};

TEST_F(ProxyAdmin, BeforeTheFirstSnapshotItIsAliveAndNotReady) {
  start();
  EXPECT_EQ(get("/healthz"), std::pair(200, std::string("ok\n")));
  EXPECT_EQ(get("/readyz"), std::pair(503, std::string("starting\n")));
  EXPECT_EQ(get("/metrics").first, 503);
  EXPECT_EQ(get("/pools").first, 503);
}

TEST_F(ProxyAdmin, ReadinessSaysWhyAndLivenessDoesNotFollowIt) {
  start();
  publish(true);
  EXPECT_EQ(get("/readyz"), std::pair(200, std::string("ready\n")));
  for (const char* reason : {"draining", "degraded"}) {
    publish(false, reason);
    EXPECT_EQ(get("/readyz"), std::pair(503, std::string(reason) + "\n"));
    EXPECT_EQ(get("/healthz").first, 200);
  }
}

TEST_F(ProxyAdmin, AWorkerThatHangsIsNotAlive) {
  start();
  publish(true, "", kStaleAfter - 5 * kSecond);
  EXPECT_EQ(get("/healthz").first, 200);
  publish(true, "", kStaleAfter + kSecond);
  EXPECT_EQ(get("/healthz"), std::pair(503, std::string("the event loop has not turned for 16 s\n")));
}

TEST_F(ProxyAdmin, MetricsComeInTheFormatThatIsAskedFor) {
  start();
  publish(true);
  std::pair<int, std::string> plain = get("/metrics");
  EXPECT_EQ(plain.first, 200);
  EXPECT_NE(plain.second.find("\nsluice_proxy_clients 3\n"), std::string::npos);
  EXPECT_TRUE(type.starts_with("text/plain; version=0.0.4")) << type;
  std::pair<int, std::string> open = get("/metrics", {{"Accept", "application/openmetrics-text;version=1.0.0"}});
  EXPECT_TRUE(open.second.ends_with("# EOF\n"));
  EXPECT_TRUE(type.starts_with("application/openmetrics-text")) << type;
  EXPECT_EQ(get("/pools"), std::pair(200, std::string("{\"pools\":[]}\n")));
}

TEST_F(ProxyAdmin, TheTokenGuardsWhatTellsSomething) {
  start("let-me-in");
  publish(true);
  EXPECT_EQ(get("/healthz").first, 200);
  EXPECT_EQ(get("/readyz").first, 200);
  for (const char* path : {"/metrics", "/pools"}) {
    EXPECT_EQ(get(path).first, 401);
    for (const char* wrong :
         {"", "Bearer", "Bearer ", "Bearer let-me-i", "Bearer let-me-inn", "let-me-in", "Basic let-me-in"}) {
      EXPECT_EQ(get(path, {{"Authorization", wrong}}).first, 401) << wrong;
    }
    EXPECT_EQ(get(path, {{"Authorization", "Bearer let-me-in"}}).first, 200);
  }
  admin.set_token("renewed");
  EXPECT_EQ(get("/pools", {{"Authorization", "Bearer let-me-in"}}).first, 401);
  EXPECT_EQ(get("/pools", {{"Authorization", "Bearer renewed"}}).first, 200);
}

TEST_F(ProxyAdmin, NothingElseIsThereAndNothingCanBeChanged) {
  start();
  publish(true);
  EXPECT_EQ(get("/").first, 404);
  EXPECT_EQ(get("/metrics/x").first, 404);
  EXPECT_EQ(get("/../metrics").first, 404);
  httplib::Client client("127.0.0.1", admin.port());
  EXPECT_EQ(client.Post("/pools", "x", "text/plain")->status / 100, 4);
  EXPECT_EQ(client.Delete("/pools")->status / 100, 4);
}

TEST_F(ProxyAdmin, SilentConnectionsDoNotKeepOthersFromAnAnswerForLong) {
  start();
  publish(true);
  std::vector<Stream> silent;
  for (std::size_t i = 0; i < 2 * kAdminThreads; i++) {
    silent.push_back(Stream::connect(*Address::parse("127.0.0.1", static_cast<std::uint16_t>(admin.port())), {}));
  }
  httplib::Client client("127.0.0.1", admin.port());
  client.set_read_timeout(4 * kAdminTimeoutSeconds);
  httplib::Result result = client.Get("/healthz");
  ASSERT_TRUE(result);
  EXPECT_EQ(result->status, 200);
}

TEST_F(ProxyAdmin, ItSpeaksHttpsWhereThereIsACertificate) {
  TemporaryFolder folder;
  test::write_pair(folder, "admin");
  config.certificate_file = folder.file("admin.crt");
  config.key_file = folder.file("admin.key");
  start();
  httplib::SSLClient client("127.0.0.1", admin.port());
  client.enable_server_certificate_verification(false);
  httplib::Result result = client.Get("/healthz");
  ASSERT_TRUE(result);
  EXPECT_EQ(result->body, "ok\n");
}

TEST_F(ProxyAdmin, WhatCannotBeStartedIsSaid) {
  start();
  AdminServer second(published);
  config.port = static_cast<std::uint16_t>(admin.port());
  EXPECT_NE(second.start(config, "").find("cannot listen"), std::string::npos);
  config.certificate_file = config.key_file = "/no/such/file";
  EXPECT_NE(second.start(config, "").find("certificate"), std::string::npos);
  second.stop();
  admin.stop();
  admin.stop();
}

TEST_F(ProxyAdmin, SecretsAreReadFromFilesWithoutTheirNewline) {
  TemporaryFolder folder;
  std::string secret;
  auto read = [&](const std::string& content) {
    std::ofstream(folder.file("secret"), std::ios::binary) << content;
    return read_secret_file(folder.file("secret"), secret);
  };
  EXPECT_TRUE(read("hunter2\n"));
  EXPECT_EQ(secret, "hunter2");
  EXPECT_TRUE(read("two words \r\n"));
  EXPECT_EQ(secret, "two words ");
  EXPECT_FALSE(read(""));
  EXPECT_FALSE(read("\n"));
  EXPECT_FALSE(read(std::string(5000, 'x')));
  EXPECT_FALSE(read_secret_file("/no/such/file", secret));
  EXPECT_EQ(secret, "");
}

}  // namespace
}  // namespace sluice::proxy
