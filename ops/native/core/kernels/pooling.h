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

  // Whether pooled values are the rows themselves.
  bool plain() const {
    return combiner == Combiner::kNone || (row_splits == nullptr && weights == nullptr);
  }
  // Outputs: B, or N for kNone.
  size_t outputs() const { return combiner == Combiner::kNone ? keys : samples; }
  size_t begin_of(size_t b) const {
    return row_splits == nullptr ? b : static_cast<size_t>(row_splits[b]);
  }
  float weight(size_t i) const { return weights == nullptr ? 1.0f : weights[i]; }
};

// Fails unless row_splits ascend from 0 to N.
void check_segments(const Segments& segments, const char* feature);

// The divisor of sample b's weighted sum; 0: the sample's output is zeros.
float divisor_of(const Segments& segments, size_t b);

// pooled[b, :] for samples [first, last) of segments that are not plain.
// add(i, factor, out): out (width) += factor * row of key i. divide(d, out): out /= d.
template <typename Add, typename Divide>
void pool(const Segments& segments, size_t first, size_t last, size_t width, float* pooled,
          Add&& add, Divide&& divide) {
  for (size_t b = first; b < last; ++b) {
    float* out = pooled + b * width;
    for (size_t j = 0; j < width; ++j) out[j] = 0.0f;
    const float divisor = divisor_of(segments, b);
    if (divisor == 0.0f) continue;
    const size_t end = segments.begin_of(b + 1);
    for (size_t i = segments.begin_of(b); i < end; ++i) add(i, segments.weight(i), out);
    if (divisor != 1.0f) divide(divisor, out);
  }
}

// The same for rows (U, width) float32; position: (N), the row of each key. For plain segments,
// too.
void pool_rows(const Segments& segments, const float* rows, const int32_t* position, size_t width,
               float* pooled);
// The same for outputs [first, last); rows: (U) pointers to (width); pooled: output 0's.
void pool_rows(const Segments& segments, size_t first, size_t last, const float* const* rows,
               const int32_t* position, size_t width, float* pooled);
// The same for rows (N, width), one for each key.
void pool_rows(const Segments& segments, const float* rows, size_t width, float* pooled);

}  // namespace hotrow
