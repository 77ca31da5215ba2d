// Pooling of looked-up rows over the keys of a sample, and its gradient.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hotrow {

enum class Combiner : int { kNone = 0, kSum = 1, kMean = 2, kSqrtn = 3 };

// One input feature of a fused lookup. N keys, B samples.
// The semantics with weights w are those of tf.nn.embedding_lookup_sparse:
// sum: sum(w r); mean: sum(w r) / sum(w); sqrtn: sum(w r) / sqrt(sum(w^2)); a sample without
// keys, or whose divisor is 0, gives zeros.
struct Segments {
  Combiner combiner = Combiner::kNone;
  size_t keys = 0;                      // N
  size_t samples = 0;                   // B (N for kNone)
  const int64_t* row_splits = nullptr;  // (B + 1), or null: sample b has key b alone
  const float* weights = nullptr;       // (N), or null: all 1
};

// Fails unless row_splits ascend from 0 to N.
void check_segments(const Segments& segments, const char* feature);

// pooled[b, :] for rows[position[i], :], i over the keys of sample b.
// rows: (U, width); position: (N); pooled: (B, width), or (N, width) for kNone.
void pool(const Segments& segments, const float* rows, const int32_t* position, size_t width,
          float* pooled);

// Adds the gradient of the pooled values to that of the rows, in the order of the keys.
// pooled_gradient: as pooled; row_gradient: (U, width), added to.
void pool_gradient(const Segments& segments, const float* pooled_gradient, const int32_t* position,
                   size_t width, float* row_gradient);

}  // namespace hotrow
