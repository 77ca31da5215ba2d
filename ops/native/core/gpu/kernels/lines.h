// Copies of whole lines on the device: victims into a staging buffer, rows from a staging buffer
// into slots.
#pragma once

#include "core/gpu/kernels/memory.h"

namespace hotrow {

// Row i is at pointers[i], or at base + i * stride if pointers is null. Rows are on the device, or
// in registered host memory: then the kernel reads and writes them over the bus, in place.
struct DeviceLines {
  std::byte* const* pointers = nullptr;  // (count)
  std::byte* base = nullptr;
  size_t stride = 0;  // bytes
};

// Copies row_bytes (header and line, a multiple of 4) of each row i < *count; count: on the device,
// at most `most`; null: `most` rows. Rows that are null on either side are skipped.
void device_copy_lines(const DeviceLines& from, const DeviceLines& to, const uint32_t* count,
                       size_t most, size_t row_bytes, DeviceStream stream);

}  // namespace hotrow
