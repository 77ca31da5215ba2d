// How often rows were updated at their owner, of those that other ranks keep
// (table/replica_cache.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/key_index.h"

namespace hotrow {

// How often a row was updated since it is kept, in the low kAgeBits, and above them a number that
// is another one whenever the counting began anew. 30 bits, which may wrap.
struct UpdateVersion {
  static constexpr int kBits = 30, kAgeBits = 22;
  // A bound that is far below what two beginnings of a count are apart.
  static constexpr uint32_t kMostBehind = (1u << 20) - 1;

  static uint32_t age(uint32_t version) { return version & ((1u << kAgeBits) - 1); }
  // The first version after a beginning that began with `first`.
  static uint32_t begin_after(uint32_t first) { return first + (2u << kAgeBits); }
};

// Counts are UpdateVersions, and begin when a rank keeps a row. Rows that nobody asked for in a
// long time are forgotten, and counted anew when they are kept again: their version is then far
// from those that ranks may still have.
class UpdateCounts {
 public:
  // kept: rows that all other ranks may keep; about twice as many are counted.
  explicit UpdateCounts(size_t kept);

  // From now on those of this key are counted.
  void watch(int64_t key);
  // Null: nobody keeps it. asked: somebody does.
  uint32_t* find(int64_t key, bool asked);
  size_t size() const { return entries_.size(); }
  void clear();

 private:
  struct Entry {
    int64_t key;
    uint32_t updates;
    bool asked;  // since the last time that some were forgotten
  };
  uint32_t find_entry(int64_t key) const;
  void add(const Entry& entry);
  // Forgets those that nobody asked for since the last time.
  void forget();

  size_t enough_;
  size_t forget_at_;
  std::vector<Entry> entries_;
  SlabMemory index_memory_;
  KeyIndex index_;      // of entries
  uint32_t first_ = 0;  // version that a count begins with
};

}  // namespace hotrow
