#include "proxy/scram_client.h"

#include "proxy/scram_server.h"

namespace sluice::proxy {

ScramClient::ScramClient(ScramSecret& secret, bool plus, std::vector<std::uint8_t> end_point,
                         std::uint32_t max_iterations)
    : secret_(secret), plus_(plus), end_point_(std::move(end_point)), max_iterations_(max_iterations) {
  if (plus_) {
    gs2_header_ = "p=" + std::string(kEndPointBinding) + ",,";
  } else {
    // 'y' tells a server that did offer it that somebody in between took the offer away.
    gs2_header_ = end_point_.empty() ? "n,," : "y,,";
  }
}

std::string ScramClient::first() {
  nonce_ = random_nonce();
  if (nonce_.empty()) return {};
  first_bare_ = "n=,r=" + nonce_;
  return gs2_header_ + first_bare_;
}

ScramAnswer ScramClient::make_keys(const wire::ServerFirst& server) {
  const Verifier& known = secret_.keys.verifier;
  if (secret_.has_keys && known.iterations == server.iterations && known.salt == server.salt) return ScramAnswer::go_on;
  if (secret_.password.empty()) return ScramAnswer::keys_outdated;
  if (server.iterations > max_iterations_) return ScramAnswer::too_expensive;
  Secret prepared = saslprep(secret_.password.view());
  if (!derive_keys(prepared.view(), server.salt, server.iterations, secret_.keys)) return ScramAnswer::failed;
  secret_.has_keys = true;
  return ScramAnswer::go_on;
}

ScramAnswer ScramClient::final(std::string_view server_first, std::string& reply) {
  wire::ServerFirst server = {};
  if (!wire::read_server_first(server_first, nonce_, server)) return ScramAnswer::malformed;
  ScramAnswer keys = make_keys(server);
  if (keys != ScramAnswer::go_on) return keys;
  std::vector<std::uint8_t> binding(gs2_header_.begin(), gs2_header_.end());
  if (plus_) binding.insert(binding.end(), end_point_.begin(), end_point_.end());
  std::string without_proof = "c=" + to_base64(binding) + ",r=" + std::string(server.nonce);
  auth_message_ = first_bare_ + "," + std::string(server_first) + "," + without_proof;
  ScramKey proof = client_proof(secret_.keys.client_key, secret_.keys.verifier.stored_key, auth_message_);
  reply = without_proof + ",p=" + to_base64(proof.bytes);
  return ScramAnswer::go_on;
}

bool ScramClient::finish(std::string_view server_final) const {
  std::string_view text;
  ScramKey signature;
  std::size_t length = 0;
  if (auth_message_.empty() || !wire::read_server_final(server_final, text)) return false;
  if (!wire::read_base64(text, signature.bytes, length)) return false;
  return equal_keys(signature, server_signature(secret_.keys.verifier.server_key, auth_message_));
}

}  // namespace sluice::proxy
