// The keys of a layer's call in one row, checked; and small steps of its lookup between the kernels
// of the cache. F features, T tables, N keys, U distinct ones, M missing. gpu/step/call_keys.h
// prepares them.
#pragma once

#include "core/gpu/kernels/cache.h"

namespace hotrow {

// A feature.
struct DeviceKeyPiece {
  const int64_t* keys;        // (N of the feature)
  const uint32_t* counts;     // (N of the feature) lookups that each stands for; null: one each
  const int64_t* row_splits;  // (B + 1), or null
  int64_t vocabulary_size;    // -1: every key
  int64_t count;              // N of the feature
};

// The errors in a call's keys.
struct WrongKeys {
  static constexpr uint32_t kNone = 0xffffffffu;
  uint32_t key;      // position of the first key out of the vocabulary
  uint32_t feature;  // the first feature whose row_splits do not ascend from 0 to N
};

// Features in the order of their tables. All pointers: to the device.
struct DeviceKeyPieces {
  const DeviceKeyPiece* pieces;  // (F)
  size_t features;               // F
  const uint32_t* begins;        // (F + 1) positions of their first keys
  const uint32_t* split_begins;  // (F + 1) of their row_splits; null: there are none
  size_t count;                  // N
  size_t splits;                 // row_splits of all
};

// keys: (N). wrong: one.
void device_collect_keys(const DeviceKeyPieces& pieces, int64_t* keys, WrongKeys* wrong,
                         DeviceStream stream);

// The lookups of distinct keys, where keys stand for several.
struct DeviceLookups {
  uint32_t* counts = nullptr;       // (U); room for N + 1, the rest is 0
  uint32_t* table_first = nullptr;  // (T + 1) lookups before those of table t, modulo 2^32

  static DeviceLookups take(DeviceArena& arena, size_t count, size_t tables);
};
size_t device_count_lookups_scratch(size_t count);
// inverse: (N). distinct_first: (T + 1) of device_unique.
void device_count_lookups(const DeviceKeyPieces& pieces, const int32_t* inverse,
                          const uint32_t* distinct_first, size_t tables, const DeviceLookups& out,
                          void* scratch, size_t bytes, DeviceStream stream);

// What the host must know of a lookup, in pinned memory.
struct DeviceAnswer {
  WrongKeys* wrong = nullptr;
  uint32_t* table_first = nullptr;    // (T + 1) distinct keys before table t; the last is U
  uint32_t* missing_first = nullptr;  // (T + 1) of them missing; the last is M
  uint32_t* lookups_first = nullptr;  // (T + 1) lookups, if they are counted
  int64_t* keys = nullptr;            // (M)
  uint32_t* counts = nullptr;         // (M) how often missing keys appeared

  // Room for M = count.
  static DeviceAnswer take(DeviceArena& arena, size_t tables, size_t count);
};
// Writes it from the device, so there is nothing to copy but what there is. counts: (U).
// lookups_first: (T + 1), or null; wrong: one, or null: no key is. most: N.
void device_answer(const DeviceProbed& probed, size_t tables, const uint32_t* distinct_first,
                   const uint32_t* counts, const uint32_t* lookups_first, const WrongKeys* wrong,
                   size_t most, const DeviceAnswer& answer, DeviceStream stream);
// Rows of a lookup that changes nothing lie beside the slots, in the order of the missing keys.
// places: (M), kNoSlot: no row. targets: (M) where they must be written.
void device_set_beside(const DeviceProbed& probed, size_t missing, const uint32_t* places,
                       const DeviceBypass& beside, std::byte** targets, DeviceStream stream);
// Removes the lines of keys that had none in `before`, a probe of the same keys. count: one, U.
void device_drop_absent(const DeviceProbed& before, const uint32_t* count, size_t most,
                        const DeviceProbed& probed, DeviceStream stream);

}  // namespace hotrow
