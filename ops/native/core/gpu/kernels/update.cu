#include <algorithm>
#include <vector>

#include "core/gpu/kernels/sums.h"
#include "core/gpu/kernels/update.h"
#include "core/kernels/optimizer_rule.h"

namespace hotrow {
namespace {

// Four blocks of this size on a multiprocessor leave a thread the registers that Adam needs.
constexpr unsigned kUpdateThreads = 128;

// A table's step for kernels.
struct UpdateTable {
  const float* sums;                             // (U of the table, D), or null
  const float* known_scale;                      // or null: scale is good
  const float* corrections;                      // (corrections_count)
  unsigned long long* counts;                    // (2) rows, those left out; or null
  const float *clip_squares, *finished_squares;  // (U of the table) of whole rows, or null
  uint64_t seed;
  uint32_t corrections_count, clock;
  uint32_t width, lanes;
  uint32_t state_offset, vector_bytes, scalars_offset;
  uint32_t whole_width, first_column;  // of whole rows, of which lines have a part
  RowType weights, state;
  uint32_t launch;  // tables of other launches are skipped
  UpdateNumbers n;
};
static_assert(sizeof(UpdateTable) % 8 == 0);

UpdateTable describe(const DeviceStep& given, uint32_t number_of_launch) {
  const UpdateStep& step = given.step;
  UpdateTable t = {};
  t.sums = given.sums;
  t.known_scale = given.scale;
  t.corrections = step.corrections;
  t.counts = reinterpret_cast<unsigned long long*>(given.counts);
  t.clip_squares = step.clip_squares;
  t.finished_squares = step.finished_squares;
  t.seed = step.seed;
  t.corrections_count = static_cast<uint32_t>(step.corrections_count);
  t.clock = step.clock;
  t.width = static_cast<uint32_t>(step.layout.width);
  t.lanes = lanes_for(step.layout.width, 4);
  t.state_offset = static_cast<uint32_t>(step.layout.state_offset());
  t.vector_bytes = static_cast<uint32_t>(step.layout.width * bytes_of(step.layout.state));
  t.scalars_offset = static_cast<uint32_t>(step.layout.scalars_offset());
  t.whole_width =
      static_cast<uint32_t>(step.whole_width != 0 ? step.whole_width : step.layout.width);
  t.first_column = static_cast<uint32_t>(step.first_column);
  t.weights = step.layout.weights;
  t.state = step.layout.state;
  t.launch = number_of_launch;
  t.n = update_numbers(step, false);
  return t;
}

__global__ void take_scales(UpdateTable* all, uint32_t tables) {
  for (size_t t = thread_index(); t < tables; t += thread_stride()) {
    if (all[t].known_scale != nullptr) all[t].n.scale = *all[t].known_scale;
  }
}

// kernels/optimizer_rule.h for one column.
struct OneLane {
  using Value = float;
  static __device__ float all(float value) { return value; }
  static __device__ float square_root(float a) { return sqrtf(a); }
  static __device__ float select_less(float a, float b, float yes, float no) {
    return a < b ? yes : no;
  }
  static __device__ float select_equal(float a, float b, float yes, float no) {
    return a == b ? yes : no;
  }
};

// kHalf: weights or state may have 16 bits.
template <bool kHalf>
__device__ void load_four(RowType type, const std::byte* values, uint32_t column, uint32_t width,
                          float (&out)[4]) {
  load_quad(kHalf ? type : RowType::kFloat32, values, column, width, out);
}

// Sum of squares of the finished gradient, the same for all lanes. kept: the summed gradient, valid
// if the row is no wider than the tile.
template <bool kHalf>
__device__ float measure(const UpdateTable& t, const Tile& tile, const DeviceGradients& g,
                         uint32_t table, const Terms& terms, const std::byte* weights, float clip,
                         float l2, float (&kept)[4]) {
  RowSum sum;
  for (uint32_t start = 0; start < t.width; start += 4 * tile.lanes) {
    const uint32_t column = start + 4 * tile.lane;
    sum_terms(g, table, tile, terms, column, t.width, t.width <= 4 * tile.lanes, kept);
    float w[4] = {}, squares[4];
    if (l2 != 0.0f) load_four<kHalf>(t.weights, weights, column, t.width, w);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float x = finished_gradient<OneLane>(t.n.scale, clip, l2, kept[k], w[k]);
      squares[k] = x * x;
    }
    sum.add(tile, squares);
  }
  return sum.total(tile);
}

// row: its number in the table. Returns false, and leaves the row as it was, if its new weights or
// state are not all finite.
template <OptimizerKind kKind, bool kHalf>
__device__ bool update_row(const UpdateTable& t, const Tile& tile, const DeviceGradients& g,
                           uint32_t table, const Terms& terms, uint32_t row, uint32_t lookups,
                           std::byte* line) {
  // Headers are read as words: lines may lie at multiples of 4. One lane writes the row's own
  // fields.
  auto* const words = reinterpret_cast<uint32_t*>(line);
  std::byte* const weights = line + sizeof(RowHeader);
  auto* const scalar_at = reinterpret_cast<float*>(weights + t.scalars_offset);
  const bool has_scalar = kKind == OptimizerKind::kRowwiseAdagrad ||
                          (kKind == OptimizerKind::kAdam && t.n.row_steps != 0);
  uint32_t low = 0, high = 0, lookups_before = 0;
  float scalar = 0.0f;
  if (tile.lane == 0) {
    lookups_before = words[3];
    if constexpr (kHalf) low = words[0], high = words[1];
    if (has_scalar) scalar = *scalar_at;
  }
  uint64_t stream = 0;
  if constexpr (kHalf) {
    low = tile.from(low, 0);
    high = tile.from(high, 0);
    const auto key = static_cast<int64_t>(uint64_t{high} << 32 | low);
    stream = rounding_stream(t.seed, key, t.clock);
  }
  float kept[4] = {};
  bool whole = false;
  float clip = 1.0f, rate = t.n.rate;
  if (t.n.clip > 0.0f) {
    float squares;
    if (t.clip_squares != nullptr) {
      squares = t.clip_squares[row];
    } else {
      squares = measure<kHalf>(t, tile, g, table, terms, weights, 1.0f, 0.0f, kept);
      whole = t.width <= 4 * tile.lanes;
    }
    const float norm = sqrtf(squares);
    if (norm > t.n.clip) clip = t.n.clip / norm;
  }
  if constexpr (kKind == OptimizerKind::kRowwiseAdagrad) {
    float total;
    if (t.finished_squares != nullptr) {
      total = t.finished_squares[row];
    } else {
      total = measure<kHalf>(t, tile, g, table, terms, weights, clip, t.n.l2, kept);
      whole = t.width <= 4 * tile.lanes;
    }
    scalar = tile.from(scalar, 0) + total / static_cast<float>(t.whole_width);
    rate = t.n.rate / sqrtf(scalar + t.n.epsilon);
  }
  if constexpr (kKind == OptimizerKind::kAdam) {
    uint32_t number = t.clock;
    if (t.n.row_steps != 0) {
      scalar = tile.from(scalar, 0) + 1.0f;
      if (scalar < 0x1p31f) number = static_cast<uint32_t>(scalar);
    }
    if (number < t.corrections_count) rate = t.n.rate * t.corrections[number];
  }
  constexpr int kVectors = vectors_of(kKind);
  std::byte* const first_state = weights + t.state_offset;
  std::byte* const second_state = first_state + t.vector_bytes;
  // x - x of each value x that is written: 0, or NaN where x is not finite. A row wider than the
  // tile is computed once before it is written.
  float checks = scalar - scalar;
  const bool fits = t.width <= 4 * tile.lanes;
  bool writes = fits;
  for (uint32_t start = 0;; start += 4 * tile.lanes) {
    if (start >= t.width) {
      if (writes) break;
      if (!tile.all(checks == 0.0f)) return false;
      writes = true;
      start = 0;
    }
    const uint32_t column = start + 4 * tile.lane;
    float w[4] = {}, a[4] = {}, b[4] = {}, sum[4];
    // Loads issued before the gradients, so that all of them are in flight together.
    if (column < t.width) {
      load_four<kHalf>(t.weights, weights, column, t.width, w);
      if constexpr (kVectors > 0) load_four<kHalf>(t.state, first_state, column, t.width, a);
      if constexpr (kVectors > 1) load_four<kHalf>(t.state, second_state, column, t.width, b);
    }
    if (whole) {
#pragma unroll
      for (int k = 0; k < 4; ++k) sum[k] = kept[k];
    } else {
      sum_terms(g, table, tile, terms, column, t.width, fits, sum);
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float x = finished_gradient<OneLane>(t.n.scale, clip, t.n.l2, sum[k], w[k]);
      if (t.n.decay != 0.0f) w[k] = w[k] - t.n.decay * w[k];
      apply_rule<kKind, OneLane>(t.n, rate, x, w[k], a[k], b[k]);
      if (column + k < t.width) checks = checks + (w[k] - w[k]) + (a[k] - a[k]) + (b[k] - b[k]);
    }
    if (fits && !tile.all(checks == 0.0f)) return false;
    if (!writes || column >= t.width) continue;
    // vector: its number in the line.
    const auto store = [&](RowType type, std::byte* values, const float(&from)[4],
                           uint32_t vector) {
      const uint32_t position = kHalf ? vector * t.whole_width + t.first_column : 0;
      store_quad(kHalf ? type : RowType::kFloat32, values, column, t.width, from, stream, position);
    };
    if constexpr (kVectors > 0) store(t.state, first_state, a, 1);
    if constexpr (kVectors > 1) store(t.state, second_state, b, 2);
    store(t.weights, weights, w, 0);
  }
  if (tile.lane == 0) {
    const uint64_t count = uint64_t{lookups_before} + lookups;
    words[2] = t.clock;
    words[3] = count < 0xffffffffu ? static_cast<uint32_t>(count) : 0xffffffffu;
    if (has_scalar) *scalar_at = scalar;
  }
  return true;
}

// A warp takes up to 32 rows at a time, and works on as many at once as its lanes allow.
template <OptimizerKind kKind, bool kHalf>
__global__ void __launch_bounds__(kUpdateThreads, 4)
    update_rows(const UpdateTable* all, uint32_t tables, const uint32_t* table_first,
                uint32_t launch, DeviceGradients g, HotRows hot, const uint32_t* counts,
                std::byte* const* lines) {
  const uint32_t distinct = table_first[tables], lane = threadIdx.x % kWarp;
  const Tile warp = tile_of(kWarp);
  const uint32_t rows = rows_together(distinct);
  const size_t warps = thread_stride() / kWarp;
  for (size_t first = thread_index() / kWarp * rows; first < distinct; first += warps * rows) {
    const uint32_t from = static_cast<uint32_t>(first);
    const uint32_t last = least(first + rows, distinct);
    // Each lane loads what one row needs.
    std::byte* line = nullptr;
    uint32_t begin = 0, end = 0, lookups = 0;
    if (from + lane < last) {
      line = lines[from + lane];
      if (g.begins != nullptr) begin = g.begins[from + lane], end = g.begins[from + lane + 1];
      lookups = counts != nullptr ? counts[from + lane] : end - begin;
    }
    for (uint32_t u = from; u < last;) {
      const uint32_t number = find_range(table_first, tables, u);
      const UpdateTable& table = all[number];
      const uint32_t begin_of_table = table_first[number];
      const uint32_t stop = least(last, table_first[number + 1]);
      const Tile tile = tile_of(table.lanes);
      const uint32_t together = kWarp / tile.lanes;
      if (table.counts != nullptr && table.launch == launch) {
        const unsigned with_line =
            __ballot_sync(kAllLanes, line != nullptr && from + lane >= u && from + lane < stop);
        if (lane == 0) atomicAdd(table.counts, static_cast<unsigned long long>(__popc(with_line)));
      }
      // While a row is updated, the position of the next one is on its way.
      uint32_t which = (u - from + tile.first / tile.lanes) % kWarp;
      uint32_t own_begin = warp.from(begin, which), own_end = warp.from(end, which);
      uint32_t position = position_ahead(g, tile, own_begin, own_end);
      for (uint32_t next = u; next < stop && table.launch == launch; next += together) {
        const uint32_t row = next + tile.first / tile.lanes;
        std::byte* const own = warp.from(line, which);
        const uint32_t own_lookups = warp.from(lookups, which);
        Terms terms = {nullptr, own_begin, own_end, position};
        which = (which + together) % kWarp;
        own_begin = warp.from(begin, which);
        own_end = warp.from(end, which);
        position = position_ahead(g, tile, own_begin, own_end);
        if (row >= stop || own == nullptr) continue;
        if (table.sums != nullptr) {
          terms.sum = table.sums + size_t{row - begin_of_table} * table.width;
        } else {
          use_hot_sum(row, hot, &terms);
        }
        const bool is_written = update_row<kKind, kHalf>(table, tile, g, number, terms,
                                                         row - begin_of_table, own_lookups, own);
        if (!is_written && table.counts != nullptr && tile.lane == 0) {
          atomicAdd(table.counts + 1, 1ull);
        }
      }
      u = stop;
    }
  }
}

using UpdateKernel = void (*)(const UpdateTable*, uint32_t, const uint32_t*, uint32_t,
                              DeviceGradients, HotRows, const uint32_t*, std::byte* const*);

template <bool kHalf>
UpdateKernel kernel_of(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return update_rows<OptimizerKind::kSgd, kHalf>;
    case OptimizerKind::kMomentum:
      return update_rows<OptimizerKind::kMomentum, kHalf>;
    case OptimizerKind::kAdagrad:
      return update_rows<OptimizerKind::kAdagrad, kHalf>;
    case OptimizerKind::kRowwiseAdagrad:
      return update_rows<OptimizerKind::kRowwiseAdagrad, kHalf>;
    case OptimizerKind::kAdam:
      return update_rows<OptimizerKind::kAdam, kHalf>;
    case OptimizerKind::kFtrl:
      return update_rows<OptimizerKind::kFtrl, kHalf>;
  }
  fail(Code::kInternal, "no optimizer %d", static_cast<int>(kind));
}

