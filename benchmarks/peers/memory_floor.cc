// What is left of a step when every pointer is known beforehand: the moves of memory and the
// arithmetic, without hashing, probing or TensorFlow. Built and called by memory_floor.py.
// A line is 16 bytes of header, D weights, D accumulators. N lookups, U distinct rows.
#include <xmmintrin.h>

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace {

constexpr size_t kAhead = 16;  // lines
constexpr size_t kHeader = 4;  // floats

// Inlined always: GCC drops calls of a function that does nothing but prefetch.
__attribute__((always_inline)) inline void prefetch(const float* line, size_t floats) {
  for (size_t i = 0; i < floats; i += 16) _mm_prefetch(line + i, _MM_HINT_T0);
}

}  // namespace

extern "C" {

// Touches the first `floats` of lines[places[i]] for first <= i < last: one float of each cache
// line. lines: (R, stride).
float read_lines(const float* lines, size_t stride, size_t floats, const int64_t* places,
                 size_t first, size_t last) {
  float sum = 0;
  for (size_t i = first; i < last; ++i) {
    if (i + kAhead < last) prefetch(lines + places[i + kAhead] * stride, floats);
    const float* line = lines + places[i] * stride;
    for (size_t j = 0; j < floats; j += 16) sum += line[j];
  }
  return sum;
}

// Reads and writes whole lines.
void write_lines(float* lines, size_t stride, const int64_t* places, size_t first, size_t last) {
  for (size_t i = first; i < last; ++i) {
    if (i + kAhead < last) prefetch(lines + places[i + kAhead] * stride, stride);
    float* line = lines + places[i] * stride;
    for (size_t j = 0; j < stride; ++j) line[j] += 1.0f;
  }
}

// out[i, :] = weights of line places[i]. out: (N, D).
void forward(const float* lines, size_t width, const int64_t* places, size_t first, size_t last,
             float* out) {
  const size_t stride = kHeader + 2 * width;
  for (size_t i = first; i < last; ++i) {
    if (i + kAhead < last) prefetch(lines + places[i + kAhead] * stride, kHeader + width);
    const float* line = lines + places[i] * stride + kHeader;
    for (size_t j = 0; j < width; ++j) out[i * width + j] = line[j];
  }
}

// Sums the gradients of each distinct row and applies Adagrad. places: (U); the gradients of
// row u are gradients[order[i], :], begins[u] <= i < begins[u + 1]. D <= 64.
void backward(float* lines, size_t width, const int64_t* places, const int64_t* begins,
              const int64_t* order, const float* gradients, float rate, size_t first, size_t last) {
  const size_t stride = kHeader + 2 * width;
  for (size_t u = first; u < last; ++u) {
    if (u + kAhead < last) {
      prefetch(lines + places[u + kAhead] * stride, stride);
      prefetch(gradients + order[begins[u + kAhead]] * width, width);
    }
    float sum[64] = {};
    for (int64_t i = begins[u]; i < begins[u + 1]; ++i) {
      if (i + 4 < begins[u + 1]) prefetch(gradients + order[i + 4] * width, width);
      const float* g = gradients + order[i] * width;
      for (size_t j = 0; j < width; ++j) sum[j] += g[j];
    }
    float* weights = lines + places[u] * stride + kHeader;
    float* state = weights + width;
    for (size_t j = 0; j < width; ++j) {
      state[j] += sum[j] * sum[j];
      weights[j] -= rate * sum[j] / std::sqrt(state[j] + 1e-7f);
    }
  }
}
}
