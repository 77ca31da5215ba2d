// The place of a row in a store: virtual shards, pages, and the names of Redis keys
// (docs/formats.md, "Stored rows").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/dispatch.h"
#include "core/base/hash.h"

namespace hotrow {

constexpr size_t kRecordHead = 16;  // bytes of key and version before the row
constexpr size_t kMostStoreShards = 4096;
constexpr uint64_t kWidestRow = uint64_t{1} << 24;
constexpr size_t kSlots = 16384;  // of a Redis Cluster

// Fails with InvalidArgument unless a store may have `shards` virtual shards.
void check_shards(size_t shards);

HOTROW_HD inline uint32_t store_shard_of(int64_t key, size_t shards) {
  return static_cast<uint32_t>(owner_of(key, static_cast<int32_t>(shards), true));
}
// pages: of the table in each shard.
inline uint64_t page_of(int64_t key, uint64_t pages) {
  return static_cast<uint64_t>(
      (static_cast<unsigned __int128>(mix64(static_cast<uint64_t>(key))) * pages) >> 64);
}

// The slot of a Redis key: CRC-16 of the text between the first braces.
uint32_t slot_of(const char* key, size_t bytes);

// The names of a generation's keys.
class StoreNames {
 public:
  // shards: a power of two up to kMostStoreShards. number: of the generation.
  StoreNames(size_t shards, uint64_t number);

  size_t shards() const { return markers_.size(); }
  // hr{TT}GG.
  const std::string& marker(size_t shard) const { return markers_[shard]; }
  uint32_t slot(size_t shard) const { return slots_[shard]; }
  // Writes hr{TT}GG:tt... to `name` and returns its length.
  static constexpr size_t kLongestPage = 40;
  size_t page(size_t shard, size_t table, uint64_t page, char* name) const;

 private:
  std::vector<std::string> markers_;
  std::vector<uint32_t> slots_;
};

}  // namespace hotrow
