// The optimizers of embedding rows. `kernels/kernels.h` applies them.
#pragma once

#include <cstddef>
#include <vector>

#include "core/kernels/row_line.h"

namespace hotrow {

enum class OptimizerKind : int {
  kSgd = 0,
  kMomentum = 1,
  kAdagrad = 2,
  kRowwiseAdagrad = 3,
  kAdam = 4,
  kFtrl = 5,
};

// The step of a row of weights w, in float32, for the summed gradient g of its key:
//   g *= clip_row_norm / |g|          if clip_row_norm > 0 and |g| is larger
//   g += l2 * w
//   w -= learning_rate * weight_decay * w                            (decoupled, as in AdamW)
// and then, with the semantics of Keras' optimizers of the same name:
//   SGD              w -= lr g
//   Momentum         m = momentum m - lr g; w += m; nesterov: w += momentum m - lr g
//   Adagrad          a += g^2; w -= lr g / sqrt(a + epsilon)
//   RowwiseAdagrad   a += mean(g^2), one a row; w -= lr g / sqrt(a + epsilon)
//   Adam             m += (1 - beta_1)(g - m); v += (1 - beta_2)(g^2 - v);
//                    w -= lr sqrt(1 - beta_2^t) / (1 - beta_1^t) m / (sqrt(v) + epsilon)
//                    lazy: a row that is not in the batch keeps m and v. t: the row's own updates
//                    (row_steps, a scalar of the row), or the table's step.
//   FTRL             n' = n + g^2; z += g + 2 l2_shrinkage w - (sqrt(n') - sqrt(n)) / lr w;
//                    w = (clip(z, -l1, l1) - z) / ((sqrt(n') + beta) / lr + 2 ftrl_l2); n = n'
// A step whose weights or state would not all be finite is left out: the row stays as it was.
struct Optimizer {
  OptimizerKind kind = OptimizerKind::kSgd;
  float learning_rate = 0.01f;
  float clip_row_norm = 0.0f;  // 0: no clipping
  float l2 = 0.0f;
  float weight_decay = 0.0f;
  float momentum = 0.9f;             // Momentum
  bool nesterov = false;             // Momentum
  float initial_accumulator = 0.1f;  // Adagrad, RowwiseAdagrad, FTRL (n)
  float epsilon = 1e-7f;             // Adagrad, RowwiseAdagrad, Adam
  double beta_1 = 0.9;               // Adam
  double beta_2 = 0.999;             // Adam
  bool row_steps = true;             // Adam: bias correction by the row's own number of updates
  float l1 = 0.0f;                   // FTRL
  float ftrl_l2 = 0.0f;              // FTRL
  float l2_shrinkage = 0.0f;         // FTRL
  float beta = 0.0f;                 // FTRL

  // State values a weight: Momentum [m], Adagrad [a], Adam [m, v], FTRL [n, z].
  size_t state_vectors() const;
  // State values a row: RowwiseAdagrad [a], Adam with row_steps [t].
  size_t state_scalars() const;
};

}  // namespace hotrow
