// Sizes as multiples of a unit.
#pragma once

#include <cstddef>

namespace hotrow {

// The least multiple of unit that is not below value.
constexpr size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace hotrow
