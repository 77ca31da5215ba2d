// Estimates how often keys were used lately, in little memory: a count-min sketch with two counters
// for each key and conservative updates. Counts are halved now and then (G. Einziger et al.,
// TinyLFU, 2017). Each set of a cache has a sketch for the keys that it does not hold.
#pragma once

#include <cstdint>

#include "core/base/hash.h"

namespace hotrow {

// Counters have 4 bits, sixteen in a word.
constexpr uint32_t kMostCount = 15;
constexpr uint32_t kCountersOfKey = 2;

// The counter of a key, of `words` words. mixed: mix64 of its hash, whose other bits choose set and
// tag. row: below kCountersOfKey.
HOTROW_HD inline uint32_t sketch_counter(uint64_t mixed, uint32_t row, uint32_t words) {
  return static_cast<uint32_t>((((mixed >> (32 * row)) & 0xffffffffu) * (words * 16)) >> 32);
}
HOTROW_HD inline uint32_t read_counter(uint64_t word, uint32_t counter) {
  return static_cast<uint32_t>(word >> (counter % 16 * 4)) & kMostCount;
}
HOTROW_HD inline uint64_t with_counter(uint64_t word, uint32_t counter, uint64_t count) {
  const uint32_t shift = counter % 16 * 4;
  return (word & ~(uint64_t{kMostCount} << shift)) | count << shift;
}
// Halves all sixteen counters.
HOTROW_HD inline uint64_t decayed(uint64_t word) { return (word >> 1) & 0x7777777777777777u; }

template <uint32_t kWords>
struct FrequencySketch {
  uint64_t words[kWords];

  // The estimate: at least the key's own count, up to kMostCount.
  uint32_t frequency(uint64_t hash) const {
    const uint64_t mixed = mix64(hash);
    uint32_t least = kMostCount;
    for (uint32_t row = 0; row < kCountersOfKey; ++row) {
      const uint32_t c = sketch_counter(mixed, row, kWords);
      const uint32_t count = read_counter(words[c / 16], c);
      if (count < least) least = count;
    }
    return least;
  }
  // Conservative: no counter gets more than the key needs.
  void raise(uint64_t hash, uint32_t frequency) {
    const uint64_t mixed = mix64(hash);
    const uint32_t wanted = frequency < kMostCount ? frequency : kMostCount;
    for (uint32_t row = 0; row < kCountersOfKey; ++row) {
      const uint32_t c = sketch_counter(mixed, row, kWords);
      uint64_t& word = words[c / 16];
      if (read_counter(word, c) < wanted) word = with_counter(word, c, wanted);
    }
  }
  void decay() {
    for (uint64_t& word : words) word = decayed(word);
  }
};

}  // namespace hotrow
