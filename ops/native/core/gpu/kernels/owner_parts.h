// The keys of each feature that a rank owns, as features of their own: scheme kRowBroadcast
// (docs/design/0009-ranks.md). Keys are grouped by feature and owner by device_owners, with
// features in the place of tables and all keys in the place of distinct ones. N keys, B outputs.
#pragma once

#include "core/gpu/kernels/unique.h"

namespace hotrow {

// weights: (N), weights[j] = shares[order[j]].
void device_order_weights(const DeviceOwners& owners, const float* shares, size_t count,
                          float* weights, DeviceStream stream);

// The row splits of a feature's keys in a group.
struct DevicePartSplits {
  const int64_t* row_splits = nullptr;  // (B + 1) of the whole feature; null: a key an output
  size_t first_key = 0;                 // position of its first key among the N
  size_t outputs = 0;                   // B
  size_t group = 0;
  int64_t* to = nullptr;  // (B + 1)
};

size_t device_part_splits_scratch(size_t parts);
// parts: (count) on the host.
void device_write_part_splits(const DevicePartSplits* parts, size_t count,
                              const DeviceOwners& owners, void* scratch, size_t bytes,
                              DeviceStream stream);

}  // namespace hotrow
