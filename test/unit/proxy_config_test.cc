#include "proxy/config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "proxy/setting_table.h"
#include "unit/proxy_certificates.h"

namespace sluice::proxy {
namespace {

using test::TemporaryFolder;

// Without TLS for clients, which the default asks for and no test has files for.
constexpr char kBase[] = "client_tls.mode = \"disable\"\n";

std::string findings_of(const LoadedConfig& loaded) {
  std::string result;
  for (const ConfigFinding& each : loaded.findings) result += each.text() + "\n";
  return result;
}

LoadedConfig read(const std::string& text, std::vector<const char*> environment = {}) {
  environment.push_back(nullptr);
  return read_config(kBase + text, "p.toml", environment.data());
}

std::string findings(const std::string& text, std::vector<const char*> environment = {}) {
  return findings_of(read(text, std::move(environment)));
}

std::string file_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

TEST(ProxyConfig, AnEmptyFileMeansTheDefaults) {
  LoadedConfig loaded = read("");
  EXPECT_TRUE(loaded.ok()) << findings_of(loaded);
  EXPECT_EQ(loaded.findings.size(), 0U) << findings_of(loaded);
  EXPECT_EQ(loaded.config.listen.port, 6432);
  EXPECT_EQ(loaded.config.pool.pool.max_size, PoolOptions{}.max_size);
  EXPECT_EQ(loaded.config.server_tls.mode, ServerTlsMode::verify_full);
}

TEST(ProxyConfig, TlsForClientsIsAskedForUnlessItIsSwitchedOff) {
  LoadedConfig loaded = read_config("", "p.toml", nullptr);
  EXPECT_FALSE(loaded.ok());
  EXPECT_NE(findings_of(loaded).find("p.toml: error: client_tls.certificate_file: is needed"), std::string::npos);
  EXPECT_TRUE(read_config("listen.addresses = [\"/run/sluice\"]", "p.toml", nullptr).ok()) << "Unix sockets need none";
}

TEST(ProxyConfig, EveryKindOfValueIsStored) {
  LoadedConfig loaded = read(
      "listen.addresses = [\"0.0.0.0\", \"/run/sluice\"]\nlisten.unix_mode = 0o700\nserver.host = \"db.example\"\n"
      "server.allow_no_password = true\nserver_tls.mode = \"verify-ca\"\npool.wait_timeout_ms = 1500\n"
      "pool.idle_transaction_timeout_ms = 30000\npool.max_idle = 3\nlimits.max_memory_bytes = 5_000_000_000\n"
      "log.filter = [\"login=debug\"]\npool.max_total = 7\npool.max_connecting = 2\npool.max_size = 6\n");
  EXPECT_EQ(findings_of(loaded), "");
  const Config& config = loaded.config;
  EXPECT_EQ(config.listen.addresses, (std::vector<std::string>{"0.0.0.0", "/run/sluice"}));
  EXPECT_EQ(config.listen.unix_mode, 0700U);
  EXPECT_EQ(config.server.host, "db.example");
  EXPECT_TRUE(config.server.login.allow_nothing);
  EXPECT_EQ(config.server_tls.mode, ServerTlsMode::verify_ca);
  EXPECT_EQ(config.pool.pool.wait_timeout, 1500 * kMillisecond);
  EXPECT_EQ(config.pool.session.idle_transaction_timeout, 30 * kSecond);
  EXPECT_EQ(config.pool.pool.max_idle, 3U);
  EXPECT_EQ(config.limits.max_memory_bytes, 5'000'000'000U);
  EXPECT_EQ(config.log.filter, std::vector<std::string>{"login=debug"});
  EXPECT_EQ(config.pool_limits.max_total, 7U);
}

TEST(ProxyConfig, ZeroAndMinusOneMeanNoLimitWhereTheTableSaysSo) {
  Config config = read("pool.idle_transaction_timeout_ms = 0\npool.max_idle = -1\npool.grow_after_ms = 0").config;
  EXPECT_EQ(config.pool.session.idle_transaction_timeout, kNever);
  EXPECT_EQ(config.pool.pool.max_idle, kNoPoolLimit);
  EXPECT_EQ(config.pool.pool.grow_after, kNever);
  EXPECT_EQ(read("pool.idle_timeout_ms = 0").config.pool.pool.idle_timeout, 0);
}

struct Bad {
  const char* text;
  const char* expected;
};

TEST(ProxyConfig, WhatIsWrongIsToldWithPlaceReasonAndFix) {
  const Bad cases[] = {
      // Shape.
      {"x = ", "p.toml:2:5: error: "},
      {"[pool]\nmax_size = 1\nmax_size = 2\n",
       "p.toml:4:12: error: Error while parsing key-value pair: cannot redefine"},
      {"pools = 3", "p.toml:2:9: error: pools: is a list of tables\n    fix: write [[pools]]"},
      {"pool = 3", "p.toml:2:8: error: pool: is a section, not a value\n    fix: write [pool]"},
      {"[pol]\nmax_size = 3\n",
       "p.toml:2:2: error: pol: unknown setting (did you mean pool?)\n    fix: write pool, or remove it\n"},
      {"[pool]\nmax_sise = 3\n",
       "p.toml:3:1: error: pool.max_sise: unknown setting (did you mean max_size?)\n    fix: write max_size, or "
       "remove"},
      {"[pool]\nzzzzzz = 3\n", "p.toml:3:1: error: pool.zzzzzz: unknown setting\n    fix: remove it"},
      {"[pool.max_size]\nx = 1\n", "pool.max_size: must be a whole number from 1 to 100000, found a table"},
      // Kinds and ranges.
      {"pool.max_size = 0", "p.toml:2:17: error: pool.max_size: must be a whole number from 1 to 100000, found 0\n"},
      {"pool.max_size = -1", "found -1"},
      {"pool.max_size = 100001", "found 100001"},
      {"pool.max_size = \"20\"", "a whole number from 1 to 100000, found \"20\""},
      {"pool.max_size = 2.5", "found 2.5"},
      {"pool.max_size = [20]", "found a list"},
      {"pool.wait_timeout_ms = \"10s\"", "must be a whole number from 1 to 86400000 (milliseconds), found \"10s\""},
      {"pool.profile = \"lenient\"", "must be one of \"strict\", \"compatible\", found \"lenient\""},
      {"pool.read_only = 1", "must be true or false, found 1"},
      {"server.host = 5", "must be a text, found 5"},
      {"listen.addresses = \"0.0.0.0\"", "must be a list of texts, found \"0.0.0.0\""},
      {"listen.addresses = [1]", "must be a list of texts, found a list"},
      {"admin.token = 12345", "admin.token: must be a text, found something else"},
      // What must fit together.
      {"listen.addresses = []", "listen.addresses: is empty"},
      {"listen.addresses = [\"db.example\"]", "\"db.example\" is neither a numeric address"},
      {"server.host = \"\"", "server.host: is empty"},
      {"client_tls.certificate_file = \"a\"", "client_tls.key_file: is missing: certificate_file is given without it"},
      {"server_tls.key_file = \"a\"", "server_tls.certificate_file: is missing: key_file is given without it"},
      {"admin.certificate_file = \"a\"", "admin.key_file: is missing"},
      {"auth.source = \"query\"", "auth.query: must have $1"},
      {"auth.source = \"file\"", "auth.file: is needed"},
      {"auth.user = \"\"", "auth.user: is empty"},
      {"auth.method = \"password\"", "auth.method: password needs client_tls.mode = \"require\""},
      {"server.allow_cleartext_password = true\nserver_tls.mode = \"require\"", "server_tls.mode: must verify"},
      {"drain.drain_wait_ms = 30000", "drain.shutdown_timeout_ms: 25000 is less than drain.drain_wait_ms 30000"},
      {"log.filter = [\"login\"]", "log.filter: \"login\" is not of the form topic=level"},
      {"log.filter = [\"login=loud\"]", "is not of the form topic=level"},
      {"log.filter = [\"=debug\"]", "is not of the form topic=level"},
      {"admin.address = \"localhost\"", "admin.address: \"localhost\" is no numeric address"},
      {"admin.port = 6432", "admin.port: 6432 is the clients' port as well"},
      {"admin.token = \"a\"\nadmin.token_file = \"b\"", "are both given"},
      {"tcp.client_user_timeout_ms = 3000\npool.client_stall_timeout_ms = 3000",
       "pool.client_stall_timeout_ms: 3000 is not less than tcp.client_user_timeout_ms 3000"},
      {"pool.client_stall_timeout_ms = 60000", "is not less than tcp.server_user_timeout_ms 60000"},
      // Exceptions.
      {"[[pools]]\nmax_size = 3\n", "p.toml:2:1: error: pools[0]: names neither a database nor a user"},
      {"[[pools]]\nuser = \"a\"\nmax_total = 3\n", "pools[0].max_total: bounds all pools together\n    fix: set it in"},
      {"[[pools]]\nuser = \"a\"\nmax_sise = 3\n", "pools[0].max_sise: unknown setting (did you mean max_size?)"},
      {"[[pools]]\nusr = \"a\"\n", "pools[0].usr: unknown setting (did you mean user?)"},
      {"[[pools]]\nuser = 3\n", "pools[0].user: must be a name, found 3"},
      {"[[pools]]\nuser = \"\"\n", "pools[0].user: must be a name"},
      {"[[pools]]\nuser = \"a\"\n[[pools]]\nuser = \"a\"\n", "pools[1]: is for the same database and user as pools[0]"},
      {"[[pools]]\nuser = \"a\"\nmax_size = 0\n", "p.toml:4:12: error: pools[0].max_size: must be a whole number"},
  };
  for (const Bad& each : cases) {
    LoadedConfig loaded = read(each.text);
    EXPECT_FALSE(loaded.ok()) << each.text;
    EXPECT_NE(findings_of(loaded).find(each.expected), std::string::npos) << each.text << "\nsays\n"
                                                                          << findings_of(loaded) << "not\n"
                                                                          << each.expected;
  }
}

TEST(ProxyConfig, DoubtfulThingsAreWarningsAndDoNotRefuse) {
  for (const char* text : {"pool.max_size = 1000", "admin.address = \"0.0.0.0\"", "auth.query = \"select $1\"",
                           "pool.max_connecting = 500", "auth.max_failures = 1"}) {
    LoadedConfig loaded = read(text);
    EXPECT_TRUE(loaded.ok()) << text;
    EXPECT_NE(findings_of(loaded).find(": warning: "), std::string::npos) << text;
  }
}

TEST(ProxyConfig, EveryIntegerIsRefusedBeyondItsLimitsAndTakenAtThem) {
  for (const SettingSection& section : setting_sections()) {
    for (const SettingRow& row : section.rows) {
      if (row.kind != SettingKind::integer) continue;
      std::string path = std::string(section.name) + "." + std::string(row.key);
      for (std::int64_t number : {row.minimum, row.maximum}) {
        LoadedConfig loaded = read(path + " = " + std::to_string(number));
        EXPECT_EQ(findings_of(loaded).find(path + ": must be a whole number"), std::string::npos) << path;
        EXPECT_EQ(row.read(loaded.config, loaded.config.pool).number, number) << path;
      }
      for (std::int64_t number : {row.minimum - 1, row.maximum + 1}) {
        EXPECT_NE(findings(path + " = " + std::to_string(number)).find(path + ": must be a whole number"),
                  std::string::npos)
            << path << " " << number;
      }
    }
  }
}

TEST(ProxyConfig, TheEnvironmentWinsOverTheFileForEverySetting) {
  for (const SettingSection& section : setting_sections()) {
    for (const SettingRow& row : section.rows) {
      std::string variable = environment_name(section, row);
      const Config fresh;
      std::string value = row.kind == SettingKind::integer   ? std::to_string(row.minimum)
                          : row.kind == SettingKind::boolean ? "true"
                          : row.kind == SettingKind::choice  ? std::string(row.choices.back().name)
                                                             : "one,two";
      SettingValue expected;
      ASSERT_TRUE(parse_value(row, value, expected)) << variable;
      std::string entry = variable + "=" + value;
      LoadedConfig loaded = read("", {"UNRELATED=1", entry.c_str()});
      EXPECT_EQ(row.read(loaded.config, loaded.config.pool), expected) << variable;
    }
  }
}

TEST(ProxyConfig, WrongVariablesAreNamed) {
  EXPECT_NE(
      findings("", {"SLUICE_PROXY_POOL_MAX_SIZE=many"})
          .find("SLUICE_PROXY_POOL_MAX_SIZE: error: pool.max_size: must be a whole number from 1 to 100000, found "
                "\"many\""),
      std::string::npos);
  EXPECT_NE(findings("", {"SLUICE_PROXY_POOL_MAX_SIZES=3"}).find("did you mean SLUICE_PROXY_POOL_MAX_SIZE?"),
            std::string::npos);
  EXPECT_NE(findings("", {"SLUICE_PROXY_POOL_MAX_SIZE="}), "");
  EXPECT_EQ(findings("", {"SLUICE_PROXY_SERVICE_HOST=10.0.0.1", "SLUICE_PROXY_PORT_5432_TCP=tcp://x"}), "")
      << "what Kubernetes adds for a service of that name";
  EXPECT_EQ(findings("", {"SLUICE_PROXY", "=", "SLUICE_PROXY_"}), "");
}

TEST(ProxyConfig, TheMostSpecificExceptionWinsAndInheritsFromPoolAndEnvironment) {
  LoadedConfig loaded = read(
      "[pool]\nmax_size = 9\nmax_waiters = 50\n"
      "[[pools]]\ndatabase = \"d\"\nmax_size = 1\n"
      "[[pools]]\nuser = \"u\"\nmax_size = 2\n"
      "[[pools]]\ndatabase = \"d\"\nuser = \"u\"\nmax_size = 3\n",
      {"SLUICE_PROXY_POOL_MAX_WAITERS=60"});
  ASSERT_TRUE(loaded.ok()) << findings_of(loaded);
  const Config& config = loaded.config;
  EXPECT_EQ(config.pool_for("d", "u").pool.max_size, 3U);
  EXPECT_EQ(config.pool_for("d", "x").pool.max_size, 1U);
  EXPECT_EQ(config.pool_for("x", "u").pool.max_size, 2U);
  EXPECT_EQ(config.pool_for("x", "x").pool.max_size, 9U);
  EXPECT_EQ(config.pool_for("*", "*").pool.max_size, 9U) << "a database may be called so";
  EXPECT_EQ(config.pool_for("d", "u").pool.max_waiters, 60U);
}

TEST(ProxyConfig, SecretsAreNeverInAFinding) {
  std::string all =
      findings("admin.token = \"hunter2\"\nadmin.token_file = \"x\"", {"SLUICE_PROXY_ADMIN_TOKENS=hunter2"});
  EXPECT_NE(all, "");
  EXPECT_EQ(all.find("hunter2"), std::string::npos) << all;
}

TEST(ProxyConfig, ControlCharactersOfAFileDoNotReachATerminal) {
  std::string all = findings("pool.profile = \"a\\u001b[2Jb\"");
  EXPECT_EQ(all.find('\x1b'), std::string::npos);
}

TEST(ProxyConfig, WhatNeedsARestartIsNamed) {
  Config running = read("").config;
  Config loaded = read("listen.port = 7000\npool.max_size = 3\nadmin.port = 1\nlisten.addresses = [\"::1\"]\n").config;
  EXPECT_EQ(needs_restart(running, loaded),
            (std::vector<std::string>{"listen.addresses", "listen.port", "admin.port"}));
  EXPECT_TRUE(needs_restart(running, running).empty());
}

TEST(ProxyConfig, FilesAreLookedAtWhenAConfigurationIsLoaded) {
  TemporaryFolder folder;
  test::write_pair(folder, "a");
  test::write_pair(folder, "b");
  std::string file = folder.file("p.toml");
  auto load = [&](const std::string& text) {
    std::ofstream(file) << text;
    return load_config(file, nullptr);
  };
  auto tls = [&](const std::string& certificate, const std::string& key) {
    return "[client_tls]\ncertificate_file = \"" + folder.file(certificate) + "\"\nkey_file = \"" + folder.file(key) +
           "\"\n";
  };
  LoadedConfig good = load(tls("a.crt", "a.key"));
  EXPECT_TRUE(good.ok()) << findings_of(good);
  EXPECT_NE(findings_of(load(tls("a.crt", "b.key"))).find("does not belong to certificate"), std::string::npos);
  EXPECT_NE(findings_of(load(tls("none.crt", "b.key"))).find("No such file"), std::string::npos);
  EXPECT_NE(findings_of(load(tls("a.crt", "a.key") + "[auth]\nfile = \"/no/such\"\n")).find("auth.file: \"/no/such\""),
            std::string::npos);
  EXPECT_NE(findings_of(load(tls("a.crt", "a.key") + "[server_tls]\nroot_file = \"/no/such\"\n")).find("root file"),
            std::string::npos);
  EXPECT_NE(findings_of(load_config(folder.file("none.toml"), nullptr)).find("No such file"), std::string::npos);
  EXPECT_FALSE(load_config(folder.path, nullptr).ok());
  EXPECT_NE(findings_of(load(std::string(kMaxConfigBytes + 1, '#'))).find("is larger than"), std::string::npos);
}

TEST(ProxyConfig, TheExampleFileListsEverySettingWithItsDefault) {
  std::string path = std::string(SLUICE_SOURCE_DIR) + "/config/sluice.example.toml";
  EXPECT_EQ(file_text(path), example_file()) << "sluice proxy --print-example > config/sluice.example.toml";
  LoadedConfig loaded = read_config(example_file(), path, nullptr);
  const Config fresh;
  for (const SettingSection& section : setting_sections()) {
    for (const SettingRow& row : section.rows) {
      EXPECT_EQ(row.read(loaded.config, loaded.config.pool), row.read(fresh, fresh.pool)) << row.key;
      EXPECT_NE(example_file().find("\n" + std::string(row.key) + " = "), std::string::npos) << row.key;
    }
  }
  for (const ConfigFinding& each : loaded.findings) {
    EXPECT_TRUE(each.path.starts_with("client_tls.certificate_file")) << each.text();
  }
}

TEST(ProxyConfig, AnyTextIsReadOrRefusedButNeverThrows) {
  const std::string example = example_file();
  unsigned random = 20;
  auto next = [&] { return random = random * 1664525U + 1013904223U; };
  const std::string_view pieces[] = {"[",     "]",  "[[pools]]\n", "=",    "\"",  "'''", "{",  "}", "\n", "\\u0000",
                                     "1e999", "0x", "-",           "true", "nan", ",",   "[[", ".", "#",  "\xFF"};
  for (int i = 0; i < 600; i++) {
    std::string text = example;
    if (i % 3 == 0) text.resize(next() % text.size());
    for (unsigned changes = next() % 4; changes > 0 && !text.empty(); changes--) {
      std::size_t at = next() % text.size();
      std::string_view piece = pieces[next() % std::size(pieces)];
      text.replace(at, std::min<std::size_t>(next() % 3, text.size() - at), piece);
    }
    ASSERT_NO_THROW((void)read_config(text, "p.toml", nullptr)) << text;
  }
  EXPECT_FALSE(read_config("x = " + std::string(100'000, '['), "p.toml", nullptr).ok());
  std::string exceptions;
  for (std::size_t i = 0; i <= kMaxPoolExceptions; i++) {
    exceptions += "[[pools]]\nuser = \"u" + std::to_string(i) + "\"\n";
  }
  EXPECT_NE(findings(exceptions).find("at most 4096 are allowed"), std::string::npos);
}

TEST(ProxyConfig, TheSettingsPageIsMadeFromTheTable) {
  EXPECT_EQ(file_text(std::string(SLUICE_SOURCE_DIR) + "/docs/proxy-settings.md"), settings_page())
      << "sluice proxy --print-settings > docs/proxy-settings.md";
}

}  // namespace
}  // namespace sluice::proxy
