#include "proxy/admin.h"

#include <httplib.h>
#include <openssl/crypto.h>
#include <uv.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <fstream>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace sluice::proxy {
namespace {

constexpr std::size_t kMaxSecretBytes = 4096;
constexpr char kPlain[] = "text/plain; charset=utf-8";

// A fixed number of threads and a bounded queue. A full queue holds up whoever accepts, not memory.
class BoundedQueue : public httplib::TaskQueue {
 public:
  BoundedQueue() {
    for (std::size_t i = 0; i < kAdminThreads; i++) threads_.emplace_back([this] { work(); });
  }

  void enqueue(std::function<void()> task) override {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [this] { return tasks_.size() < kMaxAdminQueue || ending_; });
    tasks_.push_back(std::move(task));
    lock.unlock();
    work_.notify_one();
  }

  void shutdown() override {
    {
      std::lock_guard lock(mutex_);
      ending_ = true;
    }
    work_.notify_all();
    room_.notify_all();
    for (std::thread& each : threads_) each.join();
  }

 private:
  void work() {
    for (;;) {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [this] { return !tasks_.empty() || ending_; });
      if (tasks_.empty()) return;
      std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      room_.notify_one();
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable room_;
  std::deque<std::function<void()>> tasks_;
  std::vector<std::thread> threads_;
  bool ending_ = false;
};

bool same(const std::string& left, const std::string& right) {
  return left.size() == right.size() && CRYPTO_memcmp(left.data(), right.data(), left.size()) == 0;
}

Time monotonic_now() { return static_cast<Time>(uv_hrtime() / 1000); }

void answer(httplib::Response& response, int status, const std::string& text, const std::string& type = kPlain) {
  response.status = status;
  response.set_content(text, type);
}

void answer_health(const Published& published, httplib::Response& response) {
  std::shared_ptr<const Snapshot> snapshot = published.latest();
  Time age = snapshot == nullptr ? 0 : monotonic_now() - snapshot->taken_at;
  if (age > kStaleAfter) {
    answer(response, 503, "the event loop has not turned for " + std::to_string(age / kSecond) + " s\n");
  } else {
    answer(response, 200, "ok\n");
  }
}

void answer_readiness(const Published& published, httplib::Response& response) {
  std::shared_ptr<const Snapshot> snapshot = published.latest();
  if (snapshot == nullptr) return answer(response, 503, "starting\n");
  answer(response, snapshot->ready ? 200 : 503, (snapshot->ready ? "ready" : snapshot->reason) + "\n");
}

void answer_metrics(const Published& published, const httplib::Request& request, httplib::Response& response) {
  std::shared_ptr<const Snapshot> snapshot = published.latest();
  if (snapshot == nullptr) return answer(response, 503, "starting\n");
  bool open = request.get_header_value("Accept").find("application/openmetrics-text") != std::string::npos;
  MetricsFormat format = open ? MetricsFormat::open_metrics : MetricsFormat::prometheus;
  answer(response, 200, metrics_text(*snapshot, format), std::string(metrics_content_type(format)));
}

void answer_pools(const Published& published, httplib::Response& response) {
  std::shared_ptr<const Snapshot> snapshot = published.latest();
  if (snapshot == nullptr) return answer(response, 503, "starting\n");
  answer(response, 200, pools_json(*snapshot), "application/json");
}

void refuse(httplib::Response& response) {
  response.set_header("WWW-Authenticate", "Bearer");
  answer(response, 401, "a token is needed\n");
}

}  // namespace

struct AdminServer::Running {
  std::unique_ptr<httplib::Server> server;
  std::thread thread;
  std::atomic<bool> ended = false;
  mutable std::mutex token_mutex;
  std::string token;

  ~Running() { OPENSSL_cleanse(token.data(), token.size()); }

  [[nodiscard]] bool may_read(const httplib::Request& request) const {
    std::lock_guard lock(token_mutex);
    return token.empty() || same(request.get_header_value("Authorization"), "Bearer " + token);
  }
};

AdminServer::AdminServer(const Published& published) : published_(published) {}

AdminServer::~AdminServer() { stop(); }

std::string AdminServer::start(const AdminConfig& config, const std::string& token) {
  auto made = std::make_unique<Running>();
  if (config.certificate_file.empty()) {
    made->server = std::make_unique<httplib::Server>();
  } else {
    made->server = std::make_unique<httplib::SSLServer>(config.certificate_file.c_str(), config.key_file.c_str());
    if (!made->server->is_valid()) return "admin.certificate_file and admin.key_file cannot be used";
  }
  made->token = token;
  httplib::Server& server = *made->server;
  Running& running = *made;
  server.new_task_queue = [] { return new BoundedQueue; };
  server.set_read_timeout(kAdminTimeoutSeconds);
  server.set_write_timeout(kAdminTimeoutSeconds);
  server.set_keep_alive_max_count(100);
  server.set_keep_alive_timeout(kAdminTimeoutSeconds);
  server.set_payload_max_length(0);
  server.set_tcp_nodelay(true);
  const Published& published = published_;
  server.Get("/healthz", [&published](const auto&, auto& response) { answer_health(published, response); });
  server.Get("/readyz", [&published](const auto&, auto& response) { answer_readiness(published, response); });
  server.Get("/metrics", [&published, &running](const auto& request, auto& response) {
    running.may_read(request) ? answer_metrics(published, request, response) : refuse(response);
  });
  server.Get("/pools", [&published, &running](const auto& request, auto& response) {
    running.may_read(request) ? answer_pools(published, response) : refuse(response);
  });
  // The library's own default shares the port among processes, so that two proxies would answer each other's probes.
  server.set_socket_options([](int descriptor) {
    int on = 1;
    setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  });
  port_ = config.port;
  bool bound = config.port == 0 ? (port_ = server.bind_to_any_port(config.address)) > 0
                                : server.bind_to_port(config.address, config.port);
  if (!bound) return config.address + ":" + std::to_string(config.port) + ": cannot listen";
  running_ = std::move(made);
  running_->thread = std::thread([&server, &running] {
    server.listen_after_bind();
    running.ended = true;
  });
  // The library cannot be stopped before it has begun.
  while (!server.is_running() && !running.ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return "";
}

void AdminServer::set_token(const std::string& token) {
  if (running_ == nullptr) return;
  std::lock_guard lock(running_->token_mutex);
  OPENSSL_cleanse(running_->token.data(), running_->token.size());
  running_->token = token;
}

void AdminServer::stop() {
  if (running_ == nullptr) return;
  running_->server->stop();
  running_->thread.join();
  running_.reset();
}

bool read_secret_file(const std::string& file, std::string& secret) {
  std::ifstream in(file, std::ios::binary);
  secret.assign(kMaxSecretBytes + 1, '\0');
  in.read(secret.data(), static_cast<std::streamsize>(secret.size()));
  bool good = in.eof() && in.gcount() > 0;
  secret.resize(good ? static_cast<std::size_t>(in.gcount()) : 0);
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  return !secret.empty();
}

}  // namespace sluice::proxy
