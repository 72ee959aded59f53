// One connected non-blocking descriptor, in the clear or inside TLS, behind the same calls. Owns the descriptor and the
// TLS state; knows neither loop nor protocol. OpenSSL works straight on the descriptor, its buffers are given back
// while idle.
//
// Inside TLS a read may have to wait until something can be written, and the other way round (a KeyUpdate asks for an
// answer). So the loop's interest comes from poll_interest(), never from what the caller wants alone.
#pragma once

#include <openssl/types.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "proxy/address.h"
#include "proxy/loop.h"
#include "wire/bytes.h"

namespace sluice::proxy {

class TlsServerContext;
class TlsClientContext;
struct TlsOutput;

// What OpenSSL may have handed over that the descriptor did not take: one record of data, and answers to a peer that
// asks for new keys without reading. Beyond it the peer is up to no good.
inline constexpr std::size_t kMaxUnsentTlsBytes = 64 * 1024;

enum class StreamStatus : std::uint8_t {
  done,         // bytes were moved, or the step is complete
  would_block,  // nothing was moved; wait for what poll_interest() says
  end,          // the peer sends no more: a FIN, with or without close_notify before it
  reset,        // the connection is gone: RST, or nobody answered any more
  failed,       // something else, such as a broken TLS record; error() says what
};

struct Moved {
  StreamStatus status;
  std::size_t bytes = 0;
  // Reading only: the room was filled and more is already here. The descriptor may never become readable for it, so
  // read again, in a later turn if this one's budget is used up (Task::next_turn).
  bool more = false;
};

// What is set on each TCP socket. Zero leaves the system's own value.
struct SocketOptions {
  std::uint32_t keepalive_idle_seconds = 0;
  std::uint32_t keepalive_interval_seconds = 0;
  std::uint32_t keepalive_count = 0;
  std::uint32_t user_timeout_ms = 0;
};

class Stream {
 public:
  // Takes over a connected descriptor and makes it non-blocking.
  explicit Stream(int descriptor) noexcept;
  ~Stream();
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;

  // Begins to connect. finish_connect() answers would_block until it is decided; wait for the descriptor to be
  // writable. A stream without a descriptor (valid() is false) could not even begin; error() says why.
  [[nodiscard]] static Stream connect(const Address& address, const SocketOptions& options) noexcept;
  [[nodiscard]] StreamStatus finish_connect() noexcept;

  [[nodiscard]] bool valid() const noexcept { return descriptor_ >= 0; }
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  // TCP_NODELAY, keepalive, TCP_USER_TIMEOUT. Nothing on a Unix socket.
  void set_options(const SocketOptions& options) noexcept;

  // Looks at bytes without taking them; in the clear only. The first bytes of a client are looked at, because direct
  // TLS must find them still in the socket.
  [[nodiscard]] Moved peek(std::span<std::uint8_t> room) noexcept;
  // One recv in the clear; inside TLS records are read until the room is full or no more are here.
  [[nodiscard]] Moved read(std::span<std::uint8_t> room) noexcept;
  // May take less than offered. What was taken inside TLS may still be unsent(), see flush().
  [[nodiscard]] Moved write(wire::Bytes bytes) noexcept;
  // Sends what TLS has kept: done when nothing is left of it, would_block, or how the connection ended. Always done in
  // the clear. To be called when the descriptor is writable, and before a close that is to be whole.
  [[nodiscard]] StreamStatus flush() noexcept;
  [[nodiscard]] std::size_t unsent() const noexcept;

  // Begins TLS as the server. A direct handshake (no SSLRequest before it) needs a client that names the protocol
  // "postgresql" by ALPN. Nothing of the peer's bytes may have been taken from the descriptor but what preceded TLS.
  [[nodiscard]] bool start_tls(const TlsServerContext& context, bool direct) noexcept;
  // Begins TLS as the client. The host's name is checked and sent as the context's mode says; never sent if it is an
  // address.
  [[nodiscard]] bool start_tls(const TlsClientContext& context, const std::string& host) noexcept;
  // Goes on with the handshake: done (all of ours sent as well), would_block, or why not.
  [[nodiscard]] StreamStatus handshake() noexcept;

  [[nodiscard]] bool tls() const noexcept { return tls_ != nullptr; }
  // What to poll for, given what the caller would like to do.
  [[nodiscard]] Interest poll_interest(bool to_read, bool to_write) const noexcept;
  // Bytes that wait inside TLS, which the descriptor knows nothing of.
  [[nodiscard]] bool has_pending() const noexcept;

  // The certificate that this connection was opened with, and that of the other side. Both live as long as the stream;
  // null without TLS. As server: ours is what tls-server-end-point is made from, whatever was loaded since.
  [[nodiscard]] X509* own_certificate() const noexcept;
  [[nodiscard]] X509* peer_certificate() const noexcept;
  // "TLSv1.3, TLS_AES_256_GCM_SHA384", for logs; empty without TLS.
  [[nodiscard]] std::string tls_description() const;

  // Asks the descriptor for an error that nobody met yet: reset when a RST arrived, done when there is none.
  [[nodiscard]] StreamStatus pending_error() noexcept;
  // Says goodbye (close_notify where possible, FIN) without waiting. Reading goes on working.
  void shut_down() noexcept;
  // Makes close() send RST: the peer is to know at once, and unsent bytes are dropped.
  void reset_on_close() noexcept;
  void close() noexcept;

  // Why the last call did not work. Never holds bytes of the peer.
  [[nodiscard]] const std::string& error() const noexcept { return error_; }

 private:
  struct FreeTls {
    void operator()(SSL* tls) const noexcept;
  };

  Stream() noexcept;
  [[nodiscard]] Moved read_plain(std::span<std::uint8_t> room, int flags) noexcept;
  [[nodiscard]] Moved read_tls(std::span<std::uint8_t> room) noexcept;
  [[nodiscard]] Moved write_plain(wire::Bytes bytes) noexcept;
  [[nodiscard]] Moved write_tls(wire::Bytes bytes) noexcept;
  [[nodiscard]] bool adopt(SSL_CTX* context) noexcept;
  // What OpenSSL's answer means; notes what it waits for in `wait`.
  [[nodiscard]] StreamStatus judge(int answer, std::uint8_t& wait) noexcept;
  [[nodiscard]] StreamStatus judge_errno(const char* doing) noexcept;

  int descriptor_ = -1;
  std::unique_ptr<TlsOutput> output_;  // outlives tls_, which writes to it
  std::unique_ptr<SSL, FreeTls> tls_;
  std::uint8_t read_wait_ = 0;                  // what a read (or the handshake) inside TLS waits for
  std::uint8_t write_wait_ = 0;                 // what a write inside TLS waits for
  StreamStatus read_end_ = StreamStatus::done;  // how reading ended, once it has
  bool broken_ = false;                         // TLS failed for good: OpenSSL must not be called any more
  std::string error_;
};

}  // namespace sluice::proxy
