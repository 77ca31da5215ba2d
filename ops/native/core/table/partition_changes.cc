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
  old_tombstones_.clear();
  totals_before_ = totals;
  if (admission_ != nullptr) admission_->begin_changes();
  recording_ = true;
}

void Partition::keep_changes() noexcept {
  inserted_.clear();
  old_tombstones_.clear();
  if (admission_ != nullptr) admission_->keep_changes();
  recording_ = false;
}

// Removes the row that was inserted last.
void Partition::take_back(const Inserted& row) noexcept {
  index_.erase(hash_at(row.place), row.place);
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
  // The map had as many before, so this allocates nothing.
  for (auto& old : old_tombstones_) tombstones.insert(std::move(old));
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
  const size_t count = swept_.size(), marked = tombstones.size() + count;
  make_room(free_, count);
  if (tracking_) make_room(removed_, count);
  if (static_cast<float>(marked) >=
      tombstones.max_load_factor() * static_cast<float>(tombstones.bucket_count())) {
    tombstones.reserve(std::max(marked, 2 * tombstones.size()));
  }
  while (new_tombstones_.size() < count) {
    make_room(new_tombstones_);
    Tombstones one;
    one.emplace(0, 0);
    new_tombstones_.push_back(one.extract(one.begin()));
  }
  for (const uint32_t place : swept_) before_write(place);
}

void Partition::expire(uint32_t place, uint32_t step) {
  Tombstones::node_type& tombstone = new_tombstones_.back();
  tombstone.key() = header(place).key;
  tombstone.mapped() = step;
  tombstones.insert(std::move(tombstone));
  new_tombstones_.pop_back();
  ++totals.expired;
  remove(place);
}

void Partition::end_sweep() {
  sweep_place = swept_to_;
  swept_.clear();
}

}  // namespace hotrow
