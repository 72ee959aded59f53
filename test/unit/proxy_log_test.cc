#include "proxy/log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace sluice::proxy {
namespace {

class ProxyLog : public testing::Test {
 protected:
  ~ProxyLog() override { std::fclose(file); }

  std::vector<std::string> lines(std::unique_ptr<Log>& log) {
    log.reset();  // writes everything
    std::rewind(file);
    std::string text;
    for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
    std::vector<std::string> result;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) result.push_back(line);
    return result;
  }

  LogConfig config;
  std::FILE* file = std::tmpfile();
};

std::size_t count_of(const std::vector<std::string>& lines, const std::string& part) {
  std::size_t count = 0;
  for (const std::string& line : lines) count += line.find(part) != std::string::npos ? 1 : 0;
  return count;
}

TEST_F(ProxyLog, ALineIsJsonWithItsFields) {
  EXPECT_EQ(log_line(LogFormat::json, 1'700'000'000'123'456, LogLevel::warning, "login", "a login failed",
                     {{"user", "bob"}, {"attempts", 3}}),
            R"({"time":"2023-11-14T22:13:20.123Z","level":"warning","topic":"login","message":"a login failed",)"
            R"("user":"bob","attempts":3})");
  EXPECT_EQ(log_line(LogFormat::text, 1'700'000'000'123'456, LogLevel::info, "pool", "opened", {{"user", "b\nob"}}),
            R"(2023-11-14T22:13:20.123Z info pool: opened user="b\u000aob")");
}

TEST_F(ProxyLog, ValuesAreEscapedReplacedAndCut) {
  EXPECT_EQ(json_text("a\"b\\c\n\x01\x7f"), R"(a\"b\\c\u000a\u0001\u007f)");
  EXPECT_EQ(json_text("\xC3\xA4\xE2\x82\xAC"), "\xC3\xA4\xE2\x82\xAC");
  EXPECT_EQ(json_text("x\xFFy\xC3"), "x\xEF\xBF\xBDy\xEF\xBF\xBD");
  EXPECT_EQ(json_text("\xED\xA0\x80").find("\xED\xA0"), std::string::npos) << "a surrogate is no character";
  EXPECT_EQ(json_text(std::string(kMaxLogValueBytes, 'x')), std::string(kMaxLogValueBytes, 'x'));
  EXPECT_EQ(json_text(std::string(kMaxLogValueBytes + 1, 'x')), std::string(kMaxLogValueBytes, 'x') + "…");
  std::string euros(kMaxLogValueBytes - 1, 'x');
  EXPECT_EQ(json_text(euros + "\xE2\x82\xAC"), euros + "…") << "no half character at the cut";
  EXPECT_EQ(json_text(""), "");
}

TEST_F(ProxyLog, FieldsThatAreCalledLikeSecretsAreHidden) {
  for (const char* name : {"password", "new_password", "token", "client_key", "proof", "secret"}) {
    std::string line = log_line(LogFormat::json, 0, LogLevel::info, "t", "m", {{name, "hunter2"}});
    EXPECT_EQ(line.find("hunter2"), std::string::npos) << line;
    EXPECT_NE(line.find("(hidden)"), std::string::npos);
  }
}

TEST_F(ProxyLog, LevelsAndTopicsDecideWhatIsWritten) {
  config.level = LogLevel::warning;
  config.filter = {"login=debug", "pool=error"};
  auto log = std::make_unique<Log>(config, file);
  EXPECT_TRUE(log->writes(LogLevel::debug, "login"));
  EXPECT_FALSE(log->writes(LogLevel::info, "listener"));
  EXPECT_FALSE(log->writes(LogLevel::warning, "pool"));
  log->debug("login", "one", 0);
  log->info("listener", "two", 0);
  log->warning("pool", "three", 0);
  log->error("pool", "four", 0);
  config.level = LogLevel::debug;
  config.filter = {};
  log->set_levels(config);
  log->debug("pool", "five", 0);
  std::vector<std::string> all = lines(log);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(count_of(all, "\"one\"") + count_of(all, "\"four\"") + count_of(all, "\"five\""), 3U);
}

TEST_F(ProxyLog, AStormIsCutAndSummedUpAndOthersAreNotTouched) {
  config.max_per_message = 3;
  config.window = 10 * kSecond;
  auto log = std::make_unique<Log>(config, file);
  for (int i = 0; i < 1000; i++) log->warning("login", "a login failed", i * kMillisecond, {{"attempt", i}});
  log->warning("login", "another message", 0);
  log->tick(5 * kSecond);
  log->tick(10 * kSecond);
  log->tick(11 * kSecond);
  for (int i = 0; i < 5; i++) log->warning("login", "a login failed", 12 * kSecond);
  std::vector<std::string> all = lines(log);
  EXPECT_EQ(count_of(all, "\"message\":\"a login failed\""), 6U);
  EXPECT_EQ(count_of(all, "another message"), 1U);
  EXPECT_EQ(count_of(all, "were suppressed"), 1U);
  EXPECT_EQ(count_of(all, R"("suppressed_message":"a login failed","suppressed":997)"), 1U);
  EXPECT_EQ(all.size(), 8U);
}

TEST_F(ProxyLog, AStormThatGoesOnIsSummedUpOnceAWindow) {
  config.max_per_message = 1;
  config.window = kSecond;
  auto log = std::make_unique<Log>(config, file);
  for (int i = 0; i < 500; i++) log->info("t", "m", i * 10 * kMillisecond);
  std::vector<std::string> all = lines(log);
  EXPECT_EQ(count_of(all, "\"message\":\"m\""), 5U);
  EXPECT_EQ(count_of(all, "\"suppressed\":99"), 4U);
}

TEST_F(ProxyLog, MessagesThatAreNoConstantsDoNotGrowTheThrottleWithoutLimit) {
  auto log = std::make_unique<Log>(config, file);
  for (std::size_t i = 0; i < 2 * kMaxLogMessages; i++) log->info("t", "message " + std::to_string(i), 0);
  EXPECT_EQ(lines(log).size(), 2 * kMaxLogMessages);
}

TEST_F(ProxyLog, LinesOfSeveralThreadsStayWhole) {
  config.max_per_message = 100'000;
  auto log = std::make_unique<Log>(config, file);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; i++) log->info("t", "m", 0, {{"text", std::string(200, 'x')}});
    });
  }
  for (std::thread& each : threads) each.join();
  std::vector<std::string> all = lines(log);
  EXPECT_EQ(all.size(), 800U);
  for (const std::string& line : all) EXPECT_TRUE(line.front() == '{' && line.back() == '}') << line;
}

TEST_F(ProxyLog, AFullQueueDropsLinesAndSaysSo) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  config.queue_lines = 64;
  config.max_per_message = 1'000'000;
  std::FILE* blocked = fdopen(ends[1], "w");
  setvbuf(blocked, nullptr, _IONBF, 0);
  auto log = std::make_unique<Log>(config, blocked);
  // Nobody reads the pipe: the writer stands still, whoever logs does not.
  for (int i = 0; i < 2000; i++) log->info("t", "m", 0, {{"text", std::string(500, 'x')}});
  std::string text;
  std::thread reader([&] {
    char room[4096];
    for (ssize_t count = read(ends[0], room, sizeof(room)); count > 0; count = read(ends[0], room, sizeof(room))) {
      text.append(room, static_cast<std::size_t>(count));
    }
  });
  log->tick(0);
  log.reset();
  std::fclose(blocked);
  reader.join();
  close(ends[0]);
  EXPECT_NE(text.find("lines were dropped"), std::string::npos);
  EXPECT_LT(text.size(), 2000U * 500);
}

}  // namespace
}  // namespace sluice::proxy
