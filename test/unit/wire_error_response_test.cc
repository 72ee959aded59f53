#include "wire/error_response.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace sluice::wire {
namespace {

using namespace std::string_literals;

bool reads(const std::string& payload) {
  ErrorFields fields;
  std::vector<std::uint8_t> exact(payload.begin(), payload.end());
  return read_error(exact, fields);
}

const std::string kError = "SFEHLER\0VERROR\0C42601\0Msyntax error\0P8\0?new\0\0"s;

TEST(WireErrorResponse, KeepsEveryFieldUnknownOnesIncluded) {
  ErrorFields fields;
  ASSERT_TRUE(read_error(as_bytes(kError), fields));
  EXPECT_EQ(fields.severity(), "ERROR");
  EXPECT_EQ(fields.sqlstate(), "42601");
  EXPECT_EQ(fields.message(), "syntax error");
  EXPECT_EQ(fields.find('?'), "new");
  EXPECT_EQ(fields.find('H'), "");
  EXPECT_FALSE(fields.is_fatal());
  std::array<std::uint8_t, 128> buffer;
  ByteWriter writer(buffer);
  write_error(writer, 'E', fields);
  EXPECT_EQ(as_text(writer.written()).substr(5), kError);
  EXPECT_EQ(read_uint32(buffer.data() + 1), kError.size() + 4);
}

TEST(WireErrorResponse, AFieldCanBeReplaced) {
  ErrorFields fields;
  ASSERT_TRUE(read_error(as_bytes(kError), fields));
  EXPECT_TRUE(fields.set('M', "another"));
  EXPECT_TRUE(fields.set('H', "a hint"));
  EXPECT_FALSE(fields.set(0, "no type"));
  std::array<std::uint8_t, 128> buffer;
  ByteWriter writer(buffer);
  write_error(writer, 'E', fields);
  EXPECT_EQ(as_text(writer.written()).substr(5), "SFEHLER\0VERROR\0C42601\0Manother\0P8\0?new\0Ha hint\0\0"s);
}

TEST(WireErrorResponse, RefusesWhatNoServerSends) {
  EXPECT_TRUE(reads(kError));
  EXPECT_FALSE(reads(""));
  EXPECT_FALSE(reads("\0"s));
  EXPECT_FALSE(reads("Monly\0\0"s));
  EXPECT_FALSE(reads("SERROR\0Mno code\0\0"s));
  EXPECT_FALSE(reads("SERROR\0C4260\0Mshort code\0\0"s));
  EXPECT_FALSE(reads("SERROR\0C4260a\0Mlower case\0\0"s));
  EXPECT_FALSE(reads("SERROR\0C42601\0\0"s));
  EXPECT_FALSE(reads("C42601\0Mno severity\0\0"s));
  EXPECT_FALSE(reads("SERROR\0C42601\0Mtwice\0Mtwice\0\0"s));
  EXPECT_FALSE(reads("SERROR\0C42601\0Mtail\0\0x"s));
  for (std::size_t cut = 0; cut < kError.size(); cut++) EXPECT_FALSE(reads(kError.substr(0, cut))) << cut;
  std::string many = "SERROR\0C42601\0Mmany\0"s;
  for (char type = 'a'; type <= 'z'; type++) many += std::string(1, type) + "\0"s;
  EXPECT_TRUE(reads(many + "\0"s));
  for (char type = '1'; type <= '9'; type++) many += std::string(1, type) + "\0"s;
  EXPECT_FALSE(reads(many + "\0"s));
}

TEST(WireErrorResponse, WritesTheProxysOwn) {
  std::array<std::uint8_t, 128> buffer;
  ByteWriter writer(buffer);
  write_error(writer, {"FATAL", "53300", "too many", "sluice reason=x", ""});
  ErrorFields fields;
  ASSERT_TRUE(read_error(writer.written().subspan(5), fields));
  EXPECT_TRUE(fields.is_fatal());
  EXPECT_EQ(fields.sqlstate(), "53300");
  EXPECT_EQ(fields.find('D'), "sluice reason=x");
  EXPECT_EQ(fields.size(), 5U);
}

TEST(WireErrorResponse, RandomPayloadsStayInside) {
  std::uint32_t state = 3;
  auto random = [&state] { return state = state * 1664525U + 1013904223U, state >> 16U; };
  int good = 0;
  for (int round = 0; round < 20000; round++) {
    std::string payload = kError;
    for (std::uint32_t i = random() % 3; i > 0; i--)
      payload[random() % payload.size()] = static_cast<char>(random() % 4 * 28);
    good += reads(payload) ? 1 : 0;
  }
  EXPECT_GT(good, 100);
  EXPECT_LT(good, 20000);
}

}  // namespace
}  // namespace sluice::wire
