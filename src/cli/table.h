// Rows as a plain text table.
#pragma once

#include <iosfwd>

#include "cli/database.h"

namespace sluice::cli {

// Columns are as wide as their widest value, numbers stand to the right, NULL is shown as "-".
void print_table(std::ostream& out, const Rows& rows);

}  // namespace sluice::cli
