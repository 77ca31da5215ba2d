#include "core/batch_rows.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace hotrow {
namespace {

// Keys a group should have at least: below, a thread does better without grouping.
constexpr size_t kGroupKeys = 4096;
constexpr size_t kChunkKeys = 16384;
// Keys whose misses are under way together.
constexpr size_t kBlock = 16;
constexpr size_t kLineBytes = 64;

// Into the second cache, which can wait for more lines at a time than the first. Always inline:
// GCC takes a function that only prefetches for one without effect and leaves its calls out.
[[gnu::always_inline]] inline void fetch(const void* line) { __builtin_prefetch(line, 0, 2); }

[[gnu::always_inline]] inline void prefetch_weights(const std::byte* row, size_t bytes) {
  for (size_t i = 0; i < bytes; i += kLineBytes) fetch(row + i);
  // The last byte may lie in one line more.
  fetch(row + bytes - 1);
}

}  // namespace

void BatchRows::collect(Table& table, const std::vector<const Feature*>& features, size_t threads) {
  table_ = &table;
  keys_.clear();
  for (const Feature* feature : features) {
    check_segments(feature->segments, feature->name);
    table.check_keys(feature->keys, feature->segments.keys);
    keys_.insert(keys_.end(), feature->keys, feature->keys + feature->segments.keys);
  }
  const size_t count = keys_.size();
  if (count > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    fail(Code::kInvalidArgument, "a batch of %zu keys; at most 2147483647 in one lookup", count);
  }
  line_of_.resize(count);
  epoch_ = table.epoch();
  unsigned bits = 0;
  if (threads > 1) {
    while (bits < Table::kPartitionBits && (kGroupKeys << (bits + 1)) <= count) ++bits;
  }
  groups_ = size_t{1} << bits;
  group_shift_ = 64 - bits;
  if (all_.size() < groups_) all_.resize(groups_);
  if (groups_ == 1) {
    chunks_ = 0;
    Group& lone = all_[0];
    lone.positions = nullptr;
    lone.keys = keys_.data();
    lone.hashes = nullptr;
    lone.count = count;
    return;
  }
  chunks_ = (count + kChunkKeys - 1) / kChunkKeys;
  chunk_counts_.assign(chunks_ * groups_, 0);
  hashes_.resize(count);
  grouped_keys_.resize(count);
  grouped_hashes_.resize(count);
  positions_.resize(count);
}

void BatchRows::count_chunk(size_t chunk) {
  const size_t end = std::min((chunk + 1) * kChunkKeys, keys_.size());
  size_t* counts = chunk_counts_.data() + chunk * groups_;
  for (size_t i = chunk * kChunkKeys; i < end; ++i) {
    hashes_[i] = mix64(static_cast<uint64_t>(keys_[i]));
    ++counts[group_of(hashes_[i])];
  }
}

void BatchRows::end_count() {
  if (chunks_ == 0) return;
  size_t place = 0;
  for (size_t g = 0; g < groups_; ++g) {
    Group& group = all_[g];
    group.positions = positions_.data() + place;
    group.keys = grouped_keys_.data() + place;
    group.hashes = grouped_hashes_.data() + place;
    const size_t first = place;
    for (size_t chunk = 0; chunk < chunks_; ++chunk) {
      const size_t n = chunk_counts_[chunk * groups_ + g];
      chunk_counts_[chunk * groups_ + g] = place;
      place += n;
    }
    group.count = place - first;
  }
}

void BatchRows::scatter_chunk(size_t chunk) {
  const size_t end = std::min((chunk + 1) * kChunkKeys, keys_.size());
  size_t* places = chunk_counts_.data() + chunk * groups_;
  for (size_t i = chunk * kChunkKeys; i < end; ++i) {
    const size_t place = places[group_of(hashes_[i])]++;
    grouped_keys_[place] = keys_[i];
    grouped_hashes_[place] = hashes_[i];
    positions_[place] = static_cast<uint32_t>(i);
  }
}

void BatchRows::find_rows(size_t g, Missing missing) {
  Group& group = all_[g];
  Table& table = *table_;
  group.unique.run(group.keys, group.count, group.hashes);
  const size_t distinct = group.unique.size();
  group.places.resize(distinct);
  group.lines.resize(distinct);
  const int64_t* keys = group.unique.keys().data();
  const uint64_t* hashes = group.unique.hashes().data();
  const uint32_t* counts = group.unique.counts().data();
  const uint32_t clock = table.step_in_lock() + 1;
  const size_t weight_bytes = sizeof(RowHeader) + table.shape().layout.state_offset();
  const auto partition_of = [&](size_t u) -> Partition& {
    return table.partition(table.partition_number(keys[u], hashes[u]));
  };
  GroupLock lock(table, g, missing == Missing::kReadDefault ? 0 : groups_);
  // Three short loops over blocks of keys, each ahead of the next by a block: fetch the bucket;
  // read the most likely place from it and fetch the line; compare the key. So the misses of a
  // block are under way together.
  const KeyIndex::Bucket* buckets[2][kBlock];
  const size_t blocks = (distinct + kBlock - 1) / kBlock;
  for (size_t block = 0; block < blocks + 2; ++block) {
    if (block < blocks) {
      const size_t first = block * kBlock, last = std::min(distinct, first + kBlock);
      for (size_t u = first; u < last; ++u) {
        const KeyIndex::Bucket* bucket = partition_of(u).index().home(hashes[u]);
        fetch(bucket);
        buckets[block & 1][u - first] = bucket;
      }
    }
    if (block >= 1 && block - 1 < blocks) {
      const size_t first = (block - 1) * kBlock, last = std::min(distinct, first + kBlock);
      for (size_t u = first; u < last; ++u) {
        const uint32_t place = buckets[(block - 1) & 1][u - first]->candidate(hashes[u]);
        group.places[u] = place;
        if (place == Partition::kAbsent) continue;
        std::byte* line = partition_of(u).at(place);
        group.lines[u] = line;
        prefetch_weights(line, weight_bytes);
      }
    }
    if (block < 2) continue;
    const size_t first = (block - 2) * kBlock, last = std::min(distinct, first + kBlock);
    for (size_t u = first; u < last; ++u) {
      if (group.places[u] != Partition::kAbsent &&
          reinterpret_cast<const RowHeader*>(group.lines[u])->key == keys[u]) {
        continue;
      }
      Partition& partition = partition_of(u);
      uint32_t place;
      if (missing == Missing::kReadDefault) {
        place = partition.find(hashes[u], keys[u]);
      } else {
        const uint32_t times = missing == Missing::kInsert ? counts[u] : 0;
        place = partition.find_or_insert(hashes[u], keys[u], times, clock);
      }
      group.places[u] = place;
      group.lines[u] = place == Partition::kAbsent ? nullptr : partition.at(place);
    }
  }
  const std::byte* missing_line = table.default_line();
  const int32_t* inverse = group.unique.inverse().data();
  for (size_t i = 0; i < group.count; ++i) {
    const std::byte* line = group.lines[static_cast<size_t>(inverse[i])];
    line_of_[group.positions == nullptr ? i : group.positions[i]] =
        line == nullptr ? missing_line : line;
  }
}

GroupLock::GroupLock(Table& table, size_t group, size_t groups) {
  if (groups == 0 || !table.snapshot_open()) return;
  const size_t share = Table::kPartitions / groups;
  for (size_t p = 0; p < table.partition_count(); ++p) {
    if (p % Table::kPartitions / share != group) continue;
    locks_.emplace_back(table.partition(p).mutex);
  }
}

}  // namespace hotrow
