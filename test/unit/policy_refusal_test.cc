#include "policy/refusal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <sstream>
#include <string>

#include "unit/policy_fixture.h"

namespace sluice::policy {
namespace {

// Reads a DETAIL line as a client would: words, each key=value, percent-decoded.
std::map<std::string, std::string> parse_detail(const std::string& line) {
  std::map<std::string, std::string> pairs;
  std::istringstream words(line);
  std::string word;
  words >> word;
  EXPECT_EQ(word, "sluice");
  while (words >> word) {
    std::size_t equals = word.find('=');
    EXPECT_NE(equals, std::string::npos) << word;
    std::string value;
    for (std::size_t i = equals + 1; i < word.size(); i++) {
      if (word[i] == '%') {
        value += static_cast<char>(std::stoi(word.substr(i + 1, 2), nullptr, 16));
        i += 2;
      } else {
        value += word[i];
      }
    }
    EXPECT_TRUE(pairs.emplace(word.substr(0, equals), value).second) << "twice: " << word;
  }
  return pairs;
}

class PolicyRefusal : public testing::Test {
 protected:
  test::Checked run{test::with_classes(R"("interactive": {"permits": 60}, "batch": {"permits": 20, "maxQueue": 100})",
                                       R"("generation": 27, "assign": [{"role": "b*", "class": "batch"}],)")};
  Uuid ticket{{0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe}};

  std::string detail(const Refusal& refusal, std::size_t size = kDetailBytes) {
    std::string buffer(size + 1, 'X');
    std::size_t length = format_detail(*run.policy, refusal, buffer.data(), size);
    EXPECT_EQ(buffer[size], 'X') << "wrote behind the buffer";
    if (size > 0) {
      EXPECT_EQ(buffer[length], '\0');
    }
    return buffer.substr(0, length);
  }

