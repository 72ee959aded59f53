// The configuration's reader: any text, and any environment behind a form feed. It throws nothing, everything that is
// wrong has a finding that can be shown, and what is accepted lies within the table's limits.
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/require.h"
#include "proxy/config.h"
#include "proxy/setting_table.h"

namespace sluice::fuzz {
namespace {

void require_in_range(const proxy::Config& config) {
  for (const proxy::SettingSection& section : proxy::setting_sections()) {
    for (const proxy::SettingRow& row : section.rows) {
      proxy::SettingValue value = row.read(config, config.pool);
      if (row.kind == proxy::SettingKind::integer) {
        require(proxy::in_range(row, value.number), "what is accepted is within its limits");
      }
      std::string shown = proxy::value_text(row, value);
      require(!row.traits.secret || value.text.empty() || shown == "(secret)", "a secret is not shown");
    }
  }
}

void read_text(std::string_view text) {
  std::vector<std::string> lines;
  std::size_t feed = text.find('\f');
  std::string_view environment = feed == text.npos ? std::string_view() : text.substr(feed + 1);
  while (!environment.empty()) {
    std::size_t end = environment.find('\n');
    // The environment ends each of its texts with a NUL.
    std::string line(environment.substr(0, end));
    lines.emplace_back(line.c_str());
    environment = end == environment.npos ? std::string_view() : environment.substr(end + 1);
  }
  std::vector<const char*> pointers;
  for (const std::string& line : lines) pointers.push_back(line.c_str());
  pointers.push_back(nullptr);
  proxy::LoadedConfig loaded = proxy::read_config(text.substr(0, feed), "fuzz.toml", pointers.data());
  for (const proxy::ConfigFinding& finding : loaded.findings) {
    require(!finding.where.empty() && !finding.message.empty(), "a finding says where and what");
    require(!finding.text().empty(), "a finding can be shown");
  }
  require(proxy::needs_restart(loaded.config, loaded.config).empty(), "what did not change needs no restart");
  (void)loaded.config.pool_for("db", "app");
  if (loaded.ok()) require_in_range(loaded.config);
}

}  // namespace
}  // namespace sluice::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  sluice::fuzz::read_text({reinterpret_cast<const char*>(data), size});
  return 0;
}
