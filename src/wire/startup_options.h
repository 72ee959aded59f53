// The `options` of a startup packet: a command line for the server, of which a proxy honours the forms that set a
// parameter and refuses the rest by name. Words are split as PostgreSQL's pg_split_opts() does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace sluice::wire {

enum class OptionStep : std::uint8_t {
  setting,        // name and value are set
  end,            // nothing is left
  missing_value,  // 42601: "-c name" without "=value"; name is set
  unknown_form,   // 42601: a switch that sets no parameter, or no switch at all; name is the word as it stands
  no_room,        // the scratch buffer is smaller than the options
};

// Reads `-c name=value`, `-cname=value` and `--name=value`. A backslash takes the next character as it is, blanks
// included; '-' in a name means '_'. The unescaped words are written to `scratch`, which needs options.size() bytes and
// must outlive the names and values that are given out. After anything but `setting`, reading is over.
class OptionsReader {
 public:
  OptionsReader(std::string_view options, std::span<char> scratch) noexcept : options_(options), scratch_(scratch) {}
  [[nodiscard]] OptionStep next(std::string_view& name, std::string_view& value) noexcept;

 private:
  [[nodiscard]] bool word(std::span<char>& out) noexcept;

  std::string_view options_;
  std::span<char> scratch_;
  std::size_t at_ = 0;
  std::size_t used_ = 0;
  bool no_room_ = false;
};

}  // namespace sluice::wire
