// A row line: the bytes of a row that move together through every tier, with its header.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/hash.h"

namespace hotrow {

// The type of weights or state in memory. Arithmetic is always float32.
enum class RowType : int { kFloat32 = 0, kBfloat16 = 1, kFloat16 = 2 };

HOTROW_HD inline size_t bytes_of(RowType type) { return type == RowType::kFloat32 ? 4 : 2; }

// Before each line in memory.
struct RowHeader {
  int64_t key;
  uint32_t clock;  // the table's step when the row was last updated, or created
  uint32_t count;  // lookups in the steps that updated it; stops at 2^32 - 1
};
static_assert(sizeof(RowHeader) == 16);

// Whether a row that had the header `before` may have been updated since. An update changes clock
// or count, unless the count is saturated.
HOTROW_HD inline bool is_updated(const RowHeader& before, const RowHeader& after) {
  return before.clock != after.clock || before.count != after.count || after.count == UINT32_MAX;
}

// The parts of a line:
//   [weights: D of `weights` | vectors x D of `state` | pad to 4 bytes | scalars x float32]
struct LineLayout {
  size_t width = 0;  // D
  RowType weights = RowType::kFloat32;
  RowType state = RowType::kFloat32;
  size_t vectors = 0;  // state values a weight
  size_t scalars = 0;  // state values a row

  HOTROW_HD size_t state_offset() const { return width * bytes_of(weights); }
  HOTROW_HD size_t scalars_offset() const {
    return (state_offset() + vectors * width * bytes_of(state) + 3) / 4 * 4;
  }
  // Bytes of a line, a multiple of 4.
  HOTROW_HD size_t bytes() const { return scalars_offset() + scalars * sizeof(float); }
};

}  // namespace hotrow
