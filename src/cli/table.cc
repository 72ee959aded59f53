#include "cli/table.h"

#include <algorithm>
#include <ostream>

namespace sluice::cli {
namespace {

// Characters, not bytes: continuation bytes take no column.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("-0123456789.") == std::string::npos && text != "-";
}

std::string shown(const std::optional<std::string>& value) { return value.value_or("-"); }

void print_cell(std::ostream& out, const std::string& text, std::size_t columns, bool right, bool last) {
  std::string padding(columns - width(text), ' ');
  if (right) {
    out << padding << text;
  } else {
    out << text << (last ? "" : padding);
  }
  out << (last ? "\n" : "  ");
}

}  // namespace

void print_table(std::ostream& out, const Rows& rows) {
  std::size_t count = rows.columns.size();
  std::vector<std::size_t> widths(count);
  std::vector<bool> numeric(count, true);
  for (std::size_t c = 0; c < count; c++) {
    widths[c] = width(rows.columns[c]);
    for (const auto& row : rows.values) {
      widths[c] = std::max(widths[c], width(shown(row[c])));
      if (row[c].has_value() && !is_number(*row[c])) numeric[c] = false;
    }
  }
  for (std::size_t c = 0; c < count; c++) print_cell(out, rows.columns[c], widths[c], numeric[c], c + 1 == count);
  for (std::size_t c = 0; c < count; c++)
    print_cell(out, std::string(widths[c], '-'), widths[c], false, c + 1 == count);
  for (const auto& row : rows.values) {
    for (std::size_t c = 0; c < count; c++) print_cell(out, shown(row[c]), widths[c], numeric[c], c + 1 == count);
  }
}

}  // namespace sluice::cli
