// Where a table's row lies: its partition, and the block of its place. For the host and for
// kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/dispatch.h"
#include "core/base/hash.h"

namespace hotrow {

inline constexpr unsigned kPartitionBits = 5;  // of a shard: 32 partitions

// hash: mix64(key).
HOTROW_HD inline size_t partition_number_of(int64_t key, uint64_t hash, int32_t shards,
                                            bool hashed) {
  const size_t part = hash >> (64 - kPartitionBits);
  if (shards == 1) return part;
  return (static_cast<size_t>(owner_of(key, shards, hashed)) << kPartitionBits) + part;
}

// Rows lie in blocks: 64 of 2^first_shift rows, then 64 of twice as many, and so on. So at most a
// 64th of the rows' memory is empty, and the list of blocks, which every lookup reads, stays in the
// first cache however large the table is.
struct RowSpot {
  static constexpr unsigned kBlockBits = 6;

  size_t block;
  size_t row;  // in the block
};

HOTROW_HD inline RowSpot spot_of(uint32_t place, unsigned first_shift) {
  constexpr unsigned kBits = RowSpot::kBlockBits;
  const uint64_t r = place + (uint64_t{1} << (first_shift + kBits));
#if defined(__CUDA_ARCH__)
  const unsigned zeros = static_cast<unsigned>(__clzll(static_cast<long long>(r)));
#else
  const unsigned zeros = static_cast<unsigned>(__builtin_clzll(r));
#endif
  const unsigned shift = 63 - kBits - zeros;
  const size_t size = shift - first_shift;
  return {(size << kBits) + static_cast<size_t>(r >> shift) - (size_t{1} << kBits),
          static_cast<size_t>(r & ((uint64_t{1} << shift) - 1))};
}

}  // namespace hotrow
