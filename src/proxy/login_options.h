// Settings of the logins, both sides of the proxy. Times are microseconds, as everywhere in the proxy; the
// configuration file has milliseconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "proxy/startup_parameters.h"
#include "proxy/time.h"
#include "wire/startup.h"

namespace sluice::proxy {

enum class ClientMethod : std::uint8_t {
  scram,     // SCRAM-SHA-256, and -PLUS inside TLS, ended here
  password,  // cleartext inside TLS, verified by the server: the strict profile
};

// What every client of a listener meets. Which database it wants is known too late to choose by it.
struct ClientLoginOptions {
  bool tls_available = true;       // there is a certificate: SSLRequest is answered with 'S'
  bool tls_required = true;        // a StartupMessage in plaintext is refused with 28000
  bool allow_replication = false;  // hand `replication` on instead of refusing it
  Profile profile = Profile::compatible;
  ClientMethod method = ClientMethod::scram;
  std::uint32_t newest_protocol = wire::kProtocol32;
};

struct CredentialOptions {
  Time verifier_ttl = 60 * kSecond;      // how long a verifier counts without being read again; D8's stated time
  Time unknown_ttl = 5 * kSecond;        // how long a role without a verifier is not asked about again
  Time reread_interval = kSecond;        // at most one forced re-read of a role in this time
  std::size_t max_verifiers = 10'000;    // roles with a verifier that are remembered
  std::size_t max_unknown = 1'000;       // names without one that are remembered
  std::uint32_t mock_iterations = 4096;  // what an unknown role is told: PostgreSQL's default
};

struct PasswordOptions {
  Time verify_ttl = 60 * kSecond;        // how long a password that the server accepted counts without asking it
  Time verification_wait = 5 * kSecond;  // how long a login waits for one of max_verifications
  std::size_t max_verifications = 8;     // at once
  std::size_t max_passwords = 10'000;    // remembered, accepted ones
  std::size_t max_rejected = 10'000;     // remembered, rejected ones
};

struct AuthFailureOptions {
  Time failure_window = 60 * kSecond;
  std::size_t max_failures_per_address = 5;  // of one user from one address
  std::size_t max_failures = 50;             // of one user from all addresses, running verifications included
  std::size_t max_tracked = 10'000;          // users, and pairs of user and address, that are counted
};

// Beyond SCRAM nothing is answered unless it is allowed here.
struct ServerLoginOptions {
  bool tls = true;               // ask for it
  bool tls_required = true;      // a server without TLS is not used; else the login goes on in plaintext
  bool allow_nothing = false;    // the server may ask for nothing: peer, client certificate
  bool allow_cleartext = false;  // and only inside TLS
  bool allow_md5 = false;
  std::uint32_t protocol = wire::kProtocol30;
  std::uint32_t max_iterations = 100'000;  // that a password is hashed for; 4096 take about 2 ms, and nobody is served
};

}  // namespace sluice::proxy
