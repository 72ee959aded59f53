// What must hold between the settings of a configuration, and of the files it names. Owns nothing; adds its findings at
// the place where the setting was given.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "proxy/config.h"

namespace sluice::proxy {

struct SettingOrigin {
  std::string where;  // a file, or an environment variable
  std::uint32_t line = 0;
  std::uint32_t column = 0;
};

// By path; a setting that was not given has none.
using SettingOrigins = std::map<std::string, SettingOrigin>;

// `name` is the configuration's own, for what was not given.
void check_config(const Config& config, const SettingOrigins& origins, const std::string& name,
                  std::vector<ConfigFinding>& findings);

// Whether certificates load and belong to their keys, and the other files can be read.
void check_files(const Config& config, const SettingOrigins& origins, const std::string& name,
                 std::vector<ConfigFinding>& findings);

}  // namespace sluice::proxy
