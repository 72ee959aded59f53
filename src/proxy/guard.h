// The strict profile's guard: which statements a text may not contain, because they leave something behind on the
// server connection or need more than one transaction. It reads texts in whatever pieces they come.
#pragma once

#include <string_view>

#include "wire/statement.h"

namespace sluice::proxy {

class Guard {
 public:
  // False as soon as a statement was found that is refused.
  [[nodiscard]] bool add(std::string_view text) noexcept;
  // Once the text is complete.
  [[nodiscard]] bool finish() noexcept;
  // What was refused, for the error's text.
  [[nodiscard]] std::string_view refused() const noexcept { return refused_; }

 private:
  void judge(const wire::Statement& statement) noexcept;

  wire::StatementSplitter splitter_;
  std::string_view refused_;
};

}  // namespace sluice::proxy
