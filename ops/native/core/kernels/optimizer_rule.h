// The update rule of each optimizer, shared by lanes of a CPU (kernels/impl_update.h) and CUDA
// threads (gpu/kernels/update.cu). Lanes: a type `Value` and the operations that it has no operator
// for. All of this is inlined, so that the linker cannot use one instruction set's code for
// another's.
#pragma once

#include <cstdint>

#include "core/base/hash.h"
#include "core/kernels/kernels.h"

namespace hotrow {

#define HOTROW_RULE HOTROW_HD inline __attribute__((always_inline))

// The numbers of an UpdateStep in the form that the inner loops need.
struct UpdateNumbers {
  float rate, inverse_rate, scale, clip, l2, decay;
  float momentum, epsilon;
  float rest_1, rest_2;  // 1 - beta_1, 1 - beta_2
  float l1, twice_l2, twice_shrinkage, beta;
  uint32_t nesterov, row_steps;
};

// plain: the options that all rows share are off.
inline __attribute__((always_inline)) UpdateNumbers update_numbers(const UpdateStep& step,
                                                                   bool plain) {
  const Optimizer& o = step.optimizer;
  UpdateNumbers n;
  n.rate = step.learning_rate;
  n.inverse_rate = 1.0f / step.learning_rate;
  n.scale = step.scale;
  n.clip = plain ? 0.0f : o.clip_row_norm;
  n.l2 = plain ? 0.0f : o.l2;
  n.decay = plain ? 0.0f : step.learning_rate * o.weight_decay;
  n.momentum = o.momentum;
  n.epsilon = o.epsilon;
  // From double: 1 - 0.999f is off by 5e-5 of itself.
  n.rest_1 = static_cast<float>(1.0 - o.beta_1);
  n.rest_2 = static_cast<float>(1.0 - o.beta_2);
  n.l1 = o.l1;
  n.twice_l2 = 2.0f * o.ftrl_l2;
  n.twice_shrinkage = 2.0f * o.l2_shrinkage;
  n.beta = o.beta;
  n.nesterov = o.nesterov ? 1 : 0;
  n.row_steps = o.row_steps ? 1 : 0;
  return n;
}

// Optimizer::state_vectors and the maximum of state_scalars, at compile time.
HOTROW_HD constexpr int vectors_of(OptimizerKind kind) {
  if (kind == OptimizerKind::kAdam || kind == OptimizerKind::kFtrl) return 2;
  return kind == OptimizerKind::kMomentum || kind == OptimizerKind::kAdagrad ? 1 : 0;
}
HOTROW_HD constexpr int scalars_of(OptimizerKind kind) {
  return kind == OptimizerKind::kAdam || kind == OptimizerKind::kRowwiseAdagrad ? 1 : 0;
}

// The gradient that the optimizer uses, from the sum g and the weights w. clip: a factor; 1: none.
template <class Lanes>
HOTROW_RULE typename Lanes::Value finished_gradient(float scale, float clip, float l2,
                                                    typename Lanes::Value g,
                                                    const typename Lanes::Value& w) {
  g = g * Lanes::all(scale);
  if (clip != 1.0f) g = g * Lanes::all(clip);
  if (l2 != 0.0f) g = g + Lanes::all(l2) * w;
  return g;
}

// Applies kernels/optimizer.h to weights w with state a, b, as far as the optimizer has state.
// rate: the row's, for RowwiseAdagrad and Adam.
template <OptimizerKind kKind, class Lanes>
HOTROW_RULE void apply_rule(const UpdateNumbers& n, float rate, const typename Lanes::Value& g,
                            typename Lanes::Value& w, typename Lanes::Value& a,
                            typename Lanes::Value& b) {
  using Value = typename Lanes::Value;
  if constexpr (kKind == OptimizerKind::kSgd) {
    w = w - Lanes::all(n.rate) * g;
  } else if constexpr (kKind == OptimizerKind::kMomentum) {
    const Value descent = Lanes::all(n.rate) * g;
    a = Lanes::all(n.momentum) * a - descent;
    w = n.nesterov != 0 ? w + (Lanes::all(n.momentum) * a - descent) : w + a;
  } else if constexpr (kKind == OptimizerKind::kAdagrad) {
    a = a + g * g;
    w = w - (Lanes::all(n.rate) * g) / Lanes::square_root(a + Lanes::all(n.epsilon));
  } else if constexpr (kKind == OptimizerKind::kRowwiseAdagrad) {
    w = w - Lanes::all(rate) * g;
  } else if constexpr (kKind == OptimizerKind::kAdam) {
    a = a + Lanes::all(n.rest_1) * (g - a);
    b = b + Lanes::all(n.rest_2) * (g * g - b);
    w = w - (Lanes::all(rate) * a) / (Lanes::square_root(b) + Lanes::all(n.epsilon));
  } else {
    const Value new_n = a + g * g, root = Lanes::square_root(new_n);
    b = b + (g + Lanes::all(n.twice_shrinkage) * w -
             (root - Lanes::square_root(a)) * Lanes::all(n.inverse_rate) * w);
    const Value low = Lanes::select_less(b, Lanes::all(-n.l1), Lanes::all(-n.l1), b);
    const Value clipped = Lanes::select_less(Lanes::all(n.l1), low, Lanes::all(n.l1), low);
    const Value divisor =
        (root + Lanes::all(n.beta)) * Lanes::all(n.inverse_rate) + Lanes::all(n.twice_l2);
    // A weight that never had a gradient, with n = 0, does not change.
    w = Lanes::select_equal(divisor, Lanes::all(0.0f), w, (clipped - b) / divisor);
    a = new_n;
  }
}

}  // namespace hotrow
