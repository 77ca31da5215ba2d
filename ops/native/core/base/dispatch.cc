#include "core/base/dispatch.h"

#include <limits>

#include "core/base/status.h"

namespace hotrow {

void Dispatch::group(const int64_t* keys, size_t count, int32_t shards, bool hashed) {
  if (shards < 1) fail(Code::kInvalidArgument, "%d shards; at least 1", shards);
  if (count > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    fail(Code::kInvalidArgument, "a batch of %zu keys; at most 2147483647 in one dispatch", count);
  }
  counts_.assign(static_cast<size_t>(shards), 0);
  owners_.resize(count);
  order_.resize(count);
  grouped_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    owners_[i] = owner_of(keys[i], shards, hashed);
    ++counts_[static_cast<size_t>(owners_[i])];
  }
  std::vector<int64_t> next(static_cast<size_t>(shards), 0);
  for (size_t s = 1; s < next.size(); ++s) next[s] = next[s - 1] + counts_[s - 1];
  for (size_t i = 0; i < count; ++i) {
    const size_t place = static_cast<size_t>(next[static_cast<size_t>(owners_[i])]++);
    order_[place] = static_cast<int32_t>(i);
    grouped_[place] = keys[i];
  }
}

}  // namespace hotrow
