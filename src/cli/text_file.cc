#include "cli/text_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace sluice::cli {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const {
    if (file != stdin) std::fclose(file);
  }
};

// The length of the UTF-8 sequence at `text`, or 0 when it is none (Table 3-7 of the Unicode standard).
std::size_t sequence_length(const unsigned char* text, std::size_t left) {
  unsigned char first = text[0];
  if (first < 0x80) return 1;
  std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || length > left) return 0;
  unsigned char low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  unsigned char high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (text[1] < low || text[1] > high) return 0;
  for (std::size_t i = 2; i < length; i++) {
    if ((text[i] & 0xC0U) != 0x80U) return 0;
  }
  return length;
}

std::string hex_byte(unsigned char byte) {
  char text[8];
  std::snprintf(text, sizeof(text), "0x%02x", byte);
  return text;
}

}  // namespace

std::string read_text_file(const std::string& path) {
  std::unique_ptr<std::FILE, CloseFile> file(path == "-" ? stdin : std::fopen(path.c_str(), "rb"));
  if (file == nullptr) throw FileError(path + ": " + std::strerror(errno));
  struct stat status {};
  if (path != "-" && fstat(fileno(file.get()), &status) == 0 && S_ISDIR(status.st_mode)) {
    throw FileError(path + ": " + std::strerror(EISDIR));
  }
  std::string text(kMaxFileBytes + 1, '\0');
  std::size_t length = std::fread(text.data(), 1, text.size(), file.get());
  if (std::ferror(file.get()) != 0) throw FileError(path + ": " + std::strerror(errno));
  if (length > kMaxFileBytes) {
    throw FileError(path + ": larger than " + std::to_string(kMaxFileBytes) + " bytes, which no policy needs");
  }
  text.resize(length);
  return text;
}

void check_text(const std::string& text) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  std::uint32_t line = 1;
  for (std::size_t at = 0; at < text.size();) {
    unsigned char byte = bytes[at];
    if (byte == '\n') line++;
    bool control = (byte < 0x20 && byte != '\n' && byte != '\r' && byte != '\t') || byte == 0x7F;
    if (control) {
      throw TextError(line, "byte " + hex_byte(byte) + " is not text",
                      "is this a YAML file? Save it as plain UTF-8 text");
    }
    std::size_t length = sequence_length(bytes + at, text.size() - at);
    if (length == 0) throw TextError(line, "byte " + hex_byte(byte) + " is not UTF-8", "save the file as UTF-8");
    at += length;
  }
}

}  // namespace sluice::cli
