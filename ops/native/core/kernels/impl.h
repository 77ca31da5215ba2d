// The kernels of kernels/kernels.h, once for every instruction set: each of kernels/plain.cc,
// kernels/avx2.cc and kernels/avx512.cc includes this file with its own HOTROW_ISA and compiler
// flags. Nothing here may have linkage outside of that file, except `table`: see kernels/lanes.h.
#pragma once

#include "core/kernels/float_mode.h"
#include "core/kernels/half.h"
#include "core/kernels/kernels.h"
#include "core/kernels/lanes.h"
#include "core/kernels/values.h"

namespace hotrow {
namespace HOTROW_ISA {
namespace {

// Rows and gradient rows that are asked for before they are needed; measured on Zen 4.
constexpr size_t kRowsAhead = 16;
constexpr size_t kGradientsAhead = 24;
constexpr size_t kCacheLine = 64;
// Columns whose summed gradient lies on the stack: wider rows are updated in pieces.
constexpr size_t kKeptWidth = 1024;

// Into the second cache: more of these may be in flight than loads into the first.
HOTROW_INLINE void prefetch_byte(const void* at) { __builtin_prefetch(at, 0, 2); }

HOTROW_INLINE void prefetch(const void* from, size_t bytes) {
  const auto* at = static_cast<const char*>(from);
#pragma GCC unroll 16
  for (size_t offset = 0; offset < bytes; offset += kCacheLine) prefetch_byte(at + offset);
  prefetch_byte(at + bytes - 1);
}

// Calls ask(i) for each i < last once, kRowsAhead to 2 * kRowsAhead of them ahead of u; to be
// called for u = first, first + 1, ... One short loop for many rows: so their page walks are under
// way together, which arithmetic in between would keep apart.
template <class Ask>
HOTROW_INLINE void ask_ahead(size_t u, size_t first, size_t last, const Ask& ask) {
  if ((u - first) % kRowsAhead != 0) return;
  const size_t end = u + 2 * kRowsAhead < last ? u + 2 * kRowsAhead : last;
  for (size_t i = u == first ? u : u + kRowsAhead; i < end; ++i) ask(i);
}

template <int kBlocks>
struct Blocks {
  static constexpr int count = kBlocks;
};

// body(Blocks<n>, first column, Whole or Tail) for pieces of n * 16 columns that cover the width.
// kMost: n at most; less code where a piece has much to do.
template <int kMost = 2, class Body>
HOTROW_INLINE void for_columns(size_t width, const Body& body) {
  size_t column = 0;
  for (; column + kMost * kLanes <= width; column += kMost * kLanes) {
    body(Blocks<kMost>(), column, Whole());
  }
  if (column + kLanes <= width) {
    body(Blocks<1>(), column, Whole());
    column += kLanes;
  }
  if (column < width) body(Blocks<1>(), column, Tail{width - column});
}

// ---- Sums ----

// The gradient of one row: sum of shares[i] * rows[i], begin <= i < end.
struct Gradient {
  const float* const* rows;
  const float* shares;
  size_t begin, end;
  size_t last;  // rows before it may be prefetched
  size_t width;
};

// out[b]: columns [column + 16 b, column + 16 b + 16) of the sum.
template <int kBlocks, class Extent>
HOTROW_INLINE void sum_columns(const Gradient& gradient, size_t column, Extent extent,
                               Floats (&out)[kBlocks]) {
  if (gradient.begin == gradient.end) {
    for (int b = 0; b < kBlocks; ++b) out[b] = all(0.0f);
    return;
  }
  const auto term = [&](size_t i, int b) __attribute__((always_inline)) {
    const Floats x = load(gradient.rows[i] + column + b * kLanes, extent);
    return gradient.shares == nullptr ? x : x * all(gradient.shares[i]);
  };
  const auto ask = [&](size_t i) __attribute__((always_inline)) {
    if (column == 0 && i + kGradientsAhead < gradient.last) {
      prefetch(gradient.rows[i + kGradientsAhead], gradient.width * sizeof(float));
    }
  };
  ask(gradient.begin);
  for (int b = 0; b < kBlocks; ++b) out[b] = term(gradient.begin, b);
  for (size_t i = gradient.begin + 1; i < gradient.end; ++i) {
    ask(i);
    for (int b = 0; b < kBlocks; ++b) out[b] = out[b] + term(i, b);
  }
}

// kWidth: 0, or the width when there are no shares, which the compiler then knows.
template <size_t kWidth>
void sum_rows(const RowGradients& gradients, size_t any_width, size_t first, size_t last,
              float* out) {
  const IeeeFloatMode mode;
  const size_t width = kWidth != 0 ? kWidth : any_width;
  const float* const* const rows = gradients.rows;
  const float* const shares = kWidth != 0 ? nullptr : gradients.shares;
  const uint32_t* const begins = gradients.begins;
  const size_t rows_end = begins[last];
  for (size_t u = first; u < last; ++u, out += width) {
    const Gradient gradient{rows, shares, begins[u], begins[u + 1], rows_end, width};
    for_columns(width, [&](auto blocks, size_t column, auto extent) __attribute__((always_inline)) {
      Floats g[blocks.count];
      sum_columns(gradient, column, extent, g);
      for (int b = 0; b < blocks.count; ++b) store(out + column + b * kLanes, g[b], extent);
    });
  }
}

void sum(const RowGradients& gradients, size_t width, size_t first, size_t last, float* out) {
  if (gradients.shares == nullptr) {
    switch (width) {
      case 8:
        return sum_rows<8>(gradients, width, first, last, out);
      case 16:
        return sum_rows<16>(gradients, width, first, last, out);
      case 32:
        return sum_rows<32>(gradients, width, first, last, out);
      case 64:
        return sum_rows<64>(gradients, width, first, last, out);
      case 128:
        return sum_rows<128>(gradients, width, first, last, out);
    }
  }
  sum_rows<0>(gradients, width, first, last, out);
}

double squares(const float* values, size_t count) {
  const IeeeFloatMode mode;
  double lane[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) {
      lane[l] += static_cast<double>(values[i + l]) * static_cast<double>(values[i + l]);
    }
  }
  for (size_t l = 0; i + l < count; ++l) {
    lane[l] += static_cast<double>(values[i + l]) * static_cast<double>(values[i + l]);
  }
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t l = 0; l < half; ++l) lane[l] += lane[l + half];
  }
  return lane[0];
}

