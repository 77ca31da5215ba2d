// Which row lines hold a NaN or an infinity.
#pragma once

#include <cstddef>

#include "core/kernels/row_line.h"

namespace hotrow {

// How many of the lines have a weight or a state that is not finite. lines: (count,
// layout.bytes()), without headers.
size_t count_nonfinite_lines(const LineLayout& layout, const std::byte* lines, size_t count);

}  // namespace hotrow
