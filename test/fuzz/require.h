// What a fuzz target demands of the code beyond not crashing. A demand that is not met ends the process, which is how
// the fuzzer learns of it and keeps the input.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace sluice::fuzz {

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

}  // namespace sluice::fuzz
