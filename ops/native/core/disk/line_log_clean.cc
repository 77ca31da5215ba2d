// Cleaning of a log of lines: appends the current lines of the emptiest segments to other segments.
#include <algorithm>
#include <cstring>
#include <exception>
#include <queue>
#include <utility>

#include "core/disk/line_log.h"

namespace hotrow {
namespace {

constexpr size_t kSegmentsFound = 16;  // segments found by one scan of all
constexpr uint32_t kPiece = 32;        // lines moved in one lock

}  // namespace

void LineLog::run_cleaner() {
  std::unique_lock lock(mutex_);
  while (true) {
    to_clean_.wait(lock, [&] { return stopping_ || (!stuck_ && should_clean()); });
    if (stopping_) return;
    cleaning_ = true;
    const uint64_t made = rooms_made_;
    lock.unlock();
    bool moved = false;
    std::optional<Error> error;
    try {
      moved = clean_some();
    } catch (const Error& problem) {
      error = problem;
    } catch (const std::exception& problem) {
      error = Error(Code::kResourceExhausted, problem.what());  // std::bad_alloc
    }
    lock.lock();
    cleaning_ = false;
    // With room since, it tries again.
    const bool again = error && error->code() == Code::kResourceExhausted && rooms_made_ != made;
    if (error && !again) error_ = error;
    if (!moved && !again) stuck_ = true;
    has_room_.notify_all();
    is_idle_.notify_all();
  }
}

// Returns whether there was work.
bool LineLog::clean_some() {
  {
    // A segment whose writing failed.
    std::unique_lock lock(mutex_);
    if (cleaned_.filled == segment_lines_) write_cleaned(lock);
  }
  const std::vector<uint32_t> victims = emptiest_segments();
  for (const uint32_t number : victims) {
    {
      std::lock_guard lock(mutex_);
      if (stopping_ || !should_clean()) return true;
    }
    clean_segment(number);
    has_room_.notify_all();
  }
  return !victims.empty();
}

// The segments on disk with the fewest lines, in ascending order. Scans all segments without a
// lock.
std::vector<uint32_t> LineLog::emptiest_segments() const {
  uint32_t count;
  uint64_t kept_to;
  {
    std::lock_guard lock(mutex_);
    count = segment_count_;
    kept_to = kept_to_;
  }
  std::priority_queue<std::pair<uint32_t, uint32_t>> fewest;  // (lines, number), the most on top
  uint32_t limit = segment_lines_;
  for (uint32_t number = 0; number < count; ++number) {
    const Segment& segment = segments_[number];
    const uint32_t lines = segment.live.load(std::memory_order_relaxed);
    if (lines >= limit || segment.state.load(std::memory_order_relaxed) != kOnDisk ||
        segment.born.load(std::memory_order_relaxed) <= kept_to) {
      continue;
    }
    fewest.emplace(lines, number);
    if (fewest.size() <= kSegmentsFound) continue;
    fewest.pop();
    limit = fewest.top().first;
  }
  std::vector<uint32_t> numbers;
  for (; !fewest.empty(); fewest.pop()) numbers.push_back(fewest.top().second);
  std::reverse(numbers.begin(), numbers.end());
  return numbers;
}

void LineLog::clean_segment(uint32_t number) {
  Segment& segment = segments_[number];
  {
    std::lock_guard lock(mutex_);
    if (segment.state.load(std::memory_order_relaxed) != kOnDisk || is_kept(number)) return;
    if (victim_.size() == 0) victim_ = AnonymousArray<std::byte>(segment_bytes_);
    const uint32_t lines = segment.live.load(std::memory_order_relaxed);
    lines_to_free_ -= std::min<uint64_t>(lines_to_free_, segment_lines_ - lines);
    // Readers must not mistake the next lines written here for the lines that were copied away.
    segment.pins.fetch_add(1);
  }
  std::optional<Error> unreadable;
  std::exception_ptr error;
  bool all_moved = true;
  try {
    file_.read(uint64_t{number} * segment_bytes_, victim_.data(), segment_bytes_);
  } catch (const Error& problem) {
    unreadable = problem;
  }
  try {
    for (uint32_t first = 0; first < segment_lines_ && !unreadable; first += kPiece) {
      all_moved &= move_lines(number, first, std::min(first + kPiece, segment_lines_));
    }
  } catch (...) {
    error = std::current_exception();
  }
  std::lock_guard lock(mutex_);
  segment.pins.fetch_sub(1);
  if (error != nullptr) std::rethrow_exception(error);
  // A hold came between; it may have been released since.
  if (!all_moved || is_kept(number)) return;
  ++segments_cleaned_;
  if (segment.state.load(std::memory_order_relaxed) == kFree) return;
  // Else it would stay the emptiest for ever.
  segment.state.store(kDamaged, std::memory_order_relaxed);
  if (unreadable) throw *unreadable;
  fail(Code::kDataLoss, "the owners of %u lines of segment %u in %s are damaged",
       segment.live.load(std::memory_order_relaxed), number, directory_.c_str());
}

// Appends the current ones of the victim's lines [first, last). Returns whether none of them stays
// for a hold.
bool LineLog::move_lines(uint32_t number, uint32_t first, uint32_t last) {
  struct Candidate {
    std::atomic<uint32_t>* entry;
    Owner owner;
    uint32_t i;
  };
  Candidate candidates[kPiece];
  size_t count = 0;
  const uint32_t base = 1 + number * segment_lines_;
  for (uint32_t i = first; i < last; ++i) {
    Candidate& candidate = candidates[count];
    std::memcpy(&candidate.owner, owner_at(victim_.data(), i), sizeof(Owner));
    if (candidate.owner.partition >= partitions_) continue;
    candidate.entry = map_[candidate.owner.partition].find(candidate.owner.place);
    candidate.i = i;
    if (candidate.entry != nullptr && candidate.entry->load() == base + i) ++count;
  }
  if (count == 0) return true;
  bool all_moved = true;
  std::unique_lock lock(mutex_);
  for (size_t c = 0; c < count; ++c) {
    const auto& [entry, owner, i] = candidates[c];
    if (entry->load() != base + i) continue;
    if (is_kept(number)) {
      all_moved = false;
      continue;
    }
    if (cleaned_.segment == kNone) start_cleaned();
    append(cleaned_, *entry, owner, victim_.data() + i * line_bytes_);
    ++lines_cleaned_;
    if (cleaned_.filled == segment_lines_) write_cleaned(lock);
  }
  return all_moved;
}

void LineLog::start_cleaned() {
  const auto buffer = static_cast<uint32_t>(buffers_.size() - 1);
  if (buffers_[buffer].size() == 0) buffers_[buffer] = AnonymousArray<std::byte>(segment_bytes_);
  const uint32_t segment = take_segment();
  if (segment == kNone) {
    fail(Code::kResourceExhausted,
         "the file for rows in %s is full and cannot be cleaned: it may hold %u lines",
         directory_.c_str(), options_.line_limit);
  }
  start_segment(cleaned_, segment, buffer);
}

// Writes the cleaner's full segment. After an error it stays in memory.
void LineLog::write_cleaned(std::unique_lock<std::mutex>& lock) {
  const uint32_t number = cleaned_.segment;
  const std::optional<Error> error = write_segment(lock, number);
  if (error) throw *error;
  cleaned_ = {};
  take_written(number);
}

}  // namespace hotrow
