#include <vector>

#include "core/gpu/kernels/block_pieces.h"
#include "core/gpu/kernels/owner_parts.h"

namespace hotrow {
namespace {

__global__ void order_weights(const uint32_t* order, const float* shares, uint32_t count,
                              float* weights) {
  for (size_t j = thread_index(); j < count; j += thread_stride()) weights[j] = shares[order[j]];
}

// A part for kernels. Blocks [first_block, that of the next part) do its work.
struct Part {
  const int64_t* row_splits;
  int64_t* to;
  uint32_t first_key, outputs, group, first_block;
};

// A split is the number of the group's keys before it: their positions ascend.
__global__ void write_splits(const Part* parts, uint32_t count, const uint32_t* order,
                             const uint32_t* group_first) {
  const Part part = parts[find_block(parts, count)];
  const uint32_t b = (blockIdx.x - part.first_block) * blockDim.x + threadIdx.x;
  if (b > part.outputs) return;
  const uint32_t first = group_first[part.group], end = group_first[part.group + 1];
  const uint64_t wanted =
      part.first_key + (part.row_splits == nullptr ? b : static_cast<uint64_t>(part.row_splits[b]));
  uint32_t low = first, high = end;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (order[middle] < wanted) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  part.to[b] = static_cast<int64_t>(low - first);
}

}  // namespace

void device_order_weights(const DeviceOwners& owners, const float* shares, size_t count,
                          float* weights, DeviceStream stream) {
  if (count == 0) return;
  launch("parts: weights", order_weights, blocks_for(count), kBlockThreads, stream, owners.order,
         shares, static_cast<uint32_t>(count), weights);
}

size_t device_part_splits_scratch(size_t parts) {
  DeviceArena arena;
  arena.take<Part>(parts);
  return arena.used();
}

void device_write_part_splits(const DevicePartSplits* parts, size_t count,
                              const DeviceOwners& owners, void* scratch, size_t bytes,
                              DeviceStream stream) {
  if (count == 0) return;
  BlockNumbers blocks;
  std::vector<Part> pieces;
  for (size_t i = 0; i < count; ++i) {
    const DevicePartSplits& part = parts[i];
    pieces.push_back({part.row_splits, part.to, static_cast<uint32_t>(part.first_key),
                      static_cast<uint32_t>(part.outputs), static_cast<uint32_t>(part.group),
                      blocks.next(part.outputs / kBlockThreads + 1)});
  }
  DeviceArena arena(scratch, bytes);
  Part* const there = arena.take<Part>(count);
  upload(there, pieces.data(), pieces.size(), stream);
  launch("parts: splits", write_splits, blocks.count(), kBlockThreads, stream, there,
         static_cast<uint32_t>(count), owners.order, owners.group_first);
}

}  // namespace hotrow
