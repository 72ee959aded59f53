// `sluice policy publish`: a policy file checked here, then published (and activated) on a server.
#pragma once

#include <iosfwd>
#include <string>

namespace sluice::cli {

struct PublishOptions {
  std::string file;
  std::string dsn;  // empty: what the environment says (PGHOST, PGDATABASE, …)
  bool activate = false;
  bool drain = false;  // over_limit => 'drain'
};

// The command: 0 done, 1 refused by the check or by the server. Throws FileError and DatabaseError.
[[nodiscard]] int publish(const PublishOptions& options, std::ostream& out);

}  // namespace sluice::cli
