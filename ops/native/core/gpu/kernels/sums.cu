// Sums of gradients: of hot rows, and of all rows for a later commit.
#include <algorithm>
#include <vector>

#include "core/gpu/kernels/sums.h"

namespace hotrow {
namespace {

constexpr uint32_t kStage = 256;    // gradient rows that a block has in shared memory, twice
constexpr uint32_t kSlice = 16;     // columns of a block
constexpr uint32_t kLoaders = 256;  // threads that fetch; a warp behind them adds
constexpr uint32_t kFetches = kStage * kSlice / kLoaders;
constexpr size_t kHotBlocks = 528;
static_assert(kStage == kLoaders);

__global__ void mark_hot(const uint32_t* table_first, uint32_t tables, const uint32_t* begins,
                         HotRows hot) {
  const uint32_t distinct = table_first[tables];
  for (size_t u = thread_index(); u < distinct; u += thread_stride()) {
    if (begins[u + 1] - begins[u] <= kHotTerms) continue;
    const uint32_t number = atomicAdd(hot.count, 1u);
    hot.rows[number] = static_cast<uint32_t>(u);
    hot.number[u] = number;
  }
}

// A block sums 16 columns of a hot row. Additions keep their order, one after the other, at the
// rate of shared memory: the other threads only fetch the next rows.
__global__ void __launch_bounds__(kLoaders + kWarp)
    sum_hot(const uint32_t* widths, uint32_t tables, const uint32_t* table_first, DeviceGradients g,
            HotRows hot) {
  __shared__ float values[2][kStage][kSlice];
  __shared__ const float* rows[2][kStage];
  __shared__ float shares[2][kStage];
  const uint32_t thread = threadIdx.x, column = thread % kSlice;
  const uint32_t slices = (hot.stride + kSlice - 1) / kSlice;
  const uint32_t tasks = *hot.count * slices;
  for (uint32_t task = blockIdx.x; task < tasks; task += gridDim.x) {
    const uint32_t number = task / slices, first = task % slices * kSlice;
    const uint32_t u = hot.rows[number];
    const uint32_t table = find_range(table_first, tables, u);
    const uint32_t width = widths[table];
    if (first >= width) continue;
    const uint32_t begin = g.begins[u], end = g.begins[u + 1];
    const uint32_t stages = (end - begin + kStage - 1) / kStage;
    const auto find_row = [&](uint32_t stage) {
      const uint32_t at = begin + stage * kStage + thread;
      const bool is = at < end;
      float share = 1.0f;
      rows[stage % 2][thread] = is ? gradient_row(g, table, g.order[at], width, &share) : nullptr;
      shares[stage % 2][thread] = share;
    };
    if (thread < kLoaders) find_row(0);
    __syncthreads();
    float sum = -0.0f;
    for (uint32_t stage = 0; stage <= stages; ++stage) {
      if (thread >= kLoaders) {
        if (stage > 0 && thread < kLoaders + kSlice) {
          const uint32_t done = (stage - 1) * kStage;
          const uint32_t count = least(end - begin - done, kStage);
#pragma unroll 8
          for (uint32_t i = 0; i < count; ++i) sum = sum + values[(stage - 1) % 2][i][column];
        }
      } else if (stage < stages) {
        float fetched[kFetches];
#pragma unroll
        for (uint32_t k = 0; k < kFetches; ++k) {
          const float* row = rows[stage % 2][k * (kLoaders / kSlice) + thread / kSlice];
          fetched[k] =
              row != nullptr && first + column < width ? load_once(row + first + column) : 0.0f;
        }
        // While these loads are in flight.
        if (stage + 1 < stages) find_row(stage + 1);
#pragma unroll
        for (uint32_t k = 0; k < kFetches; ++k) {
          const uint32_t i = k * (kLoaders / kSlice) + thread / kSlice;
          values[stage % 2][i][column] = fetched[k] * shares[stage % 2][i];
        }
      }
      __syncthreads();
    }
    if (thread >= kLoaders && thread < kLoaders + kSlice && first + column < width) {
      hot.sums[size_t{number} * hot.stride + first + column] = sum;
    }
  }
}

struct SumTable {
  float* sums;
  uint32_t width, lanes;
};

__global__ void __launch_bounds__(kBlockThreads, 3)
    sum_rows(const SumTable* sums, uint32_t tables, const uint32_t* table_first, DeviceGradients g,
             HotRows hot) {
  const uint32_t distinct = table_first[tables], lane = threadIdx.x % kWarp;
  const Tile warp = tile_of(kWarp);
  const uint32_t rows = rows_together(distinct);
  const size_t warps = thread_stride() / kWarp;
  for (size_t first = thread_index() / kWarp * rows; first < distinct; first += warps * rows) {
    const uint32_t from = static_cast<uint32_t>(first);
    const uint32_t last = least(first + rows, distinct);
    // Each lane loads what one row needs.
    uint32_t begin = 0, end = 0;
    if (from + lane < last) begin = g.begins[from + lane], end = g.begins[from + lane + 1];
    for (uint32_t u = from; u < last;) {
      const uint32_t number = find_range(table_first, tables, u);
      const SumTable& table = sums[number];
      const uint32_t begin_of_table = table_first[number];
      const uint32_t stop = least(last, table_first[number + 1]);
      const Tile tile = tile_of(table.lanes);
      const uint32_t together = kWarp / tile.lanes;
      // While a row is summed, the position of the next one is on its way.
      uint32_t which = (u - from + tile.first / tile.lanes) % kWarp;
      uint32_t own_begin = warp.from(begin, which), own_end = warp.from(end, which);
      uint32_t position = position_ahead(g, tile, own_begin, own_end);
      for (uint32_t next = u; next < stop; next += together) {
        const uint32_t row = next + tile.first / tile.lanes;
        Terms terms = {nullptr, own_begin, own_end, position};
        which = (which + together) % kWarp;
        own_begin = warp.from(begin, which);
        own_end = warp.from(end, which);
        position = position_ahead(g, tile, own_begin, own_end);
        if (row >= stop) continue;
        use_hot_sum(row, hot, &terms);
        float* out = table.sums + size_t{row - begin_of_table} * table.width;
        for (uint32_t start = 0; start < table.width; start += 4 * tile.lanes) {
          const uint32_t column = start + 4 * tile.lane;
          float sum[4];
          sum_terms(g, number, tile, terms, column, table.width, true, sum);
          store_floats(reinterpret_cast<std::byte*>(out), column, table.width, sum);
        }
      }
      u = stop;
    }
  }
}

}  // namespace

HotRows take_hot_rows(DeviceArena& arena, size_t count, size_t most_width) {
  HotRows hot;
  hot.capacity = static_cast<uint32_t>(count / (kHotTerms + 1));
  hot.stride = static_cast<uint32_t>((most_width + 3) / 4 * 4);
  hot.count = arena.take<uint32_t>(1);
  hot.rows = arena.take<uint32_t>(hot.capacity);
  hot.number = arena.take<uint32_t>(hot.capacity == 0 ? 0 : count);
  hot.sums = arena.take<float>(size_t{hot.capacity} * hot.stride);
  return hot;
}

void sum_hot_rows(const uint32_t* widths, size_t tables, const uint32_t* table_first,
                  const DeviceGradients& gradients, const HotRows& hot, DeviceStream stream) {
  if (hot.capacity == 0) return;
  check(cudaMemsetAsync(hot.count, 0, sizeof(uint32_t), stream), "hot rows");
  launch("mark hot rows", mark_hot, blocks_for(gradients.count), kBlockThreads, stream, table_first,
         static_cast<uint32_t>(tables), gradients.begins, hot);
  const size_t slices = (hot.stride + kSlice - 1) / kSlice;
  launch("sum hot rows", sum_hot, std::min(hot.capacity * slices, kHotBlocks), kLoaders + kWarp,
         stream, widths, static_cast<uint32_t>(tables), table_first, gradients, hot);
}

DescribedSums describe_sums(const DeviceSums* sums, size_t tables, DeviceDescribed* to) {
  std::vector<SumTable> described;
  std::vector<uint32_t> widths;
  DescribedSums out;
  out.tables = tables;
  for (size_t t = 0; t < tables; ++t) {
    const uint32_t width = static_cast<uint32_t>(sums[t].width);
    out.most_width = std::max(out.most_width, sums[t].width);
    widths.push_back(width);
    described.push_back({sums[t].sums, width, lanes_for(width, 4)});
  }
  out.all = to->add(described);
  out.widths = to->add(widths);
  return out;
}

namespace {

struct SumScratch {
  SumScratch(DeviceArena& arena, size_t count, size_t tables, size_t most_width)
      : described_bytes(DeviceDescribed::bytes_for(0, tables)) {
    described = arena.take<std::byte>(described_bytes);
    hot = take_hot_rows(arena, count, most_width);
  }
  size_t described_bytes;
  std::byte* described;
  HotRows hot;
};

}  // namespace

size_t device_sum_scratch(size_t count, size_t tables, size_t most_width) {
  DeviceArena arena;
  SumScratch scratch(arena, count, tables, most_width);
  return arena.used();
}

void device_sum(const DescribedSums& sums, const uint32_t* table_first,
                const DeviceGradients& gradients, void* scratch, size_t bytes,
                DeviceStream stream) {
  if (gradients.count == 0 || sums.tables == 0) return;
  DeviceArena arena(scratch, bytes);
  const SumScratch s(arena, gradients.count, sums.tables, sums.most_width);
  sum_hot_rows(sums.widths, sums.tables, table_first, gradients, s.hot, stream);
  launch("sum rows", sum_rows, blocks_for(gradients.count, kBlockThreads / 4), kBlockThreads,
         stream, static_cast<const SumTable*>(sums.all), static_cast<uint32_t>(sums.tables),
         table_first, gradients, s.hot);
}

void device_sum(const DeviceSums* sums, size_t tables, const uint32_t* table_first,
                const DeviceGradients& gradients, void* scratch, size_t bytes,
                DeviceStream stream) {
  if (gradients.count == 0 || tables == 0) return;
  size_t most_width = 0;
  for (size_t t = 0; t < tables; ++t) most_width = std::max(most_width, sums[t].width);
  DeviceArena arena(scratch, bytes);
  const SumScratch s(arena, gradients.count, tables, most_width);
  DeviceDescribed described(s.described, s.described_bytes);
  const DescribedSums there = describe_sums(sums, tables, &described);
  described.upload(stream);
  device_sum(there, table_first, gradients, scratch, bytes, stream);
}

}  // namespace hotrow