// ---- Reading rows ----

HOTROW_INLINE const std::byte* weights_of(const std::byte* line) {
  return line + sizeof(RowHeader);
}

// kWidth: 0, or the width, which the compiler then knows.
template <RowType kType, size_t kWidth>
void gather_rows(size_t any_width, const std::byte* const* lines, size_t count, float* out) {
  const size_t width = kWidth != 0 ? kWidth : any_width;
  const size_t bytes = width * (kType == RowType::kFloat32 ? 4 : 2);
  for (size_t i = 0; i < count; ++i, out += width) {
    ask_ahead(i, 0, count, [&](size_t v) __attribute__((always_inline)) {
      prefetch(weights_of(lines[v]), bytes);
    });
    const std::byte* weights = weights_of(lines[i]);
    for_columns(width, [&](auto blocks, size_t column, auto extent) __attribute__((always_inline)) {
      for (int b = 0; b < blocks.count; ++b) {
        const size_t at = column + b * kLanes;
        store(out + at, load_values<kType>(weights, at, extent), extent);
      }
    });
  }
}

template <RowType kType>
void gather_width(size_t width, const std::byte* const* lines, size_t count, float* out) {
  switch (width) {
    case 8:
      return gather_rows<kType, 8>(width, lines, count, out);
    case 16:
      return gather_rows<kType, 16>(width, lines, count, out);
    case 32:
      return gather_rows<kType, 32>(width, lines, count, out);
    case 64:
      return gather_rows<kType, 64>(width, lines, count, out);
    case 128:
      return gather_rows<kType, 128>(width, lines, count, out);
  }
  gather_rows<kType, 0>(width, lines, count, out);
}

template <RowType kType>
void add_row(size_t width, const std::byte* weights, float factor, float* out) {
  const bool times = factor != 1.0f;
  for_columns(width, [&](auto blocks, size_t column, auto extent) __attribute__((always_inline)) {
    for (int b = 0; b < blocks.count; ++b) {
      const size_t at = column + b * kLanes;
      Floats w = load_values<kType>(weights, at, extent);
      if (times) w = w * all(factor);
      store(out + at, load(out + at, extent) + w, extent);
    }
  });
}

