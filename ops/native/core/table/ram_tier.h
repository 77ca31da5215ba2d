// The device tier of a table whose device is RAM: a RowCache, and prefetching into it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/table/device_tier.h"
#include "core/table/prefetch.h"
#include "core/table/row_cache.h"

namespace hotrow {

class RamTier final : public DeviceTier {
 public:
  // Fails with ResourceExhausted.
  explicit RamTier(Table& table);

  size_t slots() const override { return cache_.slots(); }
  size_t bytes() const override { return cache_.bytes(); }
  size_t settle() override;
  void clear() override;
  void read_headers(const int64_t* keys, size_t count, RowHeader* headers) override;
  void drop(const int64_t* keys, size_t count) override;
  void prefetch(const int64_t* keys, size_t count) override;
  void wait_for_prefetch() override;
  void let_go_of_windows() override;
  void expect(const int64_t* keys, const uint32_t* uses, size_t count) override;
  // Frees the slot of a row that is taken back, if it has one.
  void forget(uint64_t hash, int64_t key) {
    const uint32_t slot = cache_.find(hash, key);
    if (slot != RowCache::kNone) cache_.release(slot);
  }

  // --- for lookups, in the table's lock: from several threads for rows of different partitions ---
  RowCache& cache() { return cache_; }
  // Waits for the line of a loading slot and opens the slot. False: the line could not be read, and
  // the slot is free.
  bool wait_for(uint32_t slot) { return prefetch_->wait_for(slot); }
  // Frees a slot for another row; brings the host tier up to date first.
  void evict(uint32_t slot, CacheCounts* counts);
  // Where the row at a place is to be updated; marks it dirty.
  std::byte* line_to_update(int64_t key, uint64_t hash, uint32_t place);

 private:
  bool write_back(uint32_t slot);

  Table* table_;
  RowCache cache_;
  // Null until the first prefetch; until then no slot is loading. The last member: its threads use
  // all above.
  std::unique_ptr<Prefetch> prefetch_;
};

}  // namespace hotrow
