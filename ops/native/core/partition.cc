#include "core/partition.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "core/digest.h"
#include "core/look_ahead.h"
#include "core/status.h"

namespace hotrow {
namespace {

constexpr size_t kFirstBlockBytes = size_t{4} << 10;

bool bit(const std::vector<uint64_t>& bits, size_t i) { return (bits[i >> 6] >> (i & 63)) & 1; }

void set_bit(std::vector<uint64_t>& bits, size_t i) { bits[i >> 6] |= uint64_t{1} << (i & 63); }

}  // namespace

RowShape::RowShape(const TableOptions& table)
    : options(table),
      layout(table.layout()),
      line_bytes(layout.bytes()),
      stride((sizeof(RowHeader) + line_bytes + 7) / 8 * 8),
      first_shift(0),
      kernels(&hotrow::kernels()) {
  if (options.cache.rows > 0) {
    cache = std::make_unique<RowCache>(stride, options.cache.rows, options.cache.policy);
  }
  while ((stride << (first_shift + 1)) <= kFirstBlockBytes) ++first_shift;
}

Partition::Partition(const RowShape& shape, SlabMemory& memory, size_t partitions)
    : shape_(&shape),
      memory_(&memory),
      index_(memory),
      admission_(make_admission_filter(shape.options.admission, partitions)) {}

size_t Partition::bytes() const {
  return blocks_.capacity() * sizeof(blocks_[0]) + free_.capacity() * sizeof(free_[0]) +
         (due_.capacity() + old_due_.capacity()) * sizeof(uint64_t) +
         (removed_.capacity() + old_removed_.capacity()) * sizeof(int64_t) +
         copy_of_.capacity() * sizeof(uint32_t) + side_.bytes() +
         tombstones.size() * 4 * sizeof(void*) + (admission_ ? admission_->bytes() : 0);
}

uint32_t Partition::append_place() {
  if (places_ == kAbsent) fail(Code::kResourceExhausted, "a partition with 2^32 - 1 rows is full");
  const size_t block = shape_->spot_of(static_cast<uint32_t>(places_)).block;
  if (block == blocks_.size()) {
    blocks_.push_back(memory_->take(shape_->stride * shape_->block_rows(block)));
  }
  if (tracking_ && due_.size() * 64 <= places_) due_.push_back(0);
  return static_cast<uint32_t>(places_++);
}

uint32_t Partition::take_place() {
  while (!free_.empty()) {
    std::pop_heap(free_.begin(), free_.end(), std::greater<>());
    const uint32_t place = free_.back();
    free_.pop_back();
    // Rows that were put at a certain place left its number in the heap.
    if (header(place).clock == kFree) return place;
  }
  return append_place();
}

void Partition::make_free(uint32_t place) {
  header(place).clock = kFree;
  free_.push_back(place);
  std::push_heap(free_.begin(), free_.end(), std::greater<>());
}

uint32_t Partition::find_or_insert(uint64_t hash, int64_t key, uint32_t times, uint32_t clock) {
  const uint32_t found = find(hash, key);
  if (found != kAbsent) return found;
  if (admission_ != nullptr && (times == 0 || !admission_->sight(key, times))) {
    totals.refused += times;
    return kAbsent;
  }
  ++totals.admitted;
  if (!tombstones.empty()) tombstones.erase(key);
  const uint32_t place = take_place();
  header(place) = {key, clock, 0};
  const size_t width = shape_->options.width;
  static thread_local std::vector<float> values;
  values.resize(width);
  initialize_row(shape_->options.init, key, width, values.data());
  shape_->kernels->initialize(shape_->layout, shape_->options.optimizer, values.data(), at(place));
  index_.insert(
      hash, place, [&](uint32_t p) { return hash_at(p); },
      [&](uint32_t p) { __builtin_prefetch(at(p)); });
  if (tracking_) set_bit(due_, place);
  return place;
}

void Partition::put(int64_t key, const std::byte* line, uint32_t clock, uint32_t count,
                    uint32_t place) {
  const uint64_t hash = mix64(static_cast<uint64_t>(key));
  const uint32_t present = find(hash, key);
  if (present != kAbsent && (place == kAbsent || place == present)) {
    before_write(present);
    header(present) = {key, clock, count};
    std::memcpy(at(present) + sizeof(RowHeader), line, shape_->line_bytes);
    return;
  }
  if (present != kAbsent) remove(present);
  if (place == kAbsent) {
    place = take_place();
  } else {
    if (place < places_ && header(place).clock != kFree) remove(place);
    add_free_places(place);
    if (places_ == place) (void)append_place();
  }
  if (!tombstones.empty()) tombstones.erase(key);
  header(place) = {key, clock, count};
  std::memcpy(at(place) + sizeof(RowHeader), line, shape_->line_bytes);
  index_.insert(
      hash, place, [&](uint32_t p) { return hash_at(p); },
      [&](uint32_t p) { __builtin_prefetch(at(p)); });
  if (tracking_) set_bit(due_, place);
}

void Partition::add_free_places(uint64_t places) {
  while (places_ < places) make_free(append_place());
}

void Partition::remove(uint32_t place) {
  before_write(place);
  RowHeader& row = header(place);
  if (tracking_) removed_.push_back(row.key);
  index_.erase(hash_at(place), place);
  make_free(place);
}

bool Partition::write_back(uint32_t slot) {
  RowCache& cache = *shape_->cache;
  const uint32_t place = cache.place(slot);
  const size_t bytes = sizeof(RowHeader) + shape_->line_bytes;
  cache.set_dirty(slot, false);
  // Looked up for training and not updated: no news for snapshots.
  if (std::memcmp(at(place), cache.line(slot), bytes) == 0) return false;
  before_write(place);
  std::memcpy(at(place), cache.line(slot), bytes);
  return true;
}

void Partition::clear() {
  for (size_t place = 0; tracking_ && place < places_; ++place) {
    const RowHeader& row = header(static_cast<uint32_t>(place));
    if (row.clock != kFree) removed_.push_back(row.key);
  }
  index_.clear();
  std::vector<std::byte*>().swap(blocks_);
  std::vector<uint32_t>().swap(free_);
  due_.clear();
  tombstones.clear();
  places_ = 0;
  sweep_place = 0;
  totals = {};
  if (admission_ != nullptr) admission_->clear();
}

bool Partition::expired(const RowHeader& row, uint32_t step) const {
  if (row.clock == kFree || row.clock > step) return false;
  const ExpiryOptions& expiry = shape_->options.expiry;
  const uint32_t age = step - row.clock;
  return (expiry.after_steps != 0 && age > expiry.after_steps) ||
         (row.count < expiry.rare_count && age > expiry.rare_after_steps);
}

void Partition::sweep(uint32_t step, LookAhead* look_ahead) {
  const ExpiryOptions& expiry = shape_->options.expiry;
  if (places_ == 0) return;
  const size_t share = (places_ + expiry.sweep_steps - 1) / expiry.sweep_steps;
  for (size_t i = 0; i < share; ++i) {
    if (sweep_place >= places_) sweep_place = 0;
    const uint32_t place = static_cast<uint32_t>(sweep_place++);
    const RowHeader row = header(place);
    if (!expired(row, step)) continue;
    // The row in the device tier may be younger, never older.
    const uint32_t slot =
        shape_->cache == nullptr ? RowCache::kNone : shape_->cache->find(hash_at(place), row.key);
    if (slot != RowCache::kNone) {
      if (!expired(shape_->cache->header(slot), step)) continue;
      if (shape_->cache->loading(slot)) (void)look_ahead->wait_for(slot);
      shape_->cache->release(slot);
    }
    tombstones[row.key] = step;
    ++totals.expired;
    remove(place);
  }
}

size_t Partition::export_rows(size_t first, size_t count, const RowArrays& out,
                              size_t* next) const {
  size_t written = 0;
  size_t place = first;
  for (; place < places_ && written < count; ++place) {
    const RowHeader& row = header(static_cast<uint32_t>(place));
    if (row.clock == kFree) continue;
    if (out.keys != nullptr) out.keys[written] = row.key;
    if (out.clocks != nullptr) out.clocks[written] = row.clock;
    if (out.counts != nullptr) out.counts[written] = row.count;
    if (out.places != nullptr) out.places[written] = static_cast<uint32_t>(place);
    if (out.lines != nullptr) {
      std::memcpy(out.lines + written * shape_->line_bytes,
                  at(static_cast<uint32_t>(place)) + sizeof(RowHeader), shape_->line_bytes);
    }
    ++written;
  }
  *next = place;
  return written;
}

void Partition::add_digest(bool weights_only, uint64_t digest[2]) const {
  const size_t width = shape_->options.width;
  std::vector<float> weights(width);
  for (size_t place = 0; place < places_; ++place) {
    const std::byte* row = at(static_cast<uint32_t>(place));
    const RowHeader& head = header(static_cast<uint32_t>(place));
    if (head.clock == kFree) continue;
    if (weights_only) {
      shape_->kernels->gather(shape_->layout, &row, 1, weights.data());
      add_row_digest(head.key, weights.data(), width * sizeof(float), digest);
    } else {
      // Header and line lie together: key, clock, count, line.
      add_row_digest(head.key, row, sizeof(RowHeader) + shape_->line_bytes, digest);
    }
  }
}

// --- snapshots ----------------------------------------------------------------------------------

bool Partition::wanted(size_t place) const {
  return place < snapshot_places_ && (!due_only_ || bit(old_due_, place));
}

void Partition::note_write(uint32_t place) {
  // The clock does not tell: imported rows may be ahead of the table's step.
  if (tracking_ && !bit(due_, place)) set_bit(due_, place);
  if (!open_ || !wanted(place) || copy_of_[place] != 0) return;
  copy_of_[place] = 1 + side_.add(at(place), shape_->stride);
}

size_t Partition::begin_snapshot(bool due_only) {
  was_tracking_ = tracking_;
  due_only_ = due_only && tracking_;
  old_due_.swap(due_);
  old_removed_.swap(removed_);
  due_.assign((places_ + 63) / 64, 0);
  removed_.clear();
  snapshot_places_ = places_;
  snapshot_next_ = 0;
  copy_of_.assign(places_, 0);
  for (uint32_t place : free_) {
    if (header(place).clock == kFree) copy_of_[place] = kNothing;
  }
  open_ = tracking_ = watching_ = true;
  if (!due_only_) return index_.size();
  size_t rows = 0;
  for (uint64_t word : old_due_) rows += static_cast<size_t>(__builtin_popcountll(word));
  return rows;
}

size_t Partition::read_snapshot(size_t count, const RowArrays& out) {
  size_t written = 0;
  for (; snapshot_next_ < snapshot_places_ && written < count; ++snapshot_next_) {
    const size_t place = snapshot_next_;
    if (due_only_ && (place & 63) == 0 && old_due_[place >> 6] == 0) {
      snapshot_next_ = std::min(place + 63, snapshot_places_ - 1);
      continue;
    }
    const uint32_t copy = copy_of_[place];
    if (copy == kNothing || !wanted(place)) continue;
    const std::byte* row =
        copy == 0 ? at(static_cast<uint32_t>(place)) : side_.at(copy - 1, shape_->stride);
    RowHeader head;
    std::memcpy(&head, row, sizeof(head));
    copy_of_[place] = kNothing;
    if (out.keys != nullptr) out.keys[written] = head.key;
    if (out.clocks != nullptr) out.clocks[written] = head.clock;
    if (out.counts != nullptr) out.counts[written] = head.count;
    if (out.places != nullptr) out.places[written] = static_cast<uint32_t>(place);
    if (out.lines != nullptr) {
      std::memcpy(out.lines + written * shape_->line_bytes, row + sizeof(head), shape_->line_bytes);
    }
    ++written;
  }
  if (snapshot_next_ == snapshot_places_ && snapshot_places_ != 0) {
    // Nothing is read from here any more: writes need no copies.
    snapshot_places_ = snapshot_next_ = 0;
    side_.clear();
    std::vector<uint32_t>().swap(copy_of_);
  }
  return written;
}

void Partition::end_snapshot(bool keep) {
  if (!keep) {
    tracking_ = was_tracking_;
    if (tracking_) {
      for (size_t i = 0; i < old_due_.size(); ++i) due_[i] |= old_due_[i];
      removed_.insert(removed_.end(), old_removed_.begin(), old_removed_.end());
    } else {
      due_.clear();
      removed_.clear();
    }
  }
  open_ = due_only_ = false;
  watching_ = tracking_;
  snapshot_places_ = snapshot_next_ = 0;
  std::vector<uint64_t>().swap(old_due_);
  std::vector<int64_t>().swap(old_removed_);
  side_.clear();
  std::vector<uint32_t>().swap(copy_of_);
}

}  // namespace hotrow
