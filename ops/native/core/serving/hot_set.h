// A set of cached rows that threads read while other threads change it: 16 ways behind a seqlock.
//
// A writer makes the sequence odd, changes the set and its rows, and makes it even; a reader copies
// what it needs and checks the sequence again (H. Boehm, Can seqlocks get along with programming
// language memory models?, 2012). All that readers read is atomic: written with release and read
// with acquire. This costs nothing on x86-64 and needs no fences, which ThreadSanitizer does not
// support.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/base/frequency_sketch.h"
#include "core/base/hash.h"
#include "core/base/tags.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace hotrow {

inline void pause_briefly() {
#if defined(__SSE2__)
  _mm_pause();
#endif
}

// Six cache lines. A lookup reads the first one, the one with the key, and the row's.
struct alignas(64) HotSet {
  static constexpr uint32_t kWays = 16;
  static constexpr uint32_t kNone = kWays;

  // --- read by all threads ---
  std::atomic<uint32_t> sequence;  // odd: a writer holds the set
  std::atomic<uint8_t> now;        // LRU's clock; ticks every few insertions
  uint8_t since_tick;
  uint16_t since_decay;             // new rows since all frequencies were halved
  uint64_t updated_at;              // ticket of the set's last update or invalidation
  std::atomic<uint64_t> tags[2];    // 16 bytes; 0: free
  std::atomic<uint64_t> tables[2];  // 16 bytes: numbers of tables in the pool
  // LFU: how often the row was used lately. LRU: when last.
  std::atomic<uint8_t> uses[kWays];
  std::atomic<int64_t> keys[kWays];
  // --- only for the holder of the set ---
  FrequencySketch<7> sketch;  // of keys that are not here
  uint64_t unused;
  // --- read by all threads, but not by lookups ---
  std::atomic<uint64_t> versions[kWays];

  // The ways whose tag and table match.
  uint32_t match(uint8_t tag, uint8_t table) const {
    return match_tags(tags[0].load(std::memory_order_acquire),
                      tags[1].load(std::memory_order_acquire), tag) &
           match_tags(tables[0].load(std::memory_order_acquire),
                      tables[1].load(std::memory_order_acquire), table);
  }
  // The way of a key, or kNone. For readers it is valid only if the sequence has not changed
  // afterwards.
  uint32_t find(uint8_t tag, uint8_t table, int64_t key) const {
    for (uint32_t fits = match(tag, table); fits != 0; fits &= fits - 1) {
      const uint32_t way = static_cast<uint32_t>(__builtin_ctz(fits));
      if (keys[way].load(std::memory_order_acquire) == key) return way;
    }
    return kNone;
  }
  uint32_t free_ways() const {
    return match_tags(tags[0].load(std::memory_order_relaxed),
                      tags[1].load(std::memory_order_relaxed), 0);
  }
  uint8_t table(uint32_t way) const { return byte_of(tables, way); }
  bool taken(uint32_t way) const { return byte_of(tags, way) != 0; }
  void set_tag(uint32_t way, uint8_t tag) { set_byte(tags, way, tag); }
  void set_table(uint32_t way, uint8_t table) { set_byte(tables, way, table); }

  // Takes the set; false when another writer holds it.
  bool try_lock() {
    uint32_t was = sequence.load(std::memory_order_relaxed);
    return was % 2 == 0 && sequence.compare_exchange_strong(was, was + 1, std::memory_order_acquire,
                                                            std::memory_order_relaxed);
  }
  void unlock() {
    sequence.store(sequence.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  // Halves all frequencies, so that old counts decay.
  void decay() {
    for (std::atomic<uint8_t>& use : uses) {
      use.store(use.load(std::memory_order_relaxed) / 2, std::memory_order_relaxed);
    }
    sketch.decay();
  }

 private:
  static uint8_t byte_of(const std::atomic<uint64_t>* words, uint32_t way) {
    return static_cast<uint8_t>(words[way / 8].load(std::memory_order_relaxed) >> (way % 8 * 8));
  }
  static void set_byte(std::atomic<uint64_t>* words, uint32_t way, uint8_t byte) {
    const uint32_t shift = way % 8 * 8;
    const uint64_t word = words[way / 8].load(std::memory_order_relaxed);
    words[way / 8].store((word & ~(uint64_t{0xff} << shift)) | uint64_t{byte} << shift,
                         std::memory_order_release);
  }
};
static_assert(sizeof(HotSet) == 384);

}  // namespace hotrow
