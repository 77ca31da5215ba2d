// A row's initial value: a pure function of (seed, table, key), so that it does not depend on
// order, ranks or eviction.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hotrow {

enum class InitKind : int { kConstant = 0, kUniform = 1, kNormal = 2 };

struct RowInit {
  InitKind kind = InitKind::kConstant;
  float scale = 0.0f;       // constant: the value; uniform: [-scale, scale); normal: the deviation
  uint64_t seed = 0;        // of the run
  uint64_t table = 0;       // fingerprint of the table's name
  size_t first_column = 0;  // of the whole row, of which this is a part
};

// row: (width). The normal draw uses Box-Muller in double precision.
void initialize_row(const RowInit& init, int64_t key, size_t width, float* row);

}  // namespace hotrow
