// A socket's address, numeric only: names are resolved elsewhere. Says how it is printed, and which addresses are
// counted as one peer.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::proxy {

// Whoever has one IPv6 address has all of its network, so limits per address count these many bits of it.
inline constexpr unsigned kPeerBits6 = 64;

class Address {
 public:
  Address() = default;
  Address(const sockaddr* address, socklen_t length) noexcept;

  // "127.0.0.1", "::1", "[::1]", or the path of a Unix socket, which begins with '/' or '@' (abstract). Nothing if the
  // text is neither, or a path that is too long.
  [[nodiscard]] static std::optional<Address> parse(std::string_view text, std::uint16_t port) noexcept;
  [[nodiscard]] static Address of_peer(int descriptor) noexcept;
  [[nodiscard]] static Address of_descriptor(int descriptor) noexcept;

  [[nodiscard]] const sockaddr* data() const noexcept { return reinterpret_cast<const sockaddr*>(&storage_); }
  [[nodiscard]] socklen_t length() const noexcept { return length_; }
  [[nodiscard]] int family() const noexcept { return storage_.ss_family; }
  [[nodiscard]] bool is_local() const noexcept { return family() == AF_UNIX; }
  [[nodiscard]] std::uint16_t port() const noexcept;

  // For people and logs: "127.0.0.1:5432", "[::1]:5432", a path, or "(unix)" for the nameless end of a Unix socket.
  [[nodiscard]] std::string text() const;
  // What limits per address count as one: the IPv4 address (also when mapped into IPv6), the IPv6 network, or "(unix)".
  [[nodiscard]] std::string peer() const;

  bool operator==(const Address& other) const noexcept;

 private:
  sockaddr_storage storage_{};
  socklen_t length_ = 0;
};

}  // namespace sluice::proxy
