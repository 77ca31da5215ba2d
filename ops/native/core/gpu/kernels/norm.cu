#include <cmath>
#include <vector>

#include "core/base/dispatch.h"
#include "core/gpu/kernels/device_code.h"
#include "core/gpu/kernels/norm.h"
#include "core/gpu/kernels/primitives.h"
#include "core/table/table.h"

namespace hotrow {
namespace {

constexpr uint32_t kLanes = 16;  // of a row's sum, as on the CPU

// A table for kernels.
struct NormTable {
  const float* sums;
  uint32_t width;
  float factor;
  int32_t shards;
  uint32_t hashed;
  uint32_t first_group;  // a group is a partition of a table
  uint32_t unused;
};

// groups[u]: of each distinct key; `groups_end` past U. numbers[u] = u. All (count).
__global__ void square_rows(const NormTable* all, uint32_t tables, DeviceUnique unique,
                            uint32_t count, std::byte* const* lines, uint32_t groups_end,
                            double* squares, uint32_t* groups, uint32_t* numbers) {
  const uint32_t distinct = unique.table_first[tables];
  const Tile tile = tile_of(kLanes);
  for (size_t row = thread_index() / kLanes; row < count; row += thread_stride() / kLanes) {
    const auto u = static_cast<uint32_t>(row);
    uint32_t group = groups_end;
    if (u < distinct) {
      const uint32_t number = find_range(unique.table_first, tables, u);
      const NormTable& table = all[number];
      const float* const values = table.sums + size_t{u - unique.table_first[number]} * table.width;
      double sum = 0.0;
      if (lines[u] != nullptr) {
        for (uint32_t column = tile.lane; column < table.width; column += kLanes) {
          const double value = values[column];
          sum = sum + value * value;
        }
      }
      for (uint32_t half = kLanes / 2; half > 0; half /= 2) sum = sum + tile.from_xor(sum, half);
      // The row of a gradient that is not finite is not updated.
      if (tile.lane == 0) squares[u] = sum - sum == 0.0 ? sum : 0.0;
      group = static_cast<uint32_t>(unique.hashes[u] >> (64 - Table::kPartitionBits));
      if (table.shards > 1) {
        group += static_cast<uint32_t>(owner_of(unique.keys[u], table.shards, table.hashed != 0) *
                                       int{Table::kPartitions});
      }
      group += table.first_group;
    }
    if (tile.lane == 0) {
      groups[u] = group;
      numbers[u] = u;
    }
  }
}

// The first i < count with sorted[i] >= wanted; count: none.
__device__ uint32_t first_of(const uint32_t* sorted, uint32_t count, uint32_t wanted) {
  uint32_t low = 0, high = count;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (sorted[middle] < wanted) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// A warp a group adds its rows one after the other. sorted: (count) groups, of rows order[i].
__global__ void add_groups(const uint32_t* sorted, const uint32_t* order, uint32_t count,
                           const double* squares, uint32_t groups, double* sums) {
  const Tile warp = tile_of(kWarp);
  for (size_t g = thread_index() / kWarp; g < groups; g += thread_stride() / kWarp) {
    const auto group = static_cast<uint32_t>(g);
    const uint32_t begin = first_of(sorted, count, group);
    const uint32_t end = first_of(sorted, count, group + 1);
    double sum = 0.0;
    for (uint32_t base = begin; base < end; base += kWarp) {
      const uint32_t own = base + warp.lane;
      const double value = own < end ? squares[order[own]] : 0.0;
      const uint32_t rows = least(end - base, kWarp);
      for (uint32_t i = 0; i < rows; ++i) sum = sum + warp.from(value, i);
    }
    if (warp.lane == 0) sums[group] = sum;
  }
}

// One block. sums: of the groups; squares: (T) room; total: of all.
__global__ void __launch_bounds__(kBlockThreads)
    add_tables(const NormTable* all, uint32_t tables, const double* sums, uint32_t groups,
               double* squares, double* total) {
  for (uint32_t t = threadIdx.x; t < tables; t += blockDim.x) {
    const uint32_t end = t + 1 < tables ? all[t + 1].first_group : groups;
    double sum = 0.0;
    for (uint32_t g = all[t].first_group; g < end; ++g) sum = sum + sums[g];
    const double factor = all[t].factor;
    squares[t] = sum * factor * factor;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    double sum = 0.0;
    for (uint32_t t = 0; t < tables; ++t) sum = sum + squares[t];
    *total = sum;
  }
}

__global__ void write_factors(const NormTable* all, uint32_t tables, const double* total,
                              double clip, float* factors) {
  const double norm = sqrt(*total);
  const float down = norm > clip ? static_cast<float>(clip / norm) : 1.0f;
  for (size_t t = thread_index(); t < tables; t += thread_stride()) {
    factors[t] = all[t].factor * down;
  }
}

uint32_t groups_of(const DeviceNormed* gradients, size_t tables) {
  size_t groups = 0;
  for (size_t t = 0; t < tables; ++t) {
    groups += static_cast<size_t>(gradients[t].shards) * Table::kPartitions;
  }
  return static_cast<uint32_t>(groups);
}

struct ClipScratch {
  ClipScratch(DeviceArena& arena, uint32_t groups, size_t tables, size_t count) {
    described = arena.take<NormTable>(tables);
    squares = arena.take<double>(count);
    group_sums = arena.take<double>(groups);
    table_squares = arena.take<double>(tables);
    total = arena.take<double>(1);
    this->groups = arena.take<uint32_t>(count);
    sorted = arena.take<uint32_t>(count);
    numbers = arena.take<uint32_t>(count);
    order = arena.take<uint32_t>(count);
    sort_bytes = sort_pairs_scratch(count, bits_for(groups));
    sort = arena.take<std::byte>(sort_bytes);
  }
  NormTable* described;
  double *squares, *group_sums, *table_squares, *total;
  uint32_t *groups, *sorted, *numbers, *order;
  std::byte* sort;
  size_t sort_bytes;
};

// Writes the squares of all to `total`. Returns the memory that it used.
ClipScratch add_squares(const DeviceNormed* gradients, size_t tables, const DeviceUnique& unique,
                        size_t count, std::byte* const* lines, double* total, void* scratch,
                        size_t bytes, DeviceStream stream) {
  const uint32_t groups = groups_of(gradients, tables);
  const auto table_count = static_cast<uint32_t>(tables), most = static_cast<uint32_t>(count);
  std::vector<NormTable> described;
  for (size_t t = 0; t < tables; ++t) {
    const DeviceNormed& g = gradients[t];
    described.push_back({g.sums, static_cast<uint32_t>(g.width), g.factor, g.shards,
                         g.hashed ? 1u : 0u, groups_of(gradients, t), 0});
  }
  DeviceArena arena(scratch, bytes);
  const ClipScratch s(arena, groups, tables, count);
  upload(s.described, described.data(), tables, stream);
  launch("norm: rows", square_rows, blocks_for(count * kLanes), kBlockThreads, stream, s.described,
         table_count, unique, most, lines, groups, s.squares, s.groups, s.numbers);
  sort_pairs(s.groups, s.sorted, s.numbers, s.order, count, bits_for(groups), s.sort, s.sort_bytes,
             stream);
  launch("norm: partitions", add_groups, blocks_for(size_t{groups} * kWarp), kBlockThreads, stream,
         s.sorted, s.order, most, s.squares, groups, s.group_sums);
  launch("norm: tables", add_tables, 1, kBlockThreads, stream, s.described, table_count,
         s.group_sums, groups, s.table_squares, total == nullptr ? s.total : total);
  return s;
}

}  // namespace

size_t device_clip_scratch(const DeviceNormed* gradients, size_t tables, size_t count) {
  DeviceArena arena;
  ClipScratch scratch(arena, groups_of(gradients, tables), tables, count);
  return arena.used();
}

void device_squares(const DeviceNormed* gradients, size_t tables, const DeviceUnique& unique,
                    size_t count, std::byte* const* lines, double* total, void* scratch,
                    size_t bytes, DeviceStream stream) {
  add_squares(gradients, tables, unique, count, lines, total, scratch, bytes, stream);
}

void device_clip(const DeviceNormed* gradients, size_t tables, const DeviceUnique& unique,
                 size_t count, std::byte* const* lines, float global_clip_norm, float* factors,
                 void* scratch, size_t bytes, DeviceStream stream) {
  const ClipScratch s =
      add_squares(gradients, tables, unique, count, lines, nullptr, scratch, bytes, stream);
  launch("norm: factors", write_factors, 1, kBlockThreads, stream, s.described,
         static_cast<uint32_t>(tables), s.total, static_cast<double>(global_clip_norm), factors);
}

}  // namespace hotrow
