// The update of rows and the squares of their gradients: a part of kernels/impl.h, which includes
// it.
#pragma once

#include <new>

#include "core/kernels/optimizer_rule.h"

namespace hotrow {
namespace HOTROW_ISA {
namespace {

// kernels/optimizer_rule.h for sixteen columns at once.
struct SixteenLanes {
  using Value = Floats;
  static HOTROW_INLINE Floats all(float value) { return HOTROW_ISA::all(value); }
  static HOTROW_INLINE Floats square_root(const Floats& a) { return HOTROW_ISA::square_root(a); }
  static HOTROW_INLINE Floats select_less(const Floats& a, const Floats& b, const Floats& yes,
                                          const Floats& no) {
    return HOTROW_ISA::select_less(a, b, yes, no);
  }
  static HOTROW_INLINE Floats select_equal(const Floats& a, const Floats& b, const Floats& yes,
                                           const Floats& no) {
    return HOTROW_ISA::select_equal(a, b, yes, no);
  }
};

// One row while it is updated.
struct Row {
  std::byte* weights;
  std::byte* state[2];  // vectors
  size_t width;
  size_t position;  // in the line, of the first of the weights
  uint64_t stream;  // of random bits
  float clip;       // of the scaled gradient; 1: none
  float rate;       // RowwiseAdagrad: lr / sqrt(a + epsilon); Adam: lr times its correction
  RowType weights_type, state_type;
};

constexpr size_t value_bytes(RowType type) { return type == RowType::kFloat32 ? 4 : 2; }

HOTROW_INLINE Floats finished(const UpdateNumbers& n, const Row& row, const Floats& g,
                              const Floats& w) {
  return finished_gradient<SixteenLanes>(n.scale, row.clip, n.l2, g, w);
}

// The bytes of a row's weights and vectors as they were, for rows that must not be written; as
// float32, two 16-bit values in one. kFloats: of a row; 0: known at run time.
template <size_t kFloats>
class OldValues {
 public:
  explicit OldValues(size_t floats) : floats_(kFloats != 0 ? kFloats : floats) {
    if (floats_ > kRoom) memory_ = static_cast<float*>(::operator new(floats_ * sizeof(float)));
  }
  ~OldValues() {
    if (memory_ != values_) ::operator delete(memory_);
  }
  OldValues(const OldValues&) = delete;
  OldValues& operator=(const OldValues&) = delete;

  HOTROW_INLINE void take(const std::byte* line) {
    copy(reinterpret_cast<const float*>(line), memory_);
  }
  float* data() { return memory_; }
  HOTROW_INLINE void give_back(std::byte* line) const {
    copy(memory_, reinterpret_cast<float*>(line));
  }

 private:
  static constexpr size_t kRoom = kFloats != 0 ? kFloats : kKeptWidth;

  HOTROW_INLINE void copy(const float* from, float* to) const {
    for_columns<1>(kFloats != 0 ? kFloats : floats_,
                   [&](auto, size_t column, auto extent) __attribute__((always_inline)) {
                     store(to + column, load(from + column, extent), extent);
                   });
  }

