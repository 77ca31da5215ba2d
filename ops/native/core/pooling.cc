#include "core/pooling.h"

#include <cmath>
#include <cstring>

#include "core/status.h"

namespace hotrow {
namespace {

// What the weighted sum of sample [begin, end) is divided by; 0 stands for "gives zeros".
float divisor(const Segments& s, size_t begin, size_t end) {
  if (s.combiner == Combiner::kSum) return 1.0f;
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

inline size_t begin_of(const Segments& s, size_t b) {
  return s.row_splits == nullptr ? b : static_cast<size_t>(s.row_splits[b]);
}

}  // namespace

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

void pool(const Segments& s, const float* rows, const int32_t* position, size_t width,
          float* pooled) {
  if (s.combiner == Combiner::kNone) {
    for (size_t i = 0; i < s.keys; ++i) {
      std::memcpy(pooled + i * width, rows + static_cast<size_t>(position[i]) * width,
                  width * sizeof(float));
    }
    return;
  }
  for (size_t b = 0; b < s.samples; ++b) {
    float* out = pooled + b * width;
    const size_t begin = begin_of(s, b), end = begin_of(s, b + 1);
    for (size_t j = 0; j < width; ++j) out[j] = 0.0f;
    const float d = divisor(s, begin, end);
    if (d == 0.0f) continue;
    for (size_t i = begin; i < end; ++i) {
      const float* row = rows + static_cast<size_t>(position[i]) * width;
      if (s.weights == nullptr) {
        for (size_t j = 0; j < width; ++j) out[j] += row[j];
      } else {
        const float w = s.weights[i];
        for (size_t j = 0; j < width; ++j) out[j] += w * row[j];
      }
    }
    if (d != 1.0f) {
      for (size_t j = 0; j < width; ++j) out[j] /= d;
    }
  }
}

void pool_gradient(const Segments& s, const float* pooled_gradient, const int32_t* position,
                   size_t width, float* row_gradient) {
  if (s.combiner == Combiner::kNone) {
    for (size_t i = 0; i < s.keys; ++i) {
      float* out = row_gradient + static_cast<size_t>(position[i]) * width;
      const float* g = pooled_gradient + i * width;
      for (size_t j = 0; j < width; ++j) out[j] += g[j];
    }
    return;
  }
  for (size_t b = 0; b < s.samples; ++b) {
    const size_t begin = begin_of(s, b), end = begin_of(s, b + 1);
    const float d = divisor(s, begin, end);
    if (d == 0.0f) continue;
    const float* g = pooled_gradient + b * width;
    for (size_t i = begin; i < end; ++i) {
      float* out = row_gradient + static_cast<size_t>(position[i]) * width;
      const float share = (s.weights == nullptr ? 1.0f : s.weights[i]) / d;
      for (size_t j = 0; j < width; ++j) out[j] += share * g[j];
    }
  }
}

}  // namespace hotrow
