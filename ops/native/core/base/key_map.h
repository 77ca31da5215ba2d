// A map from the keys of one partition to numbers above 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/anonymous_array.h"
#include "core/base/hash.h"

namespace hotrow {

// An open-addressing map in anonymous memory: 12 bytes a slot, from 1/8 to 3/4 full, so it
// follows the number of its keys up and down; before the first key there are no slots. Linear
// probing, with the keys of a run in ascending order of their mixed bits: the whole array is in
// that order, so `each` is one pass whose order depends on the keys alone, and growth is a merge
// without random access.
class KeyMap {
 public:
  // The order of the keys. The top 5 bits of mix64 are the same in a partition, so they go last.
  static uint64_t mixed_of(int64_t key) {
    const uint64_t mixed = mix64(static_cast<uint64_t>(key));
    return mixed << 5 | mixed >> 59;
  }
  static int64_t key_of(uint64_t mixed) {
    return static_cast<int64_t>(unmix64(mixed >> 5 | mixed << 59));
  }

  size_t size() const { return size_; }
  size_t bytes() const { return mixed_.bytes() + values_.bytes(); }
  // The value of a key, valid until the map changes; null: the key is not in the map.
  uint32_t* find(int64_t key);

  // What fails for want of memory changes nothing.

  // Sets a value that `find` returned. value: above 0.
  void set(uint32_t* found, uint32_t value);
  // Adds a key that is not in the map. value: above 0.
  void insert(int64_t key, uint32_t value);
  // Removes the key of a value that `find` returned.
  void erase(uint32_t* found);
  // Removes all keys whose value is at most `value`. Not between begin_changes and keep_changes.
  void erase_up_to(uint32_t value);
  void clear();
  // After this, `more` calls of `insert` do not fail.
  void reserve(size_t more);

  // Records `set`, `insert` and `erase` from now on.
  void begin_changes();
  void keep_changes() noexcept;
  // Takes them back, and ends the record.
  void undo_changes() noexcept;
  // After this, one recorded change of a key in the map does not fail.
  void reserve_change();

  // visit(mixed, value) for all keys, in ascending order of their mixed bits.
  template <typename Visit>
  void each(Visit&& visit) const {
    for (size_t slot = 0; slot < values_.size(); ++slot) {
      if (values_[slot] != 0) visit(mixed_[slot], values_[slot]);
    }
  }

 private:
  static constexpr unsigned kLeastLog2 = 8;  // log2 of homes
  static constexpr size_t kSlack = 64;

  size_t home(uint64_t mixed) const { return mixed >> (64 - log2_capacity_); }
  // The slot of the key, or the slot before which it belongs.
  size_t lower_bound(uint64_t mixed) const;
  // Moves the keys with values above `least` to an array of 2^log2_capacity homes and `slack` slots
  // behind the last one, or more, and further slots for the keys that `undo_changes` brings back.
  void rebuild(unsigned log2_capacity, size_t slack, uint32_t least = 0);
  void shrink() noexcept;
  void record(uint64_t mixed, uint32_t before);
  // These do not fail. place: after `reserve`.
  void place(uint64_t mixed, uint32_t value);
  void remove(size_t slot);

  unsigned log2_capacity_ = 0;
  size_t size_ = 0;
  // By slot. A value of 0 marks an empty slot; the last slot is always empty.
  AnonymousArray<uint64_t> mixed_;
  AnonymousArray<uint32_t> values_;
  // The values before, 0 for a new key, since begin_changes.
  struct Change {
    uint64_t mixed;
    uint32_t before;
  };
  std::vector<Change> changes_;
  bool recording_ = false;
};

}  // namespace hotrow
