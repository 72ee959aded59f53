#include "cli/text_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

namespace sluice::cli {
namespace {

// A file in the temporary folder that goes with the test.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content) {
    const char* folder = std::getenv("TMPDIR");
    path = std::string(folder != nullptr ? folder : "/tmp") + "/sluice_text_XXXXXX";
    int descriptor = mkstemp(path.data());
    EXPECT_GE(descriptor, 0);
    close(descriptor);
    std::ofstream(path, std::ios::binary) << content;
  }
  ~TemporaryFile() { std::remove(path.c_str()); }

  std::string path;
};

std::string error_of(const std::string& text) {
  try {
    check_text(text);
  } catch (const TextError& error) {
    return std::to_string(error.line) + ": " + error.what();
  }
  return "";
}

TEST(CliTextFile, ReadsAFileWhole) {
  std::string content("a\nb\0c\xFF", 7);
  TemporaryFile file(content);
  EXPECT_EQ(read_text_file(file.path), content);
  TemporaryFile empty("");
  EXPECT_EQ(read_text_file(empty.path), "");
}

TEST(CliTextFile, TheLargestFileIsReadAndALargerOneRefused) {
  TemporaryFile largest(std::string(kMaxFileBytes, 'x'));
  EXPECT_EQ(read_text_file(largest.path).size(), kMaxFileBytes);
  TemporaryFile larger(std::string(kMaxFileBytes + 1, 'x'));
  EXPECT_THROW((void)read_text_file(larger.path), FileError);
}

TEST(CliTextFile, WhatCannotBeReadIsSaidWithItsName) {
  try {
    (void)read_text_file("/no/such/file.yaml");
    FAIL();
  } catch (const FileError& error) {
    EXPECT_STREQ(error.what(), "/no/such/file.yaml: No such file or directory");
  }
  EXPECT_THROW((void)read_text_file("/"), FileError);
}

TEST(CliTextFile, Utf8IsAcceptedInEveryLength) {
  EXPECT_EQ(error_of("tab\tand\r\nlines"), "");
  EXPECT_EQ(
      error_of(
          "\xC2\x80 \xDF\xBF \xE0\xA0\x80 \xED\x9F\xBF \xEE\x80\x80 \xEF\xBF\xBF \xF0\x90\x80\x80 \xF4\x8F\xBF\xBF"),
      "");
}

TEST(CliTextFile, WrongUtf8IsRefusedWithItsLine) {
  for (const char* wrong : {"\x80", "\xC0\x80", "\xC1\xBF", "\xC2", "\xC2x", "\xE0\x9F\xBF", "\xE2\x82", "\xED\xA0\x80",
                            "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFE", "\xFF"}) {
    EXPECT_EQ(error_of(std::string("a\nb\n") + wrong).substr(0, 2), "3:") << wrong;
    EXPECT_NE(error_of(std::string(wrong) + "\n").find("is not UTF-8"), std::string::npos);
  }
}

TEST(CliTextFile, ControlCharactersAreRefused) {
  EXPECT_EQ(error_of(std::string("\0", 1)), "1: byte 0x00 is not text");
  EXPECT_EQ(error_of("\n\x7F"), "2: byte 0x7f is not text");
}

}  // namespace
}  // namespace sluice::cli
