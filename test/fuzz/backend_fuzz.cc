// Whatever a server sends: to a session whose client has sent something that is still to be answered, to a login, and
// to the lookup of a verifier. The client must get sound messages, in one piece, and a server that does not prove
// itself is not logged in to.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/checked_output.h"
#include "fuzz/input.h"
#include "fuzz/messages.h"
#include "proxy/scram_server.h"
#include "proxy/server_login.h"
#include "proxy/session.h"
#include "proxy/verifier_lookup.h"

namespace sluice::fuzz {
namespace {

using proxy::ServerLoginStep;

std::string query(std::string_view text) { return message('Q', terminated(text)); }
std::string parse(std::string_view name, std::string_view text) {
  return message('P', terminated(name) + terminated(text) + std::string(2, '\0'));
}
std::string bind(std::string_view name) {
  return message('B', terminated("") + terminated(name) + std::string(6, '\0'));
}
std::string execute() { return message('E', std::string(5, '\0')); }

// What the client has sent when the server begins to talk.
std::string client_script(std::uint8_t choice) {
  std::string sync = message('S');
  std::string named = parse("a", "select 1") + bind("a") + execute() + sync;
  switch (choice % 8) {
    case 0:
      return query("select 1");
    case 1:
      return parse("", "select 1") + bind("") + message('D', "P" + terminated("")) + execute() +
             message('C', "P" + terminated("")) + sync + query("select 2");
    case 2:
      return query("copy t from stdin") + message('d', "1\n") + message('c') + query("select 1");
    case 3:
      return query("copy t to stdout") + named;
    case 4:
      return query("set work_mem = '1MB'");
    case 5:
      return named + query("deallocate a") + named + query("discard all");
    case 6:
      return query("listen x") + parse("b", "listen x") + sync + parse("", "listen x") + sync;
    default:
      return query("begin") + parse("", "select 1") + parse("", "select 2") + bind("") + execute();
  }
}

void relay(Input input) {
  std::uint8_t flags = input.byte();
  input.cut_by(input.byte());
  proxy::SessionOptions options;
  proxy::PinBudget pins{1, 0};
  options.pins = &pins;
  options.profile = (flags & 8U) != 0 ? proxy::Profile::strict : proxy::Profile::compatible;
  if ((flags & 16U) != 0) options.untracked = proxy::Untracked::session;
  proxy::Settings parameters;
  parameters.set("client_encoding", "UTF8");
  proxy::Settings startup;
  if ((flags & 32U) != 0) startup.set("datestyle", "German");
  auto server = std::make_unique<proxy::ServerState>("app", parameters);
  proxy::Session session(options, 1, startup, parameters);
  CheckedOutput out;
  proxy::Time now = 1000 * proxy::kSecond;
  std::string held = client_script(flags);
  for (int released = 0; released < 20;) {
    std::size_t taken = session.take_client(wire::as_bytes(held), now, out);
    held.erase(0, taken);
    if (session.wants().server) session.assign(*server, now, out);
    if (!session.assigned() && taken == 0) break;
    if (session.wants().release || session.wants().discard != proxy::Discard::none) {
      bool reusable = session.wants().release;
      require(!reusable || server->status == wire::TransactionStatus::idle, "a released server is idle");
      require(!reusable || server->walker.between_messages(), "a released server is between two messages");
      require(session.release() == server.get(), "it is the server that was given");
      if (!reusable) server = std::make_unique<proxy::ServerState>("app", parameters);
      if (!reusable) out.next_server();
      released++;
      continue;
    }
    if (taken > 0) continue;
    if (input.empty()) break;
    session.take_server(input.piece(), now, out);
  }
  session.server_lost(now, out);
  session.client_gone(proxy::Departure::reset, now, out);
  require(session.done() || session.wants().discard != proxy::Discard::none, "without a server there is an end");
}

// A server that knows the verifier answers in the stream's place until it has proved itself.
class HonestServer {
 public:
  HonestServer() {
    proxy::ClientKeys keys;
    require(proxy::derive_keys("secret", "c2FsdHNhbHQ=", 1, keys), "keys are derived");
    scram_ = std::make_unique<proxy::ScramServer>(keys.verifier, std::vector<std::uint8_t>{}, false);
  }

  [[nodiscard]] std::string offer() const {
    return message('R', big_endian(10) + terminated(proxy::kScramMechanism) + '\0');
  }

