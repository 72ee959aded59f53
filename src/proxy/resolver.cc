#include "proxy/resolver.h"

#include <netdb.h>

#include <algorithm>
#include <utility>

#include "proxy/listener.h"

namespace sluice::proxy {
namespace {

std::vector<Address> ask_system(const std::string& host, std::uint16_t port, std::string& error) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  addrinfo* found = nullptr;
  int status = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (status != 0) {
    error = gai_strerror(status);
    return {};
  }
  std::vector<Address> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    addresses.emplace_back(one->ai_addr, one->ai_addrlen);
  }
  freeaddrinfo(found);
  return addresses;
}

}  // namespace

Resolver::Resolver(Loop& loop, Changed changed, Lookup lookup)
    : loop_(loop),
      changed_(std::move(changed)),
      lookup_(lookup ? std::move(lookup) : ask_system),
      refresh_(loop, [this] { ask(); }),
      wakeup_(loop, [this] { answered(); }),
      thread_([this] { run(); }) {}

Resolver::~Resolver() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_question_.notify_one();
  thread_.join();
}

void Resolver::set(ResolverOptions options) {
  options_ = std::move(options);
  std::string where = options_.host;
  if (where.starts_with('/')) where = unix_socket_path(where, options_.port);
  std::optional<Address> address = Address::parse(where, options_.port);
  numeric_ = address.has_value();
  if (numeric_) {
    refresh_.cancel();
    addresses_ = {*address};
    error_.clear();
    asked_ = true;
    return;
  }
  addresses_.clear();
  asked_ = false;
  ask();
}

std::optional<Address> Resolver::address() {
  if (!numeric_ && loop_.now() - known_at_ >= options_.ttl) ask();
  if (addresses_.empty()) return std::nullopt;
  return addresses_[turn_++ % addresses_.size()];
}

void Resolver::ask() {
  if (numeric_ || std::exchange(running_, true)) return;
  {
    std::lock_guard lock(mutex_);
    question_ = options_;
  }
  changed_question_.notify_one();
}

void Resolver::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_question_.wait(lock, [this] { return stop_ || question_; });
    if (stop_) return;
    ResolverOptions question = *std::exchange(question_, std::nullopt);
    lock.unlock();
    Answer answer{question.host, {}, {}};
    answer.addresses = lookup_(question.host, question.port, answer.error);
    lock.lock();
    answer_ = std::move(answer);
    wakeup_.send();
  }
}

void Resolver::answered() {
  std::optional<Answer> answer;
  {
    std::lock_guard lock(mutex_);
    answer = std::exchange(answer_, std::nullopt);
  }
  running_ = false;
  refresh_.set(loop_.now() + options_.refresh);
  if (!answer) return;
  if (answer->host != options_.host) {
    ask();  // of a configuration that is no more
    return;
  }
  asked_ = true;
  error_ = answer->error;
  if (!answer->addresses.empty()) {
    addresses_ = answer->addresses;
    known_at_ = loop_.now();
  }
  changed_(answer->addresses, error_);
}

}  // namespace sluice::proxy
