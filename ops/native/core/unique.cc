#include "core/unique.h"

#include <algorithm>
#include <limits>

#include "core/hash.h"
#include "core/status.h"

namespace hotrow {

void Unique::run(const int64_t* keys, size_t count) {
  if (count > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    fail(Code::kInvalidArgument, "a batch of %zu keys; at most 2147483647 in one lookup", count);
  }
  size_t capacity = 16;
  while (capacity < 2 * count) capacity *= 2;
  const size_t mask = capacity - 1;
  slots_.assign(capacity, -1);
  keys_.clear();
  inverse_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    size_t slot = mix64(static_cast<uint64_t>(keys[i])) & mask;
    while (slots_[slot] >= 0 && keys_[static_cast<size_t>(slots_[slot])] != keys[i]) {
      slot = (slot + 1) & mask;
    }
    if (slots_[slot] < 0) {
      slots_[slot] = static_cast<int32_t>(keys_.size());
      keys_.push_back(keys[i]);
    }
    inverse_[i] = slots_[slot];
  }
}

}  // namespace hotrow