void gather(const LineLayout& layout, const std::byte* const* lines, size_t count, float* out) {
  switch (layout.weights) {
    case RowType::kFloat32:
      return gather_width<RowType::kFloat32>(layout.width, lines, count, out);
    case RowType::kBfloat16:
      return gather_width<RowType::kBfloat16>(layout.width, lines, count, out);
    case RowType::kFloat16:
      return gather_width<RowType::kFloat16>(layout.width, lines, count, out);
  }
}

void add(const LineLayout& layout, const std::byte* line, float factor, float* out) {
  const std::byte* weights = weights_of(line);
  switch (layout.weights) {
    case RowType::kFloat32:
      return add_row<RowType::kFloat32>(layout.width, weights, factor, out);
    case RowType::kBfloat16:
      return add_row<RowType::kBfloat16>(layout.width, weights, factor, out);
    case RowType::kFloat16:
      return add_row<RowType::kFloat16>(layout.width, weights, factor, out);
  }
}

void divide(size_t width, float divisor, float* out) {
  for_columns(width, [&](auto blocks, size_t column, auto extent) __attribute__((always_inline)) {
    for (int b = 0; b < blocks.count; ++b) {
      const size_t at = column + b * kLanes;
      store(out + at, load(out + at, extent) / all(divisor), extent);
    }
  });
}

// ---- Optimizers ----

// The numbers of an UpdateStep as the inner loop wants them.
struct Numbers {
  // plain: the options that all rows share are off.
  Numbers(const UpdateStep& step, bool plain)
      : rate(step.learning_rate),
        inverse_rate(1.0f / step.learning_rate),
        scale(step.scale),
        clip(plain ? 0.0f : step.optimizer.clip_row_norm),
        l2(plain ? 0.0f : step.optimizer.l2),
        decay(plain ? 0.0f : step.learning_rate * step.optimizer.weight_decay),
        momentum(step.optimizer.momentum),
        nesterov(step.optimizer.nesterov),
        epsilon(step.optimizer.epsilon),
        // From double: 1 - 0.999f is off by 5e-5 of itself.
        rest_1(static_cast<float>(1.0 - step.optimizer.beta_1)),
        rest_2(static_cast<float>(1.0 - step.optimizer.beta_2)),
        l1(step.optimizer.l1),
        twice_l2(2.0f * step.optimizer.ftrl_l2),
        twice_shrinkage(2.0f * step.optimizer.l2_shrinkage),
        beta(step.optimizer.beta) {}

  float rate, inverse_rate, scale, clip, l2, decay;
  float momentum;
  bool nesterov;
  float epsilon;
  float rest_1, rest_2;  // 1 - beta_1, 1 - beta_2
  float l1, twice_l2, twice_shrinkage, beta;
};

// One row while it is updated.
struct Row {
  std::byte* weights;
  std::byte* state[2];  // vectors
  size_t width;
  size_t position;  // in the line, of the first of the weights
  uint64_t stream;  // of random bits
  float scale;      // of the summed gradient
  float clip;       // and then of the scaled one; 1: none
  float rate;       // RowwiseAdagrad: lr / sqrt(a + epsilon); Adam: lr times its correction
  RowType weights_type, state_type;
};

constexpr size_t value_bytes(RowType type) { return type == RowType::kFloat32 ? 4 : 2; }

// The gradient as the optimizer sees it, from the sum g and the weights w.
HOTROW_INLINE Floats finished(const Numbers& n, const Row& row, Floats g, const Floats& w) {
  g = g * all(row.scale);
  if (row.clip != 1.0f) g = g * all(row.clip);
  if (n.l2 != 0.0f) g = g + all(n.l2) * w;
  return g;
}

