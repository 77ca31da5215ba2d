// The dispatchers: group keys by their owner, and bring rows back in the order of the keys.
// Input dispatcher and output dispatcher as in NVIDIA SOK (design section 1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/hash.h"

namespace hotrow {

// The shard that holds a key: the mathematical modulus, in [0, shards) for any sign of key.
// hashed: mix the key first, for key sets that are not spread over the residues.
HOTROW_HD inline int32_t owner_of(int64_t key, int32_t shards, bool hashed) {
  if (hashed) {
    // Mixed twice: the index of a shard uses the low bits of the first mix.
    return static_cast<int32_t>(mix64(mix64(static_cast<uint64_t>(key))) %
                                static_cast<uint64_t>(shards));
  }
  const int64_t remainder = key % shards;
  return static_cast<int32_t>(remainder < 0 ? remainder + shards : remainder);
}

// Keys grouped by owner; inside a group they keep their order.
class Dispatch {
 public:
  // keys: (count). shards >= 1.
  void group(const int64_t* keys, size_t count, int32_t shards, bool hashed);

  // Writes grouped[i] = keys[order[i]].
  const std::vector<int64_t>& grouped() const { return grouped_; }  // (N)
  const std::vector<int32_t>& order() const { return order_; }      // (N)
  const std::vector<int64_t>& counts() const { return counts_; }    // (shards)

 private:
  std::vector<int64_t> grouped_;
  std::vector<int32_t> order_;
  std::vector<int32_t> owners_;
  std::vector<int64_t> counts_;
};

// rows[order[i], :] = grouped_rows[i, :] for i < count. Both (count, width).
void combine(const float* grouped_rows, const int32_t* order, size_t count, size_t width,
             float* rows);

// grouped_rows[i, :] = rows[order[i], :]: the way of the gradients, opposite to combine.
void split(const float* rows, const int32_t* order, size_t count, size_t width,
           float* grouped_rows);

}  // namespace hotrow
