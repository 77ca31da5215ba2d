// Optimizers of embedding rows. They work on a row line [weights D | state S].
#pragma once

#include <cstddef>

namespace hotrow {

enum class OptimizerKind : int { kSgd = 0, kAdagrad = 1 };

// The semantics are those of Keras' SGD and Adagrad.
struct Optimizer {
  OptimizerKind kind = OptimizerKind::kSgd;
  float learning_rate = 0.01f;
  float initial_accumulator = 0.1f;  // Adagrad
  float epsilon = 1e-7f;             // Adagrad

  // Floats of state beside a row of `width` weights.
  size_t state_width(size_t width) const { return kind == OptimizerKind::kAdagrad ? width : 0; }
  // state: (state_width)
  void initialize_state(size_t width, float* state) const;
  // line: [weights (width) | state (state_width)], updated; gradient: (width), times scale.
  void update(size_t width, const float* gradient, float scale, float* line) const;
};

}  // namespace hotrow
