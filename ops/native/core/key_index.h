// Open-addressing hash index: 64-bit key -> number of its row line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/hash.h"

namespace hotrow {

// Linear probing, at most 3/4 full, power-of-two capacity. Every int64 is a legal key: an empty
// slot is marked by its row, not by a reserved key. Rows are numbered 0, 1, 2, ... in the order
// of insertion. Not synchronized.
class KeyIndex {
 public:
  static constexpr int64_t kAbsent = -1;

  KeyIndex() : slots_(16, Slot{0, kAbsent}) {}

  size_t size() const { return size_; }
  size_t bytes() const { return slots_.capacity() * sizeof(Slot); }

  // The row of `key`, or kAbsent.
  int64_t find(int64_t key) const {
    const size_t mask = slots_.size() - 1;
    for (size_t i = mix64(static_cast<uint64_t>(key)) & mask;; i = (i + 1) & mask) {
      if (slots_[i].row == kAbsent) return kAbsent;
      if (slots_[i].key == key) return slots_[i].row;
    }
  }

  // The row of `key`; `inserted` tells whether it was given one now.
  int64_t find_or_insert(int64_t key, bool* inserted) {
    if (4 * (size_ + 1) > 3 * slots_.size()) grow(2 * slots_.size());
    const size_t mask = slots_.size() - 1;
    size_t i = mix64(static_cast<uint64_t>(key)) & mask;
    while (slots_[i].row != kAbsent) {
      if (slots_[i].key == key) {
        *inserted = false;
        return slots_[i].row;
      }
      i = (i + 1) & mask;
    }
    slots_[i] = Slot{key, static_cast<int64_t>(size_++)};
    *inserted = true;
    return slots_[i].row;
  }

  void reserve(size_t keys) {
    size_t capacity = slots_.size();
    while (3 * capacity < 4 * (keys + 1)) capacity *= 2;
    if (capacity != slots_.size()) grow(capacity);
  }

  // Forgets every key and keeps the memory.
  void clear() {
    slots_.assign(slots_.size(), Slot{0, kAbsent});
    size_ = 0;
  }

 private:
  struct Slot {
    int64_t key;
    int64_t row;
  };

  void grow(size_t capacity) {
    std::vector<Slot> old(capacity, Slot{0, kAbsent});
    old.swap(slots_);
    const size_t mask = capacity - 1;
    for (const Slot& slot : old) {
      if (slot.row == kAbsent) continue;
      size_t i = mix64(static_cast<uint64_t>(slot.key)) & mask;
      while (slots_[i].row != kAbsent) i = (i + 1) & mask;
      slots_[i] = slot;
    }
  }

  std::vector<Slot> slots_;
  size_t size_ = 0;
};

}  // namespace hotrow
