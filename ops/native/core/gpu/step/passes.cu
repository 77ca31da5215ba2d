#include <vector>

#include "core/gpu/kernels/device_code.h"
#include "core/gpu/kernels/primitives.h"
#include "core/gpu/step/passes.h"

namespace hotrow {
namespace {

__global__ void note_keys(const DeviceSummed* to, uint32_t tables, DeviceUnique unique,
                          std::byte* const* lines) {
  const uint32_t distinct = unique.table_first[tables];
  for (size_t u = thread_index(); u < distinct; u += thread_stride()) {
    const uint32_t table = find_range(unique.table_first, tables, u);
    const size_t own = u - unique.table_first[table];
    to[table].keys[own] = unique.keys[u];
    to[table].counts[own] = lines[u] == nullptr ? 0 : unique.counts[u];
  }
}

// A share for kernels.
struct Share {
  const int64_t* keys;
  const uint32_t* counts;
  const float* sums;
  uint32_t width;
  float factor;
};

// begins: (shares + 1) of their first entries. has_row: (E + 1); the last is 0.
__global__ void mark_entries(const Share* all, const uint32_t* begins, uint32_t shares,
                             uint32_t* has_row) {
  const uint32_t count = begins[shares];
  for (size_t e = thread_index(); e <= count; e += thread_stride()) {
    bool is = false;
    if (e < count) {
      const uint32_t share = find_range(begins, shares, e);
      is = all[share].counts[e - begins[share]] != 0;
    }
    has_row[e] = is ? 1 : 0;
  }
}

// ranks: (E + 1), entries with a row before each. table_entries: (T + 1).
__global__ void write_entries(const Share* all, const uint32_t* begins, uint32_t shares,
                              const uint32_t* ranks, const uint32_t* table_entries, uint32_t tables,
                              DeviceEntries out) {
  const uint32_t count = begins[shares], kept = ranks[count];
  for (size_t e = thread_index(); e < count; e += thread_stride()) {
    // The remaining entries are one key of no table; its gradients are never read.
    if (e >= kept) out.keys[e] = 0, out.counts[e] = 0;
    const uint32_t to = ranks[e];
    if (ranks[e + 1] == to) continue;
    const uint32_t number = find_range(begins, shares, e);
    const Share& share = all[number];
    const size_t own = e - begins[number];
    out.keys[to] = share.keys[own];
    out.counts[to] = share.counts[own];
    out.rows[to] = share.sums + own * share.width;
    out.factors[to] = share.factor;
  }
  for (size_t t = thread_index(); t <= tables + 1; t += thread_stride()) {
    out.table_begins[t] = t <= tables ? ranks[table_entries[t]] : count;
  }
}

__global__ void add_counts(const uint32_t* entry_counts, const int32_t* inverse, uint32_t count,
                           uint32_t* counts) {
  for (size_t e = thread_index(); e < count; e += thread_stride()) {
    atomicAdd(&counts[inverse[e]], entry_counts[e]);
  }
}

struct EntriesScratch {
  EntriesScratch(DeviceArena& arena, size_t entries) {
    ranks = arena.take<uint32_t>(entries + 1);
    scan_bytes = exclusive_sum_scratch(entries + 1);
    scan = arena.take<std::byte>(scan_bytes);
  }
  uint32_t* ranks;
  std::byte* scan;
  size_t scan_bytes;
};

}  // namespace

DeviceSummed DeviceSummed::take(DeviceArena& arena, size_t distinct, size_t width) {
  DeviceSummed summed;
  summed.keys = arena.take<int64_t>(distinct);
  summed.counts = arena.take<uint32_t>(distinct);
  summed.sums = arena.take<float>(distinct * width);
  return summed;
}

void device_note_keys(const DeviceSummed* to, size_t tables, const DeviceUnique& unique,
                      std::byte* const* lines, size_t most, DeviceStream stream) {
  launch("passes: keys", note_keys, blocks_for(most), kBlockThreads, stream, to,
         static_cast<uint32_t>(tables), unique, lines);
}

DeviceEntries DeviceEntries::take(DeviceArena& arena, size_t entries, size_t tables) {
  DeviceEntries out;
  out.keys = arena.take<int64_t>(entries);
  out.counts = arena.take<uint32_t>(entries);
  out.rows = arena.take<const float*>(entries);
  out.factors = arena.take<float>(entries);
  out.table_begins = arena.take<uint32_t>(tables + 2);
  return out;
}

DescribedShares describe_shares(const DeviceShare* shares, const uint32_t* share_first,
                                size_t tables, DeviceDescribed* to) {
  const uint32_t count = share_first[tables];
  std::vector<Share> described;
  std::vector<uint32_t> begins{0}, table_entries;
  for (uint32_t s = 0; s < count; ++s) {
    const DeviceShare& share = shares[s];
    described.push_back({share.from.keys, share.from.counts, share.from.sums,
                         static_cast<uint32_t>(share.width), share.factor});
    begins.push_back(begins.back() + static_cast<uint32_t>(share.distinct));
  }
  for (size_t t = 0; t <= tables; ++t) table_entries.push_back(begins[share_first[t]]);
  return {to->add(described), to->add(begins), to->add(table_entries), count};
}

size_t device_list_entries_scratch(size_t entries) {
  DeviceArena arena;
  EntriesScratch scratch(arena, entries);
  return arena.used();
}

void device_list_entries(const DescribedShares& shares, size_t tables, size_t entries,
                         const DeviceEntries& out, void* scratch, size_t bytes,
                         DeviceStream stream) {
  DeviceArena arena(scratch, bytes);
  const EntriesScratch s(arena, entries);
  const auto* const all = static_cast<const Share*>(shares.shares);
  const size_t blocks = blocks_for(entries + 1);
  launch("passes: mark", mark_entries, blocks, kBlockThreads, stream, all, shares.begins,
         shares.count, s.ranks);
  exclusive_sum(s.ranks, s.ranks, entries + 1, s.scan, s.scan_bytes, stream);
  launch("passes: write", write_entries, blocks, kBlockThreads, stream, all, shares.begins,
         shares.count, s.ranks, shares.table_entries, static_cast<uint32_t>(tables), out);
}

void device_add_counts(const DeviceEntries& entries, const int32_t* inverse, size_t count,
                       uint32_t* counts, DeviceStream stream) {
  check(cudaMemsetAsync(counts, 0, count * sizeof(uint32_t), stream), "passes: counts");
  launch("passes: counts", add_counts, blocks_for(count), kBlockThreads, stream, entries.counts,
         inverse, static_cast<uint32_t>(count), counts);
}

}  // namespace hotrow
