// The keys that expired, and when: what an incremental export removes from a store.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/base/key_map.h"

namespace hotrow {

// Of one partition. Not synchronized. It records nothing before `keep`. Together with `forgotten`
// it says what it has: every key that expired after that step and has no row again.
class Tombstones {
 public:
  // Records keys from now on.
  void keep() { kept_ = true; }
  bool kept() const { return kept_; }
  // A key expired, at a step of 1 or more. Steps never decrease.
  void record(int64_t key, uint32_t step) {
    if (kept_) {
      restore(key, step);
    } else {
      forgotten_ = std::max(forgotten_, step);
    }
  }
  // A tombstone of a saved state. Of two of a key, the later one stays.
  void restore(int64_t key, uint32_t step) {
    uint32_t* known = steps_.find(key);
    if (known == nullptr) {
      steps_.insert(key, step);
    } else if (*known < step) {
      steps_.set(known, step);
    }
  }
  // After this, `more` calls of `record` do not fail.
  void reserve(size_t more) {
    if (kept_) steps_.reserve(more);
  }
  // A key has a row again. It does not fail after `reserve_erase`.
  void erase(int64_t key) {
    uint32_t* step = steps_.find(key);
    if (step != nullptr) steps_.erase(step);
  }
  void reserve_erase() { steps_.reserve_change(); }
  // What a lookup erases from now on may be taken back.
  void begin_changes() { steps_.begin_changes(); }
  void keep_changes() noexcept { steps_.keep_changes(); }
  void undo_changes() noexcept { steps_.undo_changes(); }
  // Drops those of this step and before.
  void forget(uint32_t up_to_step) {
    forgotten_ = std::max(forgotten_, up_to_step);
    if (steps_.size() != 0) steps_.erase_up_to(up_to_step);
  }
  // The last step of which tombstones were dropped, or not recorded; 0: none.
  uint32_t forgotten() const { return forgotten_; }
  void set_forgotten(uint32_t step) { forgotten_ = step; }
  // No export is of a step before this one.
  void bound_forgotten(uint32_t step) { forgotten_ = std::min(forgotten_, step); }
  void clear() {
    steps_.clear();
    forgotten_ = 0;
  }

  size_t size() const { return steps_.size(); }
  size_t bytes() const { return steps_.bytes(); }
  // visit(key, step), in an order that depends on the keys alone.
  template <typename Visit>
  void each(Visit&& visit) const {
    steps_.each([&](uint64_t mixed, uint32_t step) { visit(KeyMap::key_of(mixed), step); });
  }

 private:
  bool kept_ = false;
  uint32_t forgotten_ = 0;
  KeyMap steps_;
};

}  // namespace hotrow
