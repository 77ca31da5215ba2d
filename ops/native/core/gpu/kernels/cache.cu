#include "core/gpu/kernels/cache.h"
#include "core/gpu/kernels/device_code.h"
#include "core/gpu/kernels/primitives.h"
#include "core/gpu/kernels/sets.h"

namespace hotrow {
namespace {

// How many keys of a warp load their sets, and then their headers, together.
constexpr uint32_t kTogether = 4;

// A warp looks 32 keys up: its lanes compare the 32 tags of a set, then each lane takes the result
// of its own key. is_missing: (count + 1).
__global__ void __launch_bounds__(kBlockThreads)
    probe(const DeviceCache* caches, uint32_t tables, DeviceUnique unique, uint32_t count,
          DeviceLookup how, DeviceProbed probed, uint32_t* is_missing) {
  const uint32_t distinct = unique.table_first[tables];
  const Tile warp = tile_of(kWarp);
  const uint32_t lane = warp.lane;
  for (size_t first = thread_index() - lane; first <= count; first += thread_stride()) {
    const uint32_t u = static_cast<uint32_t>(first) + lane;
    if (first >= distinct) {
      if (u <= count) is_missing[u] = 0;
      continue;
    }
    DeviceSet* set = nullptr;
    const std::byte* set_lines = nullptr;
    uint32_t stride = 0, tag = 0, set_number = 0;
    int64_t key = 0;
    if (u < distinct) {
      const DeviceCache& cache = caches[find_range(unique.table_first, tables, u)];
      const uint64_t hash = unique.hashes[u];
      key = unique.keys[u];
      tag = tag_of(hash);
      stride = cache.stride;
      set_number = set_of(cache, hash);
      set = cache.sets + set_number;
      set_lines = line_of(cache, set_number * kDeviceWays);
    }
    uint32_t way = kDeviceWays;
    for (uint32_t k = 0; k < kWarp && first + k < distinct; k += kTogether) {
      uint32_t tags[kTogether];
      const std::byte* lines[kTogether];
      uint32_t fits[kTogether], strides[kTogether];
      int64_t wanted[kTogether], found[kTogether];
#pragma unroll
      for (uint32_t r = 0; r < kTogether; ++r) {
        const DeviceSet* from = warp.from(set, k + r);
        tags[r] = from == nullptr ? 0 : from->tags[lane];
      }
#pragma unroll
      for (uint32_t r = 0; r < kTogether; ++r) {
        const uint32_t searched = warp.from(tag, k + r);
        fits[r] = __ballot_sync(kAllLanes, searched != 0 && tags[r] == searched);
        lines[r] = warp.from(set_lines, k + r);
        strides[r] = warp.from(stride, k + r);
        wanted[r] = warp.from(key, k + r);
        if (fits[r] == 0) continue;
        found[r] = key_of(lines[r] + size_t{strides[r]} * (__ffs(static_cast<int>(fits[r])) - 1));
      }
#pragma unroll
      for (uint32_t r = 0; r < kTogether; ++r) {
        // A second tag that matches by chance is rare.
        while (fits[r] != 0 && found[r] != wanted[r]) {
          fits[r] &= fits[r] - 1;
          if (fits[r] == 0) break;
          found[r] = key_of(lines[r] + size_t{strides[r]} * (__ffs(static_cast<int>(fits[r])) - 1));
        }
        if (lane == k + r && fits[r] != 0) {
          way = static_cast<uint32_t>(__ffs(static_cast<int>(fits[r]))) - 1;
        }
      }
    }
    if (u <= count) is_missing[u] = u < distinct && way == kDeviceWays ? 1 : 0;
    if (u >= distinct) continue;
    if (how == DeviceLookup::kTrain) atomicAdd(&set->fresh, 1u);
    if (way == kDeviceWays) {
      probed.lines[u] = nullptr;
      probed.slots[u] = kNoSlot;
      probed.places[u] = kNoSlot;
      continue;
    }
    probed.lines[u] = const_cast<std::byte*>(set_lines) + size_t{way} * stride;
    probed.slots[u] = set_number * kDeviceWays + way;
    probed.places[u] = set->places[way];
    if (how == DeviceLookup::kRead) continue;
    // Distinct keys have distinct ways: no other thread accesses these bytes now.
    uint8_t state = set->states[way];
    if ((state & kSlotPins) != kSlotPins) ++state;
    if (how == DeviceLookup::kTrain) {
      state |= kSlotDirty;
      if (set->frequencies[way] != 0xff) ++set->frequencies[way];
      set->used_at[way] = time_of(set->uses);
    }
    set->states[way] = state;
  }
}

// Adds a batch's uses to their sets and decays frequencies; the first thread at a set does it.
__global__ void end_uses(const DeviceCache* caches, uint32_t tables, DeviceUnique unique) {
  const uint32_t distinct = unique.table_first[tables];
  for (size_t u = thread_index(); u < distinct; u += thread_stride()) {
    const DeviceCache& cache = caches[find_range(unique.table_first, tables, u)];
    DeviceSet& set = cache.sets[set_of(cache, unique.hashes[u])];
    const uint32_t fresh = atomicExch(&set.fresh, 0u);
    if (fresh == 0) continue;
    set.uses += fresh;
    set.since_decay += fresh;
    constexpr uint32_t kDecay = kUsesToDecay * kDeviceWays;
#pragma unroll 1
    for (; set.since_decay >= kDecay; set.since_decay -= kDecay) {
      auto* const frequencies = reinterpret_cast<uint32_t*>(set.frequencies);
#pragma unroll 2
      for (uint32_t i = 0; i < kDeviceWays / 4; ++i) {
        frequencies[i] = (frequencies[i] >> 1) & 0x7f7f7f7fu;
      }
#pragma unroll 2
      for (uint64_t& word : set.sketch) word = decayed(word);
    }
  }
}

// ranks: (count + 1), missing keys before each distinct key.
__global__ void list_missing(uint32_t tables, DeviceUnique unique, const uint32_t* ranks,
                             DeviceProbed probed) {
  const uint32_t distinct = unique.table_first[tables];
  for (size_t u = thread_index(); u < distinct; u += thread_stride()) {
    const uint32_t m = ranks[u];
    if (ranks[u + 1] == m) continue;
    probed.missing[m] = static_cast<uint32_t>(u);
    probed.missing_keys[m] = unique.keys[u];
  }
  for (size_t t = thread_index(); t <= tables; t += thread_stride()) {
    probed.missing_first[t] = ranks[unique.table_first[t]];
  }
}

__global__ void unpin(const DeviceCache* caches, uint32_t tables, const uint32_t* table_first,
                      const uint32_t* slots, DeviceIf condition) {
  if (!holds(condition)) return;
  const uint32_t distinct = table_first[tables];
  for (size_t u = thread_index(); u < distinct; u += thread_stride()) {
    if (slots[u] == kNoSlot) continue;
    const DeviceCache& cache = caches[find_range(table_first, tables, u)];
    uint8_t& state = cache.sets[slots[u] / kDeviceWays].states[slots[u] % kDeviceWays];
    // As on the CPU: a slot with 127 pins stays pinned.
    if ((state & kSlotPins) != 0 && (state & kSlotPins) != kSlotPins) --state;
  }
}

__global__ void leave_out_free(DeviceCache cache, uint32_t* slots, uint32_t count) {
  for (size_t i = thread_index(); i < count; i += thread_stride()) {
    if (slots[i] == kNoSlot) continue;
    if (cache.sets[slots[i] / kDeviceWays].tags[slots[i] % kDeviceWays] == 0) slots[i] = kNoSlot;
  }
}

// Counters only grow here, so the order of threads does not change the result.
__global__ void expect(DeviceCache cache, const int64_t* keys, const uint32_t* uses,
                       uint32_t count) {
  for (size_t i = thread_index(); i < count; i += thread_stride()) {
    const uint64_t hash = mix64(static_cast<uint64_t>(keys[i])), mixed = mix64(hash);
    auto* const words = reinterpret_cast<uint32_t*>(cache.sets[set_of(cache, hash)].sketch);
    const uint32_t wanted = least(uses[i], kMostCount);
    for (uint32_t row = 0; row < kCountersOfKey; ++row) {
      const uint32_t c = sketch_counter(mixed, row, kSketchWords), shift = c % 8 * 4;
      uint32_t seen = load_relaxed(words + c / 8);
      while (((seen >> shift) & kMostCount) < wanted) {
        const uint32_t raised = (seen & ~(kMostCount << shift)) | wanted << shift;
        const uint32_t found = atomicCAS(words + c / 8, seen, raised);
        if (found == seen) break;
        seen = found;
      }
    }
  }
}

__global__ void drop(DeviceCache cache, const int64_t* keys, uint32_t count) {
  for (size_t i = thread_index(); i < count; i += thread_stride()) {
    const uint64_t hash = mix64(static_cast<uint64_t>(keys[i]));
    const uint32_t number = set_of(cache, hash);
    DeviceSet& set = cache.sets[number];
    for (uint32_t way = 0; way < kDeviceWays; ++way) {
      // Another thread may free another way of the set meanwhile.
      if (load_relaxed(&set.tags[way]) != tag_of(hash)) continue;
      if (key_of(line_of(cache, number * kDeviceWays + way)) != keys[i]) continue;
      store_relaxed(&set.tags[way], uint8_t{0});
      set.states[way] = 0;
    }
  }
}

__global__ void find_dirty(DeviceCache cache, uint32_t first, uint32_t slots, uint32_t* is_dirty) {
  for (size_t i = thread_index(); i <= slots; i += thread_stride()) {
    bool dirty = false;
    if (i < slots) {
      const uint32_t slot = first + static_cast<uint32_t>(i);
      const DeviceSet& set = cache.sets[slot / kDeviceWays];
      dirty =
          set.tags[slot % kDeviceWays] != 0 && (set.states[slot % kDeviceWays] & kSlotDirty) != 0;
    }
    is_dirty[i] = dirty ? 1 : 0;
  }
}

__global__ void list_dirty(DeviceCache cache, uint32_t first, uint32_t slots, const uint32_t* ranks,
                           DeviceDirty out) {
  for (size_t i = thread_index(); i < slots; i += thread_stride()) {
    const uint32_t r = ranks[i];
    if (ranks[i + 1] == r) continue;
    const uint32_t slot = first + static_cast<uint32_t>(i);
    DeviceSet& set = cache.sets[slot / kDeviceWays];
    uint8_t& state = set.states[slot % kDeviceWays];
    state = static_cast<uint8_t>(state & kSlotPins);
    std::byte* const line = line_of(cache, slot);
    out.lines[r] = line;
    out.places[r] = set.places[slot % kDeviceWays];
    out.headers[r] = *reinterpret_cast<const RowHeader*>(line);
  }
  if (thread_index() == 0) *out.count = ranks[slots];
}

struct ProbeScratch {
  ProbeScratch(DeviceArena& arena, size_t count) {
    ranks = arena.take<uint32_t>(count + 1);
    scan_bytes = exclusive_sum_scratch(count + 1);
    scan = arena.take<std::byte>(scan_bytes);
  }
  uint32_t* ranks;
  size_t scan_bytes;
  std::byte* scan;
};

}  // namespace

DeviceCache DeviceCache::take(DeviceArena& arena, size_t rows, size_t line_bytes,
                              CachePolicy policy) {
  constexpr size_t most = kNoSlot / kDeviceWays;
  const size_t sets = rows / kDeviceWays + (rows % kDeviceWays != 0 || rows == 0 ? 1 : 0);
  if (sets > most) {
    fail(Code::kInvalidArgument, "a cache of %zu rows; at most %zu", rows, most * kDeviceWays);
  }
  DeviceCache cache;
  cache.set_count = static_cast<uint32_t>(sets);
  cache.stride = static_cast<uint32_t>((sizeof(RowHeader) + line_bytes + 15) / 16 * 16);
  cache.policy = policy;
  cache.sets = arena.take<DeviceSet>(sets);
  cache.lines = arena.take<std::byte>(cache.slots() * cache.stride);
  return cache;
}

DeviceProbed DeviceProbed::take(DeviceArena& arena, size_t count, size_t tables) {
  DeviceProbed probed;
  probed.lines = arena.take<std::byte*>(count);
  probed.slots = arena.take<uint32_t>(count);
  probed.places = arena.take<uint32_t>(count);
  probed.missing = arena.take<uint32_t>(count);
  probed.missing_keys = arena.take<int64_t>(count);
  probed.missing_first = arena.take<uint32_t>(tables + 1);
  return probed;
}

DeviceDirty DeviceDirty::take(DeviceArena& arena, size_t slots) {
  DeviceDirty out;
  out.lines = arena.take<std::byte*>(slots);
  out.places = arena.take<uint32_t>(slots);
  out.headers = arena.take<RowHeader>(slots);
  out.count = arena.take<uint32_t>(1);
  return out;
}

void device_cache_clear(const DeviceCache& cache, DeviceStream stream) {
  check(cudaMemsetAsync(cache.sets, 0, cache.set_count * sizeof(DeviceSet), stream), "clear");
}

size_t device_cache_probe_scratch(size_t count) {
  DeviceArena arena;
  ProbeScratch scratch(arena, count);
  return arena.used();
}

void device_cache_probe(const DeviceCache* caches, size_t tables, const DeviceUnique& unique,
                        size_t count, DeviceLookup how, const DeviceProbed& probed, void* scratch,
                        size_t bytes, DeviceStream stream) {
  DeviceArena arena(scratch, bytes);
  const ProbeScratch s(arena, count);
  const uint32_t t = static_cast<uint32_t>(tables);
  launch("cache: probe", probe, blocks_for(count + 1), kBlockThreads, stream, caches, t, unique,
         static_cast<uint32_t>(count), how, probed, s.ranks);
  if (how == DeviceLookup::kTrain) {
    launch("cache: uses", end_uses, blocks_for(count), kBlockThreads, stream, caches, t, unique);
  }
  exclusive_sum(s.ranks, s.ranks, count + 1, s.scan, s.scan_bytes, stream);
  launch("cache: missing", list_missing, blocks_for(count + 1), kBlockThreads, stream, t, unique,
         s.ranks, probed);
}

void device_cache_unpin(const DeviceCache* caches, size_t tables, const uint32_t* table_first,
                        const uint32_t* slots, size_t count, const DeviceIf& condition,
                        DeviceStream stream) {
  launch("cache: unpin", unpin, blocks_for(count), kBlockThreads, stream, caches,
         static_cast<uint32_t>(tables), table_first, slots, condition);
}

void device_cache_leave_out_free(const DeviceCache& cache, uint32_t* slots, size_t count,
                                 DeviceStream stream) {
  if (count == 0) return;
  launch("cache: leave out", leave_out_free, blocks_for(count), kBlockThreads, stream, cache, slots,
         static_cast<uint32_t>(count));
}

void device_cache_expect(const DeviceCache& cache, const int64_t* keys, const uint32_t* uses,
                         size_t count, DeviceStream stream) {
  if (count == 0) return;
  launch("cache: expect", expect, blocks_for(count), kBlockThreads, stream, cache, keys, uses,
         static_cast<uint32_t>(count));
}

void device_cache_drop(const DeviceCache& cache, const int64_t* keys, size_t count,
                       DeviceStream stream) {
  if (count == 0) return;
  launch("cache: drop", drop, blocks_for(count), kBlockThreads, stream, cache, keys,
         static_cast<uint32_t>(count));
}

size_t device_cache_dirty_scratch(size_t slots) {
  DeviceArena arena;
  ProbeScratch scratch(arena, slots);
  return arena.used();
}

void device_cache_dirty(const DeviceCache& cache, size_t first, size_t slots,
                        const DeviceDirty& out, void* scratch, size_t bytes, DeviceStream stream) {
  if (first > cache.slots() || slots > cache.slots() - first) {
    fail(Code::kOutOfRange, "slots %zu to %zu of a cache of %zu", first, first + slots,
         cache.slots());
  }
  DeviceArena arena(scratch, bytes);
  const ProbeScratch s(arena, slots);
  const uint32_t begin = static_cast<uint32_t>(first), count = static_cast<uint32_t>(slots);
  launch("cache: find dirty", find_dirty, blocks_for(slots + 1), kBlockThreads, stream, cache,
         begin, count, s.ranks);
  exclusive_sum(s.ranks, s.ranks, slots + 1, s.scan, s.scan_bytes, stream);
  launch("cache: list dirty", list_dirty, blocks_for(slots), kBlockThreads, stream, cache, begin,
         count, s.ranks, out);
}

}  // namespace hotrow
