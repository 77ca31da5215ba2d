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

// How many rows and gradient rows are prefetched ahead; measured on Zen 4.
constexpr size_t kRowsAhead = 16;
constexpr size_t kGradientsAhead = 24;
constexpr size_t kCacheLine = 64;
// How many columns of a summed gradient fit on the stack: wider rows are updated in pieces.
constexpr size_t kKeptWidth = 1024;

// Prefetches into the L2 cache: it can have more misses in flight than L1.
HOTROW_INLINE void prefetch_byte(const void* at) { __builtin_prefetch(at, 0, 2); }

HOTROW_INLINE void prefetch(const void* from, size_t bytes) {
  const auto* at = static_cast<const char*>(from);
#pragma GCC unroll 16
  for (size_t offset = 0; offset < bytes; offset += kCacheLine) prefetch_byte(at + offset);
  prefetch_byte(at + bytes - 1);
}

// Calls ask(i) once for each i < last, kRowsAhead to 2 * kRowsAhead ahead of u; call it for u =
// first, first + 1, ... One short loop handles many rows, so that their page walks overlap;
// arithmetic in between would serialize them.
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

// kWidth: 0, or the compile-time width when there are no shares.
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

// kWidth: 0, or the compile-time width.
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

}  // namespace
}  // namespace HOTROW_ISA
}  // namespace hotrow

#include "core/kernels/impl_update.h"

namespace hotrow {
namespace HOTROW_ISA {
namespace {

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
  // All is zero, the gap before the scalars too, except the first vector and scalar.
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
