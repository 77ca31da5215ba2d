// How a batch finds its rows in a table with a device tier.
#include <chrono>
#include <cstring>

#include "core/base/room.h"
#include "core/table/batch_rows.h"
#include "core/table/host_search.h"
#include "core/table/ram_tier.h"

namespace hotrow {
namespace {

// Unpins the slots of a lookup, also when it fails.
class Pins {
 public:
  Pins(RowCache& cache, std::vector<uint32_t>* slots) : cache_(&cache), slots_(slots) {}
  ~Pins() {
    cache_->unpin(slots_->data(), slots_->size(), RowCache::kLookup);
    slots_->clear();
  }

 private:
  RowCache* cache_;
  std::vector<uint32_t>* slots_;
};

// Memory assigned to rows whose lines have not been read yet; released if reading them fails.
class Unfilled {
 public:
  explicit Unfilled(RowCache& cache) : cache_(&cache) {}
  ~Unfilled() {
    // Releasing the slots removes their pins; the caller's list of pins must not outlive this.
    for (uint32_t slot : slots_) cache_->release(slot);
    for (const auto& [rows, place] : beside_) rows->remove(place);
  }
  // For so many rows, `add` does not fail.
  void reserve(size_t rows) {
    slots_.reserve(rows);
    beside_.reserve(rows);
  }
  void add(uint32_t slot) { slots_.push_back(slot); }
  void add(BypassRows* rows, uint32_t place) { beside_.emplace_back(rows, place); }
  void filled() {
    slots_.clear();
    beside_.clear();
  }

 private:
  RowCache* cache_;
  std::vector<uint32_t> slots_;
  std::vector<std::pair<BypassRows*, uint32_t>> beside_;
};

// Adds its own lifetime to a counter.
class Stopwatch {
 public:
  explicit Stopwatch(uint64_t* nanoseconds)
      : nanoseconds_(nanoseconds), started_(std::chrono::steady_clock::now()) {}
  ~Stopwatch() {
    const auto passed = std::chrono::steady_clock::now() - started_;
    *nanoseconds_ +=
        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(passed).count());
  }

 private:
  uint64_t* nanoseconds_;
  std::chrono::steady_clock::time_point started_;
};

}  // namespace

void BatchRows::find_in_tiers(size_t g, Find how) {
  Group& group = all_[g];
  RowCache& cache = table_->ram_tier()->cache();
  const bool training = how != Find::kRead;
  const size_t distinct = group.unique.size();
  const int64_t* keys = group.unique.keys();
  const uint64_t* hashes = group.unique.hashes();
  uint32_t* const elsewhere = group.elsewhere.data();
  const uint32_t* counts = group.lookups();
  size_t missed = 0;
  uint64_t hit_lookups = 0;
  make_room(group.pinned, distinct);
  const Pins pins(cache, &group.pinned);
  // First find the rows in the device tier and pin them, so that no row of the batch evicts
  // another.
  in_blocks(
      distinct,
      [&](size_t u) __attribute__((always_inline)) {
        fetch(cache.home(hashes[u]));
        fetch(cache.uses_of(hashes[u]));
        fetch(cache.places_of(hashes[u]));
      },
      [&](size_t u) __attribute__((always_inline)) {
        const uint32_t slot = cache.likely(hashes[u]);
        if (slot != RowCache::kNone) fetch(cache.line(slot));
      },
      [&](size_t u) {
        uint32_t slot = cache.find(hashes[u], keys[u]);
        if (slot != RowCache::kNone && cache.loading(slot)) {
          // Until the line arrives, the host tier's line is as new; a read-only lookup uses it.
          const Stopwatch waited(&group.cached.stall_ns);
          if (!training || !table_->ram_tier()->wait_for(slot)) slot = RowCache::kNone;
        }
        if (how == Find::kTrain) cache.note_use(hashes[u], slot);
        hit_lookups += slot == RowCache::kNone ? 0 : counts[u];
        if (slot == RowCache::kNone) {
          elsewhere[missed++] = static_cast<uint32_t>(u);
        } else if (training) {
          take_slot(group, u, slot);
        } else {
          group.places[u] = cache.place(slot);
          group.lines[u] = cache.line(slot);
        }
      });
  if (how == Find::kTrain) {
    group.cached.hits = distinct - missed;
    group.cached.hit_lookups = hit_lookups;
    group.cached.misses = missed;
  }
  const Stopwatch stalled(&group.cached.stall_ns);
  // Then search the host tier, in the order of the keys, as without a device tier.
  find_elsewhere(group, missed, how);
  if (table_->shape().log != nullptr) {
    bring_in_from_disk(group, missed, training);
    if (!training) return;
    each_partition(g, [&](Partition& partition) {
      // Count before the call: rows may have left even when it fails.
      group.cached.left += partition.bypass.size() > 0 ? 1 : 0;
      partition.leave_bypass(BypassRows::Keep::kUsed);
    });
  } else if (training) {
    bring_in(group, missed);
  }
}

