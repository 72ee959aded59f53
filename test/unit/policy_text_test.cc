#include "policy/text.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice::policy {
namespace {

TEST(PolicyText, WritesTextAndNumbers) {
  char out[64];
  TextWriter writer(out, sizeof(out));
  writer.add("a ").add(0U).add(" ").add(std::uint64_t{18446744073709551615U});
  EXPECT_STREQ(out, "a 0 18446744073709551615");
  EXPECT_EQ(writer.length(), std::string(out).size());
  EXPECT_FALSE(writer.cut());
}

TEST(PolicyText, CutsAtAWholeCharacterAndTakesNothingAfterwards) {
  for (std::size_t size = 1; size < 12; size++) {
    char out[16];
    std::memset(out, 'X', sizeof(out));
    TextWriter writer(out, size);
    writer.add("ab\xC3\xA4\xE2\x82\xAC").add("z");
    std::string text = out;
    EXPECT_LT(text.size(), size);
    EXPECT_EQ(out[size], 'X') << "wrote behind a buffer of " << size;
    EXPECT_TRUE(text == "" || text == "a" || text == "ab" || text == "ab\xC3\xA4" || text == "ab\xC3\xA4\xE2\x82\xAC" ||
                text == "ab\xC3\xA4\xE2\x82\xAC\x7A")
        << text;
    EXPECT_EQ(writer.cut(), size < 9);
  }
}

TEST(PolicyText, ABufferOfSizeZeroIsNotTouched) {
  char out = 'X';
  TextWriter writer(&out, 0);
  writer.add("abc");
  EXPECT_EQ(out, 'X');
  EXPECT_EQ(writer.length(), 0U);
}

TEST(PolicyText, PathNamesAreQuotedOnlyWhereTheyCouldBeMisread) {
  auto path_name = [](const char* name) {
    char out[64];
    TextWriter(out, sizeof(out)).add_path_name(name);
    return std::string(out);
  };
  EXPECT_EQ(path_name("batch_*"), "batch_*");
  EXPECT_EQ(path_name("shop/app-1"), "shop/app-1");
  EXPECT_EQ(path_name("b\xC3\xA4r"), "b\xC3\xA4r");
  EXPECT_EQ(path_name("a.b"), "\"a.b\"");
  EXPECT_EQ(path_name("a b"), "\"a b\"");
  EXPECT_EQ(path_name("a\"b"), "\"a\"\"b\"");
  EXPECT_EQ(path_name("a\nb"), "\"a?b\"");
  EXPECT_EQ(path_name(""), "\"\"");
}

TEST(PolicyText, RewindDropsWhatCameAfter) {
  char out[8];
  TextWriter writer(out, sizeof(out));
  writer.add("abc");
  std::size_t length = writer.length();
  writer.add("defghijk");
  EXPECT_TRUE(writer.cut());
  writer.rewind(length);
  writer.add("x");
  EXPECT_STREQ(out, "abcx");
}

}  // namespace
}  // namespace sluice::policy
