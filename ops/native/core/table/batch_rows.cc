#include "core/table/batch_rows.h"

#include <algorithm>
#include <limits>

#include "core/table/host_search.h"

namespace hotrow {
namespace {

// The fewest keys that a group should have: with fewer, grouping costs a thread more than it saves.
constexpr size_t kGroupKeys = 4096;
constexpr size_t kChunkKeys = 16384;

}  // namespace

void BatchRows::collect(Table& table, const std::vector<const Feature*>& features, size_t threads) {
  table_ = &table;
  threads_ = std::max<size_t>(threads, 1);
  parts_.clear();
  count_ = 0;
  counted_ = false;
  for (const Feature* feature : features) {
    const size_t count = feature->segments.keys;
    check_segments(feature->segments, feature->name);
    table.check_keys(feature->keys, count);
    if (count > 0) parts_.push_back({count_, feature->keys, count, feature->counts});
    counted_ = counted_ || feature->counts != nullptr;
    count_ += count;
  }
  if (count_ > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    fail(Code::kInvalidArgument, "a batch of %zu keys; at most 2147483647 in one lookup", count_);
  }
  line_of_.resize(count_);
  unsigned bits = 0;
  if (threads > 1) {
    while (bits < Table::kPartitionBits && (kGroupKeys << (bits + 1)) <= count_) ++bits;
  }
  groups_ = size_t{1} << bits;
  group_shift_ = 64 - bits;
  if (all_.size() < groups_) all_.resize(groups_);
  for (Group& group : all_) group.cached = {};
  if (groups_ == 1) {
    chunks_ = 0;
    Group& lone = all_[0];
    lone.positions = nullptr;
    lone.count = count_;
    if (parts_.size() <= 1) {
      lone.keys = parts_.empty() ? nullptr : parts_[0].keys;
      return;
    }
    grouped_keys_.resize(count_);
    for (const Part& part : parts_) {
      std::copy_n(part.keys, part.count, grouped_keys_.data() + part.first);
    }
    lone.keys = grouped_keys_.data();
    return;
  }
  chunks_ = (count_ + kChunkKeys - 1) / kChunkKeys;
  chunk_counts_.assign(chunks_ * groups_, 0);
  grouped_keys_.resize(count_);
  positions_.resize(count_);
}

template <typename Visit>
void BatchRows::each_of(size_t chunk, Visit&& visit) const {
  const size_t begin = chunk * kChunkKeys, end = std::min(begin + kChunkKeys, count_);
  for (const Part& part : parts_) {
    const size_t last = std::min(end, part.first + part.count);
    for (size_t i = std::max(begin, part.first); i < last; ++i) {
      const int64_t key = part.keys[i - part.first];
      visit(i, key, static_cast<size_t>(mix64(static_cast<uint64_t>(key)) >> group_shift_));
    }
  }
}

void BatchRows::count_chunk(size_t chunk) {
  size_t* counts = chunk_counts_.data() + chunk * groups_;
  each_of(chunk, [&](size_t, int64_t, size_t group) { ++counts[group]; });
}

void BatchRows::end_count() {
  if (chunks_ == 0) return;
  size_t place = 0;
  for (size_t g = 0; g < groups_; ++g) {
    Group& group = all_[g];
    group.positions = positions_.data() + place;
    group.keys = grouped_keys_.data() + place;
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
  size_t* places = chunk_counts_.data() + chunk * groups_;
  each_of(chunk, [&](size_t i, int64_t key, size_t group) {
    const size_t place = places[group]++;
    grouped_keys_[place] = key;
    positions_[place] = static_cast<uint32_t>(i);
  });
}

uint32_t BatchRows::find_place(Partition& partition, const Group& group, size_t u, Find how) const {
  const int64_t key = group.unique.keys()[u];
  const uint64_t hash = group.unique.hashes()[u];
  if (how == Find::kRead) return partition.find(hash, key);
  const uint32_t times = how == Find::kTrain ? group.lookups()[u] : 0;
  return partition.find_or_insert(hash, key, times, table_->step_in_lock() + 1);
}

void BatchRows::add_lookups(Group& group) const {
  group.added.clear();
  if (!counted_) return;
  group.added.assign(group.unique.size(), 0);
  const int32_t* inverse = group.unique.inverse();
  // Positions ascend.
  size_t part = 0;
  for (size_t i = 0; i < group.count; ++i) {
    const size_t position = group.positions == nullptr ? i : group.positions[i];
    while (position >= parts_[part].first + parts_[part].count) ++part;
    const uint32_t* lookups = parts_[part].lookups;
    group.added[static_cast<size_t>(inverse[i])] +=
        lookups == nullptr ? 1 : lookups[position - parts_[part].first];
  }
}

void BatchRows::find_rows(size_t g, Find how) {
  Group& group = all_[g];
  group.unique.run(group.keys, group.count);
  add_lookups(group);
  const size_t distinct = group.unique.size();
  group.places.resize(distinct);
  group.lines.resize(distinct);
  group.elsewhere.resize(distinct);
  {
    GroupLock lock(*table_, g, how == Find::kRead ? 0 : groups_);
    if (table_->ram_tier() == nullptr) {
      find_in_host(group, how);
    } else {
      find_in_tiers(g, how);
    }
  }
  const std::byte* missing_line = table_->default_line();
  const int32_t* inverse = group.unique.inverse();
  for (size_t i = 0; i < group.count; ++i) {
    const std::byte* line = group.lines[static_cast<size_t>(inverse[i])];
    line_of_[group.positions == nullptr ? i : group.positions[i]] =
        line == nullptr ? missing_line : line;
  }
}

void BatchRows::end_find(Find how) {
  if (table_->ram_tier() != nullptr && how != Find::kRead) {
    CacheCounts counts;
    for (size_t g = 0; g < groups_; ++g) counts += all_[g].cached;
    // The groups stalled in parallel, on this many threads.
    counts.stall_ns /= std::min(groups_, threads_);
    table_->note_cached(counts);
  }
  epoch_ = table_->epoch();
}

void BatchRows::find_in_host(Group& group, Find how) {
  const size_t distinct = group.unique.size();
  const int64_t* keys = group.unique.keys();
  const uint64_t* hashes = group.unique.hashes();
  // Three short loops over blocks of keys, each ahead of the next by a block: fetch the bucket;
  // read the most likely place from it and fetch the row's header; compare the key. So the misses
  // of a block are in flight together; the code that reads the weights fetches them. Keys that are
  // not found there are searched at the end: searching on at once would make all other keys wait
  // for their misses.
  uint32_t* const elsewhere = group.elsewhere.data();
  size_t missed = 0;
  std::byte* const nowhere = const_cast<std::byte*>(table_->default_line());
  const KeyIndex::Bucket* buckets[2][kBlock];
  in_blocks(
      distinct,
      [&](size_t u) {
        const KeyIndex::Bucket* bucket = partition_of(group, u).index().home(hashes[u]);
        fetch(bucket);
        buckets[u / kBlock & 1][u % kBlock] = bucket;
      },
      [&](size_t u) {
        const Partition& partition = partition_of(group, u);
        const uint32_t place = buckets[u / kBlock & 1][u % kBlock]->candidate(hashes[u]);
        group.places[u] = place;
        std::byte* line = partition.places() == 0 ? nowhere : partition.at(place);
        group.lines[u] = line;
        fetch(line);
      },
      [&](size_t u) {
        elsewhere[missed] = static_cast<uint32_t>(u);
        const RowHeader& header = *reinterpret_cast<const RowHeader*>(group.lines[u]);
        missed += (header.key != keys[u]) | (header.clock == Partition::kFree);
      });
  find_elsewhere(group, missed, how);
}

void BatchRows::find_elsewhere(Group& group, size_t missed, Find how) {
  search_host(*table_, group.unique.keys(), group.unique.hashes(), group.elsewhere.data(), missed,
              [&](size_t u, Partition& partition) {
                group.places[u] = find_place(partition, group, u, how);
                group.lines[u] =
                    group.places[u] == Partition::kAbsent ? nullptr : partition.at(group.places[u]);
              });
}

GroupLock::GroupLock(Table& table, size_t group, size_t groups)
    : table_(table),
      group_(group),
      share_(groups == 0 || !table.snapshot_open() ? 0 : Table::kPartitions / groups) {
  each([](Partition& partition) { partition.mutex.lock(); });
}

GroupLock::~GroupLock() {
  each([](Partition& partition) { partition.mutex.unlock(); });
}

template <typename Visit>
void GroupLock::each(Visit&& visit) {
  for (size_t p = 0; share_ != 0 && p < table_.partition_count(); ++p) {
    if (p % Table::kPartitions / share_ == group_) visit(table_.partition(p));
  }
}

}  // namespace hotrow
