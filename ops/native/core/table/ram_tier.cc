#include "core/table/ram_tier.h"

#include <mutex>

#include "core/base/hash.h"
#include "core/table/table.h"

namespace hotrow {
namespace {

uint64_t hash_of(int64_t key) { return mix64(static_cast<uint64_t>(key)); }

// The partition's lock, taken only while a snapshot's reader may use the partition.
std::unique_lock<std::mutex> locked(const Table& table, Partition& partition) {
  std::unique_lock lock(partition.mutex, std::defer_lock);
  if (table.snapshot_open()) lock.lock();
  return lock;
}

}  // namespace

RamTier::RamTier(Table& table)
    : table_(&table),
      cache_(table.shape().stride, table.options().cache.rows, table.options().cache.policy) {
  // On ranks, create it at once: a thread that others wait for must not wait for the lock.
  if (table.sharding().ranks != nullptr) prefetch_ = std::make_unique<Prefetch>(table, *this);
}

bool RamTier::write_back(uint32_t slot) {
  const int64_t key = cache_.header(slot).key;
  Partition& partition = table_->partition(table_->partition_number(key, hash_of(key)));
  const bool behind = partition.write_back(cache_.place(slot), cache_.line(slot));
  cache_.set_dirty(slot, false);
  return behind;
}

size_t RamTier::settle() {
  size_t behind = 0;
  for (size_t i = 0; i < slots(); ++i) {
    const uint32_t slot = static_cast<uint32_t>(i);
    if (!cache_.used(slot) || !cache_.dirty(slot)) continue;
    const int64_t key = cache_.header(slot).key;
    const auto lock =
        locked(*table_, table_->partition(table_->partition_number(key, hash_of(key))));
    behind += write_back(slot) ? 1 : 0;
  }
  for (size_t p = 0; p < table_->partition_count(); ++p) {
    Partition& partition = table_->partition(p);
    if (partition.bypass.size() == 0) continue;
    const auto lock = locked(*table_, partition);
    partition.leave_bypass(BypassRows::Keep::kNone);
  }
  return behind;
}

void RamTier::clear() {
  if (prefetch_ != nullptr) {
    prefetch_->finish_loading();
    prefetch_->forget();
  }
  cache_.clear();
}

void RamTier::read_headers(const int64_t* keys, size_t count, RowHeader* headers) {
  for (size_t i = 0; i < count; ++i) {
    const uint32_t slot = cache_.find(hash_of(keys[i]), keys[i]);
    headers[i] =
        slot == RowCache::kNone ? RowHeader{keys[i], Partition::kFree, 0} : cache_.header(slot);
  }
}

void RamTier::drop(const int64_t* keys, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const uint32_t slot = cache_.find(hash_of(keys[i]), keys[i]);
    if (cache_.loading(slot)) (void)wait_for(slot);
    cache_.release(slot);
  }
}

void RamTier::prefetch(const int64_t* keys, size_t count) {
  if (table_->sharding().ranks == nullptr) {
    std::unique_lock lock(table_->mutex());
    if (prefetch_ == nullptr) prefetch_ = std::make_unique<Prefetch>(*table_, *this);
  }
  prefetch_->add(keys, count);
}

void RamTier::wait_for_prefetch() {
  if (prefetch_ != nullptr) prefetch_->wait();
}

void RamTier::let_go_of_windows() {
  if (prefetch_ != nullptr) prefetch_->let_go_of_all();
}

void RamTier::expect(const int64_t* keys, const uint32_t* uses, size_t count) {
  for (size_t i = 0; i < count; ++i) cache_.expect(hash_of(keys[i]), uses[i]);
}

void RamTier::evict(uint32_t slot, CacheCounts* counts) {
  if (cache_.dirty(slot)) counts->written_back += write_back(slot) ? 1 : 0;
  ++counts->evicted;
  cache_.release(slot);
}

std::byte* RamTier::line_to_update(int64_t key, uint64_t hash, uint32_t place) {
  uint32_t slot = cache_.find(hash, key);
  if (slot != RowCache::kNone && cache_.loading(slot) && !wait_for(slot)) slot = RowCache::kNone;
  if (slot != RowCache::kNone) {
    cache_.set_dirty(slot, true);
    return cache_.line(slot);
  }
  Partition& partition = table_->partition(table_->partition_number(key, hash));
  return table_->shape().log == nullptr ? partition.at(place) : partition.bring_in(place);
}

}  // namespace hotrow
