// SCRAM: its messages and verifiers as anybody may send them, to both sides of the exchange, and passwords of any
// bytes. Nothing is proved without the password, who has it always gets in, and what is read is what would have been
// written.
#include <string>
#include <vector>

#include "fuzz/input.h"
#include "fuzz/require.h"
#include "proxy/credential_file.h"
#include "proxy/scram_client.h"
#include "proxy/scram_keys.h"
#include "proxy/scram_server.h"
#include "wire/scram.h"

namespace sluice::fuzz {
namespace {

using proxy::ScramAnswer;
using proxy::ScramResult;

constexpr std::string_view kSalt = "c2FsdHNhbHQ=";
// Work that a peer may ask for; each is a hash.
constexpr std::uint32_t kMaxIterations = 50;

proxy::ClientKeys keys_of(std::string_view password) {
  proxy::ClientKeys keys;
  require(proxy::derive_keys(password, kSalt, 1, keys), "keys are derived of any password");
  return keys;
}

void read_texts(std::string_view text) {
  wire::ClientFirst client_first = {};
  if (wire::read_client_first(text, client_first)) {
    require(std::string(client_first.gs2_header) + std::string(client_first.bare) == text, "header and rest are all");
    require(!client_first.nonce.empty() && client_first.nonce.size() <= wire::kMaxNonceBytes, "a nonce has its limits");
  }
  wire::ServerFirst server_first = {};
  if (wire::read_server_first(text, "r", server_first)) {
    require(server_first.nonce.starts_with("r") && server_first.nonce.size() > 1, "a nonce begins with the client's");
    require(server_first.iterations >= 1 && server_first.iterations <= wire::kMaxIterations, "the work has a limit");
  }
  wire::ClientFinal client_final = {};
  if (wire::read_client_final(text, client_final)) {
    require(text.starts_with(client_final.without_proof), "what is signed is the message's beginning");
  }
  std::string_view signature;
  (void)wire::read_server_final(text, signature);
  std::vector<std::uint8_t> decoded(text.size());
  std::size_t length = 0;
  if (wire::read_base64(text, decoded, length)) {
    require(proxy::to_base64(wire::Bytes(decoded).first(length)) == text,
            "base64 is what encoding would have produced");
  }
  proxy::Verifier verifier;
  if (proxy::parse_verifier(text, verifier)) {
    require(verifier.iterations >= 1 && !verifier.salt.empty(), "a verifier is complete");
    require(proxy::same_verifier(verifier, verifier), "a verifier is the same as itself");
  }
}

// A server that gets the two halves of the text for messages. A nonce of ours is in neither, so nothing is proved.
void attack_server(std::string_view text, std::uint8_t flags) {
  std::vector<std::uint8_t> end_point;
  if ((flags & 4U) != 0) end_point.assign(32, 9);
  proxy::ScramServer server(keys_of("secret").verifier, end_point, (flags & 8U) != 0);
  std::size_t half = text.find('\n');
  std::string reply;
  std::string_view mechanism = (flags & 16U) != 0 ? proxy::kScramPlusMechanism : proxy::kScramMechanism;
  if (server.first(mechanism, text.substr(0, half), reply) != ScramResult::go_on) {
    require(!server.reason().empty() || reply.empty(), "a refusal has a reason");
    return;
  }
  require(reply.starts_with("r="), "the server's first message begins with its nonce");
  std::string final(half == text.npos ? text : text.substr(half + 1));
  // With the true nonce in its place the proof is judged.
  std::size_t place = final.find("$nonce");
  if (place != final.npos) final.replace(place, 6, reply.substr(2, reply.find(',') - 2));
  require(server.final(final, reply) != ScramResult::proved, "nothing is proved without the password");
}

void attack_client(std::string_view text) {
  proxy::ScramSecret secret;
  secret.password = proxy::Secret("secret");
  proxy::ScramClient client(secret, false, {}, kMaxIterations);
  std::string first = client.first();
  std::string nonce = first.substr(first.find("r=") + 2);
  std::size_t half = text.find('\n');
  std::string server_first(text.substr(0, half));
  std::size_t place = server_first.find("$nonce");
  if (place != server_first.npos) server_first.replace(place, 6, nonce);
  std::string reply;
  if (client.final(server_first, reply) != ScramAnswer::go_on) return;
  require(reply.find(",p=") != reply.npos, "an answer has a proof");
  require(!client.finish(half == text.npos ? text : text.substr(half + 1)), "a server must know the verifier");
}

// Any password: who has it gets in, and who has it but for a byte does not.
void log_in(std::string_view password, std::uint8_t flags) {
  proxy::Secret prepared = proxy::saslprep(password);
  require(!prepared.empty() || password.empty(), "what cannot be prepared is taken as it stands");
  bool plus = (flags & 4U) != 0;
  bool wrong = (flags & 8U) != 0;
  std::vector<std::uint8_t> end_point;
  if (plus) end_point.assign(32, 9);
  std::string truth(prepared.view());
  if (wrong) truth += '!';
  proxy::ScramServer server(keys_of(truth).verifier, end_point, false);
  proxy::ScramSecret secret;
  secret.password = proxy::Secret(password);
  if (secret.empty()) return;
  proxy::ScramClient client(secret, plus, end_point, kMaxIterations);
  std::string server_reply;
  std::string client_reply;
  std::string_view mechanism = plus ? proxy::kScramPlusMechanism : proxy::kScramMechanism;
  require(server.first(mechanism, client.first(), server_reply) == ScramResult::go_on, "our own client is understood");
  require(client.final(server_reply, client_reply) == ScramAnswer::go_on, "our own server is understood");
  ScramResult result = server.final(client_reply, server_reply);
  require(result == (wrong ? ScramResult::wrong_proof : ScramResult::proved), "the password decides");
  if (!wrong) require(client.finish(server_reply), "the server proves itself as well");
}

void play(Input input) {
  std::uint8_t flags = input.byte();
  std::string_view text = wire::as_text(input.rest());
  switch (flags & 3U) {
    case 0:
      read_texts(text);
      attack_server(text, flags);
      break;
    case 1:
      attack_client(text);
      break;
    case 2:
      log_in(text, flags);
      break;
    default: {
      // Each password of a file is hashed with thousands of rounds.
      if (text.size() > 400) break;
      proxy::CredentialFile file = proxy::read_credential_file(text);
      for (const proxy::FileCredential& entry : file.entries) require(!entry.user.empty(), "an entry has a name");
      break;
    }
  }
}

}  // namespace
}  // namespace sluice::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  sluice::fuzz::play({data, size});
  return 0;
}
