// The inner loops over row lines: one table of functions for each instruction set, chosen at run
// time. Every instruction set gives the same bits: element-wise arithmetic is IEEE float32 without
// fused multiply-add, and sums across a row run in 16 interleaved lanes, then pairwise. D width of
// a row, U rows, N gradient rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/kernels/optimizer.h"
#include "core/kernels/row_line.h"

namespace hotrow {

// The gradients of U rows. The gradient of row u is the sum, in this order, of shares[i] * rows[i],
// i in [begins[u], begins[u + 1]). A row without gradient rows has gradient 0.
struct RowGradients {
  const float* const* rows = nullptr;  // (N) pointers to (D)
  const float* shares = nullptr;       // (N), or null: all 1
  const uint32_t* begins = nullptr;    // (U + 1)
};

// A step of one table.
struct UpdateStep {
  Optimizer optimizer;
  LineLayout layout;
  float learning_rate = 0.01f;  // of this step
  float scale = 1.0f;           // the summed gradient is multiplied by it first
  uint32_t clock = 0;           // written to the header of each row
  uint64_t seed = 0;            // of stochastic rounding: of the run and the table
  // Adam's sqrt(1 - beta_2^t) / (1 - beta_1^t) for t in [0, corrections_count); 1 for larger t.
  const float* corrections = nullptr;
  size_t corrections_count = 0;
  // When lines hold some columns of longer rows: their first column, and the width of a whole row.
  size_t first_column = 0;
  size_t whole_width = 0;  // 0: lines are whole rows
  // (U) by `measure`, summed over the parts of a row; null: lines are whole rows.
  const float* clip_squares = nullptr;      // of gradients as they came, times scale
  const float* finished_squares = nullptr;  // after the clip, with L2
};

struct Kernels {
  const char* name;  // "plain", "avx2", "avx512"

  // out[i, :] = weights of lines[i] as float32, i < count. lines: (count) pointers to headers.
  // out: (count, D). Prefetches ahead.
  void (*gather)(const LineLayout& layout, const std::byte* const* lines, size_t count, float* out);
  // out (D) += factor * weights; line: a header. Factor 1 adds without multiplication.
  void (*add)(const LineLayout& layout, const std::byte* line, float factor, float* out);
  // out (D) = out / divisor.
  void (*divide)(size_t width, float divisor, float* out);
  // out[u - first, :] = the summed gradient of row u, first <= u < last. Prefetches ahead.
  void (*sum)(const RowGradients& gradients, size_t width, size_t first, size_t last, float* out);
  // Sum of squares of (count) values: 16 float64 lanes.
  double (*squares)(const float* values, size_t count);
  // Sums the gradient of each row u, first <= u < last, updates lines[u] by the optimizer, sets
  // its clock and adds the number of its gradient rows (or counts[u], unless null) to its count.
  // lines: (U) pointers to headers, distinct; prefetched ahead. Lines that are null are skipped.
  // A row whose new weights or state would not all be finite stays as it was, header included;
  // returns how many did.
  size_t (*update)(const UpdateStep& step, const RowGradients& gradients, const uint32_t* counts,
                   size_t first, size_t last, std::byte* const* lines);
  // out[u], first <= u < last: the sum of squares of the gradient that `update` would use for row
  // u, before (finished: after) the clip and L2. 0 for null lines.
  void (*measure)(const UpdateStep& step, const RowGradients& gradients, bool finished,
                  size_t first, size_t last, const std::byte* const* lines, float* out);
  // Writes the state of a new line. weights: (D) float32, rounded to nearest even.
  void (*initialize)(const LineLayout& layout, const Optimizer& optimizer, const float* weights,
                     std::byte* line);
};

// The kernels of the fastest instruction set of this CPU; tests select others by name. Null: the
// CPU lacks that set.
const Kernels& kernels();
const Kernels* kernels_named(const char* name);

}  // namespace hotrow
