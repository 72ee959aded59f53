#include "wire/startup_options.h"

#include <algorithm>

namespace sluice::wire {
namespace {

bool is_blank(char c) noexcept { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

// The next word, unescaped. False at the end, and where the scratch buffer is used up.
bool OptionsReader::word(std::span<char>& out) noexcept {
  while (at_ < options_.size() && is_blank(options_[at_])) at_++;
  if (at_ == options_.size()) return false;
  std::size_t start = used_;
  bool escaped = false;
  for (; at_ < options_.size() && (escaped || !is_blank(options_[at_])); at_++) {
    escaped = !escaped && options_[at_] == '\\';
    if (escaped) continue;
    if (used_ == scratch_.size()) {
      no_room_ = true;
      return false;
    }
    scratch_[used_++] = options_[at_];
  }
  out = scratch_.subspan(start, used_ - start);
  return true;
}

OptionStep OptionsReader::next(std::string_view& name, std::string_view& value) noexcept {
  std::span<char> given;
  name = value = {};
  if (!word(given)) return no_room_ ? OptionStep::no_room : OptionStep::end;
  name = {given.data(), given.size()};
  if (name.size() < 2 || name[0] != '-' || (name[1] != '-' && name[1] != 'c') || name == "--") {
    return OptionStep::unknown_form;
  }
  std::span<char> assignment = given.subspan(2);
  if (assignment.empty() && !word(assignment)) return no_room_ ? OptionStep::no_room : OptionStep::missing_value;
  auto equals = std::find(assignment.begin(), assignment.end(), '=');
  std::replace(assignment.begin(), equals, '-', '_');
  auto name_length = static_cast<std::size_t>(equals - assignment.begin());
  if (name_length == 0) return OptionStep::unknown_form;
  name = {assignment.data(), name_length};
  if (equals == assignment.end()) return OptionStep::missing_value;
  value = {assignment.data() + name_length + 1, assignment.size() - name_length - 1};
  return OptionStep::setting;
}

}  // namespace sluice::wire