void BatchRows::take_slot(Group& group, size_t u, uint32_t slot) {
  RowCache& cache = table_->ram_tier()->cache();
  group.places[u] = cache.place(slot);
  group.lines[u] = cache.line(slot);
  group.pinned.push_back(slot);
  cache.pin(slot, RowCache::kLookup);
  cache.set_dirty(slot, true);
}

void BatchRows::bring_in(Group& group, size_t missed) {
  RowCache& cache = table_->ram_tier()->cache();
  const int64_t* keys = group.unique.keys();
  const uint64_t* hashes = group.unique.hashes();
  const size_t row_bytes = sizeof(RowHeader) + table_->line_bytes();
  for (size_t i = 0; i < missed; ++i) {
    const size_t u = group.elsewhere[i];
    if (group.lines[u] == nullptr) continue;
    const uint32_t slot = cache.choose(hashes[u], RowCache::Admit::kIfWorthMore);
    // Not worth a slot: the batch works on the host tier's line.
    if (slot == RowCache::kNone) continue;
    if (cache.used(slot)) table_->ram_tier()->evict(slot, &group.cached);
    cache.put(slot, hashes[u], keys[u], group.places[u]);
    std::memcpy(cache.line(slot), group.lines[u], row_bytes);
    ++group.cached.inserted;
    take_slot(group, u, slot);
  }
}

void BatchRows::bring_in_from_disk(Group& group, size_t missed, bool training) {
  RowCache& cache = table_->ram_tier()->cache();
  const LineLog& log = *table_->shape().log;
  const size_t stride = table_->shape().stride;
  const int64_t* keys = group.unique.keys();
  const uint64_t* hashes = group.unique.hashes();
  group.reads.clear();
  if (!training && group.read.size() < missed * stride) group.read.resize(missed * stride);
  make_room(group.reads, missed);
  Unfilled unfilled(cache);
  unfilled.reserve(missed);
  for (size_t i = 0; i < missed; ++i) {
    const size_t u = group.elsewhere[i];
    if (group.lines[u] == nullptr) continue;
    Partition& partition = partition_of(group, u);
    const uint32_t number = static_cast<uint32_t>(partition.number()), place = group.places[u];
    std::byte* const beside = partition.bypass.find(place);
    std::byte* row = beside;
    if (!training) {
      if (beside == nullptr) row = group.read.data() + i * stride;
    } else {
      const uint32_t slot = cache.choose(hashes[u], RowCache::Admit::kIfWorthMore);
      if (slot != RowCache::kNone) {
        if (cache.used(slot)) table_->ram_tier()->evict(slot, &group.cached);
        cache.put(slot, hashes[u], keys[u], place);
        ++group.cached.inserted;
        take_slot(group, u, slot);
        row = cache.line(slot);
        if (beside != nullptr) {
          std::memcpy(row, beside, stride);
          partition.bypass.remove(place);
          continue;
        }
        unfilled.add(slot);
      } else {
        if (beside == nullptr) {
          row = partition.bypass.add(place, stride);
          unfilled.add(&partition.bypass, place);
        }
        partition.bypass.use(place);
      }
    }
    group.lines[u] = row;
    if (row == beside) continue;
    std::memcpy(row, partition.at(place), sizeof(RowHeader));
    if (log.has(number, place)) {
      group.reads.push_back({number, place, row + sizeof(RowHeader)});
    } else {
      partition.make_line(keys[u], row);
    }
  }
  log.read(group.reads.data(), group.reads.size());
  unfilled.filled();
}

template <typename Visit>
void BatchRows::each_partition(size_t g, Visit&& visit) {
  const size_t share = Table::kPartitions / groups_;
  for (size_t p = 0; p < table_->partition_count(); ++p) {
    if (p % Table::kPartitions / share == g) visit(table_->partition(p));
  }
}

}  // namespace hotrow
