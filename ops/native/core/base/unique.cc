#include "core/base/unique.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/base/hash.h"
#include "core/base/status.h"

namespace hotrow {
namespace {

constexpr size_t kMixedKeys = 32;

}  // namespace

void Unique::run(const int64_t* keys, size_t count) {
  if (count > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    fail(Code::kInvalidArgument, "a batch of %zu keys; at most 2147483647 in one lookup", count);
  }
  size_t capacity = 16;
  while (capacity < 2 * count) capacity *= 2;
  const size_t mask = capacity - 1;
  if (slots_.size() < capacity) slots_.resize(capacity);
  std::memset(slots_.data(), 0xff, capacity * sizeof(int32_t));
  if (keys_.size() < count) {
    hashes_.resize(count);
    counts_.resize(count);
    inverse_.resize(count);
    keys_.resize(count);  // the last: its size is that of all
  }
  int32_t* const slots = slots_.data();
  int64_t* const unique = keys_.data();
  uint32_t* const counts = counts_.data();
  int32_t size = 0;
  // In blocks: a block's slots are prefetched while the previous block's slots are read.
  uint64_t mixed[2][kMixedKeys];
  const auto fetch = [&](size_t first) {
    const size_t last = std::min(count, first + kMixedKeys);
    uint64_t* block = mixed[first / kMixedKeys & 1];
    for (size_t i = first; i < last; ++i) {
      const uint64_t hash = mix64(static_cast<uint64_t>(keys[i]));
      block[i - first] = hash;
      __builtin_prefetch(slots + (hash & mask), 1);
    }
  };
  fetch(0);
  for (size_t first = 0; first < count; first += kMixedKeys) {
    if (first + kMixedKeys < count) fetch(first + kMixedKeys);
    const size_t last = std::min(count, first + kMixedKeys);
    const uint64_t* block = mixed[first / kMixedKeys & 1];
    for (size_t i = first; i < last; ++i) {
      const int64_t key = keys[i];
      size_t slot = block[i - first] & mask;
      // No branch on whether a key is new, which is unpredictable. A known key writes values that
      // are there already.
      int32_t found = slots[slot];
      int32_t place = found + ((size - found) & (found >> 31));
      while (__builtin_expect(~(found >> 31) & static_cast<int32_t>(unique[place] != key), 0)) {
        slot = (slot + 1) & mask;
        found = slots[slot];
        place = found + ((size - found) & (found >> 31));
      }
      size -= found >> 31;
      slots[slot] = place;
      unique[place] = key;
      counts[place] = (counts[place] & ~static_cast<uint32_t>(found >> 31)) + 1;
      inverse_[i] = place;
    }
  }
  size_ = static_cast<size_t>(size);
  for (size_t u = 0; u < size_; ++u) hashes_[u] = mix64(static_cast<uint64_t>(unique[u]));
}

}  // namespace hotrow
