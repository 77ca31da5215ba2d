// A lookup's read of a row of a serving cache, beside updates.
#pragma once

#include "core/gpu/kernels/device_code.h"
#include "core/gpu/kernels/sets.h"
#include "core/gpu/serving/cache.h"

namespace hotrow {

// How often a read tries when the row's set changes meanwhile.
constexpr int kServingTries = 8;
// Uses are counted one by one up to this.
constexpr uint32_t kCountedUses = 8;

__device__ inline uint64_t serving_hash(int64_t key, uint64_t salt) {
  return mix64(static_cast<uint64_t>(key) ^ salt);
}
__device__ inline const ServedHeader* served_header(const std::byte* line) {
  return reinterpret_cast<const ServedHeader*>(line);
}

// The way of a key, or kDeviceWays. All lanes of the warp call it together. Beside updates the
// result is valid only if the set's version then confirms it.
__device__ inline uint32_t find_served(const DeviceSet& set, const std::byte* lines,
                                       uint32_t stride, uint32_t table, uint32_t tag, int64_t key,
                                       uint32_t lane) {
  unsigned fits = __ballot_sync(
      kAllLanes, load_relaxed(&set.tags[lane]) == tag && load_relaxed(&set.places[lane]) == table);
  for (; fits != 0; fits &= fits - 1) {
    const uint32_t way = static_cast<uint32_t>(__ffs(static_cast<int>(fits))) - 1;
    const int64_t* const at = &served_header(lines + size_t{way} * stride)->key;
    if (__all_sync(kAllLanes, load_relaxed(at) == key)) return way;
  }
  return kDeviceWays;
}

// Notes a use. The counters of LFU are approximate, as those of HotRows: they rise ever more
// rarely, by ever more, and saturate, so that the most read rows are written least.
__device__ inline void note_served(const ServingCache& cache, DeviceSet& set, uint32_t way,
                                   uint8_t now, uint64_t random) {
  if (cache.policy == CachePolicy::kLru) {
    if (load_relaxed(&set.used_at[way]) != now) store_relaxed(&set.used_at[way], now);
    return;
  }
  const uint32_t uses = load_relaxed(&set.frequencies[way]);
  if (uses == 0xff) return;
  uint32_t more = 1;
  for (uint32_t reached = kCountedUses; reached <= uses; reached *= 2) more *= 2;
  if ((random & (more - 1)) != 0) return;
  store_relaxed(&set.frequencies[way],
                static_cast<uint8_t>(uses + more < 0xff ? uses + more : 0xff));
}

// Copies header and row of a key to `line`, (stride) bytes that belong to the warp; after a
// __syncwarp all lanes may read them. False: it is not cached, or its set keeps changing. All lanes
// of the warp call it together.
__device__ inline bool read_served(const ServingCache& cache, const ServedTable& table, int64_t key,
                                   uint8_t now, uint64_t random, uint4* line, uint32_t lane) {
  const uint64_t hash = serving_hash(key, table.salt);
  const uint32_t number = set_of(cache, hash);
  DeviceSet& set = cache.sets[number];
  const std::byte* const lines = line_of(cache, number * kDeviceWays);
  for (int tries = 0; tries < kServingTries; ++tries) {
    // Each lane reads the version itself: the version confirms only what the lane read between its
    // two reads.
    const uint32_t before = load_acquire(&set.version);
    const uint32_t way =
        find_served(set, lines, cache.stride, table.number, tag_of(hash), key, lane);
    if (way < kDeviceWays) {
      const auto* const from = reinterpret_cast<const uint4*>(lines + size_t{way} * cache.stride);
      for (uint32_t w = lane; w < cache.stride / 16; w += kWarp) {
        line[w] = load_relaxed_four(from + w);
      }
    }
    __threadfence();
    const uint32_t after = load_relaxed(&set.version);
    const uint32_t first = __shfl_sync(kAllLanes, before, 0);
    if (!__all_sync(kAllLanes, before == first && after == first && first % 2 == 0)) continue;
    if (way == kDeviceWays) return false;
    // This does no harm if the row has left meanwhile.
    if (lane == 0) note_served(cache, set, way, now, random);
    return true;
  }
  return false;
}

}  // namespace hotrow
