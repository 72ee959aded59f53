// The client's side of one SCRAM exchange: what the proxy says when it logs in to a server, with a password or with a
// key that a client proved. Owns the nonce and what was said so far.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/scram_keys.h"
#include "wire/scram.h"

namespace sluice::proxy {

// What the proxy logs in with. The keys win where both are there.
struct ScramSecret {
  bool has_keys = false;
  ClientKeys keys;
  Secret password;

  [[nodiscard]] bool empty() const noexcept { return !has_keys && password.empty(); }
};

enum class ScramAnswer : std::uint8_t {
  go_on,          // send the reply
  malformed,      // not SCRAM, or beyond its limits
  keys_outdated,  // the server's verifier is not the one the key was proved against
  too_expensive,  // more iterations than the password is hashed for
  failed,         // OpenSSL could not
};

class ScramClient {
 public:
  // Over TLS, and offered: `plus` uses the binding data. Otherwise the header says whether we could have.
  ScramClient(ScramSecret& secret, bool plus, std::vector<std::uint8_t> end_point, std::uint32_t max_iterations);

  // Empty when there is no randomness.
  [[nodiscard]] std::string first();
  // With a password, `secret` has the keys afterwards.
  [[nodiscard]] ScramAnswer final(std::string_view server_first, std::string& reply);
  // Whether the server has proved that it knows the verifier.
  [[nodiscard]] bool finish(std::string_view server_final) const;

 private:
  [[nodiscard]] ScramAnswer make_keys(const wire::ServerFirst& server);

  ScramSecret& secret_;
  bool plus_;
  std::vector<std::uint8_t> end_point_;
  std::uint32_t max_iterations_;
  std::string gs2_header_;
  std::string nonce_;
  std::string first_bare_;
  std::string auth_message_;
};

}  // namespace sluice::proxy