  [[nodiscard]] std::string answer(std::string_view sent) {
    if (sent.size() < 5 || sent[0] != 'p') return {};
    std::string_view payload = sent.substr(5);
    std::string reply;
    if (!begun_) {
      begun_ = true;
      std::size_t data = proxy::kScramMechanism.size() + 5;
      require(payload.size() > data, "a first answer names the mechanism");
      bool right = scram_->first(proxy::kScramMechanism, payload.substr(data), reply) == proxy::ScramResult::go_on;
      require(right, "our own client is understood");
      return message('R', big_endian(11) + reply);
    }
    require(scram_->final(payload, reply) == proxy::ScramResult::proved, "our own client proves the password");
    return message('R', big_endian(12) + reply);
  }

 private:
  std::unique_ptr<proxy::ScramServer> scram_;
  bool begun_ = false;
};

// Packets of a login have no type at first, so they are only kept.
class LoginOutput final : public proxy::Output {
 public:
  void to_client(wire::Bytes) override { require(false, "a login at a server tells no client"); }
  void to_server(wire::Bytes bytes) override { sent += wire::as_text(bytes); }
  std::string sent;
};

void log_in(Input input) {
  std::uint8_t flags = input.byte();
  input.cut_by(input.byte());
  proxy::ServerLoginOptions options;
  options.allow_nothing = (flags & 1U) != 0;
  options.allow_cleartext = (flags & 2U) != 0;
  options.allow_md5 = (flags & 4U) != 0;
  options.tls = (flags & 8U) != 0;
  options.tls_required = (flags & 16U) != 0;
  if ((flags & 32U) != 0) options.protocol = wire::kProtocol32;
  options.max_iterations = 50;
  bool honest = (flags & 64U) != 0;
  proxy::ScramSecret secret;
  if ((flags & 128U) == 0 || honest) secret.password = proxy::Secret("secret");
  proxy::ServerLogin login(options, "app", "db", {{"DateStyle", "ISO"}}, secret);
  LoginOutput out;
  HonestServer server;
  ServerLoginStep step = login.start(out);
  bool offered = false;
  bool in_tls = false;
  std::string held;
  for (;;) {
    if (step == ServerLoginStep::start_tls) {
      held.clear();
      in_tls = true;
      step = login.tls_started((flags & 1U) != 0 ? std::vector<std::uint8_t>(32, 9) : std::vector<std::uint8_t>{}, out);
      continue;
    }
    if (step != ServerLoginStep::need_more) break;
    bool asks_tls = options.tls && !in_tls && !offered && out.sent.size() == 8;
    std::string said;
    if (honest && !asks_tls) {
      said = offered ? server.answer(out.sent) : server.offer();
      offered = true;
    }
    out.sent.clear();
    if (said.empty()) {
      if (input.empty()) break;
      said = wire::as_text(input.piece());
    }
    held += said;
    wire::Bytes bytes = wire::as_bytes(held);
    step = login.receive(bytes, out);
    held.erase(0, held.size() - bytes.size());
  }
  if (step == ServerLoginStep::ready) {
    bool trusted = honest || options.allow_nothing || options.allow_md5 || (options.allow_cleartext && in_tls);
    require(trusted, "who does not prove to know the verifier is not logged in to");
    require(!options.tls || !options.tls_required || in_tls, "TLS is required where it is");
    require(login.parameters().size() <= proxy::kMaxServerParameters, "parameters have a limit");
  }
  if (step == ServerLoginStep::failed) {
    require(login.failure() != proxy::ServerFailure::none && !login.reason().empty(), "a failure has a reason");
    require(login.reason().find("secret") == std::string::npos, "a reason has no secret");
  }
}

void look_up(Input input) {
  std::uint8_t flags = input.byte();
  input.cut_by(input.byte());
  proxy::VerifierLookup lookup(proxy::kDefaultVerifierQuery, (flags & 1U) != 0 ? "app" : "a'b\"c");
  CheckedOutput out;
  lookup.start(out);
  require(out.server_is_between_messages(), "a question is whole");
  proxy::LookupStep step = proxy::LookupStep::need_more;
  std::string held;
  while (step == proxy::LookupStep::need_more && !input.empty()) {
    held += wire::as_text(input.piece());
    wire::Bytes bytes = wire::as_bytes(held);
    step = lookup.receive(bytes);
    held.erase(0, held.size() - bytes.size());
  }
  if (step == proxy::LookupStep::broken || step == proxy::LookupStep::failed) {
    require(!lookup.message().empty() || !lookup.sqlstate().empty(), "a failure says why");
  }
}

void play(Input input) {
  switch (input.byte() % 3) {
    case 0:
      return relay(input);
    case 1:
      return log_in(input);
    default:
      return look_up(input);
  }
}

}  // namespace
}  // namespace sluice::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  sluice::fuzz::play({data, size});
  return 0;
}
