#include "proxy/notify.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>

#include "proxy/address.h"

namespace sluice::proxy {

bool notify_supervisor(std::string_view state) noexcept {
  const char* path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr) return false;
  std::optional<Address> address = Address::parse(path, 0);
  if (!address || !address->is_local()) return false;
  int descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return false;
  ssize_t sent = sendto(descriptor, state.data(), state.size(), MSG_NOSIGNAL, address->data(), address->length());
  close(descriptor);
  return sent == static_cast<ssize_t>(state.size());
}

bool notify_reloading(long long monotonic_microseconds) noexcept {
  char state[64];
  int length = std::snprintf(state, sizeof(state), "RELOADING=1\nMONOTONIC_USEC=%lld", monotonic_microseconds);
  return notify_supervisor({state, static_cast<std::size_t>(length)});
}

}  // namespace sluice::proxy
