#include "core/kernels/finite_lines.h"

#include <cstdint>
#include <cstring>

namespace hotrow {
namespace {

// A value is infinite or NaN if all bits of its exponent are set.
template <typename Bits, Bits kExponent>
bool all_finite(const std::byte* values, size_t count) {
  Bits found = 0;
  for (size_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, values + i * sizeof(bits), sizeof(bits));
    found = static_cast<Bits>(found | ((bits & kExponent) == kExponent ? 1 : 0));
  }
  return found == 0;
}

bool all_finite(RowType type, const std::byte* values, size_t count) {
  switch (type) {
    case RowType::kFloat32:
      return all_finite<uint32_t, 0x7f800000u>(values, count);
    case RowType::kBfloat16:
      return all_finite<uint16_t, 0x7f80u>(values, count);
    case RowType::kFloat16:
      break;
  }
  return all_finite<uint16_t, 0x7c00u>(values, count);
}

}  // namespace

size_t count_nonfinite_lines(const LineLayout& layout, const std::byte* lines, size_t count) {
  const size_t bytes = layout.bytes();
  size_t found = 0;
  for (size_t i = 0; i < count; ++i, lines += bytes) {
    const bool finite =
        all_finite(layout.weights, lines, layout.width) &&
        all_finite(layout.state, lines + layout.state_offset(), layout.vectors * layout.width) &&
        all_finite(RowType::kFloat32, lines + layout.scalars_offset(), layout.scalars);
    found += finite ? 0 : 1;
  }
  return found;
}

}  // namespace hotrow
