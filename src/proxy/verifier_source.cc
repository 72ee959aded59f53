#include "proxy/verifier_source.h"

#include <utility>

namespace sluice::proxy {

VerifierSource::VerifierSource(ChannelHub& hub, Credentials& credentials, Events events)
    : hub_(hub),
      credentials_(credentials),
      events_(std::move(events)),
      limit_(hub.loop(),
             [this] {
               LookupFailure failure{"08006", "reading the role's verifier took too long"};
               drop_server();
               finish(&failure);
             }),
      clean_up_(hub.loop(), [this] { finished_.clear(); }) {}

VerifierSource::~VerifierSource() {
  if (server_ != nullptr) server_->close();
}

void VerifierSource::set_query(std::string query, Time timeout) {
  query_ = query.empty() ? std::string(kDefaultVerifierQuery) : std::move(query);
  timeout_ = timeout;
}

void VerifierSource::look_up(const std::string& user) {
  waiting_.push_back(user);
  if (waiting_.size() == 1) next();
}

void VerifierSource::reconnect() {
  if (lookup_ == nullptr) drop_server();
}

void VerifierSource::next() {
  if (waiting_.empty()) return;
  limit_.set(hub_.loop().now() + timeout_);
  lookup_ = std::make_unique<VerifierLookup>(query_, waiting_.front());
  held_.clear();
  fresh_ = server_ == nullptr;
  if (fresh_) {
    open();
    return;
  }
  if (server_->is_open()) lookup_->start(*server_);
}

void VerifierSource::open() {
  server_ = std::make_unique<ServerConnection>(hub_, ServerId{0}, events_.target(), *this);
  server_->open();
}

void VerifierSource::server_opened(ServerConnection& server) {
  if (lookup_ != nullptr) lookup_->start(server);
}

void VerifierSource::server_open_failed(ServerConnection&, const ConnectFailure& failure) {
  LookupFailure lookup_failure{"08006", "the connection that reads verifiers: " + failure.message};
  drop_server();
  finish(&lookup_failure);
}

void VerifierSource::server_received(ServerConnection&, wire::Bytes bytes) {
  if (lookup_ == nullptr) {
    drop_server();  // nothing was asked
    return;
  }
  held_.insert(held_.end(), bytes.begin(), bytes.end());
  wire::Bytes input = held_;
  LookupStep step = lookup_->receive(input);
  held_.erase(held_.begin(), held_.end() - static_cast<std::ptrdiff_t>(input.size()));
  switch (step) {
    case LookupStep::need_more:
      return;
    case LookupStep::done:
      credentials_.lookup_done(waiting_.front(), lookup_->result(), hub_.loop().now());
      finish(nullptr);
      return;
    case LookupStep::broken:
      drop_server();
      [[fallthrough]];
    case LookupStep::failed: {
      LookupFailure failure{lookup_->sqlstate().empty() ? "08006" : lookup_->sqlstate(), lookup_->message()};
      finish(&failure);
      return;
    }
  }
}

void VerifierSource::server_ended(ServerConnection&) {
  drop_server();
  if (lookup_ == nullptr) return;
  // An idle connection may have died long ago, unnoticed until now. Once more with a new one.
  if (!fresh_) {
    fresh_ = true;
    held_.clear();
    lookup_ = std::make_unique<VerifierLookup>(query_, waiting_.front());
    open();
    return;
  }
  LookupFailure failure{"08006", "the connection that reads verifiers was lost"};
  finish(&failure);
}

void VerifierSource::finish(const LookupFailure* failure) {
  if (waiting_.empty()) return;
  limit_.cancel();
  lookup_.reset();
  std::string user = std::move(waiting_.front());
  waiting_.pop_front();
  if (failure != nullptr) credentials_.lookup_failed(user);
  events_.done(user, failure);
  if (lookup_ == nullptr) next();
}

void VerifierSource::drop_server() {
  if (server_ == nullptr) return;
  server_->close();
  finished_.push_back(std::move(server_));
  clean_up_.at_turn_end();
}

}  // namespace sluice::proxy
