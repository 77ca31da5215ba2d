// The device tier of a table: a bounded cache of row lines, in RAM where there is no GPU.
//
// Sets of 16 ways. The slot holds a row's newest line; the host tier's copy may be older. Nothing
// here grows with the table: 28 bytes a slot in addition to the line, header included. See
// docs/design/0004-tiers.md.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/anonymous_array.h"
#include "core/base/cache_policy.h"
#include "core/base/frequency_sketch.h"
#include "core/base/tags.h"
#include "core/kernels/row_line.h"

namespace hotrow {

// What a cache did, in distinct keys of training batches.
struct CacheCounts {
  uint64_t hits = 0;          // rows that were there
  uint64_t hit_lookups = 0;   // lookups of them, each key as often as it appeared
  uint64_t misses = 0;        // keys whose rows were not there
  uint64_t inserted = 0;      // of these: rows that came in
  uint64_t evicted = 0;       // rows evicted for them
  uint64_t written_back = 0;  // rows brought up to date in the host tier
  uint64_t prefetched = 0;    // rows that came in by prefetching, before a batch needed them
  uint64_t left = 0;          // partitions whose rows outside the slots may have left memory
  uint64_t stall_ns = 0;      // time that lookups spent on bringing rows in, or waiting for them

  CacheCounts& operator+=(const CacheCounts& other) {
    hits += other.hits;
    hit_lookups += other.hit_lookups;
    misses += other.misses;
    inserted += other.inserted;
    evicted += other.evicted;
    written_back += other.written_back;
    prefetched += other.prefetched;
    left += other.left;
    stall_ns += other.stall_ns;
    return *this;
  }
};

// Not synchronized, but sets of different partitions are apart: the sets of keys whose hashes
// share the 5 top bits (a partition) are neighbours, and two threads may work on two partitions.
class RowCache {
 public:
  static constexpr uint32_t kWays = 16;
  static constexpr uint32_t kNone = 0xffffffffu;
  static constexpr unsigned kPartitionBits = 5;

  // stride: bytes of a header and line, a multiple of 8. rows: slots, rounded up to whole sets,
  // the same number in each partition. Fails with ResourceExhausted.
  RowCache(size_t stride, size_t rows, CachePolicy policy);

  size_t slots() const { return sets_.size() * kWays; }
  // Bytes a slot in addition to the line: header, tag, state, place and frequencies.
  static constexpr size_t overhead() { return sizeof(RowHeader) + sizeof(Set) / kWays; }
  size_t bytes() const { return sets_.bytes() + lines_.bytes(); }

  std::byte* line(uint32_t slot) { return lines_.data() + size_t{slot} * stride_; }
  const std::byte* line(uint32_t slot) const { return lines_.data() + size_t{slot} * stride_; }
  const RowHeader& header(uint32_t slot) const {
    return *reinterpret_cast<const RowHeader*>(line(slot));
  }

  // --- lookups --------------------------------------------------------------------------------
  // What find reads first.
  const void* home(uint64_t hash) const { return &sets_[set_of(hash)]; }
  // What note_use and place read.
  const void* uses_of(uint64_t hash) const { return &sets_[set_of(hash)].sketch; }
  const void* places_of(uint64_t hash) const { return sets_[set_of(hash)].places; }
  // The slot of a key, or kNone.
  uint32_t find(uint64_t hash, int64_t key) const {
    const size_t number = set_of(hash);
    const Set& set = sets_[number];
    for (uint32_t fits = set.match(tag_of(hash)); fits != 0; fits &= fits - 1) {
      const uint32_t slot =
          static_cast<uint32_t>(number) * kWays + static_cast<uint32_t>(__builtin_ctz(fits));
      if (header(slot).key == key) return slot;
    }
    return kNone;
  }
  // The first slot whose tag fits, or kNone: very likely the one.
  uint32_t likely(uint64_t hash) const {
    const size_t number = set_of(hash);
    const uint32_t fits = sets_[number].match(tag_of(hash));
    if (fits == 0) return kNone;
    return static_cast<uint32_t>(number) * kWays + static_cast<uint32_t>(__builtin_ctz(fits));
  }
  // Notes that a batch used the key. slot: the key's, or kNone. Frequencies decay: a set's are
  // halved after every kUsesToDecay uses of a slot.
  void note_use(uint64_t hash, uint32_t slot);

