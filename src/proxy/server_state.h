// What travels with a server connection from one client to the next: where its stream of messages stands, the state of
// its transaction, and what sessions left on it that the next one must know. Owned by the connection; whichever session
// it is assigned to changes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proxy/settings.h"
#include "proxy/statements.h"
#include "wire/backend_messages.h"
#include "wire/header_walker.h"

namespace sluice::proxy {

struct ServerState {
  // `login_role` is the role the connection was logged in with; `reported` what the server said of its parameters.
  ServerState(std::string login_role, Settings reported)
      : login_role(std::move(login_role)), parameters(std::move(reported)) {}

  std::string login_role;
  wire::HeaderWalker walker{wire::Direction::backend};
  wire::TransactionStatus status = wire::TransactionStatus::idle;
  Settings parameters;  // ParameterStatus, names as the server writes them

  // What those parameters mean for reading texts, so that they are looked at once and not at every assignment.
  struct Judged {
    bool valid = false;
    bool plain_strings = false;    // standard_conforming_strings is on
    bool utf8 = false;             // client_encoding is UTF8
    bool unsafe_encoding = false;  // a character may hold bytes that look like a quote or a backslash
    std::uint64_t fingerprint = 0;
  };
  Judged judged;

  // What differs from how the connection was when it was opened, as the server spells it: settings, custom parameters,
  // and role.
  Settings settings;

  ServerStatements statements;
  std::vector<std::uint64_t>
      stale;  // numbers of statements that are to be closed, and are not in `statements` any more
  // Whose unnamed statement it has: the session and the number that session gave it; 0 is nobody's.
  std::uint64_t unnamed_client = 0;
  std::uint64_t unnamed_number = 0;

  std::uint64_t last_client = 0;  // the session it was assigned to last

  std::vector<std::uint8_t> partial;  // the beginning of a message that must be read whole
  bool header_kept = false;           // the bytes of an unfinished header were kept back
};

}  // namespace sluice::proxy
