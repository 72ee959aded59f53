#include "wire/bytes.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace sluice::wire {
namespace {

TEST(WireBytes, ReadsWhatWasWritten) {
  std::array<std::uint8_t, 64> buffer;
  ByteWriter writer(buffer);
  writer.begin('X').byte(7).uint16(0xABCD).uint32(0xDEADBEEF).text("name").bytes(as_bytes("\1\2")).end();
  ASSERT_TRUE(writer.ok());
  ByteReader reader(writer.written());
  EXPECT_EQ(reader.byte(), 'X');
  EXPECT_EQ(reader.uint32(), writer.length() - 1);
  EXPECT_EQ(reader.byte(), 7);
  EXPECT_EQ(reader.uint16(), 0xABCD);
  EXPECT_EQ(reader.uint32(), 0xDEADBEEF);
  EXPECT_EQ(reader.text(), "name");
  EXPECT_FALSE(reader.finished());
  EXPECT_EQ(as_text(reader.rest()), "\1\2");
  EXPECT_TRUE(reader.finished());
}

TEST(WireBytes, FailsForGoodOnceSomethingIsMissing) {
  const std::uint8_t bytes[] = {1, 2, 3};
  ByteReader reader(bytes);
  EXPECT_EQ(reader.uint32(), 0U);
  EXPECT_TRUE(reader.failed());
  EXPECT_EQ(reader.byte(), 0);
  EXPECT_EQ(reader.left(), 0U);
  EXPECT_FALSE(reader.finished());
  ByteReader no_end(bytes);
  EXPECT_EQ(no_end.text(), "");
  EXPECT_TRUE(no_end.failed());
  ByteReader greedy(bytes);
  EXPECT_TRUE(greedy.bytes(~std::size_t{0}).empty());
  EXPECT_TRUE(greedy.failed());
}

TEST(WireBytes, AFullWriterHasWrittenNothing) {
  for (std::size_t room = 0; room < 12; room++) {
    std::array<std::uint8_t, 13> buffer;
    buffer.fill(0xEE);
    ByteWriter writer(std::span<std::uint8_t>(buffer).first(room));
    writer.begin('Q').text("select").end();
    EXPECT_EQ(writer.ok(), room >= 12) << room;
    EXPECT_EQ(writer.length(), 0U);
    for (std::size_t i = room; i < buffer.size(); i++) EXPECT_EQ(buffer[i], 0xEE);
  }
}

TEST(WireBytes, ATextWithANulInsideIsRefused) {
  std::array<std::uint8_t, 16> buffer;
  ByteWriter writer(buffer);
  writer.text(std::string_view("a\0b", 3));
  EXPECT_FALSE(writer.ok());
}

}  // namespace
}  // namespace sluice::wire