UpdateKernel kernel_for(const UpdateStep& step) {
  const bool halves = step.layout.weights != RowType::kFloat32 ||
                      (step.layout.state != RowType::kFloat32 && step.layout.vectors > 0);
  const OptimizerKind kind = step.optimizer.kind;
  return halves ? kernel_of<true>(kind) : kernel_of<false>(kind);
}

// The kernel of each launch; a table's number among them: numbers, (T).
std::vector<UpdateKernel> launches_of(const DeviceStep* steps, size_t tables,
                                      std::vector<uint32_t>* numbers) {
  std::vector<UpdateKernel> kernels;
  for (size_t t = 0; t < tables; ++t) {
    const UpdateKernel kernel = kernel_for(steps[t].step);
    const auto at = std::find(kernels.begin(), kernels.end(), kernel);
    numbers->push_back(static_cast<uint32_t>(at - kernels.begin()));
    if (at == kernels.end()) kernels.push_back(kernel);
  }
  return kernels;
}

}  // namespace

DescribedSteps describe_steps(const DeviceStep* steps, size_t tables, DeviceDescribed* to) {
  std::vector<UpdateTable> described;
  std::vector<uint32_t> numbers, widths;
  launches_of(steps, tables, &numbers);
  for (size_t t = 0; t < tables; ++t) {
    described.push_back(describe(steps[t], numbers[t]));
    widths.push_back(described.back().width);
  }
  return {to->add(described), to->add(widths)};
}

