// Chooses which missing keys of a batch get a slot, and which rows they evict.
#include <vector>

#include "core/gpu/kernels/cache.h"
#include "core/gpu/kernels/device_code.h"
#include "core/gpu/kernels/primitives.h"
#include "core/gpu/kernels/sets.h"

namespace hotrow {
namespace {

// Missing keys, sorted by set and, in a set, in their order.
struct Missing {
  const uint32_t* sets;     // (M) of all tables, one after the other
  const uint32_t* numbers;  // (M) of the missing key
};

// What was decided for each missing key.
struct Choices {
  uint32_t* slots;     // (M) or kNoSlot
  uint32_t* bypassed;  // (M + 1) 1: it goes through the bypass
};

__global__ void number_sets(const DeviceCache* caches, const uint32_t* first_sets, uint32_t tables,
                            DeviceUnique unique, const uint32_t* missing, uint32_t count,
                            uint32_t* sets, uint32_t* numbers) {
  for (size_t m = thread_index(); m < count; m += thread_stride()) {
    const uint32_t u = missing[m];
    const uint32_t table = find_range(unique.table_first, tables, u);
    sets[m] = first_sets[table] + set_of(caches[table], unique.hashes[u]);
    numbers[m] = static_cast<uint32_t>(m);
  }
}

// A warp works on the set of the missing key at i, if that key is the set's first. So one warp
// works on each set.
__global__ void __launch_bounds__(kBlockThreads)
    choose_slots(const DeviceCache* caches, const uint32_t* first_sets, uint32_t tables,
                 DeviceUnique unique, const uint32_t* missing_u, uint32_t count, Missing missing,
                 const uint32_t* places, DeviceLookup how, bool always, Choices choices,
                 DeviceInserted out) {
  const Tile warp = tile_of(kWarp);
  const uint32_t lane = warp.lane;
  for (size_t i = thread_index() / kWarp; i < count; i += thread_stride() / kWarp) {
    const uint32_t set_number = missing.sets[i];
    if (i > 0 && missing.sets[i - 1] == set_number) continue;
    const uint32_t table = find_range(first_sets, tables, set_number);
    const DeviceCache cache = caches[table];
    const uint32_t own_number = set_number - first_sets[table];
    DeviceSet& set = cache.sets[own_number];
    const uint32_t now = time_of(set.uses);
    WarpSet ways;
    ways.load(set, lane);
    if (how == DeviceLookup::kTrain) {
      for (size_t j = i; j < count && missing.sets[j] == set_number; ++j) {
        const uint64_t hash = unique.hashes[missing_u[missing.numbers[j]]];
        ways.raise(warp, hash, ways.known(warp, hash) + 1);
      }
    }
    uint32_t gone = 0;
    for (size_t j = i; j < count && missing.sets[j] == set_number; ++j) {
      const uint32_t m = missing.numbers[j];
      const uint64_t hash = unique.hashes[missing_u[m]];
      // All lanes take part in each of these, whatever is decided for the key.
      uint32_t least = 0;
      uint32_t way = ways.choose(warp, cache.policy, now, &least);
      const uint32_t there = way % kDeviceWays;
      const bool full = warp.from(ways.tag, there) != 0;
      const bool was_dirty = (warp.from(ways.state, there) & kSlotDirty) != 0;
      const uint32_t frequency = warp.from(ways.frequency, there);
      const bool wanted =
          cache.policy == CachePolicy::kLru || always || !full || ways.known(warp, hash) > least;
      if (places[m] == kNoSlot || !wanted) way = kDeviceWays;
      const uint32_t slot = own_number * kDeviceWays + way;
      const bool dirty = way < kDeviceWays && full && was_dirty;
      if (way < kDeviceWays && full) {
        ++gone;
        const auto* const victim = reinterpret_cast<const RowHeader*>(line_of(cache, slot));
        // The victim's frequency stays in the sketch, in case its key occurs again.
        ways.raise(warp, mix64(static_cast<uint64_t>(victim->key)), frequency);
        if (lane == way && dirty) {
          out.victim_places[m] = ways.place;
          out.victims[m] = *victim;
        }
      }
      const uint32_t known = ways.known(warp, hash);
      if (lane == way) {
        ways.tag = tag_of(hash);
        ways.state = 1 | (how == DeviceLookup::kTrain ? kSlotDirty : 0);
        ways.frequency = known;
        ways.used_at = now;
        ways.place = places[m];
      }
      if (lane == 0) {
        choices.slots[m] = way < kDeviceWays ? slot : kNoSlot;
        choices.bypassed[m] = way == kDeviceWays && places[m] != kNoSlot ? 1 : 0;
        if (!dirty) out.victim_places[m] = kNoSlot;
      }
    }
    ways.store(set, lane);
    if (lane == 0 && gone > 0) atomicAdd(&out.evicted[table], gone);
  }
}

// bypass_ranks: (M + 1).
__global__ void write_inserted(const DeviceCache* caches, uint32_t tables, DeviceUnique unique,
                               DeviceProbed probed, uint32_t count, const uint32_t* places,
                               Choices choices, const uint32_t* bypass_ranks, DeviceBypass bypass,
                               DeviceInserted out) {
  for (size_t m = thread_index(); m < count; m += thread_stride()) {
    const uint32_t u = probed.missing[m];
    const DeviceCache& cache = caches[find_range(unique.table_first, tables, u)];
    const uint32_t slot = choices.slots[m], b = bypass_ranks[m];
    std::byte* line = nullptr;
    if (slot != kNoSlot) {
      line = line_of(cache, slot);
    } else if (bypass_ranks[m + 1] != b) {
      line = bypass.lines + size_t{b} * bypass.stride;
      out.bypass_places[b] = places[m];
      out.bypass_keys[b] = probed.missing_keys[m];
    }
    probed.slots[u] = slot;
    probed.lines[u] = line;
    probed.places[u] = places[m];
    out.targets[m] = line;
  }
  for (size_t t = thread_index(); t <= tables; t += thread_stride()) {
    out.bypass_first[t] = bypass_ranks[probed.missing_first[t]];
  }
}

struct InsertScratch {
  InsertScratch(DeviceArena& arena, size_t missing, size_t tables) {
    caches = arena.take<DeviceCache>(tables);
    first_sets = arena.take<uint32_t>(tables + 1);
    sets = arena.take<uint32_t>(missing);
    numbers = arena.take<uint32_t>(missing);
    sorted_sets = arena.take<uint32_t>(missing);
    sorted_numbers = arena.take<uint32_t>(missing);
    choices.slots = arena.take<uint32_t>(missing);
    choices.bypassed = arena.take<uint32_t>(missing + 1);
    sort_bytes = sort_pairs_scratch(missing, 32);
    const size_t scan_bytes = exclusive_sum_scratch(missing + 1);
    if (sort_bytes < scan_bytes) sort_bytes = scan_bytes;
    sort = arena.take<std::byte>(sort_bytes);
  }
  DeviceCache* caches;
  uint32_t *first_sets, *sets, *numbers, *sorted_sets, *sorted_numbers;
  Choices choices;
  size_t sort_bytes;
  std::byte* sort;
};

}  // namespace

DeviceInserted DeviceInserted::take(DeviceArena& arena, size_t missing, size_t tables) {
  DeviceInserted out;
  out.targets = arena.take<std::byte*>(missing);
  out.victims = arena.take<RowHeader>(missing);
  out.victim_places = arena.take<uint32_t>(missing);
  out.bypass_places = arena.take<uint32_t>(missing);
  out.bypass_keys = arena.take<int64_t>(missing);
  out.bypass_first = arena.take<uint32_t>(2 * tables + 1);
  out.evicted = out.bypass_first + tables + 1;
  return out;
}

size_t device_cache_insert_scratch(size_t missing, size_t tables) {
  DeviceArena arena;
  InsertScratch scratch(arena, missing, tables);
  return arena.used();
}

void device_cache_insert(const DeviceCache* caches, size_t tables, const DeviceUnique& unique,
                         const DeviceProbed& probed, size_t missing, const uint32_t* places,
                         DeviceLookup how, RowCache::Admit admit, const DeviceBypass& bypass,
                         const DeviceInserted& out, void* scratch, size_t bytes,
                         DeviceStream stream) {
  if (how == DeviceLookup::kRead) {
    fail(Code::kInvalidArgument, "rows cannot come in for a lookup that changes nothing");
  }
  DeviceArena arena(scratch, bytes);
  const InsertScratch s(arena, missing, tables);
  const uint32_t count = static_cast<uint32_t>(missing), t = static_cast<uint32_t>(tables);
  std::vector<uint32_t> first_sets(1, 0);
  uint64_t sets = 0;
  for (size_t i = 0; i < tables; ++i) {
    sets += caches[i].set_count;
    first_sets.push_back(static_cast<uint32_t>(sets));
  }
  if (sets > kNoSlot) fail(Code::kInvalidArgument, "caches of more than 2^37 rows in one layer");
  upload(s.caches, caches, tables, stream);
  upload(s.first_sets, first_sets.data(), tables + 1, stream);
  check(cudaMemsetAsync(out.evicted, 0, tables * sizeof(uint32_t), stream), "insert");
  check(cudaMemsetAsync(s.choices.bypassed, 0, (missing + 1) * sizeof(uint32_t), stream), "insert");
  if (missing > 0) {
    launch("insert: sets", number_sets, blocks_for(missing), kBlockThreads, stream, s.caches,
           s.first_sets, t, unique, probed.missing, count, s.sets, s.numbers);
    sort_pairs(s.sets, s.sorted_sets, s.numbers, s.sorted_numbers, missing, bits_for(sets), s.sort,
               s.sort_bytes, stream);
    launch("insert: choose", choose_slots, blocks_for(missing, kBlockThreads / kWarp),
           kBlockThreads, stream, s.caches, s.first_sets, t, unique, probed.missing, count,
           Missing{s.sorted_sets, s.sorted_numbers}, places, how, admit == RowCache::Admit::kAlways,
           s.choices, out);
    exclusive_sum(s.choices.bypassed, s.choices.bypassed, missing + 1, s.sort, s.sort_bytes,
                  stream);
  }
  launch("insert: write", write_inserted, blocks_for(missing), kBlockThreads, stream, s.caches, t,
         unique, probed, count, places, s.choices, s.choices.bypassed, bypass, out);
}

}  // namespace hotrow
