#include "wire/startup_options.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace sluice::wire {
namespace {

struct Answer {
  std::vector<std::pair<std::string, std::string>> settings;
  OptionStep last;
  std::string name;  // of the last step
};

Answer read(const std::string& options) {
  std::vector<char> scratch(options.size());
  OptionsReader reader(options, scratch);
  Answer answer;
  std::string_view name;
  std::string_view value;
  std::vector<std::pair<std::string_view, std::string_view>> views;
  while ((answer.last = reader.next(name, value)) == OptionStep::setting) views.emplace_back(name, value);
  // Copied only now: the views have to stay good until the end.
  for (auto& [n, v] : views) answer.settings.emplace_back(n, v);
  answer.name = name;
  return answer;
}

using Settings = std::vector<std::pair<std::string, std::string>>;

TEST(WireStartupOptions, ReadsEveryFormThatSetsAParameter) {
  Answer answer = read(R"(-c application_name=a\ b --geqo=off -cwork_mem=4MB --statement-timeout=5  )");
  EXPECT_EQ(answer.settings,
            (Settings{{"application_name", "a b"}, {"geqo", "off"}, {"work_mem", "4MB"}, {"statement_timeout", "5"}}));
  EXPECT_EQ(answer.last, OptionStep::end);
}

TEST(WireStartupOptions, ABackslashTakesTheNextCharacterAsItIs) {
  EXPECT_EQ(read(R"(-c a=\\x\=\	y\)").settings, (Settings{{"a", "\\x=\ty"}}));
  EXPECT_EQ(read(R"(\-c\ x=1)").settings, (Settings{{" x", "1"}}));
  EXPECT_EQ(read(R"(-c\ x=1)").settings, (Settings{{" x", "1"}}));
}

TEST(WireStartupOptions, OnlyTheNameLosesItsHyphens) {
  EXPECT_EQ(read("--a-b=c-d=e").settings, (Settings{{"a_b", "c-d=e"}}));
  EXPECT_EQ(read("-c a=").settings, (Settings{{"a", ""}}));
}

TEST(WireStartupOptions, AnEmptyStringSetsNothing) {
  EXPECT_EQ(read("").last, OptionStep::end);
  EXPECT_EQ(read(" \t\n\v\f\r").last, OptionStep::end);
}

TEST(WireStartupOptions, AMissingValueIsNamed) {
  EXPECT_EQ(read("-c").last, OptionStep::missing_value);
  EXPECT_EQ(read("-c geqo").last, OptionStep::missing_value);
  EXPECT_EQ(read("-c geqo").name, "geqo");
  EXPECT_EQ(read("--enable-seqscan").name, "enable_seqscan");
}

TEST(WireStartupOptions, OtherSwitchesAreRefusedByName) {
  for (const char* options : {"-d 5", "-e", "-fs", "-S 4096", "shop", "--", "-", "-- a=b", "--=x", "-c =x"}) {
    Answer answer = read(options);
    EXPECT_EQ(answer.last, OptionStep::unknown_form) << options;
    EXPECT_TRUE(answer.settings.empty());
  }
  Answer later = read("-c a=b -O");
  EXPECT_EQ(later.settings.size(), 1U);
  EXPECT_EQ(later.last, OptionStep::unknown_form);
  EXPECT_EQ(later.name, "-O");
}

TEST(WireStartupOptions, ASmallScratchBufferIsSaid) {
  char scratch[6];
  std::string_view name;
  std::string_view value;
  OptionsReader reader("-c name=value", scratch);
  EXPECT_EQ(reader.next(name, value), OptionStep::no_room);
}

TEST(WireStartupOptions, EveryStringEndsWithAsManyBytesAsItHas) {
  std::uint32_t state = 99;
  auto random = [&state] { return state = state * 1664525U + 1013904223U, state >> 16U; };
  for (int round = 0; round < 20000; round++) {
    std::string options;
    for (std::uint32_t i = random() % 24; i > 0; i--) options += "-c=a \\\t"[random() % 7];
    EXPECT_NE(read(options).last, OptionStep::no_room) << options;
  }
}

}  // namespace
}  // namespace sluice::wire
