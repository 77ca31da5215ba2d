// Exact counts of the occurrences of keys that have no row yet.
#pragma once

#include "core/base/key_map.h"
#include "core/table/admission.h"

namespace hotrow {

// Its memory follows the number of waiting keys up and down; see KeyMap.
class OccurrenceCounter final : public AdmissionFilter {
 public:
  explicit OccurrenceCounter(const AdmissionOptions& options) : occurrences_(options.occurrences) {}

  bool count_occurrences(int64_t key, uint32_t times) override;
  uint64_t waiting() const override { return counts_.size(); }
  void begin_changes() override { counts_.begin_changes(); }
  void keep_changes() noexcept override { counts_.keep_changes(); }
  void undo_changes() noexcept override { counts_.undo_changes(); }
  size_t bytes() const override { return counts_.bytes(); }
  std::vector<uint8_t> save() const override;
  void restore(const uint8_t* data, size_t size) override;
  void clear() override { counts_.clear(); }

 private:
  uint32_t occurrences_;
  KeyMap counts_;
};

}  // namespace hotrow
