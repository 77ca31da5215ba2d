// Scans and sorts on the device: CUB's (gpu/kernels/primitives.cu).
#pragma once

#include "core/gpu/kernels/memory.h"

namespace hotrow {

// out[i] = in[0] + ... + in[i - 1]; both (count), and may be the same.
size_t exclusive_sum_scratch(size_t count);
void exclusive_sum(const uint32_t* in, uint32_t* out, size_t count, void* scratch, size_t bytes,
                   DeviceStream stream);

// Sorts pairs by the low `bits` bits of their keys, stably. All (count), all apart.
size_t sort_pairs_scratch(size_t count, int bits);
void sort_pairs(const uint32_t* keys, uint32_t* sorted_keys, const uint32_t* values,
                uint32_t* sorted_values, size_t count, int bits, void* scratch, size_t bytes,
                DeviceStream stream);

}  // namespace hotrow
