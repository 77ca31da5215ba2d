// The hash index of one partition: hashed key -> number of its row.
//
// Extendible hashing (Fagin et al. 1979) over segments that grow by a sixth at a time (partial
// expansions, Larson 1980), so that no insertion rehashes more than one small segment and at most
// a quarter of the slots is free in a large table. A bucket is a cache line: 12 tags of 8 bits,
// compared at once, and 12 row numbers; the key itself is read from the row's header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/hash.h"
#include "core/base/slab_memory.h"
#include "core/base/tags.h"

namespace hotrow {

// Not synchronized. Hashes are mix64 of the key; the 5 top bits belong to the partition.
class KeyIndex {
 public:
  static constexpr uint32_t kAbsent = 0xffffffffu;
  static constexpr uint32_t kSlots = 12;  // of a bucket

  static uint8_t tag_of(uint64_t hash) {
    const uint8_t tag = static_cast<uint8_t>(hash >> 32);
    return tag == 0 ? 1 : tag;
  }

  // memory: must outlive the index.
  explicit KeyIndex(SlabMemory& memory) : memory_(&memory) { clear(); }

  size_t size() const { return size_; }

  struct alignas(64) Bucket {
    uint8_t tags[kSlots];  // 0: free
    // Rows whose probe sequence passes this full bucket; 65535 is never decremented.
    uint16_t overflowed;
    uint16_t unused;
    uint32_t rows[kSlots];

    // The 16 bytes include the counters, which are masked out.
    uint32_t match(uint8_t tag) const { return match_tags(tags, tag) & ((1u << kSlots) - 1); }
    // The first row whose tag matches, very likely the key's; else any row, or 0. Branch-free: a
    // misprediction would keep the CPU from prefetching the following rows.
    uint32_t candidate(uint64_t hash) const {
      return rows[__builtin_ctz(match(tag_of(hash)) | 1u << (kSlots - 1))];
    }
  };
  static_assert(sizeof(Bucket) == 64);

  // The bucket that a lookup of `hash` reads first.
  const Bucket* home(uint64_t hash) const {
    const Segment& segment = segment_of(hash);
    return &segment.bucket(segment.place(hash));
  }

  // Calls visit(bucket) for both buckets that a lookup reads next when the key is not at its home.
  template <typename Visit>
  __attribute__((always_inline)) void each_near(uint64_t hash, Visit&& visit) const {
    const Segment& segment = segment_of(hash);
    const uint32_t b = segment.place(hash);
    visit(&segment.bucket(b));
    visit(&segment.bucket(segment.after(b)));
  }
  // visit(row) for the rows that these buckets have for the hash.
  template <typename Visit>
  __attribute__((always_inline)) void each_likely(uint64_t hash, Visit&& visit) const {
    const Segment& segment = segment_of(hash);
    const uint8_t tag = tag_of(hash);
    uint32_t b = segment.place(hash);
    for (int walked = 0; walked < 2; ++walked, b = segment.after(b)) {
      const Bucket& bucket = segment.bucket(b);
      for (uint32_t fits = bucket.match(tag); fits != 0; fits &= fits - 1) {
        visit(bucket.rows[__builtin_ctz(fits)]);
      }
      if (bucket.overflowed == 0) return;
    }
  }

  // The row of the key, or kAbsent. is_key(row): whether the row has the key.
  template <typename IsKey>
  uint32_t find(uint64_t hash, IsKey&& is_key) const {
    const Segment& segment = segment_of(hash);
    const uint8_t tag = tag_of(hash);
    for (uint32_t b = segment.place(hash), walked = 0;; b = segment.after(b)) {
      const Bucket& bucket = segment.bucket(b);
      for (uint32_t fits = bucket.match(tag); fits != 0; fits &= fits - 1) {
        const uint32_t row = bucket.rows[__builtin_ctz(fits)];
        if (is_key(row)) return row;
      }
      if (bucket.overflowed == 0 || ++walked == segment.buckets) return kAbsent;
    }
  }

  // Makes room for a row with this hash, so that `insert` of it cannot fail. hash_of(row) returns
  // the hash of any row in the index; fetch(row) prefetches what hash_of(row) reads. Fails with
  // std::bad_alloc or ResourceExhausted; then the index has the rows that it had.
  template <typename HashOf, typename Fetch>
  void reserve(uint64_t hash, HashOf&& hash_of, Fetch&& fetch) {
    for (;;) {
      const uint32_t number = directory_[directory_place(hash)];
      const Segment& segment = segments_[number];
      if (segment.size < segment.limit()) return;
      rows_.clear();
      hashes_.clear();
      segment.list(&rows_);
      for (size_t i = 0; i < rows_.size(); ++i) {
        if (i + kFetchAhead < rows_.size()) fetch(rows_[i + kFetchAhead]);
        hashes_.push_back(hash_of(rows_[i]));
      }
      grow(number);
    }
  }
  // Adds a row whose key is not in the index, after `reserve` of its hash.
  void insert(uint64_t hash, uint32_t row) {
    segments_[directory_[directory_place(hash)]].put(hash, row);
    ++size_;
  }
  // The same with `reserve`.
  template <typename HashOf, typename Fetch>
  void insert(uint64_t hash, uint32_t row, HashOf&& hash_of, Fetch&& fetch) {
    reserve(hash, hash_of, fetch);
    insert(hash, row);
  }

  // Removes a row.
  void erase(uint64_t hash, uint32_t row);

  // Removes everything; units are allocated from `memory` anew.
  void clear();

 private:
  static constexpr uint32_t kUnitBuckets = 64;  // a unit is 4 KiB
  static constexpr uint32_t kUnits = 12;        // of a full segment
  static constexpr size_t kFetchAhead = 24;

  struct Segment {
    uint32_t buckets = 0;
    uint32_t size = 0;
    uint32_t depth = 0;  // bits of the hash, after the partition's, that all its keys share
    Bucket* units[kUnits] = {};

    // At most 86 % full: beyond that, probe sequences get long.
    uint32_t limit() const { return buckets * kSlots * 86 / 100; }
    uint32_t place(uint64_t hash) const {
      return static_cast<uint32_t>(((hash & 0xffffffffu) * buckets) >> 32);
    }
    uint32_t after(uint32_t b) const { return b + 1 == buckets ? 0 : b + 1; }
    Bucket& bucket(uint32_t b) const { return units[b / kUnitBuckets][b % kUnitBuckets]; }
    void put(uint64_t hash, uint32_t row);
    void list(std::vector<uint32_t>* rows) const;
    void wipe();
  };

  size_t directory_place(uint64_t hash) const { return ((hash << 5) >> 1) >> (63 - depth_); }
  const Segment& segment_of(uint64_t hash) const {
    return segments_[directory_[directory_place(hash)]];
  }
  // Takes memory for so many units into spare_units_.
  void take_units(size_t count);
  void add_unit(Segment* segment);
  // Makes room in a segment whose rows and hashes are in rows_ and hashes_. Takes all memory before
  // it changes anything.
  void grow(uint32_t number);
  void split(uint32_t number);

  static Bucket nothing_;  // what an index without rows reads

  SlabMemory* memory_;
  std::vector<Segment> segments_;
  std::vector<uint32_t> directory_;  // (2^depth_): segments
  uint32_t depth_ = 0;
  size_t size_ = 0;
  std::vector<Bucket*> spare_units_;  // all zero
  std::vector<uint32_t> rows_;        // scratch of an expansion
  std::vector<uint64_t> hashes_;
};

}  // namespace hotrow
