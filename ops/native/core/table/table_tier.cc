// A table and its device tier: what goes between the two, and what steps learn of it.
#include <algorithm>
#include <numeric>
#include <thread>

#include "core/table/device_tier.h"
#include "core/table/ram_tier.h"
#include "core/table/table.h"

namespace hotrow {

void Table::settle() const {
  if (tier_->slots() == 0) return;
  tier_->settle_ahead();
  std::unique_lock lock(mutex_);
  // The table's rows do not change; only their locations do.
  const_cast<Table*>(this)->settle_in_lock();
}

std::shared_lock<std::shared_mutex> Table::lock_settled() const {
  settle();
  std::shared_lock lock(mutex_);
  // A step may have begun between the two.
  tier_->wait_for_host_rows();
  return lock;
}

void Table::settle_in_lock() {
  if (!unsettled_) return;
  note_settled(tier_->settle());
  unsettled_ = false;
}

void Table::note_settled(size_t behind) {
  cache_counts_.written_back += behind;
  // Passes that found rows assume that the rows are marked dirty.
  void_found();
}

void Table::take_updates() const {
  if (!on_gpu()) return;
  std::unique_lock lock(mutex_);
  const_cast<Table*>(this)->take_updates_in_lock();
}

void Table::take_updates_in_lock() {
  const UpdateTotals counted = tier_->take_updates();
  add_updates(counted.updates, counted.nonfinite);
  cache_counts_.written_back += counted.written_back;
}

void Table::empty_cache() {
  settle_in_lock();
  tier_->clear();
}

void Table::prefetch(const int64_t* keys, size_t count) {
  check_keys(keys, count);
  try {
    tier_->prefetch(keys, count);
  } catch (const Error& error) {
    // An earlier window found no room for the rows that it evicted. The window is left out if
    // there is room now, as after a step that gave a snapshot up.
    if (error.code() != Code::kResourceExhausted) throw;
    if (!has_disk() || (!give_up_snapshot_for_disk() && lacks_disk())) throw;
  }
}

void Table::wait_for_prefetch() { tier_->wait_for_prefetch(); }

size_t Table::warm_up(const int64_t* keys, const uint32_t* counts, size_t count, double share) {
  check_keys(keys, count);
  if (sharding_.ranks != nullptr) {
    // Keys that other ranks own would never be used here.
    std::vector<int64_t> own;
    std::vector<uint32_t> own_counts;
    for (size_t i = 0; i < count; ++i) {
      if (sharding_.owner_of(keys[i]) != sharding_.rank()) continue;
      own.push_back(keys[i]);
      own_counts.push_back(counts[i]);
    }
    return warm_up_own(own.data(), own_counts.data(), own.size(), share);
  }
  return warm_up_own(keys, counts, count, share);
}

size_t Table::warm_up_own(const int64_t* keys, const uint32_t* counts, size_t count, double share) {
  if (!(share >= 0.0 && share <= 1.0)) {
    fail(Code::kInvalidArgument, "table %s: warm-up of %g of the cache; 0 to 1", name_.c_str(),
         share);
  }
  const size_t slots = statistics().cache_slots;
  if (slots == 0 || count == 0) return 0;
  std::vector<uint32_t> order(count), uses(count);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return counts[a] > counts[b]; });
  const double total = std::max(std::accumulate(counts, counts + count, 0.0), 1.0);
  // Scales a key's count to its expected uses before its set decays.
  const double scale = static_cast<double>(slots) * RowCache::kUsesToDecay / total;
  for (size_t i = 0; i < count; ++i) {
    uses[i] = static_cast<uint32_t>(std::clamp(counts[i] * scale, 1.0, 255.0));
  }
  std::vector<int64_t> best;
  const size_t room = static_cast<size_t>(share * static_cast<double>(slots));
  {
    std::unique_lock lock(mutex_);
    tier_->expect(keys, uses.data(), count);
    for (uint32_t i : order) {
      const uint64_t hash = mix64(static_cast<uint64_t>(keys[i]));
      const Partition& partition = partitions_[partition_number(keys[i], hash)];
      if (best.size() < room && partition.find(hash, keys[i]) != Partition::kAbsent) {
        best.push_back(keys[i]);
      }
    }
  }
  const uint64_t before = statistics().cache.prefetched;
  prefetch(best.data(), best.size());
  wait_for_prefetch();
  {
    // No batch needs the rows that the warm-up pinned.
    std::unique_lock lock(mutex_);
    tier_->let_go_of_windows();
  }
  return statistics().cache.prefetched - before;
}

std::unique_lock<std::shared_mutex> Table::lock_beside_steps() {
  // A mutex is not fair: without this, a step could wait until prefetching has ended.
  for (;;) {
    while (steps_waiting.load() > 0) std::this_thread::yield();
    std::unique_lock lock(mutex_);
    if (steps_waiting.load() == 0) return lock;
  }
}

std::byte* Table::line_to_update(int64_t key, uint64_t hash, uint32_t place) {
  if (place == Partition::kAbsent) return nullptr;
  if (ram_tier_ == nullptr) return partitions_[partition_number(key, hash)].at(place);
  unsettled_ = true;
  return ram_tier_->line_to_update(key, hash, place);
}

void Table::note_cached(const CacheCounts& counts) {
  unsettled_ = true;
  cache_counts_ += counts;
  // Rows moved: lines from before are void.
  if (counts.inserted + counts.prefetched + counts.left > 0) void_found();
}

}  // namespace hotrow