template <OptimizerKind kKind, class Extent>
HOTROW_INLINE void apply(const Numbers& n, const Row& row, size_t column, Extent extent,
                         const Floats& g, Floats& w) {
  const auto read = [&](int k) __attribute__((always_inline)) {
    return load_values(row.state_type, row.state[k], column, extent);
  };
  const auto write = [&](int k, const Floats& a) __attribute__((always_inline)) {
    store_stochastic(row.state_type, row.state[k], column, a, extent, row.stream,
                     (k + 1) * row.width + row.position + column);
  };
  if constexpr (kKind == OptimizerKind::kSgd) {
    w = w - all(n.rate) * g;
  } else if constexpr (kKind == OptimizerKind::kMomentum) {
    const Floats descent = all(n.rate) * g;
    const Floats m = all(n.momentum) * read(0) - descent;
    w = n.nesterov ? w + (all(n.momentum) * m - descent) : w + m;
    write(0, m);
  } else if constexpr (kKind == OptimizerKind::kAdagrad) {
    const Floats a = read(0) + g * g;
    w = w - (all(n.rate) * g) / square_root(a + all(n.epsilon));
    write(0, a);
  } else if constexpr (kKind == OptimizerKind::kRowwiseAdagrad) {
    w = w - all(row.rate) * g;
  } else if constexpr (kKind == OptimizerKind::kAdam) {
    Floats m = read(0), v = read(1);
    m = m + all(n.rest_1) * (g - m);
    v = v + all(n.rest_2) * (g * g - v);
    w = w - (all(row.rate) * m) / (square_root(v) + all(n.epsilon));
    write(0, m);
    write(1, v);
  } else {
    const Floats old_n = read(0), new_n = old_n + g * g, root = square_root(new_n);
    const Floats z = read(1) + (g + all(n.twice_shrinkage) * w -
                                (root - square_root(old_n)) * all(n.inverse_rate) * w);
    const Floats low = select_less(z, all(-n.l1), all(-n.l1), z);
    const Floats clipped = select_less(all(n.l1), low, all(n.l1), low);
    const Floats divisor = (root + all(n.beta)) * all(n.inverse_rate) + all(n.twice_l2);
    // A weight that never had a gradient, with n = 0, stays.
    w = select_equal(divisor, all(0.0f), w, (clipped - z) / divisor);
    write(0, new_n);
    write(1, z);
  }
}

// Where the gradient of a row comes from: sums of gradient rows, or such a sum that was kept.
struct Kept {
  const float* sums;
};
template <int kBlocks, class Extent>
HOTROW_INLINE void sum_columns(const Kept& kept, size_t column, Extent extent,
                               Floats (&out)[kBlocks]) {
  for (int b = 0; b < kBlocks; ++b) out[b] = load(kept.sums + column + b * kLanes, extent);
}

template <OptimizerKind kKind, int kMost, class Source>
HOTROW_INLINE void update_columns(const Numbers& n, const Row& row, size_t width,
                                  const Source& source) {
  for_columns<kMost>(width, [&](auto blocks, size_t column,
                                auto extent) __attribute__((always_inline)) {
    Floats g[blocks.count];
    sum_columns(source, column, extent, g);
    for (int b = 0; b < blocks.count; ++b) {
      const size_t at = column + b * kLanes;
      Floats w = load_values(row.weights_type, row.weights, at, extent);
      g[b] = finished(n, row, g[b], w);
      if (n.decay != 0.0f) w = w - all(n.decay) * w;
      apply<kKind>(n, row, at, extent, g[b], w);
      store_stochastic(row.weights_type, row.weights, at, w, extent, row.stream, row.position + at);
    }
  });
}

// Adds the squares of the finished gradient.
template <int kMost, class Source>
HOTROW_INLINE void add_squares(const Numbers& n, const Row& row, size_t width, const Source& source,
                               Floats& total) {
  for_columns<kMost>(width,
                     [&](auto blocks, size_t column, auto extent) __attribute__((always_inline)) {
                       Floats g[blocks.count];
                       sum_columns(source, column, extent, g);
                       for (int b = 0; b < blocks.count; ++b) {
                         const size_t at = column + b * kLanes;
                         const Floats w = load_values(row.weights_type, row.weights, at, extent);
                         g[b] = finished(n, row, g[b], w);
                         total = total + g[b] * g[b];
                       }
                     });
}

// kept (columns) = columns [first, first + columns) of the sum.
__attribute__((noinline)) void keep(const Gradient& gradient, size_t first, size_t columns,
                                    float* kept) {
  for_columns(columns, [&](auto blocks, size_t column, auto extent) __attribute__((always_inline)) {
    Floats g[blocks.count];
    sum_columns(gradient, first + column, extent, g);
    for (int b = 0; b < blocks.count; ++b) store(kept + column + b * kLanes, g[b], extent);
  });
}