size_t device_update_scratch(size_t count, size_t most_width) {
  DeviceArena arena;
  take_hot_rows(arena, count, most_width);
  return arena.used();
}

void device_update(const DeviceStep* steps, size_t tables, const DescribedSteps& described,
                   const uint32_t* table_first, const DeviceGradients& gradients,
                   const uint32_t* counts, std::byte* const* lines, void* scratch, size_t bytes,
                   DeviceStream stream) {
  if (gradients.count == 0 || tables == 0) return;
  bool summed = true, scaled = false;
  size_t most_width = 0;
  for (size_t t = 0; t < tables; ++t) {
    most_width = std::max(most_width, steps[t].step.layout.width);
    summed = summed && steps[t].sums != nullptr;
    scaled = scaled || steps[t].scale != nullptr;
  }
  DeviceArena arena(scratch, bytes);
  const HotRows hot = take_hot_rows(arena, gradients.count, most_width);
  auto* const all = static_cast<UpdateTable*>(described.all);
  if (scaled) {
    launch("update: scales", take_scales, 1, kBlockThreads, stream, all,
           static_cast<uint32_t>(tables));
  }
  if (!summed) sum_hot_rows(described.widths, tables, table_first, gradients, hot, stream);
  std::vector<uint32_t> numbers;
  const std::vector<UpdateKernel> kernels = launches_of(steps, tables, &numbers);
  for (size_t k = 0; k < kernels.size(); ++k) {
    launch("update rows", kernels[k], blocks_for(gradients.count, kUpdateThreads / 4),
           kUpdateThreads, stream, all, static_cast<uint32_t>(tables), table_first,
           static_cast<uint32_t>(k), gradients, hot, counts, lines);
  }
}

}  // namespace hotrow
