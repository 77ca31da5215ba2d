// The norm of the gradients of all tables of a step, and the factors that it clips: on one rank no
// value comes back to the host. The sibling of squared_norm and apply in table/due_gradients.cc,
// with their order: 16 float64 lanes a row, the rows of a partition in the order of the keys, the
// partitions of a table, the tables. T tables, U distinct keys (gpu/kernels/unique.h), D width.
#pragma once

#include "core/gpu/kernels/memory.h"
#include "core/gpu/kernels/unique.h"

namespace hotrow {

// The gradients of a table.
struct DeviceNormed {
  const float* sums = nullptr;  // (U of the table, D), on the device
  size_t width = 0;             // D
  float factor = 1.0f;          // of the sums
  int32_t shards = 1;
  bool hashed = false;  // owner from the mixed key
};

size_t device_clip_scratch(const DeviceNormed* gradients, size_t tables, size_t count);
// factors[t] = the table's factor, scaled down if the norm of all is above global_clip_norm.
// gradients: (T) on the host. count: at least U. lines: (U), null: no row, its gradient does not
// count. factors: (T) on the device.
void device_clip(const DeviceNormed* gradients, size_t tables, const DeviceUnique& unique,
                 size_t count, std::byte* const* lines, float global_clip_norm, float* factors,
                 void* scratch, size_t bytes, DeviceStream stream);

// *total = the sum of the squares of all gradients times their factors, on the device: for the norm
// over ranks. As device_clip, and with its scratch memory.
void device_squares(const DeviceNormed* gradients, size_t tables, const DeviceUnique& unique,
                    size_t count, std::byte* const* lines, double* total, void* scratch,
                    size_t bytes, DeviceStream stream);

}  // namespace hotrow
