// HTTP for probes, scrapers and people, on threads of its own: /metrics, /healthz, /readyz, /pools. It reads the
// snapshot that a worker has published and nothing else, so that no question can hold up a client, and no answer needs
// the database.
//
// /healthz and /readyz are open, because probes can rarely be given a secret and the answers hold none; /metrics and
// /pools ask for the token where one is set. Nothing can be changed through it.
#pragma once

#include <memory>
#include <string>

#include "proxy/config.h"
#include "proxy/metrics.h"

namespace sluice::proxy {

// Requests answered at once, and how many more may wait inside the process; the rest waits in the kernel's queue.
inline constexpr std::size_t kAdminThreads = 4;
inline constexpr std::size_t kMaxAdminQueue = 64;
inline constexpr int kAdminTimeoutSeconds = 5;
// A worker publishes about once a second. If it has not for so long its loop hangs, and the process is not alive.
inline constexpr Time kStaleAfter = 15 * kSecond;

class AdminServer {
 public:
  explicit AdminServer(const Published& published);
  ~AdminServer();
  AdminServer(const AdminServer&) = delete;
  AdminServer& operator=(const AdminServer&) = delete;

  // Listens and begins to answer. Empty on success, else the reason. `token` is what admin.token or the file says.
  [[nodiscard]] std::string start(const AdminConfig& config, const std::string& token);
  // Of a reloaded configuration.
  void set_token(const std::string& token);
  void stop();
  // Where it listens; for tests, which ask for port 0.
  [[nodiscard]] int port() const noexcept { return port_; }

 private:
  struct Running;

  const Published& published_;
  std::unique_ptr<Running> running_;
  int port_ = 0;
};

// What a file holds, without the newline behind it: admin.token_file, auth.password_file. False if it cannot be read,
// is empty, or is longer than any such thing.
[[nodiscard]] bool read_secret_file(const std::string& file, std::string& secret);

}  // namespace sluice::proxy
