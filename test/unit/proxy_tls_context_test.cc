#include "proxy/tls_context.h"

#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <fstream>

#include "unit/proxy_certificates.h"
#include "unit/proxy_streams.h"

namespace sluice::proxy {
namespace {

using test::Certificate;
using test::Key;
using test::KeyKind;
using test::new_certificate;
using test::new_key;
using test::shake_hands;
using test::StreamPair;
using test::TemporaryFolder;
using test::write_certificate;
using test::write_key;
using test::write_pair;

class ProxyTlsContext : public testing::Test {
 protected:
  TlsServerOptions files(const std::string& certificate, const std::string& key) {
    return {folder.file(certificate), folder.file(key), TlsVersion::tls12};
  }

  TemporaryFolder folder;
};

TEST_F(ProxyTlsContext, ABadPairIsNamedAndTheOldOneStays) {
  write_pair(folder, "good");
  write_pair(folder, "other");
  TlsServerContext context;
  EXPECT_FALSE(context.loaded());
  EXPECT_EQ(context.description(), "no certificate");
  ASSERT_EQ(context.load(files("good.crt", "good.key")), "");
  SSL_CTX* before = context.context();
  EXPECT_TRUE(context.description().starts_with("CN=good, valid until 2")) << context.description();
  Key key = new_key(KeyKind::ec);
  write_key(folder.file("locked.key"), key.get(), "secret");
  std::ofstream(folder.file("garbage.crt")) << "nothing of the kind\n";
  struct Case {
    const char* certificate;
    const char* key;
    const char* reason;
  };
  for (const Case& each :
       {Case{"good.crt", "other.key", "does not belong to certificate"}, Case{"none.crt", "good.key", "No such file"},
        Case{"good.crt", "none.key", "No such file"}, Case{"garbage.crt", "good.key", "garbage.crt"},
        Case{"good.crt", "garbage.crt", "key file"}, Case{"good.crt", "locked.key", "key file"}}) {
    std::string reason = context.load(files(each.certificate, each.key));
    EXPECT_NE(reason.find(each.reason), std::string::npos) << reason;
    EXPECT_EQ(context.context(), before);
    EXPECT_TRUE(context.description().starts_with("CN=good"));
  }
  ASSERT_EQ(context.load(files("other.crt", "other.key")), "");
  EXPECT_TRUE(context.description().starts_with("CN=other"));
}

TEST_F(ProxyTlsContext, AKeyOfAnotherKindDoesNotFitEither) {
  write_pair(folder, "ec");
  write_pair(folder, "rsa", KeyKind::rsa);
  TlsServerContext context;
  EXPECT_NE(context.load(files("ec.crt", "rsa.key")).find("does not belong"), std::string::npos);
  EXPECT_FALSE(context.loaded());
}

TEST_F(ProxyTlsContext, ModeDisableLoadsNothing) {
  TlsClientContext context;
  TlsClientOptions options;
  options.mode = ServerTlsMode::disable;
  options.root_file = "/no/such";
  EXPECT_EQ(context.load(options), "");
  EXPECT_FALSE(context.loaded());
  StreamPair pair;
  EXPECT_FALSE(pair.client.start_tls(context, "localhost"));
}

TEST_F(ProxyTlsContext, ABadClientConfigurationKeepsTheOldOne) {
  TlsClientContext context;
  TlsClientOptions options;
  options.mode = ServerTlsMode::require;
  ASSERT_EQ(context.load(options), "");
  SSL_CTX* before = context.context();
  options.mode = ServerTlsMode::verify_ca;
  options.root_file = "/no/such";
  EXPECT_NE(context.load(options).find("root file \"/no/such\""), std::string::npos);
  EXPECT_EQ(context.context(), before);
  EXPECT_EQ(context.mode(), ServerTlsMode::require);
}

// An authority, a certificate of it for a host and an address, and servers that show one.
class ProxyTlsVerify : public ProxyTlsContext {
 protected:
  void SetUp() override {
    write_certificate(folder.file("root.crt"), root.get());
    show("db.example", "DNS:db.example,IP:127.0.0.1,IP:::1");
  }

