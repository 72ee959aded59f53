// What a simulation tells its reader.
#pragma once

#include <cstdint>

namespace sluice::sim {

// Each prints TAP lines and tables, and answers whether everything held.
[[nodiscard]] bool report_properties(std::uint64_t seed, std::uint32_t plans);
[[nodiscard]] bool report_shares(std::uint64_t seed);
[[nodiscard]] bool report_lending();
[[nodiscard]] bool report_overload();
[[nodiscard]] bool report_thousand_tenants();

}  // namespace sluice::sim
