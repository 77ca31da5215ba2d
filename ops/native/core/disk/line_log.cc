#include "core/disk/line_log.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/base/round_up.h"
#include "core/disk/read_room.h"

namespace hotrow {
namespace {

constexpr uint32_t kLeastLines = 8;  // of a segment
// How many free segments are checked for one without readers.
constexpr size_t kSegmentTries = 16;
// Segments that writers leave to the cleaner when the file holds as many lines as it may.
constexpr uint32_t kReserve = 2;
// Bytes used for each byte of lines. Above kCleanRatio, each written segment pays for cleaning; at
// kEvenRatio it pays for as much as it takes, and the file stops growing. At kWaitRatio, writers
// wait. Higher numbers take more disk, lower numbers copy lines more often.
constexpr double kCleanRatio = 1.35, kEvenRatio = 1.55, kWaitRatio = 1.8;
constexpr uint64_t kMostSegments = 64;  // paid for and not yet cleaned

}  // namespace

LineLog::LineLog(const std::string& directory, size_t line_bytes, size_t partitions,
                 const Options& options)
    : options_(options),
      line_bytes_(line_bytes),
      partitions_(partitions),
      directory_(directory),
      file_(directory, options.direct) {
  if (line_bytes == 0 || line_bytes % 4 != 0) {
    fail(Code::kInvalidArgument, "lines of %zu bytes; must be a multiple of 4, above 0",
         line_bytes);
  }
  const size_t least = kLeastLines * (line_bytes + sizeof(Owner));
  segment_bytes_ = round_up(std::max(options.segment_bytes, least), DirectFile::kPage);
  segment_lines_ = static_cast<uint32_t>(segment_bytes_ / (line_bytes + sizeof(Owner)));
  const size_t buffers = std::max<size_t>(options.buffer_bytes / segment_bytes_, 2);
  slack_segments_ = static_cast<uint32_t>(buffers) + 4;
  buffers_.resize(buffers + 1);
  for (size_t i = buffers; i-- > 0;) free_buffers_.push_back(static_cast<uint32_t>(i));
  queue_.reserve(buffers);
  map_ = std::make_unique<GrowingArray<std::atomic<uint32_t>>[]>(partitions);
  writer_ = std::thread([this] { run_writer(); });
  try {
    cleaner_ = std::thread([this] { run_cleaner(); });
  } catch (...) {
    stop(writer_);
    throw;
  }
}

LineLog::~LineLog() {
  stop(writer_);
  stop(cleaner_);
}

void LineLog::stop(std::thread& thread) {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  to_write_.notify_all();
  to_clean_.notify_all();
  thread.join();
}

// --- lines ---------------------------------------------------------------------------------------

void LineLog::write(uint32_t partition, uint32_t place, const std::byte* line) {
  // Prefetches memory before the lock is taken.
  if (auto* entry = map_[partition].find(place)) __builtin_prefetch(entry, 1);
  std::unique_lock lock(mutex_);
  if (!is_full()) throw_background_error();
  std::atomic<uint32_t>& entry = map_[partition].make(place, memory_);
  while (written_.segment == kNone) open_segment(lock);
  append(written_, entry, {partition, place}, line);
  ++lines_written_;
  if (written_.filled == segment_lines_) {
    queue_.push_back(written_.segment);
    written_ = {};
    to_write_.notify_one();
  }
}

void LineLog::forget(uint32_t partition, uint32_t place) {
  std::lock_guard lock(mutex_);
  std::atomic<uint32_t>* entry = map_[partition].find(place);
  if (entry == nullptr) return;
  const uint32_t old = entry->exchange(0);
  if (old == 0) return;
  let_go(old - 1);
  --live_lines_;
}

void LineLog::append(Stream& stream, std::atomic<uint32_t>& entry, Owner owner,
                     const std::byte* line) {
  Segment& segment = segments_[stream.segment];
  std::byte* buffer = buffers_[segment.buffer].data();
  std::memcpy(buffer + stream.filled * line_bytes_, line, line_bytes_);
  std::memcpy(owner_at(buffer, stream.filled), &owner, sizeof(owner));
  segment.live.store(segment.live.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  young_lines_ += is_kept(stream.segment) ? 0 : 1;
  const uint32_t old = entry.exchange(1 + stream.segment * segment_lines_ + stream.filled);
  ++stream.filled;
  if (old == 0) {
    ++live_lines_;
  } else {
    let_go(old - 1);
  }
}

// Marks a line as garbage.
void LineLog::let_go(Location location) {
  const uint32_t number = segment_of(location);
  Segment& segment = segments_[number];
  const uint32_t left = segment.live.load(std::memory_order_relaxed) - 1;
  segment.live.store(left, std::memory_order_relaxed);
  young_lines_ -= is_kept(number) ? 0 : 1;
  if (left == 0 && segment.state.load(std::memory_order_relaxed) >= kOnDisk) make_free(number);
}

// --- segments ------------------------------------------------------------------------------------

void LineLog::make_free(uint32_t number) {
  segments_[number].state.store(kFree, std::memory_order_release);
  --used_segments_;
  if (is_kept(number)) {
    push(held_, number);
  } else {
    --young_segments_;
    push(free_, number);
  }
}

void LineLog::push(SegmentQueue& queue, uint32_t number) {
  segments_[number].buffer = kNone;
  if (queue.size++ == 0) {
    queue.first = number;
  } else {
    segments_[queue.last].buffer = number;
  }
  queue.last = number;
}

uint32_t LineLog::pop(SegmentQueue& queue) {
  const uint32_t number = queue.first;
  queue.first = segments_[number].buffer;
  --queue.size;
  return number;
}

// reserve: segments to leave to other threads.
bool LineLog::may_take_segment(uint32_t reserve) const {
  return free_.size > reserve ||
         (uint64_t{segment_count_} + 1 + reserve) * segment_lines_ <= options_.line_limit;
}

// Takes a free segment, or a new one at the end of the file. It does not take a free segment with
// readers: a reader pins the segment before it checks whether the line is still there (both
// sequentially consistent).
uint32_t LineLog::take_segment() {
  uint32_t number = kNone;
  for (size_t tries = std::min(free_.size, kSegmentTries); tries > 0; --tries) {
    const uint32_t candidate = pop(free_);
    if (segments_[candidate].pins.load() == 0) {
      number = candidate;
      break;
    }
    push(free_, candidate);
  }
  if (number == kNone) {
    if ((uint64_t{segment_count_} + 1) * segment_lines_ > options_.line_limit) return kNone;
    segments_.make(segment_count_, memory_);
    number = segment_count_++;
  }
  ++used_segments_;
  ++young_segments_;
  segments_[number].born.store(++openings_, std::memory_order_relaxed);
  return number;
}

void LineLog::start_segment(Stream& stream, uint32_t number, uint32_t buffer) {
  Segment& segment = segments_[number];
  segment.live.store(0, std::memory_order_relaxed);
  segment.buffer = buffer;
  segment.hole = false;
  segment.state.store(kInMemory, std::memory_order_release);
  stream = {number, 0};
}

// Returns with room for a line in written_, or after another thread opened and filled a segment.
void LineLog::open_segment(std::unique_lock<std::mutex>& lock) {
  stuck_ = false;
  // There may be room by now; if not, it fails when all buffers are full.
  if (is_full()) write_again();
  pay_for_cleaning();
  if (should_clean()) to_clean_.notify_one();
  const auto ready = [&] {
    return error_ || written_.segment != kNone || (!free_buffers_.empty() && !must_wait());
  };
  if (!ready()) {
    ++waits_;
    has_room_.wait(lock, ready);
  }
  throw_background_error();
  if (written_.segment != kNone) return;
  uint32_t number = kNone;
  if (may_take_segment(kReserve)) number = take_segment();
  if (number == kNone) {
    lacks_room_ = true;
    fail(Code::kResourceExhausted,
         "the file for rows in %s is full: it may hold %u lines of %zu bytes, old versions too",
         directory_.c_str(), options_.line_limit, line_bytes_);
  }
  const uint32_t buffer = free_buffers_.back();
  if (buffers_[buffer].size() == 0) {
    try {
      buffers_[buffer] = AnonymousArray<std::byte>(segment_bytes_);
    } catch (...) {
      make_free(number);
      throw;
    }
  }
  free_buffers_.pop_back();
  start_segment(written_, number, buffer);
}

// Bytes used for each byte of lines, of the segments that may be cleaned; without the minimum that
// small tables need.
double LineLog::used_ratio() const {
  const uint64_t live = young_lines_ + uint64_t{slack_segments_} * segment_lines_;
  return static_cast<double>(uint64_t{young_segments_} * segment_lines_) /
         static_cast<double>(live);
}

bool LineLog::may_clean() const { return !paused_; }

// Whether the file is as large as it may be.
bool LineLog::is_late() const { return used_ratio() > kWaitRatio || !may_take_segment(kReserve); }

// Whether the cleaner continues: only for what writers paid, so that it takes no more disk
// bandwidth from readers than it must.
bool LineLog::should_clean() const {
  return may_clean() && (is_late() || (lines_to_free_ > 0 && used_ratio() > kCleanRatio));
}

// Whether a writer must wait for the cleaner. It need not while there are freed segments, since
// then the file does not grow, nor when the cleaner has nothing to do.
bool LineLog::must_wait() const {
  return !stuck_ && may_clean() && free_.size <= kReserve && is_late();
}

void LineLog::pay_for_cleaning() {
  const double share = (used_ratio() - kCleanRatio) / (kEvenRatio - kCleanRatio);
  if (share <= 0) return;
  lines_to_free_ += static_cast<uint64_t>(share * segment_lines_);
  lines_to_free_ = std::min(lines_to_free_, kMostSegments * segment_lines_);
}

void LineLog::throw_background_error() {
  if (!error_) return;
  const Error error = *error_;
  lacks_room_ = lacks_room_ || is_full();
  write_again();
  throw error;
}

// Forgets the error of a background thread, so that it tries again.
void LineLog::write_again() {
  error_.reset();
  retry_ = true;
  to_write_.notify_one();
}

// A segment is on the disk: frees its buffer.
void LineLog::take_written(uint32_t number) {
  Segment& segment = segments_[number];
  ++segments_written_;
  segment.state.store(kOnDisk, std::memory_order_release);
  if (segment.live.load(std::memory_order_relaxed) == 0) make_free(number);
}

// Writes a segment to the file. When the disk is full, the blocks of free segments may make room.
std::optional<Error> LineLog::write_segment(std::unique_lock<std::mutex>& lock, uint32_t number) {
  const std::byte* data = buffers_[segments_[number].buffer].data();
  while (true) {
    const uint64_t made = rooms_made_;
    std::optional<Error> error;
    lock.unlock();
    try {
      file_.write(uint64_t{number} * segment_bytes_, data, segment_bytes_);
    } catch (const Error& problem) {
      error = problem;
    } catch (const std::exception& problem) {
      error = Error(Code::kResourceExhausted, problem.what());  // std::bad_alloc
    }
    lock.lock();
    if (!error || error->code() != Code::kResourceExhausted) return error;
    if (rooms_made_ == made) free_blocks(lock);
    if (rooms_made_ == made) return error;
  }
}

// Gives the disk the blocks of some free segments, after another thread that does so.
void LineLog::free_blocks(std::unique_lock<std::mutex>& lock) {
  const uint64_t made = rooms_made_;
  is_idle_.wait(lock, [&] { return !freeing_; });
  if (rooms_made_ != made) return;
  std::array<uint32_t, kSegmentTries> taken;
  size_t count = 0;
  for (size_t tries = free_.size; tries > 0 && count < taken.size(); --tries) {
    const uint32_t number = pop(free_);
    if (segments_[number].hole || segments_[number].pins.load() != 0) {
      push(free_, number);
    } else {
      taken[count++] = number;
    }
  }
  freeing_ = true;
  lock.unlock();
  bool freed = false;
  for (size_t i = 0; i < count; ++i) {
    freed |= file_.make_hole(uint64_t{taken[i]} * segment_bytes_, segment_bytes_);
  }
  lock.lock();
  for (size_t i = 0; i < count; ++i) {
    segments_[taken[i]].hole = true;
    push(free_, taken[i]);
  }
  freeing_ = false;
  if (freed) ++rooms_made_;
  is_idle_.notify_all();
}

// Writes full segments, in order.
void LineLog::run_writer() {
  std::unique_lock lock(mutex_);
  while (true) {
    to_write_.wait(lock, [&] { return stopping_ || (!queue_.empty() && retry_ && !paused_); });
    if (stopping_) return;
    const uint32_t number = queue_.front();
    const uint32_t buffer = segments_[number].buffer;
    writing_ = true;
    const std::optional<Error> error = write_segment(lock, number);
    writing_ = false;
    if (error) {
      error_ = error;
      retry_ = false;
    } else {
      queue_.erase(queue_.begin());
      free_buffers_.push_back(buffer);
      take_written(number);
    }
    has_room_.notify_all();
    is_idle_.notify_all();
  }
}

// --- holds and the whole -------------------------------------------------------------------------

LineLog::Hold LineLog::hold() {
  std::lock_guard lock(mutex_);
  holds_.push_back(openings_);
  lacks_room_ = false;
  kept_to_ = openings_;
  young_segments_ = 0;
  young_lines_ = 0;
  return openings_;
}

void LineLog::release(Hold hold) {
  std::lock_guard lock(mutex_);
  holds_.erase(std::find(holds_.begin(), holds_.end(), hold));
  const uint64_t kept_to = holds_.empty() ? 0 : *std::max_element(holds_.begin(), holds_.end());
  if (kept_to == kept_to_) return;
  kept_to_ = kept_to;
  free_held();
  stuck_ = false;
  lacks_room_ = false;
  ++rooms_made_;
  // The free segments are room for lines that the disk had none for.
  if (is_full()) write_again();
  if (should_clean()) to_clean_.notify_one();
}

void LineLog::free_held() {
  for (size_t left = held_.size; left > 0; --left) {
    const uint32_t number = pop(held_);
    push(is_kept(number) ? held_ : free_, number);
  }
  young_segments_ = used_segments_;
  young_lines_ = live_lines_;
  if (kept_to_ == 0) return;
  young_segments_ = 0;
  young_lines_ = 0;
  for (uint32_t number = 0; number < segment_count_; ++number) {
    const Segment& segment = segments_[number];
    if (segment.state.load(std::memory_order_relaxed) == kFree || is_kept(number)) continue;
    ++young_segments_;
    young_lines_ += segment.live.load(std::memory_order_relaxed);
  }
}

void LineLog::clear() {
  std::unique_lock lock(mutex_);
  if (!holds_.empty()) {
    fail(Code::kFailedPrecondition, "lines on disk are held by %zu snapshots", holds_.size());
  }
  paused_ = true;
  is_idle_.wait(lock, [&] { return !writing_ && !cleaning_; });
  for (size_t p = 0; p < partitions_; ++p) map_[p].clear();
  segments_.clear();
  memory_.clear();
  segment_count_ = used_segments_ = young_segments_ = 0;
  live_lines_ = young_lines_ = lines_to_free_ = 0;
  free_ = {};
  queue_.clear();
  written_ = cleaned_ = {};
  free_buffers_.clear();
  for (size_t i = buffers_.size() - 1; i-- > 0;) free_buffers_.push_back(static_cast<uint32_t>(i));
  error_.reset();
  retry_ = true;
  paused_ = false;
  has_room_.notify_all();
  file_.clear();
}

LineLog::Statistics LineLog::statistics() const {
  std::lock_guard lock(mutex_);
  Statistics facts{};
  facts.lines = live_lines_;
  facts.live_bytes = live_lines_ * line_bytes_;
  facts.file_bytes = uint64_t{segment_count_} * segment_bytes_;
  facts.segments = segment_count_;
  facts.free_segments = segment_count_ - used_segments_;
  facts.segments_waiting = queue_.size();
  facts.lines_written = lines_written_;
  facts.lines_cleaned = lines_cleaned_;
  facts.segments_cleaned = segments_cleaned_;
  facts.lines_owed = lines_to_free_;
  facts.bytes_written = segments_written_ * segment_bytes_;
  facts.lines_read = lines_read_;
  facts.reads = reads_;
  facts.bytes_read = bytes_read_;
  facts.waits = waits_;
  return facts;
}

size_t LineLog::bytes() const {
  std::lock_guard lock(mutex_);
  size_t total = memory_.bytes() + partitions_ * sizeof(map_[0]) + sizeof(segments_);
  total += victim_.bytes();
  for (const auto& buffer : buffers_) total += buffer.bytes();
  std::lock_guard rooms_lock(rooms_mutex_);
  return total + rooms_bytes_;
}

}  // namespace hotrow