// Sum of squares of the finished gradient; its pieces go through kept. whole: kept has all of it.
__attribute__((noinline)) float measure(const Numbers& n, Row row, const Gradient& gradient,
                                        float* kept, bool whole) {
  Floats total = all(0.0f);
  for (size_t first = 0; first < gradient.width; first += kKeptWidth) {
    const size_t rest = gradient.width - first, columns = rest < kKeptWidth ? rest : kKeptWidth;
    if (!whole) keep(gradient, first, columns, kept);
    add_squares<1>(n, row, columns, Kept{kept}, total);
    row.weights += columns * value_bytes(row.weights_type);
  }
  return sum_of(total);
}

// Optimizer::state_vectors and the most that state_scalars is, for the compiler.
constexpr size_t vectors_of(OptimizerKind kind) {
  if (kind == OptimizerKind::kAdam || kind == OptimizerKind::kFtrl) return 2;
  return kind == OptimizerKind::kMomentum || kind == OptimizerKind::kAdagrad ? 1 : 0;
}
constexpr size_t scalars_of(OptimizerKind kind) {
  return kind == OptimizerKind::kAdam || kind == OptimizerKind::kRowwiseAdagrad ? 1 : 0;
}

// kWidth: 0, or the width of float32 rows without clip, L2, decay and shares, which the compiler
// then knows.
template <OptimizerKind kKind, size_t kWidth>
void update_rows(const UpdateStep& step, const RowGradients& gradients, const uint32_t* counts,
                 size_t first, size_t last, std::byte* const* lines) {
  const IeeeFloatMode mode;
  const Numbers n(step, kWidth != 0);
  Numbers without_l2 = n;  // what the clip measures
  without_l2.l2 = 0.0f;
  const size_t width = kWidth != 0 ? kWidth : step.layout.width;
  const size_t state_offset = kWidth != 0 ? kWidth * 4 : step.layout.state_offset();
  const RowType weights_type = kWidth != 0 ? RowType::kFloat32 : step.layout.weights;
  const RowType state_type = kWidth != 0 ? RowType::kFloat32 : step.layout.state;
  const size_t vector_bytes = width * value_bytes(state_type);
  constexpr size_t kVectors = vectors_of(kKind), kScalars = scalars_of(kKind);
  const size_t scalars_offset =
      kWidth != 0 ? kWidth * 4 * (1 + kVectors) : step.layout.scalars_offset();
  const float* const* const rows = gradients.rows;
  const float* const shares = kWidth != 0 ? nullptr : gradients.shares;
  const uint32_t* const begins = gradients.begins;
  const size_t rows_end = begins[last];
  const uint32_t clock = step.clock;
  const float* const corrections = step.corrections;
  const size_t corrections_count = step.corrections_count;
  const bool row_steps = step.optimizer.row_steps;
  alignas(kCacheLine) float kept[kKeptWidth];
  for (size_t u = first; u < last; ++u) {
    ask_ahead(u, first, last, [&](size_t v) __attribute__((always_inline)) {
      if (lines[v] == nullptr) return;
      prefetch(lines[v], sizeof(RowHeader) + scalars_offset + sizeof(float) * kScalars);
    });
    std::byte* const line = lines[u];
    if (line == nullptr) continue;
    const Gradient gradient{rows, shares, begins[u], begins[u + 1], rows_end, width};
    RowHeader header;
    memcpy(&header, line, sizeof(header));
    header.clock = clock;
    const uint64_t count =
        uint64_t{header.count} + (counts != nullptr ? counts[u] : gradient.end - gradient.begin);
    header.count = count < UINT32_MAX ? static_cast<uint32_t>(count) : UINT32_MAX;
    memcpy(line, &header, sizeof(header));

    Row row;
    row.weights = line + sizeof(RowHeader);
    row.state[0] = row.weights + state_offset;
    row.state[1] = row.state[0] + vector_bytes;
    row.width = step.whole_width != 0 ? step.whole_width : width;
    row.position = step.first_column;
    row.weights_type = weights_type;
    row.state_type = state_type;
    row.stream = 0;
    if (weights_type != RowType::kFloat32 || state_type != RowType::kFloat32) {
      row.stream = rounding_stream(step.seed, header.key, clock);
    }
    row.scale = n.scale;
    row.clip = 1.0f;
    row.rate = n.rate;
    std::byte* const scalar = row.weights + scalars_offset;

    bool whole = false;
    if constexpr (kWidth == 0) {
      if (n.clip > 0.0f) {
        float squares;
        if (step.clip_squares != nullptr) {
          squares = step.clip_squares[u];
        } else {
          squares = measure(without_l2, row, gradient, kept, whole);
          whole = width <= kKeptWidth;
        }
        const float norm = __builtin_sqrtf(squares);
        if (norm > n.clip) row.clip = n.clip / norm;
      }
    }
    if constexpr (kKind == OptimizerKind::kRowwiseAdagrad) {
      float a, total;
      if constexpr (kWidth == 0) {
        if (step.finished_squares != nullptr) {
          total = step.finished_squares[u];
        } else {
          total = measure(n, row, gradient, kept, whole);
          whole = width <= kKeptWidth;
        }
      } else {
        Floats squares = all(0.0f);
        add_squares<2>(n, row, width, gradient, squares);
        total = sum_of(squares);
      }
      memcpy(&a, scalar, sizeof(a));
      a += total / static_cast<float>(row.width);
      memcpy(scalar, &a, sizeof(a));
      row.rate = n.rate / __builtin_sqrtf(a + n.epsilon);
    }
    if constexpr (kKind == OptimizerKind::kAdam) {
      size_t t = clock;
      if (row_steps) {
        float updates;
        memcpy(&updates, scalar, sizeof(updates));
        updates += 1.0f;  // stops at 2^24, where the correction has long been 1
        memcpy(scalar, &updates, sizeof(updates));
        t = static_cast<size_t>(updates);
      }
      if (t < corrections_count) row.rate = n.rate * corrections[t];
    }
    if constexpr (kWidth != 0) {
      update_columns<kKind, 2>(n, row, width, gradient);
    } else {
      for (size_t column = 0; column < width; column += kKeptWidth) {
        const size_t rest = width - column, columns = rest < kKeptWidth ? rest : kKeptWidth;
        if (!whole) keep(gradient, column, columns, kept);
        update_columns<kKind, 1>(n, row, columns, Kept{kept});
        row.weights += columns * value_bytes(weights_type);
        row.state[0] += columns * value_bytes(state_type);
        row.state[1] += columns * value_bytes(state_type);
        row.position += columns;
      }
    }
  }
}

