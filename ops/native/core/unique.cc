#include "core/unique.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/hash.h"
#include "core/status.h"

namespace hotrow {
namespace {

constexpr size_t kBlock = 32;

}  // namespace

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
  // In blocks: the slots of a block are fetched while those of the one before are read.
  uint64_t mixed[2][kBlock];
  const auto fetch = [&](size_t first) {
    const size_t last = std::min(count, first + kBlock);
    uint64_t* block = mixed[first / kBlock & 1];
    for (size_t i = first; i < last; ++i) {
      const uint64_t hash = hashes == nullptr ? mix64(static_cast<uint64_t>(keys[i])) : hashes[i];
      block[i - first] = hash;
      __builtin_prefetch(slots + (hash & mask), 1);
    }
  };
  fetch(0);
  for (size_t first = 0; first < count; first += kBlock) {
    if (first + kBlock < count) fetch(first + kBlock);
    const size_t last = std::min(count, first + kBlock);
    const uint64_t* block = mixed[first / kBlock & 1];
    for (size_t i = first; i < last; ++i) {
      const int64_t key = keys[i];
      size_t slot = block[i - first] & mask;
      int32_t found = slots[slot];
      while (found >= 0 && unique[found] != key) {
        slot = (slot + 1) & mask;
        found = slots[slot];
      }
      if (found < 0) {
        found = size++;
        slots[slot] = found;
        unique[found] = key;
        hashes_[static_cast<size_t>(found)] = block[i - first];
        counts[found] = 0;
      }
      ++counts[found];
      inverse_[i] = found;
    }
  }
  keys_.resize(static_cast<size_t>(size));
  hashes_.resize(static_cast<size_t>(size));
  counts_.resize(static_cast<size_t>(size));
}

}  // namespace hotrow
