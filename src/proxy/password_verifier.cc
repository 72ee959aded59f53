#include "proxy/password_verifier.h"

#include <algorithm>
#include <utility>

namespace sluice::proxy {

PasswordVerifier::PasswordVerifier(ChannelHub& hub, const PasswordOptions& options, const AuthFailureOptions& failures,
                                   Events events)
    : hub_(hub),
      check_(options, failures),
      events_(std::move(events)),
      deadline_(hub.loop(), [this] { expire(); }),
      clean_up_(hub.loop(), [this] { finished_.clear(); }) {}

PasswordVerifier::~PasswordVerifier() {
  for (auto& [id, trial] : trials_) trial.server->close();
}

void PasswordVerifier::ask(LoginNumber login, const std::string& user, const std::string& database,
                           const std::string& address, std::string_view password) {
  asking_[login] = {user, database, address, Secret(password)};
  decide(login);
}

void PasswordVerifier::withdraw(LoginNumber login) {
  if (asking_.erase(login) > 0) check_.withdraw(login);
}

void PasswordVerifier::decide(LoginNumber login) {
  auto found = asking_.find(login);
  if (found == asking_.end()) return;
  Asking& asking = found->second;
  PasswordDecision decision = check_.ask(login, asking.user, asking.address, asking.password.view(), hub_.loop().now());
  switch (decision.answer) {
    case PasswordAnswer::accepted:
      asking_.erase(found);
      events_.accepted(login);
      return;
    case PasswordAnswer::rejected:
    case PasswordAnswer::rate_limited:
      asking_.erase(found);
      events_.rejected(login, decision.answer == PasswordAnswer::rate_limited);
      return;
    case PasswordAnswer::wait:
      asking.deadline = decision.deadline;
      set_deadline();
      return;
    case PasswordAnswer::verify:
      break;
  }
  ServerTarget target = events_.target(asking.user, asking.database);
  target.secret = {};
  target.secret.password = asking.password;
  ServerId id = ++last_trial_;
  Trial& trial = trials_[id];
  trial = {decision.verification, login, std::make_unique<ServerConnection>(hub_, id, std::move(target), *this)};
  trial.server->open();
}

PasswordVerifier::Trial PasswordVerifier::finish(ServerConnection& server) {
  auto found = trials_.find(server.id());
  Trial trial = std::move(found->second);
  trials_.erase(found);
  trial.server->close();
  finished_.push_back(std::move(trial.server));
  clean_up_.at_turn_end();
  return trial;
}

void PasswordVerifier::server_opened(ServerConnection& server) {
  ClientKeys keys = server.login().keys();
  Trial trial = finish(server);
  std::vector<LoginNumber> again;
  check_.verified(trial.verification, keys, hub_.loop().now(), again);
  if (asking_.erase(trial.login) > 0) events_.accepted(trial.login);
  ask_again(again);
}

void PasswordVerifier::server_open_failed(ServerConnection& server, const ConnectFailure& failure) {
  // A refusal before the password went out says nothing about the password.
  bool wrong = failure.sqlstate == "28P01" && server.secret_sent();
  const wire::ErrorFields* error = server.server_error();
  Trial trial = finish(server);
  std::vector<LoginNumber> again;
  if (wrong) {
    check_.rejected(trial.verification, hub_.loop().now(), again);
    if (asking_.erase(trial.login) > 0) events_.rejected(trial.login, false);
  } else {
    std::vector<LoginNumber> shared;
    check_.unavailable(trial.verification, hub_.loop().now(), shared, again);
    shared.push_back(trial.login);
    for (LoginNumber login : shared) {
      if (asking_.erase(login) > 0) events_.unavailable(login, error, failure.message);
    }
  }
  ask_again(again);
}

void PasswordVerifier::ask_again(const std::vector<LoginNumber>& logins) {
  for (LoginNumber login : logins) decide(login);
}

void PasswordVerifier::set_deadline() {
  Time first = kNever;
  for (const auto& [login, asking] : asking_) first = std::min(first, asking.deadline);
  deadline_.set(first);
}

void PasswordVerifier::expire() {
  std::vector<LoginNumber> late;
  for (const auto& [login, asking] : asking_) {
    if (asking.deadline <= hub_.loop().now()) late.push_back(login);
  }
  for (LoginNumber login : late) {
    withdraw(login);
    events_.busy(login);
  }
  set_deadline();
}

}  // namespace sluice::proxy