using Update = decltype(Kernels::update);

// Null unless there is one for this width.
template <OptimizerKind kKind>
Update update_of_width(size_t width) {
  switch (width) {
    case 8:
      return update_rows<kKind, 8>;
#if !defined(HOTROW_ONE_WIDTH)
    case 16:
      return update_rows<kKind, 16>;
    case 32:
      return update_rows<kKind, 32>;
    case 64:
      return update_rows<kKind, 64>;
    case 128:
      return update_rows<kKind, 128>;
#endif
  }
  return nullptr;
}

template <OptimizerKind kKind>
Update update_of(const UpdateStep& step, bool shares) {
  const LineLayout& layout = step.layout;
  const bool plain = layout.weights == RowType::kFloat32 && layout.state == RowType::kFloat32 &&
                     !shares && !(step.optimizer.clip_row_norm > 0.0f) &&
                     step.optimizer.l2 == 0.0f && step.optimizer.weight_decay == 0.0f &&
                     step.finished_squares == nullptr;
  if constexpr (kKind == OptimizerKind::kAdagrad || kKind == OptimizerKind::kRowwiseAdagrad ||
                kKind == OptimizerKind::kAdam) {
    const Update update = plain ? update_of_width<kKind>(layout.width) : nullptr;
    if (update != nullptr) return update;
  }
  return update_rows<kKind, 0>;
}

void update(const UpdateStep& step, const RowGradients& gradients, const uint32_t* counts,
            size_t first, size_t last, std::byte* const* lines) {
  const bool shares = gradients.shares != nullptr;
  Update chosen = update_of<OptimizerKind::kSgd>(step, shares);
  switch (step.optimizer.kind) {
    case OptimizerKind::kSgd:
      break;
    case OptimizerKind::kMomentum:
      chosen = update_of<OptimizerKind::kMomentum>(step, shares);
      break;
    case OptimizerKind::kAdagrad:
      chosen = update_of<OptimizerKind::kAdagrad>(step, shares);
      break;
    case OptimizerKind::kRowwiseAdagrad:
      chosen = update_of<OptimizerKind::kRowwiseAdagrad>(step, shares);
      break;
    case OptimizerKind::kAdam:
      chosen = update_of<OptimizerKind::kAdam>(step, shares);
      break;
    case OptimizerKind::kFtrl:
      chosen = update_of<OptimizerKind::kFtrl>(step, shares);
      break;
  }
  chosen(step, gradients, counts, first, last, lines);
}

