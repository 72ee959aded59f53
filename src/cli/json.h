// A document as JSON text, for the server's jsonb.
#pragma once

#include <string>

#include "policy/document.h"

namespace sluice::cli {

// Numbers keep their source text, so nothing is rounded on the way.
[[nodiscard]] std::string to_json(const policy::Document& document);

}  // namespace sluice::cli
