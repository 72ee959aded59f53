#include "proxy/stream.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "proxy/tls_context.h"
#include "proxy/tls_output.h"

namespace sluice::proxy {
namespace {

// What OpenSSL waits for.
constexpr std::uint8_t kWaitsForNothing = 0;
constexpr std::uint8_t kWaitsToRead = 1;
constexpr std::uint8_t kWaitsToWrite = 2;

void set_number(int descriptor, int level, int name, std::uint32_t value) {
  if (value == 0) return;
  int number = static_cast<int>(std::min<std::uint32_t>(value, INT_MAX));
  setsockopt(descriptor, level, name, &number, sizeof(number));
}

bool means_reset(int error) {
  return error == ECONNRESET || error == EPIPE || error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH ||
         error == ENETDOWN || error == ECONNABORTED;
}

int clamped(std::size_t size) { return static_cast<int>(std::min<std::size_t>(size, INT_MAX)); }

}  // namespace

void Stream::FreeTls::operator()(SSL* tls) const noexcept { SSL_free(tls); }

Stream::Stream() noexcept = default;

Stream::Stream(int descriptor) noexcept : descriptor_(descriptor) {
  int flags = fcntl(descriptor_, F_GETFL);
  if (flags >= 0 && (flags & O_NONBLOCK) == 0) fcntl(descriptor_, F_SETFL, flags | O_NONBLOCK);
}

Stream::~Stream() { close(); }

Stream::Stream(Stream&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      output_(std::move(other.output_)),
      tls_(std::move(other.tls_)),
      read_wait_(other.read_wait_),
      write_wait_(other.write_wait_),
      read_end_(other.read_end_),
      broken_(other.broken_),
      error_(std::move(other.error_)) {}

Stream& Stream::operator=(Stream&& other) noexcept {
  if (this == &other) return *this;
  close();
  descriptor_ = std::exchange(other.descriptor_, -1);
  output_ = std::move(other.output_);
  tls_ = std::move(other.tls_);
  read_wait_ = other.read_wait_;
  write_wait_ = other.write_wait_;
  read_end_ = other.read_end_;
  broken_ = other.broken_;
  error_ = std::move(other.error_);
  return *this;
}

// --- connecting ---

Stream Stream::connect(const Address& address, const SocketOptions& options) noexcept {
  Stream stream;
  stream.descriptor_ = socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (stream.descriptor_ < 0) {
    stream.error_ = std::string("socket: ") + std::strerror(errno);
    return stream;
  }
  stream.set_options(options);
  if (::connect(stream.descriptor_, address.data(), address.length()) == 0 || errno == EINPROGRESS) return stream;
  // A Unix socket whose backlog is full says EAGAIN, and would never become writable.
  stream.error_ = std::strerror(errno);
  stream.close();
  return stream;
}

StreamStatus Stream::finish_connect() noexcept {
  int error = 0;
  socklen_t length = sizeof(error);
  if (getsockopt(descriptor_, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error != 0) {
    error_ = std::strerror(error);
    return StreamStatus::failed;
  }
  sockaddr_storage peer{};
  length = sizeof(peer);
  if (getpeername(descriptor_, reinterpret_cast<sockaddr*>(&peer), &length) == 0) return StreamStatus::done;
  return StreamStatus::would_block;
}

void Stream::set_options(const SocketOptions& options) noexcept {
  int family = 0;
  socklen_t length = sizeof(family);
  if (getsockopt(descriptor_, SOL_SOCKET, SO_DOMAIN, &family, &length) != 0 || family == AF_UNIX) return;
  set_number(descriptor_, IPPROTO_TCP, TCP_NODELAY, 1);
  if (options.keepalive_idle_seconds != 0) {
    set_number(descriptor_, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_number(descriptor_, IPPROTO_TCP, TCP_KEEPIDLE, options.keepalive_idle_seconds);
    set_number(descriptor_, IPPROTO_TCP, TCP_KEEPINTVL, options.keepalive_interval_seconds);
    set_number(descriptor_, IPPROTO_TCP, TCP_KEEPCNT, options.keepalive_count);
  }
  set_number(descriptor_, IPPROTO_TCP, TCP_USER_TIMEOUT, options.user_timeout_ms);
}

// --- in the clear ---

StreamStatus Stream::judge_errno(const char* doing) noexcept {
  int error = errno;
  if (error == EAGAIN || error == EWOULDBLOCK) return StreamStatus::would_block;
  error_ = std::string(doing) + ": " + std::strerror(error);
  return means_reset(error) ? StreamStatus::reset : StreamStatus::failed;
}

Moved Stream::read_plain(std::span<std::uint8_t> room, int flags) noexcept {
  ssize_t count = 0;
  do {
    count = recv(descriptor_, room.data(), room.size(), flags);
  } while (count < 0 && errno == EINTR);
  if (count > 0) {
    auto bytes = static_cast<std::size_t>(count);
    return {StreamStatus::done, bytes, bytes == room.size()};
  }
  StreamStatus status = count == 0 ? StreamStatus::end : judge_errno("recv");
  if (status != StreamStatus::would_block) read_end_ = status;
  return {status};
}

Moved Stream::write_plain(wire::Bytes bytes) noexcept {
  ssize_t count = 0;
  do {
    count = send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  } while (count < 0 && errno == EINTR);
  if (count >= 0) return {StreamStatus::done, static_cast<std::size_t>(count)};
  return {judge_errno("send")};
}

Moved Stream::peek(std::span<std::uint8_t> room) noexcept {
  if (tls_ != nullptr || descriptor_ < 0) return {StreamStatus::failed};
  Moved moved = read_plain(room, MSG_PEEK);
  read_end_ = StreamStatus::done;
  return moved;
}

Moved Stream::read(std::span<std::uint8_t> room) noexcept {
  if (read_end_ != StreamStatus::done) return {read_end_};
  if (descriptor_ < 0) return {StreamStatus::failed};
  if (room.empty()) return {StreamStatus::done, 0, true};
  return tls_ == nullptr ? read_plain(room, 0) : read_tls(room);
}

Moved Stream::write(wire::Bytes bytes) noexcept {
  if (descriptor_ < 0) return {StreamStatus::failed};
  if (bytes.empty()) return {StreamStatus::done};
  return tls_ == nullptr ? write_plain(bytes) : write_tls(bytes);
}

// --- TLS ---

StreamStatus Stream::judge(int answer, std::uint8_t& wait) noexcept {
  int error = errno;
  switch (SSL_get_error(tls_.get(), answer)) {
    case SSL_ERROR_WANT_READ:
      wait = kWaitsToRead;
      return StreamStatus::would_block;
    case SSL_ERROR_WANT_WRITE:
      wait = kWaitsToWrite;
      return StreamStatus::would_block;
    case SSL_ERROR_ZERO_RETURN:
      return StreamStatus::end;
    case SSL_ERROR_SYSCALL:
      broken_ = true;
      ERR_clear_error();
      error_ = error != 0 ? std::strerror(error) : "the connection was closed";
      return error == 0 || means_reset(error) ? StreamStatus::reset : StreamStatus::failed;
    default:
      broken_ = true;
      error_ = "TLS: " + tls_error_text();
      return StreamStatus::failed;
  }
}

bool Stream::adopt(SSL_CTX* context) noexcept {
  ERR_clear_error();
  tls_.reset(context == nullptr ? nullptr : SSL_new(context));
  if (tls_ != nullptr) {
    output_ = std::make_unique<TlsOutput>(descriptor_, kMaxUnsentTlsBytes);
    BIO* in = BIO_new_socket(descriptor_, BIO_NOCLOSE);
    BIO* out = new_output_bio(*output_);
    if (in != nullptr) SSL_set0_rbio(tls_.get(), in);
    if (out != nullptr) SSL_set0_wbio(tls_.get(), out);
    if (in != nullptr && out != nullptr) return true;
  }
  error_ = context == nullptr ? "TLS: no certificate is loaded" : "TLS: " + tls_error_text();
  tls_.reset();
  return false;
}

bool Stream::start_tls(const TlsServerContext& context, bool direct) noexcept {
  if (!adopt(context.context())) return false;
  if (direct) require_alpn(tls_.get());
  SSL_set_accept_state(tls_.get());
  return true;
}

bool Stream::start_tls(const TlsClientContext& context, const std::string& host) noexcept {
  if (!adopt(context.context())) return false;
  SSL* tls = tls_.get();
  SSL_set_connect_state(tls);
  bool numeric = Address::parse(host, 0).has_value();
  bool good = true;
  if (!numeric && !host.empty()) good = SSL_set_tlsext_host_name(tls, host.c_str()) == 1;
  if (context.verifies_host()) {
    // An empty name would match any certificate.
    good = good && !host.empty() &&
           (numeric ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), host.c_str()) == 1
                    : SSL_set1_host(tls, host.c_str()) == 1);
    SSL_set_hostflags(tls, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  }
  if (good) return true;
  error_ = "TLS: \"" + host + "\" is no host name that a certificate could be checked against";
  tls_.reset();
  return false;
}

StreamStatus Stream::handshake() noexcept {
  if (tls_ == nullptr || broken_) return StreamStatus::failed;
  ERR_clear_error();
  errno = 0;
  read_wait_ = kWaitsForNothing;
  int answer = SSL_do_handshake(tls_.get());
  if (answer == 1) return flush();
  StreamStatus status = judge(answer, read_wait_);
  if (status == StreamStatus::would_block) return status;
  broken_ = true;
  long verdict = SSL_get_verify_result(tls_.get());
  if (SSL_is_server(tls_.get()) == 0 && verdict != X509_V_OK && status == StreamStatus::failed) {
    error_ += std::string(" (") + X509_verify_cert_error_string(verdict) + ")";
  }
  if (error_.empty()) error_ = "the connection was closed during the TLS handshake";
  return status == StreamStatus::end ? StreamStatus::reset : status;
}

Moved Stream::read_tls(std::span<std::uint8_t> room) noexcept {
  if (broken_) return {StreamStatus::failed};
  std::size_t filled = 0;
  read_wait_ = kWaitsForNothing;
  while (filled < room.size()) {
    ERR_clear_error();
    errno = 0;
    int count = SSL_read(tls_.get(), room.data() + filled, clamped(room.size() - filled));
    if (count > 0) {
      filled += static_cast<std::size_t>(count);
      continue;
    }
    StreamStatus status = judge(count, read_wait_);
    if (status != StreamStatus::would_block) read_end_ = status;
    // What was decrypted is told first; the next call tells how it ended.
    if (filled > 0) return {StreamStatus::done, filled, status != StreamStatus::would_block};
    return {status};
  }
  return {StreamStatus::done, filled, true};
}

Moved Stream::write_tls(wire::Bytes bytes) noexcept {
  if (broken_) return {StreamStatus::reset};
  std::size_t taken = 0;
  write_wait_ = kWaitsForNothing;
  // Nothing is encrypted while something is kept: a peer that does not read must find a limit.
  if (StreamStatus kept = flush(); kept != StreamStatus::done) return {kept};
  while (taken < bytes.size() && output_->unsent() == 0) {
    ERR_clear_error();
    errno = 0;
    int count = SSL_write(tls_.get(), bytes.data() + taken, clamped(bytes.size() - taken));
    if (count > 0) {
      taken += static_cast<std::size_t>(count);
      continue;
    }
    StreamStatus status = judge(count, write_wait_);
    if (taken > 0) break;
    return {status};
  }
  return {StreamStatus::done, taken};
}

StreamStatus Stream::flush() noexcept {
  if (output_ == nullptr) return StreamStatus::done;
  if (broken_) return StreamStatus::reset;
  int error = output_->flush();
  if (error == 0) return StreamStatus::done;
  errno = error;
  StreamStatus status = judge_errno("send");
  if (status != StreamStatus::would_block) broken_ = true;
  return status;
}

std::size_t Stream::unsent() const noexcept { return output_ == nullptr ? 0 : output_->unsent(); }

Interest Stream::poll_interest(bool to_read, bool to_write) const noexcept {
  if (tls_ == nullptr) return {to_read, to_write, false};
  Interest interest;
  if (to_read) (read_wait_ == kWaitsToWrite ? interest.writable : interest.readable) = true;
  if (to_write) (write_wait_ == kWaitsToRead ? interest.readable : interest.writable) = true;
  if (unsent() > 0) interest.writable = true;
  return interest;
}

bool Stream::has_pending() const noexcept { return tls_ != nullptr && !broken_ && SSL_has_pending(tls_.get()) == 1; }

X509* Stream::own_certificate() const noexcept { return tls_ == nullptr ? nullptr : SSL_get_certificate(tls_.get()); }

X509* Stream::peer_certificate() const noexcept {
  return tls_ == nullptr ? nullptr : SSL_get0_peer_certificate(tls_.get());
}

std::string Stream::tls_description() const {
  if (tls_ == nullptr) return "";
  return std::string(SSL_get_version(tls_.get())) + ", " + SSL_get_cipher_name(tls_.get());
}

// --- the end ---

StreamStatus Stream::pending_error() noexcept {
  int error = 0;
  socklen_t length = sizeof(error);
  if (getsockopt(descriptor_, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error == 0) return StreamStatus::done;
  error_ = std::strerror(error);
  return means_reset(error) ? StreamStatus::reset : StreamStatus::failed;
}

void Stream::shut_down() noexcept {
  if (descriptor_ < 0) return;
  if (tls_ != nullptr && !broken_ && SSL_is_init_finished(tls_.get())) {
    ERR_clear_error();
    SSL_shutdown(tls_.get());
    ERR_clear_error();
  }
  ::shutdown(descriptor_, SHUT_WR);
}

void Stream::reset_on_close() noexcept {
  linger at_once{1, 0};
  setsockopt(descriptor_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

void Stream::close() noexcept {
  tls_.reset();
  output_.reset();
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

}  // namespace sluice::proxy
