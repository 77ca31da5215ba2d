#include "core/gpu/kernels/device_code.h"
#include "core/gpu/kernels/places.h"

namespace hotrow {
namespace {

// j: a place.
__global__ void place_keys(DeviceUnique unique, DeviceOwners owners, const DeviceKeyGroup* groups,
                           uint32_t group_count, DevicePlaced out) {
  const uint32_t distinct = owners.group_first[group_count];
  for (size_t j = thread_index(); j < distinct; j += thread_stride()) {
    const uint32_t g = find_range(owners.group_first, group_count, j);
    const size_t own = j - owners.group_first[g];
    const DeviceKeyGroup& group = groups[g];
    const uint32_t u = owners.order[j], count = unique.counts[u];
    if (group.keys != nullptr) {
      group.keys[own] = owners.grouped[j];
      group.counts[own] = count;
    }
    out.counts[j] = count;
    out.rows[j] = group.rows + own * group.width;
    out.place_of[u] = static_cast<uint32_t>(j);
  }
}

__global__ void place_positions(const int32_t* inverse, const uint32_t* place_of, uint32_t count,
                                int32_t* places) {
  for (size_t i = thread_index(); i < count; i += thread_stride()) {
    places[i] = static_cast<int32_t>(place_of[inverse[i]]);
  }
}

}  // namespace

DevicePlaced DevicePlaced::take(DeviceArena& arena, size_t count) {
  DevicePlaced out;
  out.counts = arena.take<uint32_t>(count + 1);
  out.rows = arena.take<const float*>(count);
  out.place_of = arena.take<uint32_t>(count);
  out.inverse = arena.take<int32_t>(count);
  return out;
}

void device_place_keys(const DeviceUnique& unique, size_t count, const DeviceOwners& owners,
                       const DeviceKeyGroup* groups, size_t group_count, const DevicePlaced& out,
                       DeviceStream stream) {
  check(cudaMemsetAsync(out.counts, 0, (count + 1) * sizeof(uint32_t), stream), "places");
  launch("places", place_keys, blocks_for(count), kBlockThreads, stream, unique, owners, groups,
         static_cast<uint32_t>(group_count), out);
  launch("places: positions", place_positions, blocks_for(count), kBlockThreads, stream,
         unique.inverse, out.place_of, static_cast<uint32_t>(count), out.inverse);
}

}  // namespace hotrow
