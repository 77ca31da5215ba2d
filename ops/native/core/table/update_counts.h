// How often the owner updated each row that other ranks keep (table/replica_cache.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/key_index.h"

namespace hotrow {

// The low kAgeBits count a row's updates since a rank keeps it. The bits above them hold a number
// that changes whenever counting starts anew. 30 bits, which may wrap.
struct UpdateVersion {
  static constexpr int kBits = 30, kAgeBits = 22;
  // A bound far below the distance between two first versions.
  static constexpr uint32_t kMostBehind = (1u << 20) - 1;

  static uint32_t age(uint32_t version) { return version & ((1u << kAgeBits) - 1); }
  // The first version of the counts that start after those that started at `first`.
  static uint32_t begin_after(uint32_t first) { return first + (2u << kAgeBits); }
};

// Counts are UpdateVersions, and start when a rank keeps a row. Rows that no rank requested for a
// long time are dropped, and counted anew when a rank keeps them again: their version is then far
// from the versions that ranks may still have.
class UpdateCounts {
 public:
  // kept: rows that all other ranks may keep; about twice as many are counted.
  explicit UpdateCounts(size_t kept);

  // From now on updates of this key are counted.
  void watch(int64_t key);
  // Null: no rank keeps the key. asked: a rank requests it now.
  uint32_t* find(int64_t key, bool asked);
  size_t size() const { return entries_.size(); }
  void clear();

 private:
  struct Entry {
    int64_t key;
    uint32_t updates;
    bool asked;  // since entries were last dropped
  };
  uint32_t find_entry(int64_t key) const;
  void add(const Entry& entry);
  // Drops the entries that no rank requested since the last call.
  void forget();

  size_t enough_;
  size_t forget_at_;
  std::vector<Entry> entries_;
  SlabMemory index_memory_;
  KeyIndex index_;      // of entries
  uint32_t first_ = 0;  // version at which a count starts
};

}  // namespace hotrow
