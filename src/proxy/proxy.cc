#include "proxy/proxy.h"

#include <csignal>
#include <memory>
#include <random>
#include <utility>

#include "proxy/admin.h"
#include "proxy/channel.h"
#include "proxy/listener.h"
#include "proxy/log.h"
#include "proxy/loop.h"
#include "proxy/notify.h"
#include "proxy/worker.h"

namespace sluice::proxy {
namespace {

// How old what /metrics and /readyz show may be.
constexpr Time kPublishInterval = kSecond / 2;

class Proxy {
 public:
  Proxy(const Config& config, std::string file, Environment environment)
      : config_(config),
        file_(std::move(file)),
        environment_(environment),
        log_(config.log),
        hub_(loop_),
        worker_(hub_, log_, config, std::random_device()()),
        admin_(published_),
        listener_(loop_, worker_.counts(),
                  {[this](AcceptedClient client) { worker_.accept(std::move(client)); },
                   [this](const std::string& reason) {
                     log_.error("listen", "accepting rests for a moment", loop_.now(), {{"reason", reason}});
                   }}),
        terminate_(loop_, SIGTERM, [this] { drain(); }),
        interrupt_(loop_, SIGINT, [this] { drain(); }),
        hang_up_(loop_, SIGHUP, [this] { reload(); }),
        drain_step_(loop_, [this] { go_on_draining(); }),
        publish_(loop_, [this] { publish(); }) {}

  int run() {
    std::string error = worker_.load_files();
    std::string token;
    if (error.empty()) error = read_token(token);
    if (error.empty() && config_.admin.enabled) error = admin_.start(config_.admin, token);
    if (error.empty()) error = listener_.open(config_.listen);
    if (!error.empty()) {
      log_.error("start", "the proxy cannot start", loop_.now(), {{"reason", error}});
      log_.flush();
      return 1;
    }
    for (const Address& address : listener_.addresses()) {
      log_.info("listen", "clients may connect", loop_.now(), {{"address", address.text()}});
    }
    publish();
    (void)notify_supervisor("READY=1");
    loop_.run();
    admin_.stop();
    log_.info("end", "the proxy has ended", loop_.now());
    log_.flush();
    return 0;
  }

 private:
  [[nodiscard]] std::string read_token(std::string& token) const {
    token = config_.admin.token;
    if (config_.admin.token_file.empty() || read_secret_file(config_.admin.token_file, token)) return {};
    return "cannot read a token from " + config_.admin.token_file;
  }

  void publish() {
    published_.publish(worker_.snapshot());
    log_.tick(loop_.now());
    publish_.set(loop_.now() + kPublishInterval);
  }

  // A second signal ends it at once.
  void drain() {
    if (std::exchange(draining_, true)) {
      stop();
      return;
    }
    drain_began_ = loop_.now();
    log_.info("end", "draining", drain_began_, {{"clients", worker_.clients()}});
    (void)notify_supervisor("STOPPING=1");
    worker_.begin_drain();
    publish();
    go_on_draining();
  }

  void go_on_draining() {
    Time now = loop_.now();
    if (worker_.clients() == 0 || now - drain_began_ >= config_.drain.shutdown_timeout) {
      stop();
      return;
    }
    if (now - drain_began_ >= config_.drain.wait) worker_.end_sessions();
    drain_step_.set(now + 50 * kMillisecond);
  }

  void stop() {
    listener_.close();
    worker_.drop_all();
    loop_.stop();
  }

  void reload() {
    Time now = loop_.now();
    (void)notify_reloading(now);
    LoadedConfig loaded = load_config(file_, environment_);
    std::string error;
    for (const ConfigFinding& finding : loaded.findings) {
      if (!finding.warning && error.empty()) error = finding.text();
    }
    std::string token;
    if (loaded.ok()) {
      // Of a file that was not read to its end nothing can be said.
      for (const std::string& path : needs_restart(config_, loaded.config)) {
        log_.warning("reload", "a setting changes only with a restart", now, {{"setting", path}});
      }
      error = worker_.reload(loaded.config);
    }
    if (error.empty()) {
      config_ = loaded.config;
      error = read_token(token);
    }
    if (error.empty()) {
      admin_.set_token(token);
      log_.set_levels(config_.log);
      log_.info("reload", "the configuration was loaded again", now);
    } else {
      worker_.note_failed_reload();
      log_.error("reload", "the reload failed, and what it says is not in force", now, {{"reason", error}});
    }
    (void)notify_supervisor("READY=1");
  }

  Config config_;
  std::string file_;
  Environment environment_;
  Loop loop_;
  Log log_;
  ChannelHub hub_;
  Worker worker_;
  Published published_;
  AdminServer admin_;
  Listener listener_;
  SignalWatcher terminate_;
  SignalWatcher interrupt_;
  SignalWatcher hang_up_;
  Timer drain_step_;
  Timer publish_;
  Time drain_began_ = 0;
  bool draining_ = false;
};

}  // namespace

int run_proxy(const Config& config, const std::string& file, Environment environment) {
  return std::make_unique<Proxy>(config, file, environment)->run();
}

}  // namespace sluice::proxy
