#include "core/gpu/kernels/device_code.h"
#include "core/gpu/kernels/primitives.h"
#include "core/gpu/kernels/sets.h"
#include "core/gpu/step/serving.h"

namespace hotrow {
namespace {

// How often a lookup tries when the row's set changes meanwhile.
constexpr int kTries = 8;

// The way of a key, or 32. All lanes of the warp call it together. The result is valid only if the
// version then confirms it.
__device__ uint32_t find_way(const DeviceSet& set, const std::byte* lines, uint32_t stride,
                             uint32_t tag, int64_t key, uint32_t lane) {
  unsigned fits = __ballot_sync(kAllLanes, load_relaxed(&set.tags[lane]) == tag);
  for (; fits != 0; fits &= fits - 1) {
    const uint32_t way = static_cast<uint32_t>(__ffs(static_cast<int>(fits))) - 1;
    const auto* const at = reinterpret_cast<const int64_t*>(lines + size_t{way} * stride);
    if (__all_sync(kAllLanes, load_relaxed(at) == key)) return way;
  }
  return kDeviceWays;
}

// A warp a key.
__global__ void __launch_bounds__(kBlockThreads, 4)
    serve(DeviceCache cache, const int64_t* keys, uint32_t count, uint8_t now, std::byte* rows,
          uint64_t row_stride, Served* served) {
  const uint32_t lane = threadIdx.x % kWarp;
  for (size_t i = thread_index() / kWarp; i < count; i += thread_stride() / kWarp) {
    const int64_t key = keys[i];
    const uint64_t hash = mix64(static_cast<uint64_t>(key));
    const uint32_t number = set_of(cache, hash);
    DeviceSet& set = cache.sets[number];
    const std::byte* const lines = line_of(cache, number * kDeviceWays);
    auto* const out = reinterpret_cast<uint4*>(rows + i * row_stride);
    Served result = Served::kBusy;
    for (int tries = 0; tries < kTries && result == Served::kBusy; ++tries) {
      // Each lane reads the version itself: the version confirms only what the lane read between
      // its two reads.
      const uint32_t before = load_acquire(&set.version);
      const uint32_t way = find_way(set, lines, cache.stride, tag_of(hash), key, lane);
      if (way < kDeviceWays) {
        const auto* const line = reinterpret_cast<const uint4*>(lines + size_t{way} * cache.stride);
        for (uint32_t w = lane; w < cache.stride / 16; w += kWarp) {
          out[w] = load_relaxed_four(line + w);
        }
      }
      __threadfence();
      const uint32_t after = load_relaxed(&set.version);
      const uint32_t first = __shfl_sync(kAllLanes, before, 0);
      if (!__all_sync(kAllLanes, before == first && after == first && first % 2 == 0)) continue;
      result = way < kDeviceWays ? Served::kFound : Served::kMissing;
      // This does no harm if the row has left meanwhile.
      if (way < kDeviceWays && lane == 0) store_relaxed(&set.used_at[way], now);
    }
    if (lane == 0) served[i] = result;
  }
}

__global__ void number_keys(DeviceCache cache, const int64_t* keys, uint32_t count, uint32_t* sets,
                            uint32_t* numbers) {
  for (size_t i = thread_index(); i < count; i += thread_stride()) {
    sets[i] = set_of(cache, mix64(static_cast<uint64_t>(keys[i])));
    numbers[i] = static_cast<uint32_t>(i);
  }
}

// A free way, else the least recently used one.
__device__ uint32_t way_for_new(const DeviceSet& set, uint8_t now, uint32_t lane) {
  const unsigned open = __ballot_sync(kAllLanes, set.tags[lane] == 0);
  if (open != 0) return static_cast<uint32_t>(__ffs(static_cast<int>(open))) - 1;
  const uint32_t idle = static_cast<uint8_t>(now - load_relaxed(&set.used_at[lane]));
  return __reduce_min_sync(kAllLanes, (255 - idle) << 8 | lane) & 0xffu;
}

// A warp works on all keys of a set (sorted by set), as in choose_slots: so no two warps write one
// set.
__global__ void __launch_bounds__(kBlockThreads, 4)
    change(ServingCache cache, ServingUpdate what, const int64_t* keys, uint32_t count, uint8_t now,
           ServingTicket ticket, const std::byte* rows, uint64_t row_stride, const uint32_t* sets,
           const uint32_t* numbers) {
  const uint32_t lane = threadIdx.x % kWarp;
  for (size_t i = thread_index() / kWarp; i < count; i += thread_stride() / kWarp) {
    const uint32_t number = sets[i];
    if (i > 0 && sets[i - 1] == number) continue;
    const ServingTicket changed_at = cache.changed_at[number];
    if (what == ServingUpdate::kFill && changed_at > ticket) continue;
    __syncwarp();
    if (what != ServingUpdate::kFill && changed_at < ticket && lane == 0) {
      cache.changed_at[number] = ticket;
    }
    DeviceSet& set = cache.sets[number];
    std::byte* const lines = line_of(cache, number * kDeviceWays);
    for (size_t j = i; j < count && sets[j] == number; ++j) {
      const int64_t key = keys[numbers[j]];
      const uint8_t tag = tag_of(mix64(static_cast<uint64_t>(key)));
      uint32_t way = find_way(set, lines, cache.stride, tag, key, lane);
      const std::byte* const row = rows + size_t{numbers[j]} * row_stride;
      if (what == ServingUpdate::kRemove) {
        if (way == kDeviceWays) continue;
      } else if (way < kDeviceWays) {
        const auto clock_of = [](const std::byte* line) {
          return reinterpret_cast<const uint32_t*>(line)[2];
        };
        if (clock_of(row) < clock_of(lines + size_t{way} * cache.stride)) continue;
      } else {
        if (what == ServingUpdate::kWrite) continue;
        way = way_for_new(set, now, lane);
      }
      // Both fences come after a barrier, since a fence orders only what its thread did or knew of
      // before. Here each lane knows the odd version and then fences, so a reader that sees any of
      // its later writes sees the odd version, too. At the end lane 0 knows the writes of all
      // lanes and then releases the even version, so a reader that acquires it sees all of them.
      const uint32_t version = set.version;
      __syncwarp();
      if (lane == 0) store_relaxed(&set.version, version + 1);
      __syncwarp();
      __threadfence();
      if (what == ServingUpdate::kRemove) {
        if (lane == 0) store_relaxed(&set.tags[way], uint8_t{0});
      } else {
        auto* const line = reinterpret_cast<uint4*>(lines + size_t{way} * cache.stride);
        const auto* const from = reinterpret_cast<const uint4*>(row);
        for (uint32_t w = lane; w < cache.stride / 16; w += kWarp) {
          store_relaxed_four(line + w, from[w]);
        }
        if (lane == 0) {
          store_relaxed(&set.tags[way], tag);
          store_relaxed(&set.used_at[way], now);
        }
      }
      __syncwarp();
      if (lane == 0) store_release(&set.version, version + 2);
      __syncwarp();
    }
  }
}

struct ChangeScratch {
  ChangeScratch(DeviceArena& arena, size_t count) {
    sets = arena.take<uint32_t>(count);
    numbers = arena.take<uint32_t>(count);
    sorted_sets = arena.take<uint32_t>(count);
    sorted_numbers = arena.take<uint32_t>(count);
    sort_bytes = sort_pairs_scratch(count, 32);
    sort = arena.take<std::byte>(sort_bytes);
  }
  uint32_t *sets, *numbers, *sorted_sets, *sorted_numbers;
  size_t sort_bytes;
  std::byte* sort;
};

void check_stride(const DeviceCache& cache, size_t row_stride) {
  if (row_stride % 16 == 0 && row_stride >= cache.stride) return;
  fail(Code::kInvalidArgument, "rows of %zu bytes; a multiple of 16, at least %u", row_stride,
       cache.stride);
}

}  // namespace

ServingCache ServingCache::take(DeviceArena& arena, size_t rows, size_t line_bytes) {
  ServingCache cache;
  static_cast<DeviceCache&>(cache) = DeviceCache::take(arena, rows, line_bytes, CachePolicy::kLru);
  cache.changed_at = arena.take<uint64_t>(cache.set_count);
  return cache;
}

void device_serving_clear(const ServingCache& cache, DeviceStream stream) {
  device_cache_clear(cache, stream);
  check(cudaMemsetAsync(cache.changed_at, 0, cache.set_count * sizeof(uint64_t), stream), "clear");
}

void device_serving_lookup(const DeviceCache& cache, const int64_t* keys, size_t count, uint8_t now,
                           std::byte* rows, size_t row_stride, Served* served,
                           DeviceStream stream) {
  check_stride(cache, row_stride);
  if (count == 0) return;
  launch("serve", serve, blocks_for(count, kBlockThreads / kWarp), kBlockThreads, stream, cache,
         keys, static_cast<uint32_t>(count), now, rows, row_stride, served);
}

size_t device_serving_update_scratch(size_t count) {
  DeviceArena arena;
  ChangeScratch scratch(arena, count);
  return arena.used();
}

void device_serving_update(const ServingCache& cache, ServingUpdate what, const int64_t* keys,
                           size_t count, uint8_t now, ServingTicket ticket, const std::byte* rows,
                           size_t row_stride, void* scratch, size_t bytes, DeviceStream stream) {
  if (what != ServingUpdate::kRemove) check_stride(cache, row_stride);
  if (count == 0) return;
  DeviceArena arena(scratch, bytes);
  const ChangeScratch s(arena, count);
  const uint32_t n = static_cast<uint32_t>(count);
  launch("change: sets", number_keys, blocks_for(count), kBlockThreads, stream, cache, keys, n,
         s.sets, s.numbers);
  sort_pairs(s.sets, s.sorted_sets, s.numbers, s.sorted_numbers, count, bits_for(cache.set_count),
             s.sort, s.sort_bytes, stream);
  launch("change", change, blocks_for(count, kBlockThreads / kWarp), kBlockThreads, stream, cache,
         what, keys, n, now, ticket, rows, row_stride, s.sorted_sets, s.sorted_numbers);
}

}  // namespace hotrow
