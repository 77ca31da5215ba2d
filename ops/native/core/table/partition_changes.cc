// What a step changes in a partition besides lines: rows inserted by a lookup, which may be taken
// back, and rows that expire.
#include <algorithm>
#include <functional>

#include "core/base/room.h"
#include "core/table/partition.h"

namespace hotrow {

// --- rows inserted by a lookup ------------------------------------------------------------------

void Partition::begin_changes() {
  inserted_.clear();
  tombstones.begin_changes();
  totals_before_ = totals;
  if (admission_ != nullptr) admission_->begin_changes();
  recording_ = true;
}

void Partition::keep_changes() noexcept {
  inserted_.clear();
  tombstones.keep_changes();
  if (admission_ != nullptr) admission_->keep_changes();
  recording_ = false;
}

// Removes the row that was inserted last.
void Partition::take_back(const Inserted& row) noexcept {
  index_.erase(hash_at(row.place), row.place);
  for (PartitionSnapshot& snapshot : snapshots_) snapshot.note_taken_back(row.place);
  if (shape_->log != nullptr) {
    bypass.remove(row.place);
    shape_->log->forget(static_cast<uint32_t>(number_), row.place);
  }
  // A lookup may read the header of a place beyond the last one.
  header(row.place).clock = kFree;
  if (row.appended) {
    --places_;
    return;
  }
  // The heap had this place before.
  free_.push_back(row.place);
  std::push_heap(free_.begin(), free_.end(), std::greater<>());
}

void Partition::end_undo() noexcept {
  if (!recording_) return;
  tombstones.undo_changes();
  totals = totals_before_;
  if (admission_ != nullptr) admission_->undo_changes();
  keep_changes();
}

// --- expiry -------------------------------------------------------------------------------------

bool Partition::expired(const RowHeader& row, uint32_t step) const {
  if (row.clock == kFree || row.clock > step) return false;
  const ExpiryOptions& expiry = shape_->options.expiry;
  const uint32_t age = step - row.clock;
  return (expiry.after_steps != 0 && age > expiry.after_steps) ||
         (row.count < expiry.rare_count && age > expiry.rare_after_steps);
}

void Partition::prepare_sweep(uint32_t step) {
  const ExpiryOptions& expiry = shape_->options.expiry;
  swept_.clear();
  swept_to_ = sweep_place;
  if (places_ == 0) return;
  const size_t share = (places_ + expiry.sweep_steps - 1) / expiry.sweep_steps;
  for (size_t i = 0; i < share; ++i) {
    if (swept_to_ >= places_) swept_to_ = 0;
    const uint32_t place = static_cast<uint32_t>(swept_to_++);
    const RowHeader row = newest_header(place);
    // A clock ahead of the table's step comes from an import; in the device tier the row may be
    // older.
    if (expired(row, step) || (row.clock > step && row.clock != kFree)) swept_.push_back(place);
  }
  make_room(free_, swept_.size());
  for (PartitionSnapshot& snapshot : snapshots_) snapshot.reserve_removals(swept_.size());
  tombstones.reserve(swept_.size());
  for (const uint32_t place : swept_) before_write(place);
}

void Partition::expire(uint32_t place, uint32_t step) {
  tombstones.record(header(place).key, step);
  ++totals.expired;
  remove(place);
}

void Partition::end_sweep() {
  sweep_place = swept_to_;
  swept_.clear();
}

}  // namespace hotrow
