// The address of the server's host. A name is looked up on a thread of its own, again when what is known is older than
// its time to live, and again every while even if nobody connects; meanwhile, and while lookups fail, the last address
// counts. Owns the thread, which ends with it.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "proxy/address.h"
#include "proxy/loop.h"

namespace sluice::proxy {

struct ResolverOptions {
  std::string host;  // a name, a numeric address, or a Unix socket's folder
  std::uint16_t port = 5432;
  Time ttl = 30 * kSecond;
  Time refresh = 60 * kSecond;
};

class Resolver {
 public:
  // What a host's name has come to stand for; empty if it is not known (any more).
  using Changed = std::function<void(const std::vector<Address>& addresses, const std::string& error)>;
  using Lookup = std::function<std::vector<Address>(const std::string& host, std::uint16_t port, std::string& error)>;

  // `lookup` blocks, on the thread; the default asks the system.
  Resolver(Loop& loop, Changed changed, Lookup lookup = {});
  ~Resolver();

  void set(ResolverOptions options);
  // The address to connect to now; nothing while none is known. Asks again in the background where it is due.
  [[nodiscard]] std::optional<Address> address();
  [[nodiscard]] const std::string& error() const noexcept { return error_; }
  // Known, or known to be not to be had.
  [[nodiscard]] bool asked() const noexcept { return asked_; }

 private:
  struct Answer {
    std::string host;
    std::vector<Address> addresses;
    std::string error;
  };

  void ask();
  void run();
  void answered();

  Loop& loop_;
  Changed changed_;
  Lookup lookup_;
  ResolverOptions options_;
  std::vector<Address> addresses_;
  std::string error_;
  std::size_t turn_ = 0;  // several addresses are taken in turn
  Time known_at_ = 0;
  bool asked_ = false;
  bool running_ = false;  // a question is with the thread
  bool numeric_ = false;
  Timer refresh_;
  Wakeup wakeup_;

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_question_;
  std::optional<ResolverOptions> question_;
  std::optional<Answer> answer_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace sluice::proxy
