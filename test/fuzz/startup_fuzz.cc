// What a client may send before it is logged in: the startup packets, and a whole login with whatever settings. A
// client that does not know the password must not get in, and nothing but messages may be answered.
#include <optional>
#include <string>
#include <vector>

#include "fuzz/input.h"
#include "fuzz/require.h"
#include "proxy/client_login.h"
#include "proxy/scram_client.h"
#include "wire/startup_options.h"

namespace sluice::fuzz {
namespace {

using proxy::LoginStep;

constexpr std::string_view kPassword = "secret";
constexpr std::string_view kSalt = "c2FsdHNhbHRzYWx0c2FsdA==";

// Before TLS a client may get a single letter, and one of before protocol 3.0 an error that is no message; all else are
// messages.
class LoginOutput final : public proxy::Output {
 public:
  void to_client(wire::Bytes bytes) override {
    require(!closed, "nothing is sent behind the end");
    if (bytes.size() == 1) {
      require(bytes[0] == 'S' || bytes[0] == 'N', "the only letters are S and N");
      return;
    }
    client += wire::as_text(bytes);
  }
  void to_server(wire::Bytes) override { require(false, "a login sends nothing to a server"); }

  std::string client;
  bool closed = false;
};

void require_messages(std::string_view sent) {
  while (!sent.empty()) {
    require(sent.size() >= 5, "a message has a header");
    std::size_t size = wire::read_uint32(wire::as_bytes(sent).data() + 1) + std::size_t{1};
    require(size >= 5 && size <= sent.size(), "a message is whole");
    require(std::string_view("RSKZEv").find(sent[0]) != std::string_view::npos, "a login answers with these types");
    sent.remove_prefix(size);
  }
}

// What is said of a packet's beginning is said of all of it.
void compare_prefixes(wire::Bytes input) {
  wire::StartupPacket whole = wire::read_startup(input);
  for (std::size_t size = 0; size < input.size() && size < 64; size++) {
    wire::StartupPacket early = wire::read_startup(input.first(size));
    if (early.kind == wire::StartupKind::need_more) continue;
    require(early.kind == whole.kind && early.size == whole.size, "a packet is judged the same however it is cut");
  }
  if (whole.kind != wire::StartupKind::startup_message) return;
  wire::StartupSummary summary = wire::summarize_startup(whole.parameters);
  std::vector<char> scratch(summary.options.size());
  wire::OptionsReader options(summary.options, scratch);
  std::string_view name;
  std::string_view value;
  for (std::size_t i = 0; options.next(name, value) == wire::OptionStep::setting; i++) {
    require(i <= summary.options.size(), "options come to an end");
    require(name.size() + value.size() < summary.options.size(), "an option is a part of the options");
  }
}

proxy::FoundVerifier make_verifier(unsigned kind) {
  static const proxy::ClientKeys keys = [] {
    proxy::ClientKeys made;
    require(proxy::derive_keys(kPassword, kSalt, 1, made), "keys are derived");
    return made;
  }();
  constexpr proxy::FindKind kKinds[] = {proxy::FindKind::verifier, proxy::FindKind::unknown, proxy::FindKind::unusable,
                                        proxy::FindKind::verifier};
  return {kKinds[kind % 4], keys.verifier, "it has none"};
}

proxy::ClientLoginOptions make_options(std::uint8_t flags) {
  proxy::ClientLoginOptions options;
  options.tls_available = (flags & 1U) != 0;
  options.tls_required = (flags & 2U) != 0;
  options.allow_replication = (flags & 4U) != 0;
  options.profile = (flags & 8U) != 0 ? proxy::Profile::strict : proxy::Profile::compatible;
  options.method = (flags & 16U) != 0 ? proxy::ClientMethod::password : proxy::ClientMethod::scram;
  options.newest_protocol = (flags & 32U) != 0 ? wire::kProtocol30 : wire::kProtocol32;
  return options;
}

// The client who knows the password answers in the stream's place.
class HonestClient {
 public:
  HonestClient() {
    secret_.password = proxy::Secret(kPassword);
    client_.emplace(secret_, false, std::vector<std::uint8_t>{}, 100);
  }

  // The answer to the last message that the login sent, if it asks for one.
  [[nodiscard]] std::string answer(std::string_view sent) {
    std::string_view last;
    while (sent.size() >= 5) {
      std::size_t size = wire::read_uint32(wire::as_bytes(sent).data() + 1) + std::size_t{1};
      last = sent.substr(0, size);
      sent.remove_prefix(size);
    }
    if (last.size() < 9 || last[0] != 'R') return {};
    std::uint32_t code = wire::read_uint32(wire::as_bytes(last).data() + 5);
    if (code == 10) return password_message(initial());
    std::string reply;
    if (code != 11 || client_->final(last.substr(9), reply) != proxy::ScramAnswer::go_on) return {};
    return password_message(reply);
  }

