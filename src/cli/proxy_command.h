// `sluice proxy`: checks a configuration, prints what can be configured, or runs the proxy.
#pragma once

#include <iosfwd>
#include <string>

namespace sluice::cli {

struct ProxyOptions {
  std::string file;  // empty: defaults and environment only
  bool check_config = false;
  bool print_example = false;
  bool print_settings = false;
};

// The command. 0: done, or the configuration is usable; 1: it is not. Findings go to `err`.
[[nodiscard]] int proxy(const ProxyOptions& options, std::ostream& out, std::ostream& err);

}  // namespace sluice::cli
