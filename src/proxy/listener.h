// The sockets clients connect to. Owns the listening descriptors and counts the connections that came through them;
// accepts in bounded batches, under a rate, within caps in total and per address, and pauses when the process is out of
// descriptors rather than spinning.
//
// Whoever is over a cap or the rate is accepted and handed on with the reason, so that the owner can say so in the
// protocol or close; such connections are counted nowhere.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "proxy/address.h"
#include "proxy/loop.h"

namespace sluice::proxy {

// Connections taken from one listening socket before others get a turn.
inline constexpr int kMaxAcceptsPerTurn = 64;
// How long accepting rests when descriptors or memory have run out.
inline constexpr Time kAcceptPause = 500 * kMillisecond;

struct ListenOptions {
  std::vector<std::string> addresses{"127.0.0.1"};  // numeric addresses and paths of Unix sockets' folders
  std::uint16_t port = 6432;
  std::uint32_t backlog = 1024;
  bool reuse_port = false;  // several processes on one port, as a rolling replacement needs
  mode_t unix_mode = 0777;  // of the Unix socket's file; whoever gets in still has to log in
};

struct AcceptLimits {
  std::uint32_t max_clients = 10'000;
  std::uint32_t max_clients_per_address = 0;  // 0: no limit
  std::uint32_t accept_rate = 0;  // connections per second, evenly with a burst of one second's worth; 0: no limit
};

enum class Admitted : std::uint8_t { yes, too_many_clients, too_many_of_address, too_fast };

// A slot in the counts, held as long as the client is connected. Movable; releases itself.
class ClientSlot;

struct AcceptedClient;

// The counts behind the caps, apart from any socket: they outlive the listening sockets in a drain.
class ClientCounts {
 public:
  explicit ClientCounts(const AcceptLimits& limits) noexcept : limits_(limits) {}

  void set_limits(const AcceptLimits& limits) noexcept { limits_ = limits; }
  [[nodiscard]] Admitted admit(const std::string& peer, Time now);
  void leave(const std::string& peer) noexcept;

  [[nodiscard]] std::uint32_t total() const noexcept { return total_; }
  [[nodiscard]] std::uint32_t of_peer(const std::string& peer) const noexcept;

 private:
  [[nodiscard]] bool take_token(Time now) noexcept;

  AcceptLimits limits_;
  std::unordered_map<std::string, std::uint32_t> by_peer_;
  std::uint32_t total_ = 0;
  Time rate_clock_ = 0;  // virtual time up to which connections of the rate were given out
};

class ClientSlot {
 public:
  ClientSlot() = default;
  ClientSlot(ClientCounts& counts, std::string peer) noexcept : counts_(&counts), peer_(std::move(peer)) {}
  ~ClientSlot() { release(); }
  ClientSlot(ClientSlot&& other) noexcept : counts_(other.counts_), peer_(std::move(other.peer_)) {
    other.counts_ = nullptr;
  }
  ClientSlot& operator=(ClientSlot&& other) noexcept {
    release();
    counts_ = other.counts_;
    peer_ = std::move(other.peer_);
    other.counts_ = nullptr;
    return *this;
  }

  void release() noexcept {
    if (counts_ != nullptr) counts_->leave(peer_);
    counts_ = nullptr;
  }
  [[nodiscard]] const std::string& peer() const noexcept { return peer_; }

 private:
  ClientCounts* counts_ = nullptr;
  std::string peer_;
};

struct AcceptedClient {
  int descriptor;  // non-blocking, closed on exec; the receiver's from now on
  Address address;
  Admitted admitted;
  ClientSlot slot;  // holds its place where admitted is yes
};

class Listener {
 public:
  struct Events {
    std::function<void(AcceptedClient client)> accepted;
    // Out of descriptors or memory: accepting rests for kAcceptPause. Told once per shortage.
    std::function<void(const std::string& reason)> paused;
  };

  // Both must outlive the listener.
  Listener(Loop& loop, ClientCounts& counts, Events events);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Opens every address, or none. An empty answer is success, else the reason with the address.
  [[nodiscard]] std::string open(const ListenOptions& options);
  // For a drain or a shutdown: new connections are refused by the kernel from now on. Removes the Unix sockets' files.
  void close();
  // Where it listens, ports filled in.
  [[nodiscard]] std::vector<Address> addresses() const;

 private:
  struct Socket;

  [[nodiscard]] std::string open_one(const Address& address, const ListenOptions& options);
  void accept_some(Socket& socket);
  // False when the batch is over.
  [[nodiscard]] bool accept_one(Socket& socket);
  void pause(int error);
  void resume();

  Loop& loop_;
  ClientCounts& counts_;
  Events events_;
  std::vector<std::unique_ptr<Socket>> sockets_;
  Timer resume_;
  bool short_of_descriptors_ = false;
};

// The file of the Unix socket in a folder, as PostgreSQL names it.
[[nodiscard]] std::string unix_socket_path(const std::string& folder, std::uint16_t port);

}  // namespace sluice::proxy
