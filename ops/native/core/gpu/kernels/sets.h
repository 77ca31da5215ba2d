// Sets of cached rows in kernels: what device_cache*.cu and gpu/step/serving.cu share.
#pragma once

#include "core/base/frequency_sketch.h"
#include "core/gpu/kernels/cache.h"
#include "core/gpu/kernels/device_code.h"

namespace hotrow {

constexpr uint8_t kSlotDirty = 0x80, kSlotPins = 0x7f;
constexpr uint32_t kUsesToDecay = 24;  // of a slot, as in table/row_cache.cc

// The top bits of the hash choose the set; tags use other bits.
__device__ inline uint32_t set_of(const DeviceCache& cache, uint64_t hash) {
  return static_cast<uint32_t>(high_product(hash, cache.set_count));
}
__device__ inline uint8_t tag_of(uint64_t hash) {
  const auto tag = static_cast<uint8_t>(hash >> 8);
  return tag == 0 ? 1 : tag;
}
__device__ inline std::byte* line_of(const DeviceCache& cache, uint32_t slot) {
  return cache.lines + size_t{slot} * cache.stride;
}
__device__ inline int64_t key_of(const std::byte* line) {
  return *reinterpret_cast<const int64_t*>(line);
}

// A slot's clock of 8 bits ticks once every few uses of the set.
__device__ inline uint8_t time_of(uint32_t uses) { return static_cast<uint8_t>(uses / 8); }

// A set in the registers of a warp: a way a lane, a word of the sketch in each of the first lanes.
struct WarpSet {
  uint32_t tag, state, frequency, used_at, place;
  uint64_t word;

  __device__ void load(const DeviceSet& set, uint32_t lane) {
    tag = set.tags[lane];
    state = set.states[lane];
    frequency = set.frequencies[lane];
    used_at = set.used_at[lane];
    place = set.places[lane];
    word = lane < kSketchWords ? set.sketch[lane] : 0;
  }
  __device__ void store(DeviceSet& set, uint32_t lane) const {
    set.tags[lane] = static_cast<uint8_t>(tag);
    set.states[lane] = static_cast<uint8_t>(state);
    set.frequencies[lane] = static_cast<uint8_t>(frequency);
    set.used_at[lane] = static_cast<uint8_t>(used_at);
    set.places[lane] = place;
    if (lane < kSketchWords) set.sketch[lane] = word;
  }
  __device__ uint32_t counter(const Tile& warp, uint32_t c) const {
    return read_counter(warp.from(word, c / 16), c);
  }
  // The sketch's estimate for a key without a slot.
  __device__ uint32_t known(const Tile& warp, uint64_t hash) const {
    const uint64_t mixed = mix64(hash);
    const uint32_t a = counter(warp, sketch_counter(mixed, 0, kSketchWords));
    const uint32_t b = counter(warp, sketch_counter(mixed, 1, kSketchWords));
    return a < b ? a : b;
  }
  // Conservative: no counter gets more than the key needs.
  __device__ void raise(const Tile& warp, uint64_t hash, uint32_t count) {
    const uint64_t mixed = mix64(hash), wanted = count < kMostCount ? count : kMostCount;
    for (uint32_t row = 0; row < kCountersOfKey; ++row) {
      const uint32_t c = sketch_counter(mixed, row, kSketchWords);
      if (warp.lane != c / 16 || read_counter(word, c) >= wanted) continue;
      word = with_counter(word, c, wanted);
    }
  }
  // The way of a new row: a free one, else the way of the unpinned row that is worth least; or 32.
  // `least`: the victim's worth, 0 for a free way.
  __device__ uint32_t choose(const Tile& warp, CachePolicy policy, uint32_t now,
                             uint32_t* least) const {
    const unsigned open = __ballot_sync(kAllLanes, tag == 0);
    *least = 0;
    if (open != 0) return static_cast<uint32_t>(__ffs(static_cast<int>(open))) - 1;
    const uint32_t worth = policy == CachePolicy::kLfu ? frequency : 0;
    // Of equals, the least recently used one, then the first.
    const uint32_t idle = (now - used_at) & 0xffu;
    const uint32_t rank = worth << 16 | (255 - idle) << 8 | warp.lane;
    const unsigned best = __reduce_min_sync(kAllLanes, (state & kSlotPins) != 0 ? ~0u : rank);
    if (best == ~0u) return kDeviceWays;
    *least = best >> 16;
    return best & 0xffu;
  }
};

}  // namespace hotrow
