// Lookups of cached rows: all features of all tables of a request in one launch, pooled with the
// bits of kernels/pooling.h. The sibling of ServingLookup's probe and pool.
//
// An output of which all rows are cached is written. The others are left to the host, which pools
// them by the CPU's path: rows that a set has lost meanwhile never mix with those found before.
#pragma once

#include <vector>

#include "core/gpu/serving/cache.h"
#include "core/kernels/pooling.h"
#include "core/store/row_codec.h"

namespace hotrow {

// The widest rows, D: a block stages those of four outputs.
constexpr size_t kMostServedWidth = 1024;

// The keys of a cut's layer, on the device: a row of such a key is the layer's.
struct LayerKeys {
  struct alignas(16) Slot {
    int64_t key;
    uint32_t table;  // 1 + its number among all tables; 0: free
    uint32_t unused;
  };
  const Slot* slots = nullptr;
  uint64_t mask = 0;  // their number is a power of two, less one

  HOTROW_HD static uint64_t home(int64_t key, uint32_t table) {
    return combine64(static_cast<uint64_t>(key), table);
  }
};

// A feature of a lookup; its pointers are to the device. N keys, D width, B outputs.
struct ServedFeature {
  const int64_t* keys;        // (N)
  const int64_t* row_splits;  // (B + 1), ascending from 0 to N; or null
  const float* weights;       // (N), or null
  float* outputs;             // (B, D)
  ServingCache cache;
  ServedTable table;      // in its cache
  uint32_t table_in_all;  // its number among all tables
  uint32_t first;         // outputs of the features before it
  uint32_t width;         // D
  Combiner combiner;
  StoredType type;
};
static_assert(sizeof(ServedFeature) % 4 == 0);

// Writes the outputs whose rows are all cached, and sets left[o] to 1 for each other output o of
// all. Rows of keys that a layer has, and rows newer than `newest` (0: none is), count as missing.
// features: (count), layers: (layer_count), at most kMostDeviceLayers; both on the device. left:
// (outputs) zeros, in memory that the device may write. random: differs from call to call.
void device_serving_lookup(const ServedFeature* features, size_t count, size_t outputs,
                           const LayerKeys* layers, size_t layer_count, RowVersion newest,
                           uint8_t now, uint64_t random, uint8_t* left, DeviceStream stream);

// A row of floats for an output.
struct LeftRow {
  uint64_t from;  // its first float
  float* to;
  uint64_t width;
};
// Copies rows from pinned memory to the device. rows: (count), with `floats` in pinned memory.
void device_write_left(const LeftRow* rows, size_t count, const float* floats, DeviceStream stream);

}  // namespace hotrow
