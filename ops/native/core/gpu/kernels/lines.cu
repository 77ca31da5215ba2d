#include <algorithm>
#include <cstring>
#include <vector>

#include "core/gpu/kernels/cache.h"
#include "core/gpu/kernels/device_code.h"
#include "core/gpu/kernels/lines.h"
#include "core/gpu/kernels/rows.h"
#include "core/table/row_place.h"

namespace hotrow {
namespace {

// Loads of a lane that are in flight together.
constexpr uint32_t kAhead = 4;

// The row of a key in the host's memory. The emulator counts the bytes, and checks that the memory
// is registered.
__device__ std::byte* host_row(const DeviceHostRows& rows, int64_t key, uint32_t place,
                               const Tile& tile) {
  const uint64_t hash = mix64(static_cast<uint64_t>(key));
  const size_t partition = partition_number_of(key, hash, rows.shards, rows.hashed != 0);
  const RowSpot spot = spot_of(place, rows.first_shift);
  std::byte* const block = rows.blocks[partition * rows.most_blocks + spot.block];
  std::byte* const row = block + spot.row * rows.stride;
#if defined(HOTROW_SIMT)
  if (tile.lane == 0) simt::use_host_memory(row, rows.row_bytes);
#else
  (void)tile;
#endif
  return row;
}

template <typename Word>
__device__ void copy_words(const std::byte* from, std::byte* to, uint32_t bytes, const Tile& tile) {
  const auto* const source = reinterpret_cast<const Word*>(from);
  auto* const target = reinterpret_cast<Word*>(to);
  const uint32_t words = bytes / sizeof(Word);
  for (uint32_t first = tile.lane; first < words; first += tile.lanes * kAhead) {
    Word held[kAhead];
#pragma unroll
    for (uint32_t r = 0; r < kAhead; ++r) {
      if (first + r * tile.lanes < words) held[r] = source[first + r * tile.lanes];
    }
#pragma unroll
    for (uint32_t r = 0; r < kAhead; ++r) {
      if (first + r * tile.lanes < words) target[first + r * tile.lanes] = held[r];
    }
  }
  const uint32_t rest = words * static_cast<uint32_t>(sizeof(Word));
  for (uint32_t b = rest + tile.lane * 4; b < bytes; b += tile.lanes * 4) {
    *reinterpret_cast<uint32_t*>(to + b) = *reinterpret_cast<const uint32_t*>(from + b);
  }
}

// One side is a slot or the bypass, aligned to 16 bytes; the host's rows are aligned to 8.
__device__ void copy_bytes(const std::byte* from, std::byte* to, uint32_t bytes, const Tile& tile) {
  if (aligned<16>(from) && aligned<16>(to)) {
    copy_words<uint4>(from, to, bytes, tile);
  } else {
    copy_words<uint2>(from, to, bytes, tile);
  }
}

// host: the row's place.
__device__ void write_back_row(const std::byte* row, std::byte* host, uint32_t row_bytes,
                               uint64_t* written_back, const Tile& tile) {
  const RowHeader header = *reinterpret_cast<const RowHeader*>(row);
  RowHeader before = header;
  const auto* const there = reinterpret_cast<const RowHeader*>(host);
  before.clock = there->clock;
  before.count = there->count;
  const bool newer = is_updated(before, header);
  // All lanes have read the header that one of them writes.
  __syncwarp(tile.mask);
  if (!newer) return;
  if (tile.lane == 0) {
    *reinterpret_cast<uint2*>(host + offsetof(RowHeader, clock)) =
        *reinterpret_cast<const uint2*>(row + offsetof(RowHeader, clock));
    atomicAdd(reinterpret_cast<unsigned long long*>(written_back), 1ull);
  }
  constexpr uint32_t kHeader = sizeof(RowHeader);
  copy_bytes(row + kHeader, host + kHeader, row_bytes - kHeader, tile);
}

__device__ int64_t key_at(const std::byte* row) {
  return reinterpret_cast<const RowHeader*>(row)->key;
}

__device__ uint32_t index_of(const DeviceTransit& transit, uint32_t table, int64_t key) {
  return static_cast<uint32_t>(mix64(static_cast<uint64_t>(key) + table) >> 32) & transit.mask;
}

__global__ void index_transit(DeviceTransit transit, uint32_t tables) {
  const uint32_t count = transit.first[tables];
  for (size_t i = thread_index(); i < count; i += thread_stride()) {
    const int64_t key = key_at(transit.rows + i * transit.stride);
    uint32_t at = index_of(transit, find_range(transit.first, tables, i), key);
    while (atomicCAS(&transit.index[at], 0u, static_cast<uint32_t>(i) + 1) != 0) {
      at = (at + 1) & transit.mask;
    }
  }
}

// Null: the row is not in transit.
__device__ const std::byte* find_in_transit(const DeviceTransit& transit, uint32_t table,
                                            int64_t key) {
  if (transit.rows == nullptr) return nullptr;
  for (uint32_t at = index_of(transit, table, key);; at = (at + 1) & transit.mask) {
    if (transit.index[at] == 0) return nullptr;
    const uint32_t row = transit.index[at] - 1;
    const std::byte* const there = transit.rows + row * transit.stride;
    if (key_at(there) == key && row >= transit.first[table] && row < transit.first[table + 1])
      return there;
  }
}

// In both kernels `lanes` neighbouring lanes work on a row.
__global__ void __launch_bounds__(kBlockThreads)
    bring_in(const DeviceHostRows* tables, uint32_t count_of_tables, DeviceIncoming in,
             uint32_t lanes) {
  const Tile tile = tile_of(lanes);
  const uint32_t count = in.first[count_of_tables];
  for (size_t i = thread_index() / lanes; i < count; i += thread_stride() / lanes) {
    std::byte* const target = in.targets[i];
    if (target == nullptr) continue;
    const uint32_t table = find_range(in.first, count_of_tables, i);
    const DeviceHostRows& rows = tables[table];
    const std::byte* source = find_in_transit(in.transit, table, in.keys[i]);
    if (source == nullptr) source = host_row(rows, in.keys[i], in.places[i], tile);
    const uint32_t row_bytes = rows.row_bytes;
    if (in.victim_places != nullptr && in.victim_places[i] != kNoSlot) {
      std::byte* const host = host_row(rows, key_at(target), in.victim_places[i], tile);
      write_back_row(target, host, row_bytes, rows.written_back, tile);
    }
    // All lanes have read the row that goes.
    __syncwarp(tile.mask);
    copy_bytes(source, target, row_bytes, tile);
  }
}

__global__ void __launch_bounds__(kBlockThreads)
    write_back(const DeviceHostRows* tables, const uint32_t* first, uint32_t count_of_tables,
               DeviceOutgoing out, uint32_t lanes) {
  const Tile tile = tile_of(lanes);
  const uint32_t count = out.count != nullptr ? *out.count : first[count_of_tables];
  for (size_t i = thread_index() / lanes; i < count; i += thread_stride() / lanes) {
    const std::byte* const row =
        out.pointers != nullptr ? out.pointers[i] : out.base + i * out.stride;
    const DeviceHostRows& rows = tables[find_range(first, count_of_tables, i)];
    std::byte* const host = host_row(rows, key_at(row), out.places[i], tile);
    write_back_row(row, host, rows.row_bytes, rows.written_back, tile);
  }
}

// Tables, and rows before each: sent together.
size_t described_bytes(size_t tables) {
  return tables * sizeof(DeviceHostRows) + (tables + 1) * sizeof(uint32_t);
}

// For the longest row.
uint32_t lanes_of(const DeviceHostRows* rows, size_t tables) {
  uint32_t most = 0;
  for (size_t t = 0; t < tables; ++t) most = std::max(most, rows[t].row_bytes);
  return lanes_for(most / 4, 4);
}

}  // namespace

DeviceTransit DeviceTransit::take(DeviceArena& arena, size_t rows, size_t tables) {
  size_t slots = 64;
  while (slots < 2 * rows) slots *= 2;
  DeviceTransit transit;
  transit.first = arena.take<uint32_t>(tables + 1);
  transit.index = arena.take<uint32_t>(slots);
  transit.mask = static_cast<uint32_t>(slots - 1);
  return transit;
}

void device_index_transit(const DeviceTransit& transit, size_t tables, const uint32_t* first,
                          DeviceStream stream) {
  upload(transit.first, first, tables + 1, stream);
  check(cudaMemsetAsync(transit.index, 0, (size_t{transit.mask} + 1) * sizeof(uint32_t), stream),
        "rows: index");
  launch("rows: index", index_transit, blocks_for(first[tables]), kBlockThreads, stream, transit,
         static_cast<uint32_t>(tables));
}

size_t device_rows_scratch(size_t tables) {
  DeviceArena arena;
  arena.take<std::byte>(described_bytes(tables));
  return arena.used();
}

void device_bring_in(const DeviceHostRows* rows, size_t tables, const DeviceIncoming& in,
                     size_t most, void* scratch, size_t bytes, DeviceStream stream) {
  if (most == 0) return;
  DeviceArena arena(scratch, bytes);
  auto* const there = arena.take<DeviceHostRows>(tables);
  upload(there, rows, tables, stream);
  const uint32_t lanes = lanes_of(rows, tables);
  launch("rows: bring in", bring_in, blocks_for(most * lanes), kBlockThreads, stream, there,
         static_cast<uint32_t>(tables), in, lanes);
}

void device_write_back(const DeviceHostRows* rows, size_t tables, const uint32_t* first,
                       const DeviceOutgoing& out, void* scratch, size_t bytes,
                       DeviceStream stream) {
  const size_t most = first[tables];
  if (most == 0) return;
  DeviceArena arena(scratch, bytes);
  std::vector<std::byte> described(described_bytes(tables));
  const size_t rows_bytes = tables * sizeof(DeviceHostRows);
  std::memcpy(described.data(), rows, rows_bytes);
  std::memcpy(described.data() + rows_bytes, first, described.size() - rows_bytes);
  auto* const there = arena.take<std::byte>(described.size());
  upload_bytes(there, described.data(), described.size(), stream);
  const uint32_t lanes = lanes_of(rows, tables);
  launch("rows: write back", write_back, blocks_for(most * lanes), kBlockThreads, stream,
         reinterpret_cast<const DeviceHostRows*>(there),
         reinterpret_cast<const uint32_t*>(there + rows_bytes), static_cast<uint32_t>(tables), out,
         lanes);
}

}  // namespace hotrow
