// Divisors of pooled samples in kernels: divisor_of in kernels/pooling.cc.
#pragma once

#include "core/gpu/kernels/device_code.h"
#include "core/kernels/pooling.h"

namespace hotrow {

// The divisor of a sample with the keys [begin, end); 0: its output is zeros. weights: of all keys,
// or null.
__device__ inline float divisor_of(Combiner combiner, const float* weights, uint32_t begin,
                                   uint32_t end) {
  if (combiner == Combiner::kSum) return 1.0f;
  float total = 0.0f;
  if (weights == nullptr) {
    total = static_cast<float>(end - begin);
  } else if (combiner == Combiner::kMean) {
    for (uint32_t i = begin; i < end; ++i) total += weights[i];
  } else {
    for (uint32_t i = begin; i < end; ++i) total += weights[i] * weights[i];
  }
  return combiner == Combiner::kSqrtn ? sqrtf(total) : total;
}

}  // namespace hotrow
