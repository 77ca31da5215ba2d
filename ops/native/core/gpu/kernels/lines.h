// Rows between slots and the host tier: kernels read and write them in registered host memory, over
// the bus, in place. T tables together.
#pragma once

#include "core/gpu/kernels/memory.h"
#include "core/kernels/row_line.h"

namespace hotrow {

// A table's rows in the host's memory, for kernels.
struct DeviceHostRows {
  // (partitions, most_blocks) where kernels reach the blocks (table/row_place.h).
  std::byte* const* blocks = nullptr;
  uint64_t* written_back = nullptr;  // one: counts the rows that were out of date in the host tier
  uint32_t most_blocks = 0;
  uint32_t first_shift = 0;
  uint32_t stride = 0;     // bytes of a row in a block, a multiple of 8
  uint32_t row_bytes = 0;  // header and line, a multiple of 4
  int32_t shards = 1;
  uint32_t hashed = 0;
};

// Rows outside the slots that are on their way to the host tier, of T tables, by key. Pointers: to
// the device.
struct DeviceTransit {
  const std::byte* rows = nullptr;  // (B, stride) headers and lines; null: there are none
  size_t stride = 0;                // bytes
  uint32_t* first = nullptr;        // (T + 1) rows before those of each table; the last is B
  uint32_t* index = nullptr;        // (mask + 1) open addressing: 0, or 1 + the number of a row
  uint32_t mask = 0;

  // Room for B rows.
  static DeviceTransit take(DeviceArena& arena, size_t rows, size_t tables);
};

// Writes the index of rows. first: (T + 1) on the host.
void device_index_transit(const DeviceTransit& transit, size_t tables, const uint32_t* first,
                          DeviceStream stream);

// Rows that come in, of T tables. Pointers: to the device.
struct DeviceIncoming {
  const uint32_t* first = nullptr;      // (T + 1) rows before those of each table; the last is M
  const int64_t* keys = nullptr;        // (M)
  const uint32_t* places = nullptr;     // (M) in the host tier
  std::byte* const* targets = nullptr;  // (M) where each must be written; null: it has no row
  // (M) places of the dirty rows that the targets have now, or kNoSlot; null: there are none.
  const uint32_t* victim_places = nullptr;
  // Read these rows here, not in the host tier.
  DeviceTransit transit;
};

// Rows that go out, one table after the other. Row i is at pointers[i], or at base + i * stride if
// pointers is null. Pointers: to the device.
struct DeviceOutgoing {
  std::byte* const* pointers = nullptr;  // (count)
  std::byte* base = nullptr;
  size_t stride = 0;                 // bytes
  const uint32_t* places = nullptr;  // (count) in the host tier
  const uint32_t* count = nullptr;   // one; null: all of them
};

size_t device_rows_scratch(size_t tables);

// Reads rows into their targets. Before, writes the dirty row that a target has to its place: rows
// go both ways at once. tables: (T) on the host; most: M.
void device_bring_in(const DeviceHostRows* rows, size_t tables, const DeviceIncoming& in,
                     size_t most, void* scratch, size_t bytes, DeviceStream stream);

// Writes rows to their places. first: (T + 1) on the host, rows before those of each table.
//
// A row that is up to date in the host tier is not written. No key is: the host may read the keys
// meanwhile.
void device_write_back(const DeviceHostRows* rows, size_t tables, const uint32_t* first,
                       const DeviceOutgoing& out, void* scratch, size_t bytes, DeviceStream stream);

}  // namespace hotrow
