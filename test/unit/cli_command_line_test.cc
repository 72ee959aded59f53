#include "cli/command_line.h"

#include <gtest/gtest.h>

#include <sstream>

#include "cli/version.h"

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

std::string example(const char* name) { return std::string(SLUICE_SOURCE_DIR) + "/config/" + name; }

TEST(CliCommandLine, LintExitsWithZeroForAValidFileAndOneForARefusedOne) {
  Ran valid = run({"policy", "lint", example("policy-full.yaml"), "--max-connections", "200"});
  EXPECT_EQ(valid.status, 0) << valid.out << valid.err;
  EXPECT_NE(valid.out.find(": valid, no warnings\n"), std::string::npos) << valid.out;
  Ran refused = run({"policy", "lint", example("policy-full.yaml"), "--max-connections", "100"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_NE(refused.out.find("hardConnectionLimit 200 is more than max_connections 100"), std::string::npos);
  EXPECT_NE(refused.out.find(": refused, 2 errors\n"), std::string::npos) << refused.out;
  Ran warned = run({"policy", "lint", example("policy-short.yaml")});
  EXPECT_EQ(warned.status, 0);
  EXPECT_NE(warned.out.find(": valid, 2 warnings\n"), std::string::npos) << warned.out;
}

TEST(CliCommandLine, UnreadableFilesAndWrongUsageExitWithTwo) {
  Ran missing = run({"policy", "lint", "/no/such.yaml"});
  EXPECT_EQ(missing.status, 2);
  EXPECT_EQ(missing.err, "sluice: /no/such.yaml: No such file or directory\n");
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {},
           {"policy"},
           {"policy", "lint"},
           {"policy", "lint", "a", "b"},
           {"policy", "lint", "a", "--nonsense"},
           {"policy", "lint", example("policy-full.yaml"), "--max-connections", "many"},
           {"policy", "lint", example("policy-full.yaml"), "--max-connections", "-5"},
           {"policy", "lint", example("policy-full.yaml"), "--max-connections", "0"},
           {"policy", "lint", example("policy-full.yaml"), "--label", "x"},
           {"policy", "publish"},
           {"policy", "publish", example("policy-full.yaml"), "--drain"},
           {"polcy", "lint"}}) {
    Ran wrong = run(arguments);
    EXPECT_EQ(wrong.status, 2) << wrong.out;
    EXPECT_NE(wrong.err.find("Try: sluice --help"), std::string::npos);
    EXPECT_EQ(wrong.out, "");
  }
  EXPECT_NE(run({"polcy", "lint"}).err.find("polcy"), std::string::npos);
}

TEST(CliCommandLine, HelpAndVersionGoToStandardOutput) {
  EXPECT_EQ(run({"--version"}).out, std::string("sluice ") + kVersion + "\n");
  EXPECT_EQ(run({"--version"}).status, 0);
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"--help"}, {"-h"}, {"policy", "--help"}, {"policy", "lint", "--help"}, {"policy", "publish", "-h"}}) {
    Ran help = run(arguments);
    EXPECT_EQ(help.status, 0);
    EXPECT_EQ(help.out.substr(0, 16), "NAME\n    sluice ") << help.out;
    EXPECT_NE(help.out.find("SYNOPSIS"), std::string::npos);
  }
}

TEST(CliCommandLine, EachPageNamesTheOptionsOfItsCommand) {
  std::string lint = run({"policy", "lint", "--help"}).out;
  for (const char* option : {"--max-connections", "--superuser-reserved-connections", "--reserved-connections",
                             "--max-wal-senders", "--label", "--newest-generation"}) {
    EXPECT_NE(lint.find(option), std::string::npos) << option;
    std::vector<std::string> arguments{"policy", "lint", example("policy-full.yaml"), "--max-connections", "200"};
    if (std::string(option) != "--max-connections") arguments.insert(arguments.end(), {option, "20"});
    Ran accepted = run(arguments);
    EXPECT_NE(accepted.status, 2) << option << accepted.err;
  }
  std::string publish = run({"policy", "publish", "--help"}).out;
  for (const char* option : {"--dsn", "--activate", "--drain"})
    EXPECT_NE(publish.find(option), std::string::npos) << option;
}

TEST(CliCommandLine, PublishRefusesABadFileBeforeItConnects) {
  Ran refused =
      run({"policy", "publish", std::string(SLUICE_SOURCE_DIR) + "/LICENSE", "--dsn", "host=/no/such/folder"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_NE(refused.out.find("nothing was published"), std::string::npos) << refused.out;
  EXPECT_EQ(refused.err, "") << "no connection was tried";
}

TEST(CliCommandLine, PublishWithoutAServerExitsWithOne) {
  Ran unreachable = run({"policy", "publish", example("policy-full.yaml"), "--dsn", "host=/no/such/folder"});
  EXPECT_EQ(unreachable.status, 1);
  EXPECT_NE(unreachable.err.find("/no/such/folder"), std::string::npos) << unreachable.err;
}

}  // namespace
}  // namespace sluice::cli