  void show(const std::string& name, const std::string& alternative) {
    Certificate certificate = new_certificate(key.get(), name, alternative, root.get(), root_key.get());
    write_certificate(folder.file("server.crt"), certificate.get());
    write_key(folder.file("server.key"), key.get());
    ASSERT_EQ(server.load(files("server.crt", "server.key")), "");
  }

  // The client's outcome for this mode and host; the name the server was told is left in `told`.
  StreamStatus outcome(ServerTlsMode mode, const std::string& host, const std::string& root_file = "root.crt") {
    TlsClientOptions options;
    options.mode = mode;
    options.root_file = folder.file(root_file);
    TlsClientContext client;
    EXPECT_EQ(client.load(options), "");
    StreamPair pair;
    told.clear();
    SSL_CTX_set_tlsext_servername_callback(
        server.context(), +[](SSL* tls, int*, void* result) {
          const char* name = SSL_get_servername(tls, TLSEXT_NAMETYPE_host_name);
          *static_cast<std::string*>(result) = name != nullptr ? name : "";
          return SSL_TLSEXT_ERR_OK;
        });
    SSL_CTX_set_tlsext_servername_arg(server.context(), &told);
    EXPECT_TRUE(pair.server.start_tls(server, false));
    if (!pair.client.start_tls(client, host)) return StreamStatus::failed;
    StreamStatus status = shake_hands(pair.client, pair.server).first;
    error = pair.client.error();
    return status;
  }

  Key root_key = new_key(KeyKind::ec);
  Certificate root = new_certificate(root_key.get(), "root", "", nullptr, nullptr, true);
  Key key = new_key(KeyKind::ec);
  TlsServerContext server;
  std::string told;
  std::string error;
};

TEST_F(ProxyTlsVerify, NamesAreToldInEveryModeAndAddressesNever) {
  for (ServerTlsMode mode :
       {ServerTlsMode::prefer, ServerTlsMode::require, ServerTlsMode::verify_ca, ServerTlsMode::verify_full}) {
    EXPECT_EQ(outcome(mode, "db.example"), StreamStatus::done) << error;
    EXPECT_EQ(told, "db.example");
    EXPECT_EQ(outcome(mode, "127.0.0.1"), StreamStatus::done) << error;
    EXPECT_EQ(told, "");
    EXPECT_EQ(outcome(mode, "::1"), StreamStatus::done) << error;
    EXPECT_EQ(told, "");
  }
}

TEST_F(ProxyTlsVerify, OnlyVerifyFullLooksAtTheHost) {
  for (const char* host : {"other.example", "127.0.0.2", "example", "x.db.example"}) {
    EXPECT_EQ(outcome(ServerTlsMode::verify_ca, host), StreamStatus::done) << host;
    EXPECT_EQ(outcome(ServerTlsMode::verify_full, host), StreamStatus::failed) << host;
    EXPECT_NE(error.find("mismatch"), std::string::npos) << error;
  }
  EXPECT_EQ(outcome(ServerTlsMode::verify_full, ""), StreamStatus::failed) << "no name must not match any certificate";
}

TEST_F(ProxyTlsVerify, AWildcardMatchesOneWholeLabel) {
  show("x", "DNS:*.db.example,DNS:a*.part.example");
  EXPECT_EQ(outcome(ServerTlsMode::verify_full, "one.db.example"), StreamStatus::done) << error;
  EXPECT_EQ(outcome(ServerTlsMode::verify_full, "one.two.db.example"), StreamStatus::failed);
  EXPECT_EQ(outcome(ServerTlsMode::verify_full, "db.example"), StreamStatus::failed);
  EXPECT_EQ(outcome(ServerTlsMode::verify_full, "abc.part.example"), StreamStatus::failed);
}

TEST_F(ProxyTlsVerify, AnAuthorityNobodyTrustsIsRefusedWhereItIsChecked) {
  write_pair(folder, "stranger");
  EXPECT_EQ(outcome(ServerTlsMode::require, "db.example", "stranger.crt"), StreamStatus::done);
  EXPECT_EQ(outcome(ServerTlsMode::verify_ca, "db.example", "stranger.crt"), StreamStatus::failed);
  EXPECT_EQ(outcome(ServerTlsMode::verify_full, "db.example", "stranger.crt"), StreamStatus::failed);
  EXPECT_NE(error.find("certificate"), std::string::npos) << error;
}

}  // namespace
}  // namespace sluice::proxy
