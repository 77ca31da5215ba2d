#include "core/gpu/kernels/primitives.h"
#include "core/gpu/serving/cache.h"
#include "core/gpu/serving/read_row.h"
#include "core/store/store_layout.h"

namespace hotrow {
namespace {

// A set's frequencies are halved after this many new rows, as in serving/hot_rows.cc.
constexpr uint32_t kNewcomersToDecay = 12 * kDeviceWays;

__global__ void number_served(ServingCache cache, uint64_t salt, const int64_t* keys,
                              uint32_t count, uint32_t* sets, uint32_t* numbers) {
  for (size_t i = thread_index(); i < count; i += thread_stride()) {
    sets[i] = set_of(cache, serving_hash(keys[i], salt));
    numbers[i] = static_cast<uint32_t>(i);
  }
}

__device__ void count_one(unsigned long long* count, uint32_t lane, unsigned long long more = 1) {
  if (lane == 0) atomicAdd(count, more);
}

// The way of a new row: a free one, else that of the row that is worth least, if the new row is
// worth more; or kDeviceWays. Readers change frequencies and times meanwhile.
__device__ uint32_t way_for_new(const ServingCache& cache, DeviceSet& set, const std::byte* lines,
                                uint64_t hash, uint8_t now, const Tile& warp) {
  const uint32_t lane = warp.lane;
  WarpSet all;
  all.tag = set.tags[lane];
  all.state = 0;
  all.frequency = load_relaxed(&set.frequencies[lane]);
  all.used_at = load_relaxed(&set.used_at[lane]);
  all.place = set.places[lane];
  all.word = lane < kSketchWords ? set.sketch[lane] : 0;
  uint32_t least = 0;
  if (cache.policy == CachePolicy::kLru) return all.choose(warp, cache.policy, now, &least);
  const uint32_t newcomers = set.since_decay + 1;
  __syncwarp();
  if (newcomers >= kNewcomersToDecay) {
    all.frequency /= 2;
    all.word = decayed(all.word);
    store_relaxed(&set.frequencies[lane], static_cast<uint8_t>(all.frequency));
  }
  if (lane == 0) set.since_decay = newcomers >= kNewcomersToDecay ? 0 : newcomers;
  const uint32_t uses = all.known(warp, hash) + 1;
  all.raise(warp, hash, uses);
  const uint32_t known = all.known(warp, hash);
  uint32_t way = all.choose(warp, cache.policy, now, &least);
  const bool taken = warp.from(all.tag, way) != 0;
  if (taken && known <= least) way = kDeviceWays;
  if (taken && way < kDeviceWays) {
    // The key's frequency stays in the sketch, in case the key occurs again.
    const int64_t left = served_header(lines + size_t{way} * cache.stride)->key;
    all.raise(warp, serving_hash(left, cache.salts[warp.from(all.place, way)]), least);
  }
  if (lane < kSketchWords) set.sketch[lane] = all.word;
  if (way < kDeviceWays && lane == 0) {
    store_relaxed(&set.frequencies[way], static_cast<uint8_t>(known));
  }
  __syncwarp();
  return way;
}

// Surrounds the change of a set by a warp. Both fences come after a barrier, since a fence orders
// only what its thread did or knew of before. Here each lane knows the odd version and then fences,
// so a reader that sees any of its later writes sees the odd version, too. At the end lane 0 knows
// the writes of all lanes and then releases the even version, so a reader that acquires it sees all
// of them.
template <typename Change>
__device__ void change_set(DeviceSet& set, uint32_t lane, Change&& change) {
  const uint32_t version = set.version;
  __syncwarp();
  if (lane == 0) store_relaxed(&set.version, version + 1);
  __syncwarp();
  __threadfence();
  change();
  __syncwarp();
  if (lane == 0) store_release(&set.version, version + 2);
  __syncwarp();
}

// A warp works on all keys of a set (sorted by set), as in choose_slots: so no two warps write one
// set.
__global__ void __launch_bounds__(kBlockThreads, 3)
    change_served(ServingCache cache, ServedTable table, ServingUpdate what, const int64_t* keys,
                  uint32_t count, uint8_t now, ServingTicket ticket, const std::byte* rows,
                  uint64_t row_stride, const uint32_t* sets, const uint32_t* numbers) {
  const Tile warp = tile_of(kWarp);
  const uint32_t lane = warp.lane;
  const bool fills = what == ServingUpdate::kFill;
  for (size_t i = thread_index() / kWarp; i < count; i += thread_stride() / kWarp) {
    const uint32_t number = sets[i];
    if (i > 0 && sets[i - 1] == number) continue;
    const ServingTicket changed_at = cache.changed_at[number];
    const bool late = fills && changed_at > ticket;
    __syncwarp();
    if (!fills && changed_at < ticket && lane == 0) cache.changed_at[number] = ticket;
    DeviceSet& set = cache.sets[number];
    std::byte* const lines = line_of(cache, number * kDeviceWays);
    for (size_t j = i; j < count && sets[j] == number; ++j) {
      if (late) {
        count_one(&cache.counts->refused, lane);
        continue;
      }
      const int64_t key = keys[numbers[j]];
      const uint64_t hash = serving_hash(key, table.salt);
      const uint8_t tag = tag_of(hash);
      const std::byte* const row = rows + size_t{numbers[j]} * row_stride;
      const RowVersion version = served_header(row)->version;
      uint32_t way = find_served(set, lines, cache.stride, table.number, tag, key, lane);
      const bool present = way < kDeviceWays;
      if (present) {
        const RowVersion cached = served_header(lines + size_t{way} * cache.stride)->version;
        if ((version & ~kTombstone) <= cached) continue;
      } else {
        if (!fills) continue;
        way = way_for_new(cache, set, lines, hash, now, warp);
        if (way == kDeviceWays) {
          count_one(&cache.counts->refused, lane);
          continue;
        }
        if (set.tags[way] != 0) count_one(&cache.counts->evicted, lane);
      }
      const bool leaves = (version & kTombstone) != 0;
      __syncwarp();
      change_set(set, lane, [&] {
        if (leaves) {
          if (lane == 0) store_relaxed(&set.tags[way], uint8_t{0});
          return;
        }
        auto* const line = reinterpret_cast<uint4*>(lines + size_t{way} * cache.stride);
        const auto* const from = reinterpret_cast<const uint4*>(row);
        for (uint32_t w = lane; w < cache.stride / 16; w += kWarp) {
          store_relaxed_four(line + w, from[w]);
        }
        if (lane != 0) return;
        store_relaxed(&set.places[way], table.number);
        store_relaxed(&set.tags[way], tag);
        if (!present) store_relaxed(&set.used_at[way], now);
      });
      count_one(leaves    ? &cache.counts->removed
                : present ? &cache.counts->updated
                          : &cache.counts->inserted,
                lane);
    }
  }
}

// A warp a set.
__global__ void __launch_bounds__(kBlockThreads, 4)
    remove_served(ServingCache cache, uint32_t shard, uint32_t shards, ServingTicket ticket) {
  const uint32_t lane = threadIdx.x % kWarp;
  for (size_t s = thread_index() / kWarp; s < cache.set_count; s += thread_stride() / kWarp) {
    DeviceSet& set = cache.sets[s];
    const std::byte* const lines = line_of(cache, static_cast<uint32_t>(s) * kDeviceWays);
    if (lane == 0 && cache.changed_at[s] < ticket) cache.changed_at[s] = ticket;
    const bool leaves =
        set.tags[lane] != 0 &&
        (shards == 1 ||
         store_shard_of(served_header(lines + size_t{lane} * cache.stride)->key, shards) == shard);
    const unsigned leaving = __ballot_sync(kAllLanes, leaves);
    if (leaving == 0) continue;
    change_set(set, lane, [&] {
      if (leaves) store_relaxed(&set.tags[lane], uint8_t{0});
    });
    count_one(&cache.counts->removed, lane, static_cast<unsigned>(__popc(leaving)));
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

}  // namespace

ServingCache ServingCache::take(DeviceArena& arena, size_t rows, size_t row_bytes, size_t tables,
                                CachePolicy policy) {
  ServingCache cache;
  static_cast<DeviceCache&>(cache) = DeviceCache::take(arena, rows, row_bytes, policy);
  cache.changed_at = arena.take<uint64_t>(cache.set_count);
  cache.salts = arena.take<uint64_t>(tables);
  cache.counts = arena.take<ServingCounts>(1);
  return cache;
}

void device_serving_clear(const ServingCache& cache, const uint64_t* salts, size_t tables,
                          DeviceStream stream) {
  device_cache_clear(cache, stream);
  check(cudaMemsetAsync(cache.changed_at, 0, cache.set_count * sizeof(uint64_t), stream), "clear");
  check(cudaMemsetAsync(cache.counts, 0, sizeof(ServingCounts), stream), "clear");
  upload(const_cast<uint64_t*>(cache.salts), salts, tables, stream);
}

size_t device_serving_update_scratch(size_t count) {
  DeviceArena arena;
  ChangeScratch scratch(arena, count);
  return arena.used();
}

void device_serving_update(const ServingCache& cache, const ServedTable& table, ServingUpdate what,
                           const int64_t* keys, size_t count, uint8_t now, ServingTicket ticket,
                           const std::byte* rows, size_t row_stride, void* scratch, size_t bytes,
                           DeviceStream stream) {
  if (row_stride % 16 != 0 || row_stride < cache.stride) {
    fail(Code::kInvalidArgument, "rows of %zu bytes; a multiple of 16, at least %u", row_stride,
         cache.stride);
  }
  if (count == 0) return;
  DeviceArena arena(scratch, bytes);
  const ChangeScratch s(arena, count);
  const uint32_t n = static_cast<uint32_t>(count);
  launch("serving: sets", number_served, blocks_for(count), kBlockThreads, stream, cache,
         table.salt, keys, n, s.sets, s.numbers);
  sort_pairs(s.sets, s.sorted_sets, s.numbers, s.sorted_numbers, count, bits_for(cache.set_count),
             s.sort, s.sort_bytes, stream);
  launch("serving: change", change_served, blocks_for(count, kBlockThreads / kWarp), kBlockThreads,
         stream, cache, table, what, keys, n, now, ticket, rows, row_stride, s.sorted_sets,
         s.sorted_numbers);
}

void device_serving_remove(const ServingCache& cache, uint32_t shard, uint32_t shards,
                           ServingTicket ticket, DeviceStream stream) {
  launch("serving: remove", remove_served, blocks_for(cache.set_count, kBlockThreads / kWarp),
         kBlockThreads, stream, cache, shard, shards, ticket);
}

}  // namespace hotrow