  alignas(kCacheLine) float values_[kRoom];
  float* memory_ = values_;
  const size_t floats_;
};

// Where a row's values are while they are replaced: in registers (rows of one piece), in memory as
// (1 + vectors, stride) floats, or copied there before, byte by byte.
enum class Keeping { kRegisters, kMemory, kBytes };
struct Saved {
  Keeping where;
  float* to;
  size_t stride;
};

// The source of a row's gradient: sums of gradient rows, or a kept sum.
struct Kept {
  const float* sums;
};
template <int kBlocks, class Extent>
HOTROW_INLINE void sum_columns(const Kept& kept, size_t column, Extent extent,
                               Floats (&out)[kBlocks]) {
  for (int b = 0; b < kBlocks; ++b) out[b] = load(kept.sums + column + b * kLanes, extent);
}

// Updates columns [0, width). checks: NaN is added to it if a new value is not finite, else 0.
template <OptimizerKind kKind, int kMost, class Source>
HOTROW_INLINE void update_columns(const UpdateNumbers& n, const Row& row, size_t width,
                                  const Source& source, const Saved& saved, Floats& checks) {
  constexpr int kVectors = vectors_of(kKind);
  for_columns<kMost>(
      width, [&](auto blocks, size_t column, auto extent) __attribute__((always_inline)) {
        Floats g[blocks.count], old_w[blocks.count], old_a[blocks.count], old_b[blocks.count];
        sum_columns(source, column, extent, g);
        for (int i = 0; i < blocks.count; ++i) {
          const size_t at = column + i * kLanes;
          const auto read = [&](int k, RowType type, const std::byte* from)
                                __attribute__((always_inline)) {
                                  const Floats values = load_values(type, from, at, extent);
                                  if (saved.where == Keeping::kMemory)
                                    store(saved.to + k * saved.stride + at, values, extent);
                                  return values;
                                };
          const auto write = [&](int k, RowType type, std::byte* to, const Floats& values)
                                 __attribute__((always_inline)) {
                                   store_stochastic(type, to, at, values, extent, row.stream,
                                                    k * row.width + row.position + at);
                                 };
          Floats w = old_w[i] = read(0, row.weights_type, row.weights), a, b;
          if constexpr (kVectors > 0) a = old_a[i] = read(1, row.state_type, row.state[0]);
          if constexpr (kVectors > 1) b = old_b[i] = read(2, row.state_type, row.state[1]);
          g[i] = finished(n, row, g[i], w);
          if (n.decay != 0.0f) w = w - all(n.decay) * w;
          apply_rule<kKind, SixteenLanes>(n, row.rate, g[i], w, a, b);
          Floats check = add_zero_times(all(0.0f), w);
          if constexpr (kVectors > 0) check = add_zero_times(check, a);
          if constexpr (kVectors > 1) check = add_zero_times(check, b);
          checks = checks + existing(check, extent);
          write(0, row.weights_type, row.weights, w);
          if constexpr (kVectors > 0) write(1, row.state_type, row.state[0], a);
          if constexpr (kVectors > 1) write(2, row.state_type, row.state[1], b);
        }
        if (saved.where == Keeping::kRegisters && __builtin_expect(any_nan(checks), false)) {
          const auto undo = [&](std::byte* to,
                                const Floats(&old)[blocks.count]) __attribute__((always_inline)) {
            for (int i = 0; i < blocks.count; ++i) {
              store(reinterpret_cast<float*>(to) + column + i * kLanes, old[i], extent);
            }
          };
          undo(row.weights, old_w);
          if constexpr (kVectors > 0) undo(row.state[0], old_a);
          if constexpr (kVectors > 1) undo(row.state[1], old_b);
        }
      });
}

// Adds the squares of the finished gradient.
template <int kMost, class Source>
HOTROW_INLINE void add_squares(const UpdateNumbers& n, const Row& row, size_t width,
                               const Source& source, Floats& total) {
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

// Sum of squares of the finished gradient, which goes through `kept` in pieces. whole: kept holds
// all of it.
__attribute__((noinline)) float measure(const UpdateNumbers& n, Row row, const Gradient& gradient,
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

// kWidth: 0, or the compile-time width of float32 rows without clip, L2, decay and shares.
template <OptimizerKind kKind, size_t kWidth>
size_t update_rows(const UpdateStep& step, const RowGradients& gradients, const uint32_t* counts,
                   size_t first, size_t last, std::byte* const* lines) {
  const IeeeFloatMode mode;
  const UpdateNumbers n = update_numbers(step, kWidth != 0);
  UpdateNumbers without_l2 = n;  // the clip measures these
  without_l2.l2 = 0.0f;
  const size_t width = kWidth != 0 ? kWidth : step.layout.width;
  const size_t state_offset = kWidth != 0 ? kWidth * 4 : step.layout.state_offset();
  const RowType weights_type = kWidth != 0 ? RowType::kFloat32 : step.layout.weights;
  const RowType state_type = kWidth != 0 ? RowType::kFloat32 : step.layout.state;
  const size_t vector_bytes = width * value_bytes(state_type);
  constexpr size_t kVectors = vectors_of(kKind), kScalars = scalars_of(kKind);
  constexpr Keeping kKeeping = kWidth == 0           ? Keeping::kBytes
                               : kWidth > 2 * kLanes ? Keeping::kMemory
                                                     : Keeping::kRegisters;
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
  OldValues<kWidth * (1 + kVectors)> old(scalars_offset / sizeof(float));
  const bool floats = weights_type == RowType::kFloat32 && state_type == RowType::kFloat32;
  size_t not_finite = 0;
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

    Row row;
    row.weights = line + sizeof(RowHeader);
    row.state[0] = row.weights + state_offset;
    row.state[1] = row.state[0] + vector_bytes;
    row.width = step.whole_width != 0 ? step.whole_width : width;
    row.position = step.first_column;
    row.weights_type = weights_type;
    row.state_type = state_type;
    row.stream = 0;
    if (!floats) {
      row.stream = rounding_stream(step.seed, header.key, clock);
    }
    row.clip = 1.0f;
    row.rate = n.rate;
    std::byte* const scalar_at = row.weights + scalars_offset;
    float scalar = 0.0f;
    bool has_scalar = false;

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
      float total;
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
      has_scalar = true;
      memcpy(&scalar, scalar_at, sizeof(scalar));
      scalar += total / static_cast<float>(row.width);
      row.rate = n.rate / __builtin_sqrtf(scalar + n.epsilon);
    }
    if constexpr (kKind == OptimizerKind::kAdam) {
      size_t t = clock;
      if (row_steps) {
        has_scalar = true;
        memcpy(&scalar, scalar_at, sizeof(scalar));
        scalar += 1.0f;  // stops at 2^24, where the correction has long been 1
        if (scalar < 0x1p31f) t = static_cast<size_t>(scalar);  // else it is not finite
      }
      if (t < corrections_count) row.rate = n.rate * corrections[t];
    }
    Saved saved{kKeeping, old.data(), width};
    if constexpr (kWidth == 0) {
      if (floats) {
        saved.where = Keeping::kMemory;
      } else {
        old.take(row.weights);
      }
    }
    Floats checks = all(scalar - scalar);
    if constexpr (kWidth != 0) {
      update_columns<kKind, 2>(n, row, width, gradient, saved, checks);
    } else {
      for (size_t column = 0; column < width; column += kKeptWidth) {
        const size_t rest = width - column, columns = rest < kKeptWidth ? rest : kKeptWidth;
        if (!whole) keep(gradient, column, columns, kept);
        update_columns<kKind, 1>(n, row, columns, Kept{kept}, saved, checks);
        saved.to += columns;
        row.weights += columns * value_bytes(weights_type);
        row.state[0] += columns * value_bytes(state_type);
        row.state[1] += columns * value_bytes(state_type);
        row.position += columns;
      }
    }
    if (__builtin_expect(any_nan(checks), false)) {
      if (saved.where != Keeping::kRegisters) old.give_back(line + sizeof(RowHeader));
      ++not_finite;
      continue;
    }
    memcpy(line, &header, sizeof(header));
    if (has_scalar) memcpy(scalar_at, &scalar, sizeof(scalar));
  }
  return not_finite;
}

using Update = decltype(Kernels::update);

// Null unless there is an update for this width.
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

size_t update(const UpdateStep& step, const RowGradients& gradients, const uint32_t* counts,
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
  return chosen(step, gradients, counts, first, last, lines);
}

// ---- Squares of gradients, of rows whose columns lie in several places ----

void measure_any(const UpdateStep& step, const RowGradients& gradients, bool is_finished,
                 size_t first, size_t last, const std::byte* const* lines, float* out) {
  const IeeeFloatMode mode;
  UpdateNumbers n = update_numbers(step, false);
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
    row.clip = 1.0f;
    if (is_finished && n.clip > 0.0f) {
      const float norm = __builtin_sqrtf(step.clip_squares[u]);
      if (norm > n.clip) row.clip = n.clip / norm;
    }
    out[u] = measure(n, row, gradient, kept, false);
  }
}

}  // namespace
}  // namespace HOTROW_ISA
}  // namespace hotrow
