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
      initial_(shape.options.width),
      snapshots_{PartitionSnapshot(*this), PartitionSnapshot(*this)} {}

size_t Partition::bytes() const {
  size_t snapshots = 0;
  for (const PartitionSnapshot& snapshot : snapshots_) snapshots += snapshot.bytes();
  return blocks_.capacity() * sizeof(blocks_[0]) + free_.capacity() * sizeof(free_[0]) + snapshots +
         bypass.bytes(shape_->stride) + tombstones.bytes() + (admission_ ? admission_->bytes() : 0);
}

uint32_t Partition::append_place() {
  if (places_ == kAbsent) fail(Code::kResourceExhausted, "a partition with 2^32 - 1 rows is full");
  const size_t block = shape_->spot_of(static_cast<uint32_t>(places_)).block;
  if (block == blocks_.size()) {
    make_room(blocks_);
    blocks_.push_back(memory_->take(shape_->host_stride * shape_->block_rows(block)));
  }
  for (PartitionSnapshot& snapshot : snapshots_) snapshot.add_place(places_);
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
  note_created(place);
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
  note_created(place);
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
  for (PartitionSnapshot& snapshot : snapshots_) snapshot.reserve_removals(1);
  before_write(place);
  // From here on, nothing fails.
  for (PartitionSnapshot& snapshot : snapshots_) snapshot.note_removed(place);
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
  for (PartitionSnapshot& snapshot : snapshots_) snapshot.note_cleared();
  index_.clear();
  bypass.clear();
  std::vector<std::byte*>().swap(blocks_);
  std::vector<uint32_t>().swap(free_);
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

void Partition::note_write(uint32_t place) {
  for (PartitionSnapshot& snapshot : snapshots_) snapshot.note_write(place);
}

void Partition::note_created(uint32_t place) noexcept {
  for (PartitionSnapshot& snapshot : snapshots_) snapshot.note_created(place);
}

size_t Partition::begin_snapshot(SnapshotKind kind, bool due_only, bool digests) {
  const size_t rows = snapshot(kind).begin(due_only, digests);
  watching_ = true;
  return rows;
}

void Partition::end_snapshot(SnapshotKind kind, bool keep) noexcept {
  snapshot(kind).end(keep);
  watching_ = any_tracking();
}

void Partition::track(SnapshotKind kind) {
  snapshot(kind).track();
  watching_ = true;
}

void Partition::stop_tracking(SnapshotKind kind) noexcept {
  snapshot(kind).stop_tracking();
  watching_ = any_tracking();
}

bool Partition::any_tracking() const {
  return std::any_of(snapshots_.begin(), snapshots_.end(),
                     [](const PartitionSnapshot& snapshot) { return snapshot.tracking(); });
}

}  // namespace hotrow
