// The sibling of core/gpu/kernels/primitives.cu on the CPU.
#include "core/gpu/kernels/primitives.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/gpu/kernels/api.h"

namespace hotrow {

size_t exclusive_sum_scratch(size_t) { return 0; }

void exclusive_sum(const uint32_t* in, uint32_t* out, size_t count, void*, size_t,
                   DeviceStream stream) {
  simt::enqueue(stream, [=] { std::exclusive_scan(in, in + count, out, 0u); });
  check(cudaGetLastError(), "scan");
}

size_t sort_pairs_scratch(size_t, int) { return 0; }

void sort_pairs(const uint32_t* keys, uint32_t* sorted_keys, const uint32_t* values,
                uint32_t* sorted_values, size_t count, int bits, void*, size_t,
                DeviceStream stream) {
  simt::enqueue(stream, [=] {
    const uint32_t mask = bits >= 32 ? 0xffffffffu : (1u << bits) - 1;
    std::vector<uint32_t> order(count);
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return (keys[a] & mask) < (keys[b] & mask); });
    for (size_t i = 0; i < count; ++i) {
      sorted_keys[i] = keys[order[i]];
      sorted_values[i] = values[order[i]];
    }
  });
  check(cudaGetLastError(), "sort");
}

}  // namespace hotrow
