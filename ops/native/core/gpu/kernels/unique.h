// Distinct keys of a batch on the device, of all tables of a layer at once: the sibling of
// base/unique.h and base/dispatch.h, with the same results.
//
// N keys of T tables, grouped by table. U distinct keys, in the order of their first appearance, so
// they are grouped by table, too. Only the device knows U: arrays have room for N, and kernels read
// `table_first[T]`.
#pragma once

#include "core/gpu/kernels/memory.h"

namespace hotrow {

// All pointers: on the device.
struct DeviceKeys {
  const int64_t* keys = nullptr;           // (N), every value is legal
  size_t count = 0;                        // N, at most 2^31 - 2
  const uint32_t* table_begins = nullptr;  // (T + 1): table t has keys [begins[t], begins[t + 1])
  size_t tables = 1;                       // T
};

struct DeviceUnique {
  int64_t* keys = nullptr;          // (U); room for N
  uint64_t* hashes = nullptr;       // (U) mix64 of the keys; room for N
  uint32_t* counts = nullptr;       // (U) how often each appeared; room for N + 1, the rest is 0
  int32_t* inverse = nullptr;       // (N): keys[i] is distinct key inverse[i]
  uint32_t* table_first = nullptr;  // (T + 1): distinct keys before table t; the last is U

  // Takes the arrays above from an arena.
  static DeviceUnique take(DeviceArena& arena, size_t count, size_t tables);
};

size_t device_unique_scratch(size_t count);
// Fails for more than 2^31 - 2 keys.
void device_unique(const DeviceKeys& keys, const DeviceUnique& out, void* scratch, size_t bytes,
                   DeviceStream stream);

// The positions of the keys grouped by distinct key, ascending in a group: position order[j] for
// begins[u] <= j < begins[u + 1] has distinct key u. So sums over them have a fixed order.
struct DevicePositions {
  uint32_t* begins = nullptr;  // (U + 1); room for N + 1, the rest is N
  uint32_t* order = nullptr;   // (N)

  static DevicePositions take(DeviceArena& arena, size_t count);
};

size_t device_positions_scratch(size_t count);
void device_positions(const DeviceUnique& unique, size_t count, const DevicePositions& out,
                      void* scratch, size_t bytes, DeviceStream stream);

// The owner of a table's keys.
struct DeviceOwnerRule {
  int32_t owner = -1;   // of all keys; -1: owner_of
  uint32_t hashed = 0;  // owner_of mixes the key first
};

// Distinct keys grouped by table and owner, in their order inside a group.
struct DeviceOwners {
  int64_t* grouped = nullptr;       // (U): keys[order[i]]; room for N
  uint32_t* order = nullptr;        // (U); room for N
  uint32_t* group_first = nullptr;  // (T * shards + 1): group t * shards + s; the last is U

  static DeviceOwners take(DeviceArena& arena, size_t count, size_t groups);
};

size_t device_owners_scratch(size_t count, size_t tables, size_t shards);
// shards >= 1. rules: (T) on the host.
void device_owners(const DeviceUnique& unique, size_t count, size_t tables, int32_t shards,
                   const DeviceOwnerRule* rules, const DeviceOwners& out, void* scratch,
                   size_t bytes, DeviceStream stream);

}  // namespace hotrow
