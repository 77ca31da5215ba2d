// Gradients of backward passes that wait on a GPU for a commit. A commit of several passes makes
// one row of entries, and sums it by distinct key as in a batch. The sibling of SummedGradients and
// of merge in table/due_gradients.cc.
//
// T tables, U distinct keys of a table in a pass, D width, E entries: all U together. Pointers: to
// the device.
#pragma once

#include "core/gpu/kernels/described.h"
#include "core/gpu/kernels/runtime.h"
#include "core/gpu/kernels/unique.h"

namespace hotrow {

// A table's share of a pass.
struct DeviceSummed {
  int64_t* keys = nullptr;     // (U)
  uint32_t* counts = nullptr;  // (U) lookups; 0: it had no row, and its gradient is dropped
  float* sums = nullptr;       // (U, D)

  static DeviceSummed take(DeviceArena& arena, size_t distinct, size_t width);
};

// The contents of a GradientPasses slot for a table on a GPU.
struct DevicePass {
  DeviceSummed summed;
  size_t distinct = 0;   // U
  uint64_t lookups = 0;  // of keys that had a row
  DeviceBlock memory;
};

// Writes keys and counts of a pass. to: (T). most: at least the U of all tables. lines: (U) of all
// tables; null: no row.
void device_note_keys(const DeviceSummed* to, size_t tables, const DeviceUnique& unique,
                      std::byte* const* lines, size_t most, DeviceStream stream);

// A share of a commit.
struct DeviceShare {
  DeviceSummed from;
  size_t distinct;  // U
  size_t width;     // D
  float factor;     // of its gradients
};

// Keys that had a row, pass by pass.
struct DeviceEntries {
  int64_t* keys = nullptr;           // (E)
  uint32_t* counts = nullptr;        // (E) lookups
  const float** rows = nullptr;      // (E) pointers to (D)
  float* factors = nullptr;          // (E)
  uint32_t* table_begins = nullptr;  // (T + 2): the rest of E belongs to no table

  static DeviceEntries take(DeviceArena& arena, size_t entries, size_t tables);
};

// Shares for kernels, on the device.
struct DescribedShares {
  const void* shares = nullptr;
  const uint32_t *begins = nullptr, *table_entries = nullptr;
  uint32_t count = 0;
};
// shares: on the host, grouped by table. share_first: (T + 1) of table t; the last is their number.
DescribedShares describe_shares(const DeviceShare* shares, const uint32_t* share_first,
                                size_t tables, DeviceDescribed* to);
size_t device_list_entries_scratch(size_t entries);
// entries: E.
void device_list_entries(const DescribedShares& shares, size_t tables, size_t entries,
                         const DeviceEntries& out, void* scratch, size_t bytes,
                         DeviceStream stream);

// counts[u] = the sum over the entries of distinct key u; (E), the rest is 0. inverse: (E).
void device_add_counts(const DeviceEntries& entries, const int32_t* inverse, size_t count,
                       uint32_t* counts, DeviceStream stream);

}  // namespace hotrow
