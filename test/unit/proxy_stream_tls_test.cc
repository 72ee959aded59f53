// Streams inside TLS. The peer is a stream of ours as client, or OpenSSL itself where a client does what ours would
// not.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <array>
#include <string>

#include "proxy/stream.h"
#include "proxy/tls_context.h"
#include "unit/proxy_certificates.h"
#include "unit/proxy_streams.h"

namespace sluice::proxy {
namespace {

using test::end_of;
using test::KeyKind;
using test::read_all;
using test::shake_hands;
using test::StreamPair;
using test::TemporaryFolder;
using test::wait_for;
using test::write_all;
using test::write_pair;

constexpr std::pair kBothDone(StreamStatus::done, StreamStatus::done);

class ProxyStreamTls : public testing::Test {
 protected:
  void SetUp() override {
    write_pair(folder, "server");
    ASSERT_EQ(server.load({folder.file("server.crt"), folder.file("server.key"), TlsVersion::tls12}), "");
    TlsClientOptions options;
    options.mode = ServerTlsMode::require;
    ASSERT_EQ(client.load(options), "");
  }

  void connect(StreamPair& pair) {
    ASSERT_TRUE(pair.server.start_tls(server, false));
    ASSERT_TRUE(pair.client.start_tls(client, "localhost"));
    ASSERT_EQ(shake_hands(pair.client, pair.server), kBothDone) << pair.server.error() << pair.client.error();
  }

  TemporaryFolder folder;
  TlsServerContext server;
  TlsClientContext client;
};

// A client made of OpenSSL alone, on one end of a pair whose other end is a stream.
class RawClient {
 public:
  explicit RawClient(int descriptor, int version = TLS1_3_VERSION) : descriptor_(descriptor) {
    context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_security_level(context, 0);
    SSL_CTX_set_max_proto_version(context, version);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    tls = SSL_new(context);
    SSL_set_fd(tls, descriptor);
    SSL_set_connect_state(tls);
  }
  ~RawClient() {
    SSL_free(tls);
    SSL_CTX_free(context);
    if (descriptor_ >= 0) close(descriptor_);
  }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void offer(const std::string& protocol) {
    std::string wire = std::string(1, static_cast<char>(protocol.size())) + protocol;
    SSL_set_alpn_protos(tls, reinterpret_cast<const unsigned char*>(wire.data()), static_cast<unsigned>(wire.size()));
  }
  // The client's side in non-blocking steps, the stream's in between.
  StreamStatus shake(Stream& stream) {
    fcntl(descriptor_, F_SETFL, O_NONBLOCK);
    StreamStatus status = StreamStatus::would_block;
    for (int i = 0; i < 1000; i++) {
      ERR_clear_error();
      int answer = SSL_do_handshake(tls);
      if (status == StreamStatus::would_block) status = stream.handshake();
      int error = SSL_get_error(tls, answer);
      bool waits = answer != 1 && (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE);
      if (!waits && status != StreamStatus::would_block) {
        alert = ERR_GET_REASON(ERR_peek_error());
        ERR_clear_error();
        break;
      }
      usleep(200);
    }
    return status;
  }
  // What is there already.
  std::string read_some() {
    std::string result;
    std::array<char, 4096> room{};
    ERR_clear_error();
    for (int count = SSL_read(tls, room.data(), room.size()); count > 0;
         count = SSL_read(tls, room.data(), room.size())) {
      result.append(room.data(), static_cast<std::size_t>(count));
    }
    ERR_clear_error();
    return result;
  }
  // Reads until `bytes` are there.
  std::string read(std::size_t bytes) {
    std::string result = read_some();
    for (int idle = 0; result.size() < bytes && idle < 5000; idle++) {
      usleep(200);
      result += read_some();
    }
    return result;
  }

  SSL_CTX* context;
  SSL* tls;
  int alert = 0;

