#include "core/optimizer.h"

#include <cmath>

namespace hotrow {

void Optimizer::initialize_state(size_t width, float* state) const {
  if (kind != OptimizerKind::kAdagrad) return;
  for (size_t j = 0; j < width; ++j) state[j] = initial_accumulator;
}

void Optimizer::update(size_t width, const float* gradient, float scale, float* line) const {
  if (kind == OptimizerKind::kSgd) {
    for (size_t j = 0; j < width; ++j) line[j] -= learning_rate * (gradient[j] * scale);
    return;
  }
  float* accumulator = line + width;
  for (size_t j = 0; j < width; ++j) {
    const float g = gradient[j] * scale;
    accumulator[j] += g * g;
    line[j] -= (learning_rate * g) / std::sqrt(accumulator[j] + epsilon);
  }
}

}  // namespace hotrow
