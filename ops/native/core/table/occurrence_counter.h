// Exact counts of the occurrences of keys that have no row yet.
#pragma once

#include "core/base/anonymous_array.h"
#include "core/table/admission.h"

namespace hotrow {

// An open-addressing map in anonymous memory: 12 bytes a slot, from 1/8 to 3/4 full, so it
// follows the number of waiting keys up and down. Linear probing, with the keys of a run in
// ascending order of their mixed bits: the whole array is in that order, so `save` is one pass
// whose bytes depend on the counts alone, and growth is a merge without random access.
class OccurrenceCounter final : public AdmissionFilter {
 public:
  explicit OccurrenceCounter(const AdmissionOptions& options);

  bool count_occurrences(int64_t key, uint32_t times) override;
  uint64_t waiting() const override { return size_; }
  void begin_changes() override;
  void keep_changes() noexcept override;
  void undo_changes() noexcept override;
  size_t bytes() const override { return mixed_.bytes() + counts_.bytes(); }
  std::vector<uint8_t> save() const override;
  void restore(const uint8_t* data, size_t size) override;
  void clear() override;

 private:
  size_t home(uint64_t mixed) const { return mixed >> (64 - log2_capacity_); }
  // The slot of the key, or the slot before which it belongs.
  size_t lower_bound(uint64_t mixed) const;
  // Makes room for one more key.
  void reserve(uint64_t mixed);
  void insert(uint64_t mixed, uint32_t count);
  void erase(size_t slot);
  void shrink();
  // Moves the keys to an array of 2^log2_capacity homes and `slack` slots behind the last one, or
  // more, and further slots for the keys that `undo_changes` may bring back.
  void rebuild(unsigned log2_capacity, size_t slack);

  uint32_t occurrences_;
  unsigned log2_capacity_ = 0;
  size_t size_ = 0;
  // By slot. A count of 0 marks an empty slot; the last slot is always empty.
  AnonymousArray<uint64_t> mixed_;
  AnonymousArray<uint32_t> counts_;
  // The counts before, 0 for a new key, since begin_changes.
  struct Change {
    uint64_t mixed;
    uint32_t before;
  };
  std::vector<Change> changes_;
  bool recording_ = false;
};

}  // namespace hotrow
