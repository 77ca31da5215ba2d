#include "core/kernels/pooling.h"

#include <cmath>
#include <cstring>

#include "core/base/status.h"

namespace hotrow {

float divisor_of(const Segments& s, size_t b) {
  if (s.combiner == Combiner::kSum) return 1.0f;
  const size_t begin = s.begin_of(b), end = s.begin_of(b + 1);
  float total = 0.0f;
  if (s.weights == nullptr) {
    total = static_cast<float>(end - begin);
  } else if (s.combiner == Combiner::kMean) {
    for (size_t i = begin; i < end; ++i) total += s.weights[i];
  } else {
    for (size_t i = begin; i < end; ++i) total += s.weights[i] * s.weights[i];
  }
  return s.combiner == Combiner::kSqrtn ? std::sqrt(total) : total;
}

void check_segments(const Segments& s, const char* feature) {
  if (s.row_splits == nullptr) {
    if (s.samples != s.keys) {
      fail(Code::kInvalidArgument, "feature %s: %zu keys for %zu samples without row_splits",
           feature, s.keys, s.samples);
    }
    return;
  }
  if (s.row_splits[0] != 0 || s.row_splits[s.samples] != static_cast<int64_t>(s.keys)) {
    fail(Code::kInvalidArgument,
         "feature %s: row_splits run from %lld to %lld; must run from 0 to %zu", feature,
         static_cast<long long>(s.row_splits[0]), static_cast<long long>(s.row_splits[s.samples]),
         s.keys);
  }
  for (size_t b = 0; b < s.samples; ++b) {
    if (s.row_splits[b + 1] < s.row_splits[b]) {
      fail(Code::kInvalidArgument, "feature %s: row_splits descend after sample %zu", feature, b);
    }
  }
}

namespace {

// row(i): of key i.
template <typename Row>
void pool_each(const Segments& s, size_t first, size_t last, size_t width, float* pooled,
               Row&& row) {
  if (s.plain()) {
    for (size_t i = first; i < last; ++i) {
      std::memcpy(pooled + i * width, row(i), width * sizeof(float));
    }
    return;
  }
  pool(
      s, first, last, width, pooled,
      [&](size_t i, float factor, float* out) {
        const float* r = row(i);
        if (factor == 1.0f) {
          for (size_t j = 0; j < width; ++j) out[j] += r[j];
        } else {
          for (size_t j = 0; j < width; ++j) out[j] += factor * r[j];
        }
      },
      [&](float divisor, float* out) {
        for (size_t j = 0; j < width; ++j) out[j] /= divisor;
      });
}

}  // namespace

void pool_rows(const Segments& s, const float* rows, const int32_t* position, size_t width,
               float* pooled) {
  pool_each(s, 0, s.outputs(), width, pooled,
            [&](size_t i) { return rows + static_cast<size_t>(position[i]) * width; });
}

void pool_rows(const Segments& s, size_t first, size_t last, const float* const* rows,
               const int32_t* position, size_t width, float* pooled) {
  pool_each(s, first, last, width, pooled,
            [&](size_t i) { return rows[static_cast<size_t>(position[i])]; });
}

void pool_rows(const Segments& s, const float* rows, size_t width, float* pooled) {
  pool_each(s, 0, s.outputs(), width, pooled, [&](size_t i) { return rows + i * width; });
}

}  // namespace hotrow
