#include <algorithm>

#include "core/gpu/kernels/device_code.h"
#include "core/gpu/kernels/keys.h"
#include "core/gpu/kernels/primitives.h"

namespace hotrow {
namespace {

// begins: (F + 1), positions.
__global__ void collect_keys(const DeviceKeyPiece* pieces, const uint32_t* begins,
                             uint32_t features, int64_t* keys, WrongKeys* wrong) {
  const uint32_t count = begins[features];
  for (size_t i = thread_index(); i < count; i += thread_stride()) {
    const uint32_t f = find_range(begins, features, i);
    const DeviceKeyPiece& piece = pieces[f];
    const int64_t key = piece.keys[i - begins[f]];
    keys[i] = key;
    if (piece.vocabulary_size >= 0 && (key < 0 || key >= piece.vocabulary_size)) {
      atomicMin(&wrong->key, static_cast<uint32_t>(i));
    }
  }
}

// begins: (F + 1), of row_splits.
__global__ void check_splits(const DeviceKeyPiece* pieces, const uint32_t* begins,
                             uint32_t features, WrongKeys* wrong) {
  const uint32_t count = begins[features];
  for (size_t i = thread_index(); i < count; i += thread_stride()) {
    const uint32_t f = find_range(begins, features, i);
    const int64_t* const split = pieces[f].row_splits + (i - begins[f]);
    const bool starts = i != begins[f] || *split == 0;
    const bool goes_on = i + 1 == begins[f + 1] ? *split == pieces[f].count : split[0] <= split[1];
    if (!starts || !goes_on) atomicMin(&wrong->feature, f);
  }
}

// Adds over all features that have a key, in any order: the sums are integers.
__global__ void add_lookups(const DeviceKeyPiece* pieces, const uint32_t* begins, uint32_t features,
                            const int32_t* inverse, uint32_t* counts) {
  const uint32_t count = begins[features];
  for (size_t i = thread_index(); i < count; i += thread_stride()) {
    const uint32_t f = find_range(begins, features, i);
    const uint32_t* const of_piece = pieces[f].counts;
    atomicAdd(&counts[inverse[i]], of_piece == nullptr ? 1u : of_piece[i - begins[f]]);
  }
}

// before: (N + 1) lookups before those of each distinct key.
__global__ void pick_tables(const uint32_t* before, const uint32_t* distinct_first, uint32_t tables,
                            uint32_t* table_first) {
  for (size_t t = thread_index(); t <= tables; t += thread_stride()) {
    table_first[t] = before[distinct_first[t]];
  }
}

// lookups_first, wrong: may be null.
__global__ void write_answer(DeviceProbed probed, uint32_t tables, const uint32_t* distinct_first,
                             const uint32_t* counts, const uint32_t* lookups_first,
                             const WrongKeys* wrong, DeviceAnswer answer) {
  const uint32_t missing = probed.missing_first[tables];
  for (size_t m = thread_index(); m < missing; m += thread_stride()) {
    answer.keys[m] = probed.missing_keys[m];
    answer.counts[m] = counts[probed.missing[m]];
  }
  for (size_t t = thread_index(); t <= tables; t += thread_stride()) {
    answer.table_first[t] = distinct_first[t];
    answer.missing_first[t] = probed.missing_first[t];
    if (lookups_first != nullptr) answer.lookups_first[t] = lookups_first[t];
  }
  if (thread_index() == 0) {
    *answer.wrong = wrong == nullptr ? WrongKeys{WrongKeys::kNone, WrongKeys::kNone} : *wrong;
  }
}

// Rows of a lookup that changes nothing lie beside the slots, in the order of the missing keys.
__global__ void set_beside(DeviceProbed probed, uint32_t count, const uint32_t* places,
                           DeviceBypass beside, std::byte** targets) {
  for (size_t m = thread_index(); m < count; m += thread_stride()) {
    std::byte* const line = places[m] == kNoSlot ? nullptr : beside.lines + m * beside.stride;
    probed.lines[probed.missing[m]] = line;
    targets[m] = line;
  }
}

// before, lines: (U), of the same keys.
__global__ void drop_absent(std::byte* const* before, const uint32_t* count, std::byte** lines) {
  for (size_t u = thread_index(); u < *count; u += thread_stride()) {
    if (before[u] == nullptr) lines[u] = nullptr;
  }
}

}  // namespace

void device_collect_keys(const DeviceKeyPieces& p, int64_t* keys, WrongKeys* wrong,
                         DeviceStream stream) {
  check(cudaMemsetAsync(wrong, 0xff, sizeof(WrongKeys), stream), "keys");
  const auto features = static_cast<uint32_t>(p.features);
  launch("keys: collect", collect_keys, blocks_for(p.count), kBlockThreads, stream, p.pieces,
         p.begins, features, keys, wrong);
  if (p.split_begins == nullptr) return;
  launch("keys: splits", check_splits, blocks_for(p.splits), kBlockThreads, stream, p.pieces,
         p.split_begins, features, wrong);
}

DeviceLookups DeviceLookups::take(DeviceArena& arena, size_t count, size_t tables) {
  DeviceLookups out;
  out.counts = arena.take<uint32_t>(count + 1);
  out.table_first = arena.take<uint32_t>(tables + 1);
  return out;
}

namespace {

struct LookupsScratch {
  LookupsScratch(DeviceArena& arena, size_t count) {
    before = arena.take<uint32_t>(count + 1);
    scan_bytes = exclusive_sum_scratch(count + 1);
    scan = arena.take<std::byte>(scan_bytes);
  }
  uint32_t* before;
  std::byte* scan;
  size_t scan_bytes;
};

}  // namespace

size_t device_count_lookups_scratch(size_t count) {
  DeviceArena arena;
  LookupsScratch scratch(arena, count);
  return arena.used();
}

void device_count_lookups(const DeviceKeyPieces& p, const int32_t* inverse,
                          const uint32_t* distinct_first, size_t tables, const DeviceLookups& out,
                          void* scratch, size_t bytes, DeviceStream stream) {
  DeviceArena arena(scratch, bytes);
  const LookupsScratch s(arena, p.count);
  check(cudaMemsetAsync(out.counts, 0, (p.count + 1) * sizeof(uint32_t), stream), "keys: lookups");
  launch("keys: lookups", add_lookups, blocks_for(p.count), kBlockThreads, stream, p.pieces,
         p.begins, static_cast<uint32_t>(p.features), inverse, out.counts);
  exclusive_sum(out.counts, s.before, p.count + 1, s.scan, s.scan_bytes, stream);
  launch("keys: of tables", pick_tables, blocks_for(tables + 1), kBlockThreads, stream, s.before,
         distinct_first, static_cast<uint32_t>(tables), out.table_first);
}

DeviceAnswer DeviceAnswer::take(DeviceArena& arena, size_t tables, size_t count) {
  DeviceAnswer answer;
  answer.wrong = arena.take<WrongKeys>(1);
  answer.table_first = arena.take<uint32_t>(tables + 1);
  answer.missing_first = arena.take<uint32_t>(tables + 1);
  answer.lookups_first = arena.take<uint32_t>(tables + 1);
  answer.keys = arena.take<int64_t>(count);
  answer.counts = arena.take<uint32_t>(count);
  return answer;
}

void device_answer(const DeviceProbed& probed, size_t tables, const uint32_t* distinct_first,
                   const uint32_t* counts, const uint32_t* lookups_first, const WrongKeys* wrong,
                   size_t most, const DeviceAnswer& answer, DeviceStream stream) {
  launch("keys: answer", write_answer, blocks_for(std::max(most, tables + 1)), kBlockThreads,
         stream, probed, static_cast<uint32_t>(tables), distinct_first, counts, lookups_first,
         wrong, answer);
}

void device_set_beside(const DeviceProbed& probed, size_t missing, const uint32_t* places,
                       const DeviceBypass& beside, std::byte** targets, DeviceStream stream) {
  launch("keys: beside", set_beside, blocks_for(missing), kBlockThreads, stream, probed,
         static_cast<uint32_t>(missing), places, beside, targets);
}

void device_drop_absent(const DeviceProbed& before, const uint32_t* count, size_t most,
                        const DeviceProbed& probed, DeviceStream stream) {
  launch("keys: absent", drop_absent, blocks_for(most), kBlockThreads, stream, before.lines, count,
         probed.lines);
}

}  // namespace hotrow
