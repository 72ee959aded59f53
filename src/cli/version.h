#pragma once

namespace sluice::cli {

inline constexpr char kVersion[] = "1.0.0";

}  // namespace sluice::cli
