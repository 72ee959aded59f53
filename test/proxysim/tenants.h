// A thousand tenants on one server in virtual time: two busy ones, eighteen warm ones, a cold trickle over the rest,
// clients that come and go; then a login to every tenant under that load.
#pragma once

#include <cstdint>

namespace sluice::proxysim {

// Prints its figures and what they were held against. False: one of them was missed.
[[nodiscard]] bool report_thousand_tenants(std::uint64_t seed);

}  // namespace sluice::proxysim
