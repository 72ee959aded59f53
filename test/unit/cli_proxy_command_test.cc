#include "cli/proxy_command.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "cli/command_line.h"
#include "proxy/setting_table.h"

namespace sluice::cli {
namespace {

struct Ran {
  int status;
  std::string out;
  std::string err;
};

Ran run(const std::vector<std::string>& arguments) {
  std::ostringstream out;
  std::ostringstream err;
  int status = run_command(arguments, out, err);
  return {status, out.str(), err.str()};
}

TEST(CliProxyCommand, AnUnusableConfigurationIsRefusedWithItsFindings) {
  Ran missing = run({"proxy", "--config", "/no/such.toml", "--check-config"});
  EXPECT_EQ(missing.status, 1);
  EXPECT_EQ(missing.err, "/no/such.toml: error: No such file or directory\n/no/such.toml: refused\n");
  EXPECT_EQ(missing.out, "");
  Ran defaults = run({"proxy", "--check-config"});
  EXPECT_EQ(defaults.status, 1);
  EXPECT_NE(defaults.err.find("client_tls.certificate_file: is needed"), std::string::npos) << defaults.err;
}

TEST(CliProxyCommand, TheEnvironmentIsPartOfTheConfiguration) {
  setenv("SLUICE_PROXY_CLIENT_TLS_MODE", "disable", 1);
  Ran valid = run({"proxy", "--check-config"});
  setenv("SLUICE_PROXY_POOL_MAX_SIZE", "none", 1);
  Ran wrong = run({"proxy", "--check-config"});
  unsetenv("SLUICE_PROXY_CLIENT_TLS_MODE");
  unsetenv("SLUICE_PROXY_POOL_MAX_SIZE");
  EXPECT_EQ(valid.status, 0) << valid.err;
  EXPECT_EQ(valid.out, "defaults and environment: valid\n");
  EXPECT_EQ(wrong.status, 1);
  EXPECT_TRUE(wrong.err.starts_with("SLUICE_PROXY_POOL_MAX_SIZE: error: pool.max_size: ")) << wrong.err;
}

TEST(CliProxyCommand, PrintsWhatCanBeConfigured) {
  EXPECT_EQ(run({"proxy", "--print-example"}).out, proxy::example_file());
  EXPECT_EQ(run({"proxy", "--print-settings"}).out, proxy::settings_page());
}

TEST(CliProxyCommand, ContradictoryAndUnknownOptionsAreWrongUsage) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"proxy", "--check-config", "--print-example"},
                                             {"proxy", "--print-settings", "--print-example"},
                                             {"proxy", "--config"},
                                             {"proxy", "file.toml"},
                                             {"proxy", "--nonsense"}}) {
    EXPECT_EQ(run(arguments).status, 2) << arguments.back();
  }
}

TEST(CliProxyCommand, HasAPageOfHelp) {
  EXPECT_TRUE(run({"proxy", "--help"}).out.starts_with("NAME\n    sluice proxy - "));
}

}  // namespace
}  // namespace sluice::cli