 private:
  int descriptor_;
};

struct RawPair {
  explicit RawPair(int version = TLS1_3_VERSION, int buffer_bytes = 0)
      : RawPair(test::tcp_pair(buffer_bytes), version) {}
  RawPair(std::pair<int, int> ends, int version) : client(ends.first, version), server(ends.second) {
    int on = 1;
    setsockopt(ends.first, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    server.set_options({});
  }

  RawClient client;
  Stream server;
};

TEST_F(ProxyStreamTls, BytesGoBothWaysUnderEveryKindOfCertificate) {
  for (KeyKind kind : {KeyKind::rsa, KeyKind::rsa_pss, KeyKind::ec, KeyKind::ed25519}) {
    write_pair(folder, "kind", kind);
    ASSERT_EQ(server.load({folder.file("kind.crt"), folder.file("kind.key"), TlsVersion::tls12}), "");
    StreamPair pair;
    connect(pair);
    EXPECT_TRUE(write_all(pair.client, "ping"));
    EXPECT_EQ(read_all(pair.server, 4), "ping");
    EXPECT_TRUE(write_all(pair.server, "pong"));
    EXPECT_EQ(read_all(pair.client, 4), "pong");
    ASSERT_NE(pair.server.own_certificate(), nullptr);
    EXPECT_EQ(X509_cmp(pair.server.own_certificate(), pair.client.peer_certificate()), 0);
    EXPECT_NE(pair.server.tls_description().find("TLSv1.3"), std::string::npos);
  }
}

TEST_F(ProxyStreamTls, OneByteAtATimeNothingStaysHidden) {
  StreamPair pair;
  connect(pair);
  ASSERT_TRUE(write_all(pair.client, "abcdefgh"));
  ASSERT_TRUE(wait_for(pair.server, true, false));
  std::string received;
  std::array<std::uint8_t, 1> room{};
  Moved moved = pair.server.read(room);
  for (;;) {
    ASSERT_EQ(moved.status, StreamStatus::done);
    received += static_cast<char>(room[0]);
    if (received.size() == 8) break;
    EXPECT_TRUE(moved.more);
    EXPECT_TRUE(pair.server.has_pending());
    moved = pair.server.read(room);
  }
  EXPECT_EQ(received, "abcdefgh");
  EXPECT_FALSE(pair.server.has_pending());
  EXPECT_EQ(pair.server.read(room).status, StreamStatus::would_block);
}

TEST_F(ProxyStreamTls, ManyRecordsAreReadAtOnce) {
  StreamPair pair;
  connect(pair);
  for (int i = 0; i < 50; i++) ASSERT_TRUE(write_all(pair.client, "0123456789"));
  usleep(20'000);
  std::array<std::uint8_t, 1000> room{};
  Moved moved = pair.server.read(room);
  EXPECT_EQ(moved.bytes, 500U);
  EXPECT_FALSE(moved.more);
}

TEST_F(ProxyStreamTls, PartialWritesFromMovingBuffersLoseNothing) {
  StreamPair pair(8192);
  connect(pair);
  std::string sent;
  for (int i = 0; i < 3'000'000; i++) sent += static_cast<char>('a' + i % 23);
  std::string received;
  std::size_t taken = 0;
  int blocked = 0;
  while (taken < sent.size()) {
    std::string elsewhere = sent.substr(taken, 200'000);  // each time at another address
    Moved moved = pair.server.write(wire::as_bytes(elsewhere));
    if (moved.status == StreamStatus::would_block) {
      blocked++;
      EXPECT_TRUE(pair.server.poll_interest(false, true).writable);
      received += test::read_some(pair.client);
      continue;
    }
    ASSERT_EQ(moved.status, StreamStatus::done) << pair.server.error();
    taken += moved.bytes;
  }
  received += read_all(pair.client, sent.size() - received.size());
  EXPECT_GT(blocked, 0);
  EXPECT_TRUE(received == sent);
}

TEST_F(ProxyStreamTls, AKeyUpdateIsAnsweredAlsoWhileOutputIsBlocked) {
  RawPair pair(TLS1_3_VERSION, 8192);
  ASSERT_TRUE(pair.server.start_tls(server, false));
  ASSERT_EQ(pair.client.shake(pair.server), StreamStatus::done) << pair.server.error();
  // The client does not read: our output stands still in the middle of a record.
  std::string sent(400'000, 'd');
  std::size_t taken = 0;
  for (;;) {
    Moved moved = pair.server.write(wire::as_bytes(std::string_view(sent).substr(taken)));
    if (moved.status != StreamStatus::done) {
      ASSERT_EQ(moved.status, StreamStatus::would_block);
      break;
    }
    taken += moved.bytes;
    ASSERT_LT(taken, sent.size());
  }
  // Three new keys, each of which wants one in return, and data behind each of them.
  for (int i = 0; i < 3; i++) {
    ASSERT_EQ(SSL_key_update(pair.client.tls, SSL_KEY_UPDATE_REQUESTED), 1);
    ASSERT_EQ(SSL_write(pair.client.tls, "query", 5), 5);
    EXPECT_EQ(read_all(pair.server, 5), "query") << pair.server.error();
  }
  // Then it reads again, and everything arrives in order under the new keys.
  std::string received;
  for (int idle = 0; received.size() < sent.size() && idle < 10'000; idle++) {
    if (taken < sent.size()) {
      Moved moved = pair.server.write(wire::as_bytes(std::string_view(sent).substr(taken)));
      ASSERT_TRUE(moved.status == StreamStatus::done || moved.status == StreamStatus::would_block)
          << pair.server.error();
      taken += moved.bytes;
    } else {
      (void)pair.server.flush();
    }
    std::string some = pair.client.read_some();
    if (some.empty()) usleep(200);
    received += some;
  }
  EXPECT_TRUE(received == sent);
  ASSERT_TRUE(write_all(pair.server, "after"));
  EXPECT_EQ(pair.client.read(5), "after");
}

TEST_F(ProxyStreamTls, APeerThatAsksForKeysWithoutReadingAnswersFindsALimit) {
  RawPair pair(TLS1_3_VERSION, 4096);
  ASSERT_TRUE(pair.server.start_tls(server, false));
  ASSERT_EQ(pair.client.shake(pair.server), StreamStatus::done) << pair.server.error();
  std::string filler(100'000, 'f');
  while (pair.server.write(wire::as_bytes(filler)).status == StreamStatus::done) {
  }
  EXPECT_GT(pair.server.unsent(), 0U);
  EXPECT_EQ(pair.server.flush(), StreamStatus::would_block);
  EXPECT_EQ(pair.server.poll_interest(true, false), (Interest{true, true, false}));
  std::array<std::uint8_t, 4096> room{};
  StreamStatus status = StreamStatus::would_block;
  for (int i = 0; i < 20'000 && status != StreamStatus::failed; i++) {
    (void)SSL_key_update(pair.client.tls, SSL_KEY_UPDATE_REQUESTED);
    (void)SSL_do_handshake(pair.client.tls);
    status = pair.server.read(room).status;
    ASSERT_LE(pair.server.unsent(), kMaxUnsentTlsBytes);
  }
  EXPECT_EQ(status, StreamStatus::failed);
}

TEST_F(ProxyStreamTls, AFinWithoutCloseNotifyIsAnEndLikeOneWithIt) {
  for (bool goodbye : {true, false}) {
    RawPair pair;
    ASSERT_TRUE(pair.server.start_tls(server, false));
    ASSERT_EQ(pair.client.shake(pair.server), StreamStatus::done);
    ASSERT_EQ(SSL_write(pair.client.tls, "last", 4), 4);
    if (goodbye) SSL_shutdown(pair.client.tls);
    shutdown(SSL_get_fd(pair.client.tls), SHUT_WR);
    EXPECT_EQ(read_all(pair.server, 4), "last");
    EXPECT_EQ(end_of(pair.server), StreamStatus::end) << pair.server.error();
    EXPECT_TRUE(write_all(pair.server, "answer")) << "the other direction goes on";
    EXPECT_EQ(pair.client.read(6), "answer");
  }
}

TEST_F(ProxyStreamTls, BytesBeforeTheEndAreToldBeforeIt) {
  StreamPair pair;
  connect(pair);
  ASSERT_TRUE(write_all(pair.client, "last"));
  pair.client.shut_down();
  usleep(20'000);
  std::array<std::uint8_t, 64> room{};
  Moved moved = pair.server.read(room);
  EXPECT_EQ(moved.status, StreamStatus::done);
  EXPECT_EQ(moved.bytes, 4U);
  EXPECT_TRUE(moved.more) << "whoever waits for the descriptor would never learn of the end";
  EXPECT_EQ(pair.server.read(room).status, StreamStatus::end);
}

TEST_F(ProxyStreamTls, AResetIsOneInsideTlsToo) {
  StreamPair pair;
  connect(pair);
  pair.client.reset_on_close();
  pair.client.close();
  EXPECT_EQ(end_of(pair.server), StreamStatus::reset) << pair.server.error();
  EXPECT_NE(pair.server.write(wire::as_bytes("x")).status, StreamStatus::done);
}

TEST_F(ProxyStreamTls, ABrokenRecordFailsForGood) {
  RawPair pair;
  ASSERT_TRUE(pair.server.start_tls(server, false));
  ASSERT_EQ(pair.client.shake(pair.server), StreamStatus::done);
  const std::string garbage = std::string("\x17\x03\x03\x00\x20", 5) + std::string(32, 'z');
  ASSERT_EQ(send(SSL_get_fd(pair.client.tls), garbage.data(), garbage.size(), 0), static_cast<ssize_t>(garbage.size()));
  EXPECT_EQ(end_of(pair.server), StreamStatus::failed);
  EXPECT_TRUE(pair.server.error().starts_with("TLS: ")) << pair.server.error();
  EXPECT_NE(pair.server.write(wire::as_bytes("x")).status, StreamStatus::done);
  EXPECT_FALSE(pair.server.has_pending());
}

TEST_F(ProxyStreamTls, WhoSpeaksNoTlsOrLeavesFailsTheHandshake) {
  StreamPair plain;
  ASSERT_TRUE(plain.server.start_tls(server, false));
  EXPECT_EQ(plain.server.handshake(), StreamStatus::would_block);
  EXPECT_EQ(plain.server.poll_interest(true, false), (Interest{true, false, false}));
  ASSERT_TRUE(write_all(plain.client, "SELECT 1;  SELECT 1;  SELECT 1;"));
  ASSERT_TRUE(wait_for(plain.server, true, false));
  EXPECT_EQ(plain.server.handshake(), StreamStatus::failed);
  EXPECT_NE(plain.server.error(), "");
  StreamPair gone;
  ASSERT_TRUE(gone.server.start_tls(server, false));
  gone.client.close();
  ASSERT_TRUE(wait_for(gone.server, true, false));
  EXPECT_EQ(gone.server.handshake(), StreamStatus::reset);
  EXPECT_NE(gone.server.error(), "");
}

TEST_F(ProxyStreamTls, DirectTlsNeedsTheProtocolsNameAndTlsBehindAnSslRequestDoesNot) {
  struct Case {
    const char* offered;  // empty: no ALPN at all
    bool direct;
    bool accepted;
  };
  for (const Case& each : {Case{"postgresql", true, true}, Case{"http/1.1", true, false}, Case{"", true, false},
                           Case{"postgresql", false, true}, Case{"http/1.1", false, true}, Case{"", false, true}}) {
    for (int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
      RawPair pair(version);
      if (each.offered[0] != '\0') pair.client.offer(each.offered);
      ASSERT_TRUE(pair.server.start_tls(server, each.direct));
      StreamStatus status = pair.client.shake(pair.server);
      EXPECT_EQ(status, each.accepted ? StreamStatus::done : StreamStatus::failed) << each.offered << each.direct;
      if (!each.accepted) {
        EXPECT_EQ(pair.client.alert, SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL) << each.offered;
      }
    }
  }
}

TEST_F(ProxyStreamTls, OldVersionsTicketsCompressionAndRenegotiationAreOff) {
  RawPair old(TLS1_1_VERSION);
  ASSERT_TRUE(old.server.start_tls(server, false));
  EXPECT_EQ(old.client.shake(old.server), StreamStatus::failed);
  for (int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    RawPair pair(version);
    ASSERT_TRUE(pair.server.start_tls(server, false));
    ASSERT_EQ(pair.client.shake(pair.server), StreamStatus::done);
    ASSERT_TRUE(write_all(pair.server, "x"));
    EXPECT_EQ(pair.client.read(1), "x");
    SSL_SESSION* session = SSL_get0_session(pair.client.tls);
    EXPECT_EQ(SSL_SESSION_has_ticket(session), 0);
    EXPECT_EQ(SSL_SESSION_is_resumable(session) == 1 && version == TLS1_3_VERSION, false);
    EXPECT_EQ(SSL_get_current_compression(pair.client.tls), nullptr);
    if (version == TLS1_2_VERSION) {
      EXPECT_EQ(SSL_renegotiate(pair.client.tls), 1);
      (void)SSL_do_handshake(pair.client.tls);
      std::array<std::uint8_t, 16> room{};
      usleep(10'000);
      EXPECT_NE(pair.server.read(room).status, StreamStatus::done);
      (void)pair.client.read(1);
      EXPECT_NE(SSL_do_handshake(pair.client.tls), 1);
    }
  }
}

TEST_F(ProxyStreamTls, ANewerVersionCanBeAskedFor) {
  ASSERT_EQ(server.load({folder.file("server.crt"), folder.file("server.key"), TlsVersion::tls13}), "");
  RawPair old(TLS1_2_VERSION);
  ASSERT_TRUE(old.server.start_tls(server, false));
  EXPECT_EQ(old.client.shake(old.server), StreamStatus::failed);
}

TEST_F(ProxyStreamTls, ALiveSessionKeepsItsCertificateWhenAnotherIsLoaded) {
  StreamPair pair;
  connect(pair);
  std::array<unsigned char, 32> before{};
  unsigned int length = 0;
  X509_digest(pair.server.own_certificate(), EVP_sha256(), before.data(), &length);
  write_pair(folder, "renewed");
  ASSERT_EQ(server.load({folder.file("renewed.crt"), folder.file("renewed.key"), TlsVersion::tls12}), "");
  std::array<unsigned char, 32> after{};
  X509_digest(pair.server.own_certificate(), EVP_sha256(), after.data(), &length);
  EXPECT_EQ(before, after);
  EXPECT_TRUE(write_all(pair.client, "still"));
  EXPECT_EQ(read_all(pair.server, 5), "still");
  StreamPair fresh;
  connect(fresh);
  EXPECT_NE(X509_cmp(fresh.server.own_certificate(), pair.server.own_certificate()), 0);
}

TEST_F(ProxyStreamTls, MovingAStreamKeepsItsSession) {
  StreamPair pair;
  connect(pair);
  Stream moved(std::move(pair.server));
  EXPECT_TRUE(write_all(pair.client, "x"));
  EXPECT_EQ(read_all(moved, 1), "x");
}

}  // namespace
}  // namespace sluice::proxy