 private:
  std::string initial() {
    std::string first = client_->first();
    std::string text(proxy::kScramMechanism);
    text += '\0';
    for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(first.size() >> shift);
    return text + first;
  }
  static std::string password_message(const std::string& payload) {
    std::string text = "p";
    for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>((payload.size() + 4) >> shift);
    return text + payload;
  }

  proxy::ScramSecret secret_;
  std::optional<proxy::ScramClient> client_;
};

struct Scene {
  std::uint8_t flags;
  std::uint8_t people;  // 1: honest, 2: the password is right, 4 and 8: the verifier, 16: end point, 32: ALPN
  std::string held;
  bool password_was_right = false;

  [[nodiscard]] bool is_honest() const { return (people & 1U) != 0; }
};

// One wish of the login carried out; false when it wants more bytes, or nothing any more.
bool carry_out(proxy::ClientLogin& login, LoginStep& step, Scene& scene, LoginOutput& out) {
  switch (step) {
    case LoginStep::start_tls: {
      proxy::TlsFacts facts;
      facts.postgresql_alpn = (scene.people & 32U) != 0;
      if ((scene.people & 16U) != 0) facts.end_point.assign(32, 7);
      // The bytes that are held would go into the handshake.
      scene.held.clear();
      step = login.tls_started(std::move(facts));
      return true;
    }
    case LoginStep::lookup_verifier:
      require(!login.user().empty(), "a login names a user");
      step = login.verifier(make_verifier(scene.people >> 2U), out);
      return true;
    case LoginStep::verify_password:
      scene.password_was_right = (scene.people & 2U) != 0;
      step = scene.password_was_right ? login.password_accepted(out) : login.refuse_password(out);
      return true;
    case LoginStep::pool_snapshot: {
      constexpr std::uint8_t kKey[] = {1, 2, 3, 4};
      const proxy::Setting parameters[] = {{"server_version", "15.1"}, {"TimeZone", "UTC"}};
      step = login.snapshot(parameters, {77, kKey}, out);
      return true;
    }
    case LoginStep::need_more:
    case LoginStep::accepted:
    case LoginStep::cancel_request:
    case LoginStep::close:
      break;
  }
  return false;
}

void log_in(Input input) {
  Scene scene = {input.byte(), input.byte(), {}, false};
  input.cut_by(input.byte());
  compare_prefixes(input.rest());
  proxy::ClientLogin login(make_options(scene.flags));
  HonestClient honest;
  LoginOutput out;
  LoginStep step = LoginStep::need_more;
  std::size_t answered = 0;
  while (step == LoginStep::need_more) {
    std::string answer;
    bool asked = scene.is_honest() && login.phase() == proxy::LoginPhase::proof && out.client.size() > answered;
    if (asked) answer = honest.answer(std::string_view(out.client).substr(answered));
    if (asked) answered = out.client.size();
    if (answer.empty()) {
      if (input.empty()) break;
      scene.held += wire::as_text(input.piece());
    } else {
      scene.held = answer;
    }
    wire::Bytes offered = wire::as_bytes(scene.held);
    step = login.receive(offered, out);
    scene.held.erase(0, scene.held.size() - offered.size());
    while (carry_out(login, step, scene, out)) {
    }
    if (step == LoginStep::need_more) {
      require(scene.held.size() <= wire::kMaxStartupBytes, "a login leaves no more than a startup packet");
    }
  }
  if (step == LoginStep::accepted) {
    bool known = scene.is_honest() && (scene.people >> 2U) % 4 % 3 == 0;
    require(known || scene.password_was_right, "only who knows the password gets in");
    require(!make_options(scene.flags).tls_required || login.in_tls(), "TLS is required where it is");
    require(login.outcome() == proxy::LoginOutcome::accepted, "it ended as it says");
  }
  if (step != LoginStep::need_more) {
    out.closed = true;
    wire::Bytes more = wire::as_bytes("Q");
    require(login.receive(more, out) == step && more.size() == 1, "behind the end nothing is read");
  }
  // An error of before protocol 3.0 is text.
  if (login.outcome() != proxy::LoginOutcome::unsupported) require_messages(out.client);
  require(step == LoginStep::need_more || login.outcome() != proxy::LoginOutcome::running, "an end has a reason");
}

}  // namespace
}  // namespace sluice::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  sluice::fuzz::log_in({data, size});
  return 0;
}
