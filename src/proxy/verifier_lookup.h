// The conversation that reads one role's verifier, on a server connection that has logged in and is idle. The query
// gets the name as a parameter and runs inside one whose every name is qualified, and no setting of any client is
// applied to such a connection. Owns the bounds on what the server may answer; the time limit is the caller's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/credentials.h"
#include "proxy/output.h"
#include "wire/header_walker.h"

namespace sluice::proxy {

// The extension's function: excludes superusers, replication and administrative roles unless they are listed.
inline constexpr std::string_view kDefaultVerifierQuery = "SELECT * FROM sluice.scram_verifier($1)";

enum class LookupStep : std::uint8_t {
  need_more,
  done,    // result(); the connection is idle again
  failed,  // sqlstate() and message(); the connection is idle again
  broken,  // message(): not the protocol, or not the shape; close the connection
};

class VerifierLookup {
 public:
  // `query` has one parameter, the role's name, and two columns: the verifier (text, may be NULL) and how long it is
  // valid (timestamptz, NULL: for ever). No row: no such role may log in.
  VerifierLookup(std::string_view query, std::string_view user);

  ~VerifierLookup();
  VerifierLookup(const VerifierLookup&) = delete;
  VerifierLookup& operator=(const VerifierLookup&) = delete;

  void start(Output& out);
  // Takes from the front of `input` what belongs to the answer.
  [[nodiscard]] LookupStep receive(wire::Bytes& input);

  [[nodiscard]] const LookupResult& result() const noexcept { return result_; }
  [[nodiscard]] const std::string& sqlstate() const noexcept { return sqlstate_; }
  [[nodiscard]] const std::string& message() const noexcept { return message_; }

 private:
  [[nodiscard]] LookupStep message(std::uint8_t type, wire::Bytes payload);
  [[nodiscard]] bool row(wire::Bytes payload);
  [[nodiscard]] LookupStep broken(std::string_view message);

  std::string query_;
  std::string user_;
  LookupResult result_;
  std::string sqlstate_;
  std::string message_;
  std::uint32_t rows_ = 0;
  bool failed_ = false;
  wire::HeaderWalker walker_;
  std::vector<std::uint8_t> storage_;
  wire::Collector collector_;
};

}  // namespace sluice::proxy
