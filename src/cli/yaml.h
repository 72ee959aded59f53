// YAML into the policy's document: the part of YAML that is JSON with comments. Anchors, aliases, merge keys, tags,
// keys that are not text and more than one document are refused with their line, because a policy must mean to every
// reader what it means to the server.
#pragma once

#include <string>

#include "policy/document.h"

namespace sluice::cli {

// Fills `document` (cleared first); a value's line is that of its key. Throws TextError.
//
// Plain scalars follow the JSON schema of YAML 1.2: null, true, false (also Null, TRUE, ~ and the like) and numbers as
// JSON writes them; everything else, quoted scalars included, is text. `on` and `off` are text, which the validator
// takes where a switch is meant.
void read_yaml(const std::string& text, policy::Document& document);

}  // namespace sluice::cli
