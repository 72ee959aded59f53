#include "proxy/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace sluice::proxy {
namespace {

constexpr char kNameless[] = "(unix)";

const sockaddr_in& as4(const sockaddr_storage& storage) { return reinterpret_cast<const sockaddr_in&>(storage); }
const sockaddr_in6& as6(const sockaddr_storage& storage) { return reinterpret_cast<const sockaddr_in6&>(storage); }

std::string numeric(int family, const void* address) {
  char text[INET6_ADDRSTRLEN];
  return inet_ntop(family, address, text, sizeof(text)) != nullptr ? text : "(unknown)";
}

// The IPv4 address inside an IPv6 one, as sockets of both families show it; else null.
const std::uint8_t* mapped4(const sockaddr_in6& address) {
  return IN6_IS_ADDR_V4MAPPED(&address.sin6_addr) ? address.sin6_addr.s6_addr + 12 : nullptr;
}

std::string local_path(const sockaddr_storage& storage, socklen_t length) {
  const auto& local = reinterpret_cast<const sockaddr_un&>(storage);
  auto size = static_cast<std::size_t>(length);
  if (size <= offsetof(sockaddr_un, sun_path)) return kNameless;
  size -= offsetof(sockaddr_un, sun_path);
  if (local.sun_path[0] == '\0') return "@" + std::string(local.sun_path + 1, size - 1);
  return {local.sun_path, strnlen(local.sun_path, size)};
}

template <typename Ask>
Address ask(int descriptor, Ask function) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  if (function(descriptor, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return {};
  return {reinterpret_cast<const sockaddr*>(&storage), std::min<socklen_t>(length, sizeof(storage))};
}

}  // namespace

Address::Address(const sockaddr* address, socklen_t length) noexcept
    : length_(std::min<socklen_t>(length, sizeof(storage_))) {
  std::memcpy(&storage_, address, length_);
}

std::optional<Address> Address::parse(std::string_view text, std::uint16_t port) noexcept {
  Address result;
  if (text.empty() || text.find('\0') != std::string_view::npos) return std::nullopt;
  if (text.front() == '/' || text.front() == '@') {
    auto& local = reinterpret_cast<sockaddr_un&>(result.storage_);
    if (text.size() >= sizeof(local.sun_path)) return std::nullopt;
    local.sun_family = AF_UNIX;
    std::memcpy(local.sun_path, text.data(), text.size());
    // An abstract name begins with a NUL and ends where the length says; a path has a NUL behind it.
    bool abstract = text.front() == '@';
    if (abstract) local.sun_path[0] = '\0';
    result.length_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size() + (abstract ? 0 : 1));
    return result;
  }
  if (text.front() == '[' && text.back() == ']') text = text.substr(1, text.size() - 2);
  char copy[INET6_ADDRSTRLEN];
  if (text.size() >= sizeof(copy)) return std::nullopt;
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  auto& v4 = reinterpret_cast<sockaddr_in&>(result.storage_);
  if (inet_pton(AF_INET, copy, &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    result.length_ = sizeof(sockaddr_in);
    return result;
  }
  result.storage_ = {};
  auto& v6 = reinterpret_cast<sockaddr_in6&>(result.storage_);
  if (inet_pton(AF_INET6, copy, &v6.sin6_addr) != 1) return std::nullopt;
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  result.length_ = sizeof(sockaddr_in6);
  return result;
}

Address Address::of_peer(int descriptor) noexcept { return ask(descriptor, getpeername); }

Address Address::of_descriptor(int descriptor) noexcept { return ask(descriptor, getsockname); }

std::uint16_t Address::port() const noexcept {
  if (family() == AF_INET) return ntohs(as4(storage_).sin_port);
  if (family() == AF_INET6) return ntohs(as6(storage_).sin6_port);
  return 0;
}

std::string Address::text() const {
  switch (family()) {
    case AF_INET:
      return numeric(AF_INET, &as4(storage_).sin_addr) + ":" + std::to_string(port());
    case AF_INET6:
      if (const std::uint8_t* inner = mapped4(as6(storage_))) {
        return numeric(AF_INET, inner) + ":" + std::to_string(port());
      }
      return "[" + numeric(AF_INET6, &as6(storage_).sin6_addr) + "]:" + std::to_string(port());
    case AF_UNIX:
      return local_path(storage_, length_);
    default:
      return "(unknown)";
  }
}

std::string Address::peer() const {
  if (family() == AF_INET) return numeric(AF_INET, &as4(storage_).sin_addr);
  if (family() != AF_INET6) return kNameless;
  if (const std::uint8_t* inner = mapped4(as6(storage_))) return numeric(AF_INET, inner);
  in6_addr network = as6(storage_).sin6_addr;
  std::fill(network.s6_addr + kPeerBits6 / 8, network.s6_addr + sizeof(network.s6_addr), std::uint8_t{0});
  return numeric(AF_INET6, &network) + "/" + std::to_string(kPeerBits6);
}

bool Address::operator==(const Address& other) const noexcept {
  return length_ == other.length_ && std::memcmp(&storage_, &other.storage_, length_) == 0;
}

}  // namespace sluice::proxy
