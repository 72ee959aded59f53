// The server's side of one SCRAM exchange, as PostgreSQL carries it out: the client's two messages in, the two answers
// out. Owns the nonce, what was said so far, and at the end the key that the client proved to have.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/scram_keys.h"
#include "wire/scram.h"

namespace sluice::proxy {

inline constexpr std::string_view kScramMechanism = "SCRAM-SHA-256";
inline constexpr std::string_view kScramPlusMechanism = "SCRAM-SHA-256-PLUS";
inline constexpr std::string_view kEndPointBinding = "tls-server-end-point";

enum class ScramResult : std::uint8_t {
  go_on,            // send the reply
  proved,           // send the reply; the client knows the password
  wrong_proof,      // 28P01
  malformed,        // 08P01
  downgrade,        // 28000: the client believes that PLUS was not offered, and it was
  binding_differs,  // 28000: the client is connected to another certificate than ours
  no_randomness,    // XX000
};

class ScramServer {
 public:
  // `end_point` is the binding data of the connection's own certificate; empty: PLUS is not offered.
  // `doomed`: whatever the client proves, it is wrong; it notices no difference.
  ScramServer(Verifier verifier, std::vector<std::uint8_t> end_point, bool doomed)
      : verifier_(std::move(verifier)), end_point_(std::move(end_point)), doomed_(doomed) {}

  [[nodiscard]] bool offers_plus() const noexcept { return !end_point_.empty(); }
  [[nodiscard]] bool uses_plus() const noexcept { return plus_; }

  [[nodiscard]] ScramResult first(std::string_view mechanism, std::string_view message, std::string& reply);
  [[nodiscard]] ScramResult final(std::string_view message, std::string& reply);

  // After `proved`.
  [[nodiscard]] const ScramKey& client_key() const noexcept { return client_key_; }
  [[nodiscard]] const Verifier& verifier() const noexcept { return verifier_; }
  // Why it is malformed or differs, in a few words.
  [[nodiscard]] std::string_view reason() const noexcept { return reason_; }

 private:
  [[nodiscard]] ScramResult fail(ScramResult result, std::string_view reason) noexcept;
  [[nodiscard]] ScramResult check_binding_flag(const wire::ClientFirst& client) noexcept;
  [[nodiscard]] std::string expected_binding() const;

  Verifier verifier_;
  std::vector<std::uint8_t> end_point_;
  bool doomed_;
  bool plus_ = false;
  std::string gs2_header_;
  std::string client_first_bare_;
  std::string server_first_;
  std::string nonce_;  // both halves
  ScramKey client_key_;
  std::string_view reason_;
};

}  // namespace sluice::proxy
