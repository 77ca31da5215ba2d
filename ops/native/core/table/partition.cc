#include "core/table/partition.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "core/base/digest.h"
#include "core/base/room.h"
#include "core/base/status.h"
#include "core/table/prefetch.h"

namespace hotrow {
namespace {

constexpr size_t kFirstBlockBytes = size_t{4} << 10;
// Rows that are read from disk together.
constexpr size_t kPieceRows = 4096;

bool bit(const std::vector<uint64_t>& bits, size_t i) { return (bits[i >> 6] >> (i & 63)) & 1; }

void set_bit(std::vector<uint64_t>& bits, size_t i) { bits[i >> 6] |= uint64_t{1} << (i & 63); }

}  // namespace

RowShape::RowShape(const TableOptions& table)
    : options(table),
      layout(table.layout()),
      line_bytes(layout.bytes()),
      stride((sizeof(RowHeader) + line_bytes + 7) / 8 * 8),
      host_stride(options.disk.empty() ? stride : sizeof(RowHeader)),
      first_shift(0),
      kernels(&hotrow::kernels()) {
  while ((host_stride << (first_shift + 1)) <= kFirstBlockBytes) ++first_shift;
}

Partition::Partition(const RowShape& shape, SlabMemory& memory, size_t partitions, size_t number)
    : shape_(&shape),
      memory_(&memory),
      number_(number),
      index_(memory),
      admission_(make_admission_filter(shape.options.admission, partitions)),
      initial_(shape.options.width) {}

size_t Partition::bytes() const {
  return blocks_.capacity() * sizeof(blocks_[0]) + free_.capacity() * sizeof(free_[0]) +
         (due_.capacity() + old_due_.capacity()) * sizeof(uint64_t) +
         (removed_.capacity() + old_removed_.capacity()) * sizeof(int64_t) +
         copy_of_.capacity() * sizeof(uint32_t) + copies_.bytes() + bypass.bytes(shape_->stride) +
         tombstones.bytes() + (admission_ ? admission_->bytes() : 0);
}

uint32_t Partition::append_place() {
  if (places_ == kAbsent) fail(Code::kResourceExhausted, "a partition with 2^32 - 1 rows is full");
  const size_t block = shape_->spot_of(static_cast<uint32_t>(places_)).block;
  if (block == blocks_.size()) {
    make_room(blocks_);
    blocks_.push_back(memory_->take(shape_->host_stride * shape_->block_rows(block)));
  }
  if (tracking_ && due_.size() * 64 <= places_) due_.push_back(0);
  return static_cast<uint32_t>(places_++);
}

uint32_t Partition::take_place() {
  while (!free_.empty()) {
    std::pop_heap(free_.begin(), free_.end(), std::greater<>());
    const uint32_t place = free_.back();
    free_.pop_back();
    // `put` at a given place leaves the place's number in the heap.
    if (header(place).clock == kFree) return place;
  }
  return append_place();
}

void Partition::make_free(uint32_t place) {
  make_room(free_);
  header(place).clock = kFree;
  free_.push_back(place);
  std::push_heap(free_.begin(), free_.end(), std::greater<>());
}

uint32_t Partition::find_or_insert(uint64_t hash, int64_t key, uint32_t times, uint32_t clock) {
  const uint32_t found = find(hash, key);
  if (found != kAbsent) return found;
  if (admission_ != nullptr && (times == 0 || !admission_->count_occurrences(key, times))) {
    totals.refused += times;
    return kAbsent;
  }
  reserve_in_index(hash);
  if (recording_) make_room(inserted_);
  tombstones.reserve_erase();
  const size_t before = places_;
  const uint32_t place = take_place();
  // From here on, nothing fails.
  ++totals.admitted;
  if (recording_) inserted_.push_back({place, places_ > before});
  tombstones.erase(key);
  header(place) = {key, clock, 0};
  if (shape_->log == nullptr) make_line(key, initial_.data(), at(place));
  index_.insert(hash, place);
  if (tracking_) set_bit(due_, place);
  return place;
}

void Partition::reserve_in_index(uint64_t hash) {
  index_.reserve(
      hash, [&](uint32_t p) { return hash_at(p); }, [&](uint32_t p) { __builtin_prefetch(at(p)); });
}

void Partition::make_line(int64_t key, std::byte* row) const {
  static thread_local std::vector<float> values;
  values.resize(shape_->options.width);
  make_line(key, values.data(), row);
}

void Partition::make_line(int64_t key, float* values, std::byte* row) const {
  initialize_row(shape_->options.init, key, shape_->options.width, values);
  shape_->kernels->initialize(shape_->layout, shape_->options.optimizer, values, row);
}

void Partition::put(int64_t key, const std::byte* line, uint32_t clock, uint32_t count,
                    uint32_t place) {
  const uint64_t hash = mix64(static_cast<uint64_t>(key));
  const uint32_t present = find(hash, key);
  if (present != kAbsent && (place == kAbsent || place == present)) {
    before_write(present);
    put_line(present, line);
    header(present) = {key, clock, count};
    return;
  }
  reserve_in_index(hash);
  if (present != kAbsent) remove(present);
  if (place == kAbsent) {
    place = take_place();
  } else {
    if (place < places_ && header(place).clock != kFree) remove(place);
    add_free_places(place);
    if (places_ == place) (void)append_place();
  }
  header(place).clock = kFree;
  make_room(free_);
  try {
    put_line(place, line);
  } catch (...) {
    make_free(place);
    throw;
  }
  tombstones.erase(key);
  header(place) = {key, clock, count};
  index_.insert(hash, place);
  if (tracking_) set_bit(due_, place);
}

void Partition::put_line(uint32_t place, const std::byte* line) {
  if (shape_->log == nullptr) {
    std::memcpy(at(place) + sizeof(RowHeader), line, shape_->line_bytes);
  } else {
    shape_->log->write(static_cast<uint32_t>(number_), place, line);
  }
}

void Partition::add_free_places(uint64_t places) {
  while (places_ < places) make_free(append_place());
}

void Partition::remove(uint32_t place) {
  make_room(free_);
  if (tracking_) make_room(removed_);
  before_write(place);
  // From here on, nothing fails.
  RowHeader& row = header(place);
  if (tracking_) removed_.push_back(row.key);
  index_.erase(hash_at(place), place);
  if (shape_->log != nullptr) {
    bypass.remove(place);
    shape_->log->forget(static_cast<uint32_t>(number_), place);
  }
  make_free(place);
}

bool Partition::write_back(uint32_t place, const std::byte* row) {
  // The row was looked up for training but not updated: snapshots need no copy.
  if (shape_->log == nullptr) {
    const size_t bytes = sizeof(RowHeader) + shape_->line_bytes;
    if (std::memcmp(at(place), row, bytes) == 0) return false;
    before_write(place);
    std::memcpy(at(place), row, bytes);
    return true;
  }
  RowHeader newer;
  std::memcpy(&newer, row, sizeof(newer));
  const uint32_t number = static_cast<uint32_t>(number_);
  RowHeader& host = header(place);
  if (!is_updated(host, newer) && shape_->log->has(number, place)) return false;
  before_write(place);
  shape_->log->write(number, place, row + sizeof(RowHeader));
  host = newer;
  return true;
}

// --- lines on disk ------------------------------------------------------------------------------

void Partition::leave_bypass(BypassRows::Keep keep) {
  bypass.end_lookup(keep,
                    [&](uint32_t place, const std::byte* row) { (void)write_back(place, row); });
}

std::byte* Partition::bring_in(uint32_t place) {
  std::byte* row = bypass.find(place);
  if (row != nullptr) return row;
  row = bypass.add(place, shape_->stride);
  std::memcpy(row, at(place), sizeof(RowHeader));
  const uint32_t number = static_cast<uint32_t>(number_);
  const LineLog::Read read{number, place, row + sizeof(RowHeader)};
  try {
    if (shape_->log->has(number, place)) {
      shape_->log->read(&read, 1);
    } else {
      make_line(header(place).key, row);
    }
  } catch (...) {
    bypass.remove(place);
    throw;
  }
  return row;
}

void Partition::copy_rows(const uint32_t* places, size_t count, std::byte* rows) const {
  const uint32_t number = static_cast<uint32_t>(number_);
  std::vector<LineLog::Read> reads;
  for (size_t i = 0; i < count; ++i) {
    std::byte* row = rows + i * shape_->stride;
    std::memcpy(row, at(places[i]), sizeof(RowHeader));
    reads.push_back({number, places[i], row + sizeof(RowHeader)});
  }
  shape_->log->read(reads.data(), reads.size());
}

const RowHeader& Partition::newest_header(uint32_t place) const {
  if (shape_->log != nullptr) {
    if (const std::byte* row = bypass.find(place)) return *reinterpret_cast<const RowHeader*>(row);
  }
  return header(place);
}

void Partition::clear() {
  for (size_t place = 0; tracking_ && place < places_; ++place) {
    const RowHeader& row = header(static_cast<uint32_t>(place));
    if (row.clock != kFree) removed_.push_back(row.key);
  }
  index_.clear();
  bypass.clear();
  std::vector<std::byte*>().swap(blocks_);
  std::vector<uint32_t>().swap(free_);
  due_.clear();
  tombstones.clear();
  places_ = 0;
  sweep_place = 0;
  totals = {};
  if (admission_ != nullptr) admission_->clear();
}

size_t Partition::export_rows(size_t first, size_t count, const RowArrays& out,
                              size_t* next) const {
  size_t written = 0;
  size_t place = first;
  std::vector<LineLog::Read> reads;
  for (; place < places_ && written < count; ++place) {
    const RowHeader& row = header(static_cast<uint32_t>(place));
    if (row.clock == kFree) continue;
    if (out.keys != nullptr) out.keys[written] = row.key;
    if (out.clocks != nullptr) out.clocks[written] = row.clock;
    if (out.counts != nullptr) out.counts[written] = row.count;
    if (out.places != nullptr) out.places[written] = static_cast<uint32_t>(place);
    if (out.lines != nullptr) {
      std::byte* line = out.lines + written * shape_->line_bytes;
      if (shape_->log != nullptr) {
        reads.push_back({static_cast<uint32_t>(number_), static_cast<uint32_t>(place), line});
      } else {
        std::memcpy(line, at(static_cast<uint32_t>(place)) + sizeof(RowHeader), shape_->line_bytes);
      }
    }
    ++written;
  }
  if (!reads.empty()) shape_->log->read(reads.data(), reads.size());
  *next = place;
  return written;
}

void Partition::add_digest(bool weights_only, uint64_t digest[2]) const {
  const size_t width = shape_->options.width;
  std::vector<float> weights(width);
  // Rows of a piece are copied together when their lines are on disk.
  const size_t piece = shape_->log == nullptr ? 1 : kPieceRows;
  std::vector<std::byte> rows(shape_->log == nullptr ? 0 : piece * shape_->stride);
  std::vector<uint32_t> places;
  const auto add = [&](const std::byte* row) {
    const RowHeader& head = *reinterpret_cast<const RowHeader*>(row);
    if (weights_only) {
      shape_->kernels->gather(shape_->layout, &row, 1, weights.data());
      add_row_digest(head.key, weights.data(), width * sizeof(float), digest);
    } else {
      // Header and line lie together: key, clock, count, line.
      add_row_digest(head.key, row, sizeof(RowHeader) + shape_->line_bytes, digest);
    }
  };
  for (size_t place = 0; place < places_; ++place) {
    if (header(static_cast<uint32_t>(place)).clock != kFree) {
      if (shape_->log == nullptr) {
        add(at(static_cast<uint32_t>(place)));
      } else {
        places.push_back(static_cast<uint32_t>(place));
      }
    }
    if (places.size() < piece && (places.empty() || place + 1 < places_)) continue;
    copy_rows(places.data(), places.size(), rows.data());
    for (size_t i = 0; i < places.size(); ++i) add(rows.data() + i * shape_->stride);
    places.clear();
  }
}

// --- snapshots ----------------------------------------------------------------------------------

// Of a place of the snapshot: whether the snapshot reads its row.
bool Partition::wanted(size_t place) const { return !due_only_ || bit(old_due_, place); }

void Partition::note_write(uint32_t place) {
  // The clock does not show that a row is due: imported rows may be ahead of the table's step.
  if (tracking_ && !bit(due_, place)) set_bit(due_, place);
  if (!open_ || place >= snapshot_places_ || copy_of_[place] != 0) return;
  if (!wanted(place)) {
    if (adding_unchanged_) add_unchanged_row(place);
    return;
  }
  if (shape_->log == nullptr) {
    copy_of_[place] = 1 + copies_.add(at(place), copy_stride(), place);
    return;
  }
  const OldVersion old{header(place), shape_->log->location(static_cast<uint32_t>(number_), place),
                       0};
  copy_of_[place] = 1 + copies_.add(reinterpret_cast<const std::byte*>(&old), copy_stride(), place);
}

size_t Partition::begin_snapshot(bool due_only) {
  std::vector<uint64_t> due((places_ + 63) / 64, 0);
  std::vector<uint32_t> copy_of(places_, 0);
  // From here on, nothing fails.
  was_tracking_ = tracking_;
  due_only_ = due_only && tracking_;
  old_due_.swap(due_);
  old_removed_.swap(removed_);
  due_.swap(due);
  removed_.clear();
  snapshot_places_ = places_;
  snapshot_next_ = unchanged_next_ = 0;
  unchanged_digest_[0] = unchanged_digest_[1] = 0;
  adding_unchanged_ = due_only_ && shape_->log == nullptr;
  copy_of_.swap(copy_of);
  for (uint32_t place : free_) {
    if (header(place).clock == kFree) copy_of_[place] = kNothing;
  }
  open_ = tracking_ = watching_ = true;
  if (!due_only_) return index_.size();
  size_t rows = 0;
  for (uint64_t word : old_due_) rows += static_cast<size_t>(__builtin_popcountll(word));
  return rows;
}

// Copies the row that the snapshot has at a place, to index `to`.
void Partition::give_row(uint32_t place, size_t to, const RowArrays& out,
                         std::vector<LineLog::ReadAt>* later) {
  const uint32_t copy = copy_of_[place];
  const std::byte* row = copy == 0 ? at(place) : copies_.at(copy - 1, copy_stride());
  RowHeader head;
  std::memcpy(&head, row, sizeof(head));
  copy_of_[place] = kNothing;
  if (out.keys != nullptr) out.keys[to] = head.key;
  if (out.clocks != nullptr) out.clocks[to] = head.clock;
  if (out.counts != nullptr) out.counts[to] = head.count;
  if (out.places != nullptr) out.places[to] = place;
  if (out.lines == nullptr) return;
  std::byte* line = out.lines + to * shape_->line_bytes;
  if (shape_->log == nullptr) {
    std::memcpy(line, row + sizeof(head), shape_->line_bytes);
  } else if (copy == 0) {
    later->push_back({shape_->log->location(static_cast<uint32_t>(number_), place), line});
  } else {
    later->push_back({reinterpret_cast<const OldVersion*>(row)->location, line});
  }
}

size_t Partition::read_snapshot(size_t count, const RowArrays& out,
                                std::vector<LineLog::ReadAt>* later) {
  size_t written = 0;
  for (; snapshot_next_ < snapshot_places_ && written < count; ++snapshot_next_) {
    const size_t place = snapshot_next_;
    if (due_only_ && (place & 63) == 0 && old_due_[place >> 6] == 0) {
      snapshot_next_ = std::min(place + 63, snapshot_places_ - 1);
      continue;
    }
    if (copy_of_[place] == kNothing || !wanted(place)) continue;
    give_row(static_cast<uint32_t>(place), written++, out, later);
  }
  if (snapshot_next_ == snapshot_places_) end_reading();
  return written;
}

// The snapshot reads no more rows from here: writes need no copies.
void Partition::end_reading() {
  copies_.clear();
  if (adding_unchanged_) return;
  snapshot_places_ = snapshot_next_ = 0;
  std::vector<uint32_t>().swap(copy_of_);
}

void Partition::add_unchanged_row(uint32_t place) {
  copy_of_[place] = kNothing;
  add_row_digest(header(place).key, at(place), sizeof(RowHeader) + shape_->line_bytes,
                 unchanged_digest_);
}

size_t Partition::add_unchanged(size_t count) {
  if (!adding_unchanged_) return 0;
  size_t added = 0;
  for (; unchanged_next_ < snapshot_places_ && added < count; ++unchanged_next_) {
    if (copy_of_[unchanged_next_] != 0 || wanted(unchanged_next_)) continue;
    add_unchanged_row(static_cast<uint32_t>(unchanged_next_));
    ++added;
  }
  if (unchanged_next_ == snapshot_places_) {
    adding_unchanged_ = false;
    if (snapshot_next_ == snapshot_places_) end_reading();
  }
  return added;
}

size_t Partition::read_copies(size_t count, const RowArrays& out,
                              std::vector<LineLog::ReadAt>* later) {
  size_t written = 0;
  for (; !copies_.empty() && written < count; copies_.drop_first(copy_stride())) {
    const uint32_t place = copies_.place_of_first(copy_stride());
    // Rows that were read in the order of places keep their copies until here.
    if (copy_of_[place] != kNothing) give_row(place, written++, out, later);
  }
  return written;
}

void Partition::end_snapshot(bool keep) {
  if (!keep) {
    tracking_ = was_tracking_;
    if (tracking_) {
      for (size_t i = 0; i < old_due_.size(); ++i) due_[i] |= old_due_[i];
      if (removed_.empty()) removed_.swap(old_removed_);
      removed_.insert(removed_.end(), old_removed_.begin(), old_removed_.end());
    } else {
      due_.clear();
      removed_.clear();
    }
  }
  open_ = due_only_ = adding_unchanged_ = false;
  watching_ = tracking_;
  snapshot_places_ = snapshot_next_ = 0;
  std::vector<uint64_t>().swap(old_due_);
  std::vector<int64_t>().swap(old_removed_);
  copies_.clear();
  std::vector<uint32_t>().swap(copy_of_);
}

}  // namespace hotrow
