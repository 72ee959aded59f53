// The process: one loop, its worker, the sockets clients connect to, signals, and the order in which it all ends.
#pragma once

#include <string>

#include "proxy/config.h"

namespace sluice::proxy {

// Serves until a signal ends it, and returns the process's exit status. `file` and `environment` are what the
// configuration was loaded from: SIGHUP loads it again.
[[nodiscard]] int run_proxy(const Config& config, const std::string& file, Environment environment);

}  // namespace sluice::proxy
