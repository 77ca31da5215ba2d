#include "core/kernels/row_init.h"

#include <cmath>

#include "core/base/hash.h"

namespace hotrow {
namespace {

// In [0, 1), 24 bits: exact in float32.
inline float unit_float(uint64_t bits) { return static_cast<float>(bits >> 40) * 0x1p-24f; }
// In (0, 1], 53 bits.
inline double unit_double(uint64_t bits) {
  return (static_cast<double>(bits >> 11) + 1.0) * 0x1p-53;
}

}  // namespace

void initialize_row(const RowInit& init, int64_t key, size_t width, float* row) {
  if (init.kind == InitKind::kConstant) {
    for (size_t j = 0; j < width; ++j) row[j] = init.scale;
    return;
  }
  const uint64_t stream = combine64(combine64(init.seed, init.table), static_cast<uint64_t>(key));
  for (size_t j = 0; j < width; ++j) {
    const uint64_t bits = mix64(stream + (init.first_column + j) * 0xd1342543de82ef95ULL);
    if (init.kind == InitKind::kUniform) {
      row[j] = (2.0f * unit_float(bits) - 1.0f) * init.scale;
    } else {
      const double radius = std::sqrt(-2.0 * std::log(unit_double(bits)));
      const double angle = 6.283185307179586 * unit_double(mix64(bits));
      row[j] = static_cast<float>(radius * std::cos(angle)) * init.scale;
    }
  }
}

}  // namespace hotrow
