#include "core/table/partition_snapshot.h"

#include <algorithm>
#include <cstring>

#include "core/base/digest.h"
#include "core/base/room.h"
#include "core/table/partition.h"

namespace hotrow {
namespace {

size_t words_of(size_t places) { return (places + 63) / 64; }

size_t count_bits(const std::vector<uint64_t>& words) {
  size_t count = 0;
  for (const uint64_t word : words) count += static_cast<size_t>(__builtin_popcountll(word));
  return count;
}

template <typename T>
void free_memory(std::vector<T>& elements) {
  std::vector<T>().swap(elements);
}

}  // namespace

struct PartitionSnapshot::OldVersion {
  RowHeader header;
  LineLog::Location location;
  uint32_t unused;
};

size_t PartitionSnapshot::bytes() const {
  return (marks_.capacity() + old_marks_.capacity() + done_.capacity()) * sizeof(uint64_t) +
         (removed_.capacity() + old_removed_.capacity()) * sizeof(int64_t) + copies_.bytes();
}

// --- marks --------------------------------------------------------------------------------------

void PartitionSnapshot::track() {
  Places marks(words_of(partition_->places()), 0);
  marks_.swap(marks);
  marked_ = 0;
  free_memory(removed_);
  tracking_ = true;
}

void PartitionSnapshot::stop_tracking() noexcept {
  tracking_ = false;
  free_memory(marks_);
  free_memory(removed_);
  marked_ = 0;
}

void PartitionSnapshot::unmark(uint32_t place) noexcept {
  if (!tracking_) return;
  uint64_t& word = marks_[place >> 6];
  const uint64_t bit = uint64_t{1} << (place & 63);
  marked_ -= (word & bit) != 0;
  word &= ~bit;
}

// --- what the partition does --------------------------------------------------------------------

// Of a place of the snapshot: whether the snapshot reads its row.
bool PartitionSnapshot::wanted(size_t place) const {
  return !due_only_ || ((old_marks_[place >> 6] >> (place & 63)) & 1) != 0;
}

void PartitionSnapshot::note_tracked_write(uint32_t place) {
  // The clock does not show that a row is due: imported rows may be ahead of the table's step.
  mark(place);
  if (place >= places_ || done(place)) return;
  if (wanted(place)) {
    copy(place);
  } else if (adding_unchanged_) {
    add_unchanged_row(place);
  }
}

void PartitionSnapshot::note_created(uint32_t place) noexcept {
  if (!tracking_) return;
  mark(place);
  // The snapshot has no row here: the place was free at its moment, or its row was removed since,
  // and copied before.
  if (place < places_) set_done(place);
}

void PartitionSnapshot::note_removed(uint32_t place) noexcept {
  if (!tracking_) return;
  unmark(place);
  removed_.push_back(partition_->header(place).key);
}

// The removed keys of an open snapshot come back if it is not kept.
void PartitionSnapshot::reserve_removals(size_t more) {
  if (!tracking_) return;
  more += old_removed_.size();
  if (removed_.size() + more > removed_.capacity()) {
    // A key that comes and goes takes no more memory each time.
    std::sort(removed_.begin(), removed_.end());
    removed_.erase(std::unique(removed_.begin(), removed_.end()), removed_.end());
    if (2 * (removed_.size() + more) > removed_.capacity()) make_room(removed_, more);
  }
}

void PartitionSnapshot::note_cleared() {
  if (!tracking_) return;
  reserve_removals(partition_->size());
  for (size_t place = 0; place < partition_->places(); ++place) {
    const RowHeader& row = partition_->header(static_cast<uint32_t>(place));
    if (row.clock != Partition::kFree) removed_.push_back(row.key);
  }
  marks_.clear();
  marked_ = 0;
}

// --- the open snapshot --------------------------------------------------------------------------

size_t PartitionSnapshot::begin(bool due_only, bool digests) {
  const size_t places = partition_->places();
  Places marks(std::max(words_of(places), marks_.size()), 0);
  Places done(words_of(places), 0);
  std::vector<int64_t> removed;
  removed.reserve(removed_.size());
  // From here on, nothing fails.
  was_tracking_ = tracking_;
  due_only_ = due_only && tracking_;
  const size_t rows = due_only_ ? marked_ : partition_->size();
  old_marks_.swap(marks_);
  marks_.swap(marks);
  marked_ = 0;
  old_removed_.swap(removed_);
  removed_.swap(removed);
  done_.swap(done);
  places_ = places;
  next_ = unchanged_next_ = 0;
  unchanged_digest_[0] = unchanged_digest_[1] = 0;
  adding_unchanged_ = digests && due_only_ && partition_->shape().log == nullptr;
  tracking_ = true;
  return rows;
}

size_t PartitionSnapshot::copy_stride() const {
  const RowShape& shape = partition_->shape();
  return shape.log == nullptr ? shape.stride : sizeof(OldVersion);
}

void PartitionSnapshot::copy(uint32_t place) {
  const LineLog* log = partition_->shape().log.get();
  if (log == nullptr) {
    (void)copies_.add(partition_->at(place), copy_stride(), place);
  } else {
    const auto number = static_cast<uint32_t>(partition_->number());
    const OldVersion old{partition_->header(place), log->location(number, place), 0};
    (void)copies_.add(reinterpret_cast<const std::byte*>(&old), copy_stride(), place);
  }
  set_done(place);
}

// row: header and line. location: of the line if lines are on disk.
void PartitionSnapshot::give_row(uint32_t place, const std::byte* row, LineLog::Location location,
                                 size_t to, const RowArrays& out,
                                 std::vector<LineLog::ReadAt>* later) const {
  RowHeader head;
  std::memcpy(&head, row, sizeof(head));
  if (out.keys != nullptr) out.keys[to] = head.key;
  if (out.clocks != nullptr) out.clocks[to] = head.clock;
  if (out.counts != nullptr) out.counts[to] = head.count;
  if (out.places != nullptr) out.places[to] = place;
  if (out.lines == nullptr) return;
  const RowShape& shape = partition_->shape();
  std::byte* line = out.lines + to * shape.line_bytes;
  if (shape.log == nullptr) {
    std::memcpy(line, row + sizeof(head), shape.line_bytes);
  } else {
    later->push_back({location, line});
  }
}

size_t PartitionSnapshot::give_copies(size_t first, size_t count, const RowArrays& out,
                                      std::vector<LineLog::ReadAt>* later) {
  const size_t stride = copy_stride();
  const bool on_disk = partition_->shape().log != nullptr;
  size_t to = first;
  for (; !copies_.empty() && to < first + count; copies_.drop_first(stride)) {
    const std::byte* row = copies_.at(copies_.first(), stride);
    LineLog::Location location = LineLog::kNowhere;
    if (on_disk) {
      std::memcpy(&location, row + offsetof(OldVersion, location), sizeof(location));
    }
    give_row(copies_.place_of_first(stride), row, location, to++, out, later);
  }
  return to - first;
}

size_t PartitionSnapshot::read(size_t count, const RowArrays& out,
                               std::vector<LineLog::ReadAt>* later) {
  const LineLog* log = partition_->shape().log.get();
  size_t written = 0;
  for (; next_ < places_ && written < count; ++next_) {
    const size_t word = next_ >> 6;
    if ((next_ & 63) == 0 && ((due_only_ ? old_marks_[word] : ~uint64_t{0}) & ~done_[word]) == 0) {
      next_ = std::min(next_ + 63, places_ - 1);
      continue;
    }
    if (done(next_) || !wanted(next_)) continue;
    set_done(next_);
    const auto place = static_cast<uint32_t>(next_);
    // The place was free at the moment, or there would be a copy.
    if (partition_->header(place).clock == Partition::kFree) continue;
    const LineLog::Location location =
        log == nullptr ? LineLog::kNowhere
                       : log->location(static_cast<uint32_t>(partition_->number()), place);
    give_row(place, partition_->at(place), location, written++, out, later);
  }
  if (next_ < places_) return written;
  written += give_copies(written, count - written, out, later);
  if (copies_.empty()) end_reading();
  return written;
}

size_t PartitionSnapshot::read_copies(size_t count, const RowArrays& out,
                                      std::vector<LineLog::ReadAt>* later) {
  return give_copies(0, count, out, later);
}

// The snapshot reads no more rows from here: writes need no copies.
void PartitionSnapshot::end_reading() noexcept {
  copies_.clear();
  if (adding_unchanged_) return;
  places_ = next_ = 0;
  free_memory(done_);
}

void PartitionSnapshot::add_unchanged_row(uint32_t place) {
  set_done(place);
  add_row_digest(partition_->header(place).key, partition_->at(place),
                 sizeof(RowHeader) + partition_->shape().line_bytes, unchanged_digest_);
}

size_t PartitionSnapshot::add_unchanged(size_t count) {
  if (!adding_unchanged_) return 0;
  size_t added = 0;
  for (; unchanged_next_ < places_ && added < count; ++unchanged_next_) {
    const auto place = static_cast<uint32_t>(unchanged_next_);
    if (done(place) || wanted(place)) continue;
    if (partition_->header(place).clock == Partition::kFree) continue;
    add_unchanged_row(place);
    ++added;
  }
  if (unchanged_next_ == places_) {
    adding_unchanged_ = false;
    if (next_ == places_ && copies_.empty()) end_reading();
  }
  return added;
}

void PartitionSnapshot::end(bool keep) noexcept {
  if (!keep && was_tracking_) {
    for (size_t i = 0; i < old_marks_.size(); ++i) marks_[i] |= old_marks_[i];
    marked_ = count_bits(marks_);
    removed_.insert(removed_.end(), old_removed_.begin(), old_removed_.end());
  } else if (!keep) {
    stop_tracking();
  }
  due_only_ = adding_unchanged_ = false;
  places_ = next_ = 0;
  free_memory(old_marks_);
  free_memory(old_removed_);
  free_memory(done_);
  copies_.clear();
}

}  // namespace hotrow
