#include "core/unique.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/hash.h"
#include "core/status.h"

namespace hotrow {

void Unique::run(const int64_t* keys, size_t count, const uint64_t* hashes) {
  if (count > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    fail(Code::kInvalidArgument, "a batch of %zu keys; at most 2147483647 in one lookup", count);
  }
  size_t capacity = 16;
  while (capacity < 2 * count) capacity *= 2;
  const size_t mask = capacity - 1;
  if (slots_.size() < capacity) slots_.resize(capacity);
  std::memset(slots_.data(), 0xff, capacity * sizeof(int32_t));
  inverse_.resize(count);
  keys_.resize(count);
  hashes_.resize(count);
  counts_.resize(count);
  int32_t* const slots = slots_.data();
  int64_t* const unique = keys_.data();
  uint32_t* const counts = counts_.data();
  int32_t size = 0;
  for (size_t i = 0; i < count; ++i) {
    const int64_t key = keys[i];
    const uint64_t hash = hashes == nullptr ? mix64(static_cast<uint64_t>(key)) : hashes[i];
    size_t slot = hash & mask;
    int32_t found = slots[slot];
    while (found >= 0 && unique[found] != key) {
      slot = (slot + 1) & mask;
      found = slots[slot];
    }
    if (found < 0) {
      found = size++;
      slots[slot] = found;
      unique[found] = key;
      hashes_[static_cast<size_t>(found)] = hash;
      counts[found] = 0;
    }
    ++counts[found];
    inverse_[i] = found;
  }
  keys_.resize(static_cast<size_t>(size));
  hashes_.resize(static_cast<size_t>(size));
  counts_.resize(static_cast<size_t>(size));
}

}  // namespace hotrow
