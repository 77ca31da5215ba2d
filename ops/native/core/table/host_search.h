// Loops over keys that prefetch memory ahead, and the search for many keys in the host tier.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/table/table.h"

namespace hotrow {

// Keys whose misses are in flight together.
inline constexpr size_t kBlock = 32;

// Prefetches into the L2 cache, which can have more misses in flight than L1. Always inline: GCC
// considers a function that only prefetches free of effects and removes its calls.
__attribute__((always_inline)) inline void fetch(const void* line) {
  __builtin_prefetch(line, 0, 2);
}

// Calls first(i), second(i) and third(i) for each i < count, in blocks: second a block after first,
// third a block after second.
template <typename First, typename Second, typename Third>
__attribute__((always_inline)) inline void in_blocks(size_t count, First&& first, Second&& second,
                                                     Third&& third) {
  const size_t blocks = (count + kBlock - 1) / kBlock;
  const auto each = [&](size_t block, auto&& stage) __attribute__((always_inline)) {
    const size_t end = std::min(count, (block + 1) * kBlock);
    for (size_t i = block * kBlock; i < end; ++i) stage(i);
  };
  for (size_t block = 0; block < blocks + 2; ++block) {
    if (block < blocks) each(block, first);
    if (block >= 1 && block - 1 < blocks) each(block - 1, second);
    if (block >= 2) each(block - 2, third);
  }
}

// Calls visit(i, partition) for each i < count, in this order. By then, all memory that a search
// for the hash hash_of(i) in partition_of(i) reads is being fetched.
template <typename PartitionOf, typename HashOf, typename Visit>
__attribute__((always_inline)) inline void search_partitions(size_t count,
                                                             PartitionOf&& partition_of,
                                                             HashOf&& hash_of, Visit&& visit) {
  in_blocks(
      count,
      [&](size_t i) __attribute__((always_inline)) {
        partition_of(i).index().each_near(
            hash_of(i), [](const void* bucket) __attribute__((always_inline)) { fetch(bucket); });
      },
      [&](size_t i) __attribute__((always_inline)) {
        const Partition& partition = partition_of(i);
        partition.index().each_likely(
            hash_of(i),
            [&](uint32_t place) __attribute__((always_inline)) { fetch(partition.at(place)); });
      },
      [&](size_t i) { visit(i, partition_of(i)); });
}

// Calls visit(u, partition) for the keys numbered which[0 .. count), in this order, as above.
template <typename Visit>
__attribute__((always_inline)) inline void search_host(Table& table, const int64_t* keys,
                                                       const uint64_t* hashes,
                                                       const uint32_t* which, size_t count,
                                                       Visit&& visit) {
  search_partitions(
      count,
      [&](size_t i) __attribute__((always_inline)) -> Partition& {
        const size_t u = which[i];
        return table.partition(table.partition_number(keys[u], hashes[u]));
      },
      [&](size_t i) __attribute__((always_inline)) { return hashes[which[i]]; },
      [&](size_t i, Partition& partition) { visit(size_t{which[i]}, partition); });
}

}  // namespace hotrow
