// The input dispatcher groups keys by their owner.
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

}  // namespace hotrow
