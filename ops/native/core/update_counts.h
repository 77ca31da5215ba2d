// How often rows were updated at their owner, of those that other ranks keep (kept_rows.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hotrow {

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
  size_t size() const { return size_; }
  void clear();

 private:
  enum : uint32_t { kNobody = 0, kOld = 1, kAsked = 2 };
  struct Entry {
    int64_t key;
    uint32_t updates;
    uint32_t used;
  };
  size_t place_of(int64_t key) const;
  void rebuild(size_t size);
  // Forgets those that nobody asked for since the last time.
  void forget();

  size_t enough_;
  std::vector<Entry> entries_;  // open addressing; a power of two
  size_t size_ = 0;
  size_t forget_at_;
  uint32_t first_ = 0;  // version that a count begins with
};

}  // namespace hotrow
