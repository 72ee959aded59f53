#include "cli/proxy_command.h"

#include <unistd.h>

#include <ostream>

#include "cli/command_line.h"
#include "proxy/config.h"
#include "proxy/proxy.h"
#include "proxy/setting_table.h"

namespace sluice::cli {
namespace {

// Prints every finding; true if the configuration can be used.
bool report(const proxy::LoadedConfig& loaded, std::ostream& err) {
  for (const proxy::ConfigFinding& each : loaded.findings) err << each.text() << '\n';
  return loaded.ok();
}

std::string shown_name(const std::string& file) { return file.empty() ? "defaults and environment" : file; }

}  // namespace

int proxy(const ProxyOptions& options, std::ostream& out, std::ostream& err) {
  if (options.print_example) {
    out << proxy::example_file();
    return kExitDone;
  }
  if (options.print_settings) {
    out << proxy::settings_page();
    return kExitDone;
  }
  proxy::LoadedConfig loaded = proxy::load_config(options.file, environ);
  if (!report(loaded, err)) {
    err << shown_name(options.file) << ": refused\n";
    return kExitRefused;
  }
  if (options.check_config) {
    out << shown_name(options.file) << ": valid\n";
    return kExitDone;
  }
  return proxy::run_proxy(loaded.config, options.file, environ);
}

}  // namespace sluice::cli
