#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>

#include "core/gpu/kernels/device_code.h"
#include "core/gpu/kernels/primitives.h"

// Tests do not compile this file for the CPU; they use its sibling tests/simt/primitives.cc.
namespace hotrow {

size_t exclusive_sum_scratch(size_t count) {
  size_t bytes = 0;
  uint32_t* const none = nullptr;
  check(cub::DeviceScan::ExclusiveSum(nullptr, bytes, none, none, static_cast<int>(count)), "scan");
  return bytes;
}

void exclusive_sum(const uint32_t* in, uint32_t* out, size_t count, void* scratch, size_t bytes,
                   DeviceStream stream) {
  if (count == 0) return;
  check(cub::DeviceScan::ExclusiveSum(scratch, bytes, in, out, static_cast<int>(count), stream),
        "scan");
}

size_t sort_pairs_scratch(size_t count, int bits) {
  size_t bytes = 0;
  uint32_t* const none = nullptr;
  check(cub::DeviceRadixSort::SortPairs(nullptr, bytes, none, none, none, none,
                                        static_cast<int>(count), 0, bits),
        "sort");
  return bytes;
}

void sort_pairs(const uint32_t* keys, uint32_t* sorted_keys, const uint32_t* values,
                uint32_t* sorted_values, size_t count, int bits, void* scratch, size_t bytes,
                DeviceStream stream) {
  if (count == 0) return;
  check(cub::DeviceRadixSort::SortPairs(scratch, bytes, keys, sorted_keys, values, sorted_values,
                                        static_cast<int>(count), 0, bits, stream),
        "sort");
}

}  // namespace hotrow
