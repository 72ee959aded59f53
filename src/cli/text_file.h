// A text file read whole, within a limit, and checked to be text before any parser sees it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace sluice::cli {

// Larger than any policy: the arena a document is read into takes 256 kB of text.
inline constexpr std::size_t kMaxFileBytes = 1024 * 1024;

// The file cannot be had at all (exit status 2).
class FileError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The file is there, but something in it is not what it should be (exit status 1).
class TextError : public std::runtime_error {
 public:
  TextError(std::uint32_t line, const std::string& message, const std::string& fix = "")
      : std::runtime_error(message), line(line), fix(fix) {}

  std::uint32_t line;  // 1-based; 0: the file as a whole
  std::string fix;     // may be empty
};

// Reads a regular file, or standard input for "-". Throws FileError.
[[nodiscard]] std::string read_text_file(const std::string& path);

// Throws TextError at the first byte that is not UTF-8 text: a control character, or a wrong, overlong or surrogate
// sequence (RFC 3629).
void check_text(const std::string& text);

}  // namespace sluice::cli