  // Raises the frequency of a key that will be used, as if it was used `uses` times lately.
  void expect(uint64_t hash, uint32_t uses);
  // Uses of a slot after which the frequencies of its set are halved. A larger number keeps more
  // hot rows while the distribution is stable, and adapts more slowly when it changes.
  static constexpr uint32_t kUsesToDecay = 24;

  // --- which rows stay ------------------------------------------------------------------------
  // Chooses a slot for a key that has none: a free slot, else the slot of the unpinned row that is
  // worth least. With kLfu and kIfWorthMore, only if the new row is worth more. kNone: the key gets
  // no slot. The caller writes the slot's old row back, if any, and releases it.
  enum class Admit { kIfWorthMore, kAlways };
  uint32_t choose(uint64_t hash, Admit admit) const;
  // Puts a key's row in a free slot, clean. Its header's key is written at once, so that it is
  // found; the caller fills the rest of the line. place: of the row in the host tier.
  void put(uint32_t slot, uint64_t hash, int64_t key, uint32_t place);
  // The same for a row whose line is still on its way: until `open`, its place is `ticket`, and it
  // is not evicted.
  void put_loading(uint32_t slot, uint64_t hash, const RowHeader& header, uint32_t ticket);
  bool loading(uint32_t slot) const { return (set_at(slot).states[slot % kWays] & kLoading) != 0; }
  void open(uint32_t slot, uint32_t place);
  // Frees a slot.
  void release(uint32_t slot);
  // Frees all.
  void clear();

  bool used(uint32_t slot) const { return set_at(slot).tags[slot % kWays] != 0; }
  uint32_t place(uint32_t slot) const { return set_at(slot).places[slot % kWays]; }
  // Dirty: the host tier's copy is older.
  bool dirty(uint32_t slot) const { return (set_at(slot).states[slot % kWays] & kDirty) != 0; }
  void set_dirty(uint32_t slot, bool dirty);
  // A pinned row is not evicted. Each kind of pin counts once, however often it is set.
  enum Pin : uint8_t { kLookup = 1, kEvenWindow = 2, kOddWindow = 4 };
  bool pinned(uint32_t slot) const { return (set_at(slot).states[slot % kWays] & kPins) != 0; }
  void pin(uint32_t slot, Pin who) { set_at(slot).states[slot % kWays] |= who; }
  // Removes this pin from all these slots.
  void unpin(const uint32_t* slots, size_t count, Pin who);

 private:
  static constexpr uint8_t kDirty = 0x80, kLoading = 0x40;
  static constexpr uint8_t kPins = kLookup | kEvenWindow | kOddWindow;

  // Three cache lines: which rows are in the set, how often its keys were used, places in the host
  // tier.
  struct alignas(64) Set {
    uint8_t tags[kWays];  // 0: free
    uint8_t states[kWays];
    uint8_t frequencies[kWays];
    uint8_t used_at[kWays];     // in some uses of the set
    FrequencySketch<7> sketch;  // of keys that have no slot
    uint32_t uses;
    uint32_t since_decay;
    uint32_t places[kWays];

    uint32_t match(uint8_t tag) const { return match_tags(tags, tag); }
  };
  static_assert(sizeof(Set) == 192);

  // Uses the top bits of the hash, as partitions do; tags use bits that neither uses.
  size_t set_of(uint64_t hash) const {
    return static_cast<size_t>((static_cast<unsigned __int128>(hash) * sets_.size()) >> 64);
  }
  static uint8_t tag_of(uint64_t hash) {
    const uint8_t tag = static_cast<uint8_t>(hash >> 8);
    return tag == 0 ? 1 : tag;
  }
  Set& set_at(uint32_t slot) { return sets_[slot / kWays]; }
  const Set& set_at(uint32_t slot) const { return sets_[slot / kWays]; }

  size_t stride_;
  CachePolicy policy_;
  AnonymousArray<Set> sets_;
  AnonymousArray<std::byte> lines_;  // (slots, stride)
};

}  // namespace hotrow
