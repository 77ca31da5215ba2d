// A batch's distinct keys in the messages to their owners, and their rows in the messages from them
// (docs/design/0009-ranks.md). N keys, U distinct ones (gpu/kernels/unique.h), D width.
#pragma once

#include "core/gpu/kernels/unique.h"

namespace hotrow {

// Where a group's keys (table, owner) go, and where their rows come from. On the device.
struct DeviceKeyGroup {
  int64_t* keys;     // (n) in the message to the owner, or null: they are there
  uint32_t* counts;  // (n) how often each appeared
  float* rows;       // (n, D) in the message from it
  uint64_t width;    // D
};

// A distinct key's place is its number among the grouped ones.
struct DevicePlaced {
  uint32_t* counts = nullptr;    // (U) by place; room for N + 1, the rest is 0
  const float** rows = nullptr;  // (U) by place
  uint32_t* place_of = nullptr;  // (U)
  int32_t* inverse = nullptr;    // (N): keys[i] has that place

  static DevicePlaced take(DeviceArena& arena, size_t count);
};
// Writes keys and counts of the groups that have a message, and the addresses of all rows.
void device_place_keys(const DeviceUnique& unique, size_t count, const DeviceOwners& owners,
                       const DeviceKeyGroup* groups, size_t group_count, const DevicePlaced& out,
                       DeviceStream stream);

}  // namespace hotrow
