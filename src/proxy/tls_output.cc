#include "proxy/tls_output.h"

#include <openssl/bio.h>
#include <sys/socket.h>

#include <cerrno>

namespace sluice::proxy {
namespace {

// Sends as much as goes; what went is added to `sent`. 0 or errno.
int send_some(int descriptor, const std::uint8_t* bytes, std::size_t size, std::size_t& sent) {
  while (sent < size) {
    ssize_t count = send(descriptor, bytes + sent, size - sent, MSG_NOSIGNAL);
    if (count >= 0) {
      sent += static_cast<std::size_t>(count);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

bool means_full(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

int write_bio(BIO* bio, const char* bytes, int size) {
  auto* output = static_cast<TlsOutput*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  int error = output->put(reinterpret_cast<const std::uint8_t*>(bytes), static_cast<std::size_t>(size));
  if (error == 0) return size;
  errno = error;
  return -1;
}

long control_bio(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

int create_bio(BIO* bio) {
  BIO_set_init(bio, 1);
  return 1;
}

// One for the process; made at the first use and kept to its end.
BIO_METHOD* output_method() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "sluice output");
    if (made == nullptr) return made;
    BIO_meth_set_write(made, write_bio);
    BIO_meth_set_ctrl(made, control_bio);
    BIO_meth_set_create(made, create_bio);
    return made;
  }();
  return method;
}

}  // namespace

int TlsOutput::flush() noexcept {
  if (kept.empty()) return 0;
  int error = send_some(descriptor, kept.data(), kept.size(), sent);
  if (error != 0) return error;
  std::vector<std::uint8_t>().swap(kept);  // gives the memory back: most connections are idle
  sent = 0;
  return 0;
}

int TlsOutput::put(const std::uint8_t* bytes, std::size_t size) noexcept {
  int error = flush();
  if (error != 0 && !means_full(error)) return error;
  std::size_t gone = 0;
  if (error == 0) error = send_some(descriptor, bytes, size, gone);
  if (error == 0) return 0;
  if (!means_full(error)) return error;
  if (unsent() + (size - gone) > limit) return ENOBUFS;
  kept.insert(kept.end(), bytes + gone, bytes + size);
  return 0;
}

BIO* new_output_bio(TlsOutput& output) noexcept {
  BIO* bio = BIO_new(output_method());
  if (bio != nullptr) BIO_set_data(bio, &output);
  return bio;
}

}  // namespace sluice::proxy