// ---- Squares of gradients, of rows whose columns lie in several places ----

void measure_any(const UpdateStep& step, const RowGradients& gradients, bool is_finished,
                 size_t first, size_t last, const std::byte* const* lines, float* out) {
  const IeeeFloatMode mode;
  Numbers n(step, false);
  if (!is_finished) n.l2 = 0.0f;
  const size_t width = step.layout.width;
  alignas(kCacheLine) float kept[kKeptWidth];
  for (size_t u = first; u < last; ++u) {
    out[u] = 0.0f;
    if (lines[u] == nullptr) continue;
    const Gradient gradient{gradients.rows,          gradients.shares,       gradients.begins[u],
                            gradients.begins[u + 1], gradients.begins[last], width};
    Row row{};
    row.weights = const_cast<std::byte*>(lines[u]) + sizeof(RowHeader);
    row.weights_type = step.layout.weights;
    row.scale = n.scale;
    row.clip = 1.0f;
    if (is_finished && n.clip > 0.0f) {
      const float norm = __builtin_sqrtf(step.clip_squares[u]);
      if (norm > n.clip) row.clip = n.clip / norm;
    }
    out[u] = measure(n, row, gradient, kept, false);
  }
}

// ---- New lines ----

template <RowType kType>
void fill(std::byte* values, size_t width, float value) {
  for_columns(width, [&](auto blocks, size_t column, auto extent) __attribute__((always_inline)) {
    for (int b = 0; b < blocks.count; ++b) {
      store_nearest<kType>(values, column + b * kLanes, all(value), extent);
    }
  });
}

template <RowType kType>
void write(std::byte* values, size_t width, const float* from) {
  for_columns(width, [&](auto blocks, size_t column, auto extent) __attribute__((always_inline)) {
    for (int b = 0; b < blocks.count; ++b) {
      const size_t at = column + b * kLanes;
      store_nearest<kType>(values, at, load(from + at, extent), extent);
    }
  });
}

void initialize(const LineLayout& layout, const Optimizer& optimizer, const float* weights,
                std::byte* line) {
  const IeeeFloatMode mode;
  const size_t width = layout.width;
  const auto first = optimizer.kind == OptimizerKind::kAdagrad ||
                             optimizer.kind == OptimizerKind::kRowwiseAdagrad ||
                             optimizer.kind == OptimizerKind::kFtrl
                         ? optimizer.initial_accumulator
                         : 0.0f;
  std::byte* const values = line + sizeof(RowHeader);
  switch (layout.weights) {
    case RowType::kFloat32:
      write<RowType::kFloat32>(values, width, weights);
      break;
    case RowType::kBfloat16:
      write<RowType::kBfloat16>(values, width, weights);
      break;
    case RowType::kFloat16:
      write<RowType::kFloat16>(values, width, weights);
      break;
  }
  // All else is zero, the gap before the scalars too, but for the first vector and scalar.
  memset(values + layout.state_offset(), 0, layout.bytes() - layout.state_offset());
  if (first == 0.0f) return;
  if (layout.vectors > 0) {
    std::byte* const state = values + layout.state_offset();
    if (layout.state == RowType::kFloat32) fill<RowType::kFloat32>(state, width, first);
    if (layout.state == RowType::kBfloat16) fill<RowType::kBfloat16>(state, width, first);
    if (layout.state == RowType::kFloat16) fill<RowType::kFloat16>(state, width, first);
  } else if (layout.scalars > 0) {
    memcpy(values + layout.scalars_offset(), &first, sizeof(first));
  }
}

}  // namespace

extern const Kernels table;
const Kernels table = {HOTROW_ISA_NAME, gather, add,         divide,    sum,
                       squares,         update, measure_any, initialize};

}  // namespace HOTROW_ISA
}  // namespace hotrow
