#include "proxy/listener.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

namespace sluice::proxy {
namespace {

bool means_shortage(int error) { return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM; }

std::string because(const std::string& where, const char* doing) {
  return where + ": " + doing + ": " + std::strerror(errno);
}

// Whether somebody listens behind the file of a Unix socket: a file alone is left over from a process that died.
bool is_alive(const Address& address) {
  int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (probe < 0) return false;
  bool alive = ::connect(probe, address.data(), address.length()) == 0 || errno == EAGAIN || errno == EINPROGRESS;
  close(probe);
  return alive;
}

// Takes the lock that says whose the socket's file is, and removes what a dead process left. Empty on success.
std::string claim_file(const Address& address, int& lock) {
  std::string path = address.text();
  std::string lock_path = path + ".lock";
  lock = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock < 0) return because(lock_path, "open");
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) return path + ": another process listens here";
  if (access(path.c_str(), F_OK) != 0) return "";
  if (is_alive(address)) return path + ": another process listens here";
  struct stat status {};
  if (lstat(path.c_str(), &status) == 0 && !S_ISSOCK(status.st_mode)) return path + ": exists and is no socket";
  return unlink(path.c_str()) == 0 ? "" : because(path, "unlink");
}

}  // namespace

// --- ClientCounts ---

bool ClientCounts::take_token(Time now) noexcept {
  if (limits_.accept_rate == 0) return true;
  // Each connection moves the clock on by its share of a second; who would move it beyond one second ahead comes too
  // fast.
  Time share = kSecond / static_cast<Time>(limits_.accept_rate);
  Time start = std::max(rate_clock_, now - kSecond);
  if (start + share > now) return false;
  rate_clock_ = start + share;
  return true;
}

Admitted ClientCounts::admit(const std::string& peer, Time now) {
  if (limits_.max_clients != 0 && total_ >= limits_.max_clients) return Admitted::too_many_clients;
  if (limits_.max_clients_per_address != 0 && of_peer(peer) >= limits_.max_clients_per_address) {
    return Admitted::too_many_of_address;
  }
  if (!take_token(now)) return Admitted::too_fast;
  by_peer_[peer]++;
  total_++;
  return Admitted::yes;
}

void ClientCounts::leave(const std::string& peer) noexcept {
  auto found = by_peer_.find(peer);
  if (found == by_peer_.end()) return;
  total_--;
  if (--found->second == 0) by_peer_.erase(found);
}

std::uint32_t ClientCounts::of_peer(const std::string& peer) const noexcept {
  auto found = by_peer_.find(peer);
  return found == by_peer_.end() ? 0 : found->second;
}

// --- Listener ---

struct Listener::Socket {
  Socket() = default;
  ~Socket() {
    poll.reset();
    if (descriptor >= 0) ::close(descriptor);
    if (owns_file) unlink(file.c_str());
    if (lock >= 0) ::close(lock);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  int descriptor = -1;
  int lock = -1;     // of a Unix socket: held as long as its file is ours
  std::string file;  // of a Unix socket that is no abstract one
  bool owns_file = false;
  std::unique_ptr<Poll> poll;
};

std::string unix_socket_path(const std::string& folder, std::uint16_t port) {
  return folder + (folder.ends_with('/') ? "" : "/") + ".s.PGSQL." + std::to_string(port);
}

Listener::Listener(Loop& loop, ClientCounts& counts, Events events)
    : loop_(loop), counts_(counts), events_(std::move(events)), resume_(loop, [this] { resume(); }) {}

Listener::~Listener() { close(); }

std::string Listener::open(const ListenOptions& options) {
  for (const std::string& text : options.addresses) {
    bool folder = text.starts_with('/');
    std::optional<Address> address = Address::parse(folder ? unix_socket_path(text, options.port) : text, options.port);
    std::string reason =
        address ? open_one(*address, options) : text + ": neither a numeric address nor the folder of a Unix socket";
    if (reason.empty()) continue;
    close();
    return reason;
  }
  return "";
}

std::string Listener::open_one(const Address& address, const ListenOptions& options) {
  auto made = std::make_unique<Socket>();
  std::string where = address.text();
  bool has_file = address.is_local() && where.starts_with('/');
  if (has_file) {
    std::string reason = claim_file(address, made->lock);
    if (!reason.empty()) return reason;
  }
  made->descriptor = socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (made->descriptor < 0) return because(where, "socket");
  int on = 1;
  if (!address.is_local()) {
    setsockopt(made->descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (address.family() == AF_INET6) setsockopt(made->descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    if (options.reuse_port && setsockopt(made->descriptor, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) != 0) {
      return because(where, "SO_REUSEPORT");
    }
  }
  if (bind(made->descriptor, address.data(), address.length()) != 0) return because(where, "bind");
  if (has_file) {
    made->file = where;
    made->owns_file = true;
    if (chmod(where.c_str(), options.unix_mode) != 0) return because(where, "chmod");
  }
  auto backlog = static_cast<int>(std::min<std::uint32_t>(options.backlog, INT_MAX));
  if (listen(made->descriptor, backlog) != 0) return because(where, "listen");
  Socket& socket_ref = *made;
  made->poll = std::make_unique<Poll>(loop_, made->descriptor, [this, &socket_ref](Interest found) {
    if (found.failed) socket_ref.poll->want(true, false);
    accept_some(socket_ref);
  });
  made->poll->want(true, false);
  sockets_.push_back(std::move(made));
  return "";
}

void Listener::close() {
  sockets_.clear();
  resume_.cancel();
}

std::vector<Address> Listener::addresses() const {
  std::vector<Address> result;
  for (const auto& each : sockets_) result.push_back(Address::of_descriptor(each->descriptor));
  return result;
}

void Listener::accept_some(Socket& socket) {
  for (int count = 0; count < kMaxAcceptsPerTurn; count++) {
    if (!accept_one(socket)) return;
  }
}

bool Listener::accept_one(Socket& socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  int descriptor =
      accept4(socket.descriptor, reinterpret_cast<sockaddr*>(&storage), &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (descriptor < 0) {
    int error = errno;
    if (means_shortage(error)) pause(error);
    // A connection that was given up before it was taken says nothing about the next one; Linux also passes on what
    // went wrong in the network.
    return error == EINTR || error == ECONNABORTED || error == EPROTO || error == ENETDOWN || error == EHOSTUNREACH ||
           error == ENETUNREACH || error == EHOSTDOWN || error == ENOPROTOOPT || error == ENONET;
  }
  short_of_descriptors_ = false;
  Address address(reinterpret_cast<const sockaddr*>(&storage), length);
  std::string peer = address.peer();
  Admitted admitted = counts_.admit(peer, loop_.now());
  AcceptedClient client{descriptor, address, admitted, {}};
  if (admitted == Admitted::yes) client.slot = ClientSlot(counts_, std::move(peer));
  std::size_t sockets = sockets_.size();
  events_.accepted(std::move(client));
  return sockets == sockets_.size();  // the receiver may have closed the listener
}

void Listener::pause(int error) {
  for (const auto& each : sockets_) each->poll->want(false, false);
  resume_.set(loop_.now() + kAcceptPause);
  if (!std::exchange(short_of_descriptors_, true) && events_.paused) events_.paused(std::strerror(error));
}

void Listener::resume() {
  for (const auto& each : sockets_) each->poll->want(true, false);
}

}  // namespace sluice::proxy
