#include "core/base/dispatch.h"
#include "core/gpu/kernels/device_code.h"
#include "core/gpu/kernels/primitives.h"
#include "core/gpu/kernels/unique.h"

namespace hotrow {
namespace {

constexpr uint32_t kEmpty = 0xffffffffu;
constexpr size_t kMostKeys = 0x7ffffffe;

// slots: open addressing (mask + 1). A slot holds the smallest position of its key so far. Which
// slot a key gets depends on the order of threads; the final position does not.
__global__ void insert_keys(const int64_t* keys, uint32_t count, const uint32_t* table_begins,
                            unsigned tables, uint32_t* slots, uint32_t mask, uint32_t* slot_of) {
  for (size_t n = thread_index(); n < count; n += thread_stride()) {
    const uint32_t i = static_cast<uint32_t>(n);
    const int64_t key = keys[i];
    const unsigned table = find_range(table_begins, tables, i);
    const uint32_t begin = table_begins[table], end = table_begins[table + 1];
    uint64_t hash = mix64(static_cast<uint64_t>(key));
    if (table != 0) hash = combine64(hash, table);
    uint32_t slot = static_cast<uint32_t>(hash) & mask;
    for (;;) {
      uint32_t found = load_relaxed(&slots[slot]);
      if (found == kEmpty) found = atomicCAS(&slots[slot], kEmpty, i);
      if (found == kEmpty) break;
      if (keys[found] == key && found >= begin && found < end) {
        // Most keys of a hot row read an earlier position and need not write.
        if (i < found) atomicMin(&slots[slot], i);
        break;
      }
      slot = (slot + 1) & mask;
    }
    slot_of[i] = slot;
  }
}

// firsts[i]: whether key i is the first of its kind; firsts[count] = 0.
__global__ void mark_firsts(const uint32_t* slots, const uint32_t* slot_of, uint32_t count,
                            uint32_t* firsts) {
  for (size_t i = thread_index(); i <= count; i += thread_stride()) {
    firsts[i] = i < count && slots[slot_of[i]] == i ? 1 : 0;
  }
}

// ranks: (count + 1), distinct keys before each position. Slots of firsts hold their rank
// afterwards.
__global__ void write_distinct(const int64_t* keys, uint32_t count, const uint32_t* table_begins,
                               unsigned tables, const uint32_t* ranks, const uint32_t* slot_of,
                               uint32_t* slots, DeviceUnique out) {
  for (size_t i = thread_index(); i < count; i += thread_stride()) {
    const uint32_t u = ranks[i];
    if (ranks[i + 1] == u) continue;
    out.keys[u] = keys[i];
    out.hashes[u] = mix64(static_cast<uint64_t>(keys[i]));
    slots[slot_of[i]] = u;
  }
  for (size_t t = thread_index(); t <= tables; t += thread_stride()) {
    out.table_first[t] = ranks[table_begins[t]];
  }
}

__global__ void write_inverse(const uint32_t* slots, const uint32_t* slot_of, uint32_t count,
                              DeviceUnique out) {
  for (size_t i = thread_index(); i < count; i += thread_stride()) {
    const uint32_t u = slots[slot_of[i]];
    out.inverse[i] = static_cast<int32_t>(u);
    atomicAdd(&out.counts[u], 1u);
  }
}

__global__ void count_up(uint32_t* values, uint32_t count) {
  for (size_t i = thread_index(); i < count; i += thread_stride()) {
    values[i] = static_cast<uint32_t>(i);
  }
}

// groups[u] of distinct keys; tables * shards for what is past U.
__global__ void find_owners(DeviceUnique unique, uint32_t count, unsigned tables, int32_t shards,
                            const DeviceOwnerRule* rules, uint32_t* groups, uint32_t* numbers) {
  const uint32_t distinct = unique.table_first[tables];
  for (size_t u = thread_index(); u < count; u += thread_stride()) {
    uint32_t group = tables * static_cast<uint32_t>(shards);
    if (u < distinct) {
      const unsigned table = find_range(unique.table_first, tables, u);
      const DeviceOwnerRule rule = rules[table];
      const int32_t owner =
          rule.owner >= 0 ? rule.owner : owner_of(unique.keys[u], shards, rule.hashed != 0);
      group = table * static_cast<uint32_t>(shards) + static_cast<uint32_t>(owner);
    }
    groups[u] = group;
    numbers[u] = static_cast<uint32_t>(u);
  }
}

// group_first from the groups in their order: (groups + 1).
__global__ void write_groups(const uint32_t* sorted, uint32_t count, const int64_t* keys,
                             uint32_t groups, DeviceOwners out) {
  for (size_t i = thread_index(); i <= count; i += thread_stride()) {
    const uint32_t before = i == 0 ? 0 : sorted[i - 1] + 1;
    const uint32_t group = i == count ? groups : sorted[i];
    for (uint32_t g = before; g <= group; ++g) out.group_first[g] = static_cast<uint32_t>(i);
    if (i < count && group < groups) out.grouped[i] = keys[out.order[i]];
  }
}

void check_count(size_t count) {
  if (count > kMostKeys) {
    fail(Code::kInvalidArgument, "a batch of %zu keys; at most %zu in one lookup", count,
         kMostKeys);
  }
}

// Scratch memory, in the order in which it is taken.
struct UniqueScratch {
  UniqueScratch(DeviceArena& arena, size_t count) {
    capacity = 64;
    while (capacity < 2 * count) capacity *= 2;
    slots = arena.take<uint32_t>(capacity);
    slot_of = arena.take<uint32_t>(count);
    ranks = arena.take<uint32_t>(count + 1);
    scan_bytes = exclusive_sum_scratch(count + 1);
    scan = arena.take<std::byte>(scan_bytes);
  }
  size_t capacity, scan_bytes;
  uint32_t *slots, *slot_of, *ranks;
  std::byte* scan;
};

struct SortScratch {
  SortScratch(DeviceArena& arena, size_t count, int bits) {
    keys = arena.take<uint32_t>(count);
    sorted = arena.take<uint32_t>(count);
    numbers = arena.take<uint32_t>(count);
    const size_t scan_bytes = exclusive_sum_scratch(count + 1);
    sort_bytes = sort_pairs_scratch(count, bits);
    if (sort_bytes < scan_bytes) sort_bytes = scan_bytes;
    sort = arena.take<std::byte>(sort_bytes);
  }
  size_t sort_bytes;
  uint32_t *keys, *sorted, *numbers;
  std::byte* sort;
};

}  // namespace

DeviceUnique DeviceUnique::take(DeviceArena& arena, size_t count, size_t tables) {
  DeviceUnique out;
  out.keys = arena.take<int64_t>(count);
  out.hashes = arena.take<uint64_t>(count);
  out.counts = arena.take<uint32_t>(count + 1);
  out.inverse = arena.take<int32_t>(count);
  out.table_first = arena.take<uint32_t>(tables + 1);
  return out;
}

DevicePositions DevicePositions::take(DeviceArena& arena, size_t count) {
  DevicePositions out;
  out.begins = arena.take<uint32_t>(count + 1);
  out.order = arena.take<uint32_t>(count);
  return out;
}

DeviceOwners DeviceOwners::take(DeviceArena& arena, size_t count, size_t groups) {
  DeviceOwners out;
  out.grouped = arena.take<int64_t>(count);
  out.order = arena.take<uint32_t>(count);
  out.group_first = arena.take<uint32_t>(groups + 1);
  return out;
}

size_t device_unique_scratch(size_t count) {
  check_count(count);
  DeviceArena arena;
  UniqueScratch scratch(arena, count);
  return arena.used();
}

void device_unique(const DeviceKeys& keys, const DeviceUnique& out, void* scratch, size_t bytes,
                   DeviceStream stream) {
  check_count(keys.count);
  DeviceArena arena(scratch, bytes);
  const UniqueScratch s(arena, keys.count);
  const uint32_t count = static_cast<uint32_t>(keys.count);
  const unsigned tables = static_cast<unsigned>(keys.tables);
  check(cudaMemsetAsync(s.slots, 0xff, s.capacity * sizeof(uint32_t), stream), "unique");
  check(cudaMemsetAsync(out.counts, 0, (keys.count + 1) * sizeof(uint32_t), stream), "unique");
  const size_t blocks = blocks_for(keys.count + 1);
  launch("unique: insert", insert_keys, blocks, kBlockThreads, stream, keys.keys, count,
         keys.table_begins, tables, s.slots, static_cast<uint32_t>(s.capacity - 1), s.slot_of);
  launch("unique: mark", mark_firsts, blocks, kBlockThreads, stream, s.slots, s.slot_of, count,
         s.ranks);
  exclusive_sum(s.ranks, s.ranks, keys.count + 1, s.scan, s.scan_bytes, stream);
  launch("unique: write", write_distinct, blocks, kBlockThreads, stream, keys.keys, count,
         keys.table_begins, tables, s.ranks, s.slot_of, s.slots, out);
  launch("unique: inverse", write_inverse, blocks, kBlockThreads, stream, s.slots, s.slot_of, count,
         out);
}

size_t device_positions_scratch(size_t count) {
  DeviceArena arena;
  SortScratch scratch(arena, count, bits_for(count));
  return arena.used();
}

void device_positions(const DeviceUnique& unique, size_t count, const DevicePositions& out,
                      void* scratch, size_t bytes, DeviceStream stream) {
  DeviceArena arena(scratch, bytes);
  const int bits = bits_for(count);
  const SortScratch s(arena, count, bits);
  exclusive_sum(unique.counts, out.begins, count + 1, s.sort, s.sort_bytes, stream);
  launch("positions", count_up, blocks_for(count), kBlockThreads, stream, s.numbers,
         static_cast<uint32_t>(count));
  sort_pairs(reinterpret_cast<const uint32_t*>(unique.inverse), s.sorted, s.numbers, out.order,
             count, bits, s.sort, s.sort_bytes, stream);
}

namespace {

struct OwnersScratch {
  OwnersScratch(DeviceArena& arena, size_t count, size_t tables, size_t shards)
      : rules(arena.take<DeviceOwnerRule>(tables)), sort(arena, count, bits_for(tables * shards)) {}
  DeviceOwnerRule* rules;
  SortScratch sort;
};

}  // namespace

size_t device_owners_scratch(size_t count, size_t tables, size_t shards) {
  DeviceArena arena;
  OwnersScratch scratch(arena, count, tables, shards);
  return arena.used();
}

void device_owners(const DeviceUnique& unique, size_t count, size_t tables, int32_t shards,
                   const DeviceOwnerRule* rules, const DeviceOwners& out, void* scratch,
                   size_t bytes, DeviceStream stream) {
  if (shards < 1) fail(Code::kInvalidArgument, "%d shards; at least 1", shards);
  const size_t groups = tables * static_cast<size_t>(shards);
  DeviceArena arena(scratch, bytes);
  const OwnersScratch own(arena, count, tables, static_cast<size_t>(shards));
  const SortScratch& s = own.sort;
  upload(own.rules, rules, tables, stream);
  launch("owners: find", find_owners, blocks_for(count), kBlockThreads, stream, unique,
         static_cast<uint32_t>(count), static_cast<unsigned>(tables), shards, own.rules, s.keys,
         s.numbers);
  sort_pairs(s.keys, s.sorted, s.numbers, out.order, count, bits_for(groups), s.sort, s.sort_bytes,
             stream);
  launch("owners: write", write_groups, blocks_for(count + 1), kBlockThreads, stream, s.sorted,
         static_cast<uint32_t>(count), unique.keys, static_cast<uint32_t>(groups), out);
}

}  // namespace hotrow
