// The kernels of every instruction set of this machine, and stored values as float64.
#pragma once

#include <cstring>
#include <vector>

#include "core/kernels/half.h"
#include "core/kernels/kernels.h"

namespace hotrow {

inline std::vector<const Kernels*> available() {
  std::vector<const Kernels*> found;
  for (const char* name : {"plain", "avx2", "avx512"}) {
    if (const Kernels* kernels = kernels_named(name)) found.push_back(kernels);
  }
  return found;
}

inline double read(RowType type, const std::byte* values, size_t i) {
  if (type == RowType::kFloat32) {
    float value;
    std::memcpy(&value, values + 4 * i, 4);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, values + 2 * i, 2);
  return type == RowType::kBfloat16 ? float_of_bfloat16(half) : float_of_float16(half);
}

inline LineLayout layout_of(const Optimizer& o, size_t width, RowType weights, RowType state) {
  return {width, weights, state, o.state_vectors(), o.state_scalars()};
}

inline UpdateStep step_of(const Optimizer& optimizer, const LineLayout& layout,
                          const std::vector<float>& corrections) {
  UpdateStep step;
  step.optimizer = optimizer;
  step.layout = layout;
  step.learning_rate = 0.05f;
  step.scale = 0.5f;
  step.seed = 2026;
  step.corrections = corrections.data();
  step.corrections_count = corrections.size();
  return step;
}

}  // namespace hotrow