  Refusal queue_full() {
    return {{Status::queue_full, {RuleField::class_max_queue, 1}, 100, 100},
            Retry::after,
            317,
            "batch",
            "acme",
            &ticket,
            {}};
  }
};

TEST_F(PolicyRefusal, DetailIsTheLineOfTheContract) {
  ASSERT_TRUE(run.valid) << run.all();
  EXPECT_EQ(detail(queue_full()),
            "sluice reason=queue_full retry=after retry_after_ms=317 rule=executionClasses.batch.maxQueue used=100 "
            "limit=100 class=batch tenant=acme ticket=01234567-89ab-cdef-1032-547698badcfe generation=27");
}

TEST_F(PolicyRefusal, ADuplicateTellsOfTheRequestItRepeats) {
  Refusal refusal{outcome(Status::duplicate_ticket), Retry::never, 0, "batch", "acme", &ticket, {"QUEUED", false, 0}};
  const std::string start = "sluice reason=duplicate_ticket retry=never class=batch tenant=acme ticket=";
  const std::string id = "01234567-89ab-cdef-1032-547698badcfe";
  EXPECT_EQ(detail(refusal), start + id + " state=QUEUED generation=27");
  refusal.first = {"REQUEST_RELEASED", true, 1200};
  EXPECT_EQ(detail(refusal), start + id + " outcome=REQUEST_RELEASED ended_ms_ago=1200 generation=27");
}

TEST(PolicyUuid, IsReadInEveryFormThatPostgresqlTakes) {
  const Uuid expected{{0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe}};
  for (const char* text : {"01234567-89ab-cdef-1032-547698badcfe", "01234567-89AB-CDEF-1032-547698BADCFE",
                           "0123456789abcdef1032547698badcfe", "{01234567-89ab-cdef-1032-547698badcfe}",
                           "0123-4567-89ab-cdef-1032-5476-98ba-dcfe"}) {
    Uuid read = {};
    EXPECT_TRUE(parse_uuid(text, read)) << text;
    EXPECT_EQ(std::memcmp(&read, &expected, sizeof(read)), 0) << text;
  }
}

TEST(PolicyUuid, AnythingElseIsRefusedAndChangesNothing) {
  for (const char* text : {"", "x", "0", "01234567-89ab-cdef-1032-547698badcf", "01234567-89ab-cdef-1032-547698badcfe0",
                           "01234567-89ab-cdef-1032-547698badcfe ", " 01234567-89ab-cdef-1032-547698badcfe",
                           "01234567-89ab-cdef-1032-547698badcfg", "{01234567-89ab-cdef-1032-547698badcfe",
                           "01234567-89ab-cdef-1032-547698badcfe}", "01-234567-89ab-cdef-1032-547698badcfe",
                           "01234567--89ab-cdef-1032-547698badcfe", "01234567-89ab-cdef-1032-547698badcfe-", "{}",
                           "00000000-0000-0000-0000-000000000000"}) {
    Uuid read = {{7}};
    EXPECT_FALSE(parse_uuid(text, read)) << text;
    EXPECT_EQ(read.bytes[0], 7) << text;
  }
  Uuid read = {};
  EXPECT_FALSE(parse_uuid(nullptr, read));
}

TEST_F(PolicyRefusal, DetailParsesBackWhateverTheNamesHold) {
  Refusal refusal = queue_full();
  std::string awkward = "a b\t%41=\"\x7F\xC3\xA4 x=y";
  refusal.tenant_name = awkward.c_str();
  refusal.class_name = "100%";
  auto pairs = parse_detail(detail(refusal));
  EXPECT_EQ(pairs["tenant"], awkward);
  EXPECT_EQ(pairs["class"], "100%");
  EXPECT_EQ(pairs["reason"], "queue_full");
  EXPECT_EQ(pairs["retry"], "after");
  EXPECT_EQ(pairs["retry_after_ms"], "317");
  EXPECT_EQ(pairs["rule"], "executionClasses.batch.maxQueue");
  EXPECT_EQ(pairs["used"], "100");
  EXPECT_EQ(pairs["limit"], "100");
  EXPECT_EQ(pairs["ticket"], "01234567-89ab-cdef-1032-547698badcfe");
  EXPECT_EQ(pairs["generation"], "27");
  EXPECT_EQ(pairs.size(), 10U);
}

TEST_F(PolicyRefusal, DetailNeverHoldsALineBreakOrABlankInsideAValue) {
  for (int byte = 1; byte < 256; byte++) {
    std::string name = std::string("x") + static_cast<char>(byte) + "y";
    Refusal refusal = queue_full();
    refusal.tenant_name = name.c_str();
    std::string line = detail(refusal);
    EXPECT_EQ(line.find_first_of("\n\r\t\x7F"), std::string::npos) << byte;
    EXPECT_EQ(parse_detail(line)["tenant"], name) << byte;
  }
}

TEST_F(PolicyRefusal, WhatIsNotKnownIsLeftOut) {
  Refusal refusal{outcome(Status::queue_deadline), Retry::after, 250, nullptr, nullptr, nullptr, {}};
  EXPECT_EQ(detail(refusal), "sluice reason=queue_deadline retry=after retry_after_ms=250 generation=27");
  refusal.retry = Retry::now;
  EXPECT_EQ(detail(refusal), "sluice reason=queue_deadline retry=now retry_after_ms=0 generation=27");
  refusal.retry = Retry::never;
  EXPECT_EQ(detail(refusal), "sluice reason=queue_deadline retry=never generation=27");
}

TEST_F(PolicyRefusal, ALineCutAnywhereStillParses) {
  std::string whole = detail(queue_full());
  for (std::size_t size = 0; size <= whole.size() + 1; size++) {
    std::string line = detail(queue_full(), size);
    EXPECT_LT(line.size(), std::max<std::size_t>(size, 1));
    if (line.size() < 6) continue;
    auto pairs = parse_detail(line);
    for (const auto& [key, value] : pairs) {
      EXPECT_NE(whole.find(" " + key + "=" + value), std::string::npos) << line;
    }
  }
}

TEST_F(PolicyRefusal, TheStatedBufferHoldsTheLongestLine) {
  std::string quotes(kNameBytes - 1, '"');
  std::string pattern(kTenantBytes - 1, '"');
  std::string blanks(kTenantBytes - 1, ' ');
  std::string class_blanks(kNameBytes - 1, ' ');
  std::memcpy(run.policy->classes[1].name, quotes.c_str(), quotes.size() + 1);
  std::memcpy(run.policy->tenant_rules[0].pattern, pattern.c_str(), pattern.size() + 1);
  run.policy->generation = std::numeric_limits<std::uint64_t>::max();
  constexpr std::uint32_t kLargest = std::numeric_limits<std::uint32_t>::max();
  for (Rule rule : {Rule{RuleField::class_time_limit, 1}, Rule{RuleField::tenant_max_sessions, 0}}) {
    Refusal refusal{{Status::database_session_limit, rule, kLargest, kLargest},
                    Retry::after,
                    kLargest,
                    class_blanks.c_str(),
                    blanks.c_str(),
                    &ticket,
                    {"REQUEST_RELEASED", true, std::numeric_limits<std::uint64_t>::max()}};
    std::string line = detail(refusal);
    auto pairs = parse_detail(line);
    EXPECT_EQ(pairs["generation"], "18446744073709551615") << line.size();
    EXPECT_EQ(pairs["tenant"], blanks);
  }
}

TEST(PolicyRetry, IsAfterForEverythingThatPassesByItself) {
  for (Status status :
       {Status::session_limit, Status::tenant_session_limit, Status::role_session_limit, Status::role_connect_rate,
        Status::database_session_limit, Status::admin_reserve, Status::queue_full, Status::deadline_unreachable,
        Status::pushed_out, Status::queue_deadline, Status::overdraft_exhausted}) {
    EXPECT_EQ(retry_of(status), Retry::after) << status_name(status);
  }
}

TEST(PolicyRetry, IsNeverWhereARetryWouldRepeatTheOutcome) {
  for (Status status : {Status::cancelled, Status::time_limit, Status::duplicate_ticket}) {
    EXPECT_EQ(retry_of(status), Retry::never) << status_name(status);
  }
}

TEST(PolicyRetry, IsNeverNowForARefusalOrAFault) {
  for (int i = 0; i <= static_cast<int>(Status::layout_mismatch); i++) {
    auto status = static_cast<Status>(i);
    if (is_refusal(status) || is_fault(status)) {
      EXPECT_NE(retry_of(status), Retry::now) << status_name(status);
    }
  }
}

TEST(PolicyJitter, ReachesBothEndsAndNeverLeavesThem) {
  EXPECT_EQ(jittered_delay_ms(200, 0), 200U);
  EXPECT_EQ(jittered_delay_ms(200, 0xFFFFFFFFU), 400U);
  EXPECT_EQ(jittered_delay_ms(1, 0), 1U);
  EXPECT_EQ(jittered_delay_ms(1, 0xFFFFFFFFU), 2U);
  EXPECT_EQ(jittered_delay_ms(0, 0xFFFFFFFFU), 0U);
}

TEST(PolicyJitter, AHugeBaseDoesNotOverflow) {
  EXPECT_EQ(jittered_delay_ms(0xFFFFFFFFU, 0), 0x7FFFFFFFU);
  EXPECT_EQ(jittered_delay_ms(0xFFFFFFFFU, 0xFFFFFFFFU), 0xFFFFFFFEU);
}

// Chi-squared over all 201 values of a base of 200 ms: with 200 degrees of freedom and a fixed seed, 300 is far beyond
// chance (p < 1e-5), and a delay that never comes or comes twice as often gives far more.
TEST(PolicyJitter, IsUniformFromTheBaseToTwiceTheBase) {
  constexpr std::uint32_t kBase = 200;
  constexpr int kDraws = 201 * 1000;
  std::mt19937 random(20260727);
  std::array<int, kBase + 1> counts{};
  for (int i = 0; i < kDraws; i++) {
    std::uint32_t delay = jittered_delay_ms(kBase, static_cast<std::uint32_t>(random()));
    ASSERT_GE(delay, kBase);
    ASSERT_LE(delay, 2 * kBase);
    counts[delay - kBase]++;
  }
  double expected = static_cast<double>(kDraws) / counts.size();
  double chi_squared = 0;
  for (int count : counts) chi_squared += (count - expected) * (count - expected) / expected;
  EXPECT_LT(chi_squared, 300);
  EXPECT_GT(chi_squared, 110) << "too even to be random";
}

}  // namespace
}  // namespace sluice::policy
