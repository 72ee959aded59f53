#include "proxy/scram_server.h"

namespace sluice::proxy {
namespace {

// Long enough for every message of ours: two nonces of at most kMaxNonceBytes, a salt in base64, some letters.
constexpr std::size_t kReplyBytes = 2 * wire::kMaxNonceBytes + wire::base64_length(wire::kMaxSaltBytes) + 64;

// The server, to which a message is a C string, refuses one that goes on behind a NUL.
bool has_nul(std::string_view message) noexcept { return message.find('\0') != std::string_view::npos; }

template <typename Write>
std::string written(Write write) {
  std::uint8_t buffer[kReplyBytes];
  wire::ByteWriter writer(buffer);
  write(writer);
  return std::string(wire::as_text(writer.written()));
}

}  // namespace

ScramResult ScramServer::fail(ScramResult result, std::string_view reason) noexcept {
  reason_ = reason;
  return result;
}

ScramResult ScramServer::check_binding_flag(const wire::ClientFirst& client) noexcept {
  switch (client.channel_binding) {
    case wire::ChannelBinding::unsupported:
      if (plus_) return fail(ScramResult::malformed, "client selected SCRAM-SHA-256-PLUS and binds no channel");
      return ScramResult::go_on;
    case wire::ChannelBinding::not_offered:
      if (plus_) return fail(ScramResult::malformed, "client selected SCRAM-SHA-256-PLUS and says it was not offered");
      if (offers_plus()) return fail(ScramResult::downgrade, "client says that channel binding was not offered");
      return ScramResult::go_on;
    case wire::ChannelBinding::required:
      if (!plus_) return fail(ScramResult::malformed, "client selected SCRAM-SHA-256 and binds a channel");
      if (client.binding_type != kEndPointBinding)
        return fail(ScramResult::malformed, "unsupported channel binding type");
      return ScramResult::go_on;
  }
  return fail(ScramResult::malformed, "unknown channel binding flag");
}

ScramResult ScramServer::first(std::string_view mechanism, std::string_view message, std::string& reply) {
  plus_ = mechanism == kScramPlusMechanism;
  if (plus_ ? !offers_plus() : mechanism != kScramMechanism) {
    return fail(ScramResult::malformed, "client selected a mechanism that was not offered");
  }
  wire::ClientFirst client = {};
  if (has_nul(message) || !wire::read_client_first(message, client))
    return fail(ScramResult::malformed, "malformed first SCRAM message");
  ScramResult flag = check_binding_flag(client);
  if (flag != ScramResult::go_on) return flag;
  std::string ours = random_nonce();
  if (ours.empty()) return fail(ScramResult::no_randomness, "no random bytes for a nonce");
  gs2_header_ = client.gs2_header;
  client_first_bare_ = client.bare;
  nonce_ = std::string(client.nonce) + ours;
  server_first_ = written([&](wire::ByteWriter& out) {
    wire::write_server_first(out, client.nonce, ours, verifier_.salt, verifier_.iterations);
  });
  reply = server_first_;
  return ScramResult::go_on;
}

std::string ScramServer::expected_binding() const {
  std::vector<std::uint8_t> raw(gs2_header_.begin(), gs2_header_.end());
  if (plus_) raw.insert(raw.end(), end_point_.begin(), end_point_.end());
  return to_base64(raw);
}

ScramResult ScramServer::final(std::string_view message, std::string& reply) {
  wire::ClientFinal client = {};
  if (has_nul(message) || !wire::read_client_final(message, client))
    return fail(ScramResult::malformed, "malformed last SCRAM message");
  if (client.channel_binding != expected_binding()) {
    return plus_ ? fail(ScramResult::binding_differs, "channel binding differs from this connection's certificate")
                 : fail(ScramResult::malformed, "channel binding flag differs from the first SCRAM message");
  }
  if (client.nonce != nonce_) return fail(ScramResult::malformed, "nonce differs from the one of this exchange");
  std::string auth_message = client_first_bare_ + "," + server_first_ + "," + std::string(client.without_proof);
  ScramKey proof;
  std::size_t length = 0;
  bool right = wire::read_base64(client.proof, proof.bytes, length) &&
               verify_proof(proof, verifier_.stored_key, auth_message, client_key_);
  // The reply is made for a wrong proof as well, so that both take the same time.
  std::string signature = to_base64(server_signature(verifier_.server_key, auth_message).bytes);
  if (!right || doomed_) return fail(ScramResult::wrong_proof, "wrong proof");
  reply = written([&](wire::ByteWriter& out) { wire::write_server_final(out, signature); });
  return ScramResult::proved;
}

}  // namespace sluice::proxy
