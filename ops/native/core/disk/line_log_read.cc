// Reads of a log of lines: finds the lines, and keeps many reads in flight.
#include <algorithm>
#include <cstring>
#include <exception>

#include "core/base/room.h"
#include "core/disk/line_log.h"
#include "core/disk/read_room.h"

namespace hotrow {
namespace {

// A gap of at most this many bytes between two lines is read and dropped rather than split into two
// reads: a disk of 2 GB/s and 90,000 reads a second moves 22 KB in the time of a read.
constexpr uint64_t kGapBytes = 8 << 10;

}  // namespace

// One request. A line's segment is pinned from the time when its location is known until it is
// copied.
template <typename Entry>
class LineLog::Reading {
 public:
  Reading(const LineLog& log, const Entry* reads, size_t count, const Progress& done)
      : log_(log), reads_(reads), count_(count), done_(done), room_(log.take_room()) {}
  ~Reading() {
    log_.lines_read_ += complete_;
    log_.reads_ += read_count_;
    log_.bytes_read_ += read_bytes_;
    log_.give_room(std::move(room_));
  }

  void run() {
    try {
      while (complete_ < count_) {
        start();
        if (room_->pending() > 0) finish_some();
        report();
      }
    } catch (...) {
      give_up();
      throw;
    }
  }

 private:
  // Starts reads while there is room for them.
  void start() {
    while (true) {
      if (span_.bytes == 0) gather();
      if (span_.bytes == 0 || !room_->start(span_)) return;
      ++read_count_;
      read_bytes_ += span_.bytes;
      span_ = {};
    }
  }

  // Collects lines that are close on disk in span_; copies lines that are in memory.
  void gather() {
    const uint64_t unit = log_.file_.alignment();
    while (next_ < count_ && next_ - complete_ < ReadRoom::kLines) {
      const Location location = carried_ != kNowhere ? carried_ : log_.resolve(reads_[next_]);
      carried_ = kNowhere;
      if (location != kNowhere) {
        const uint64_t offset = log_.offset_of(location);
        const uint64_t begin = offset / unit * unit;
        const uint64_t end = (offset + log_.line_bytes_ + unit - 1) / unit * unit;
        const uint64_t span_end = span_.offset + span_.bytes;
        if (span_.bytes == 0) {
          span_ = {begin, end - begin, next_, next_};
        } else if (begin >= span_.offset && begin <= span_end + kGapBytes &&
                   end - span_.offset <= ReadRoom::kLargeBytes) {
          span_.bytes = std::max(end, span_end) - span_.offset;
        } else {
          carried_ = location;
          return;
        }
      }
      room_->location(next_++) = location;
      if (span_.bytes != 0) span_.last = next_;
    }
  }

  void finish_some() {
    std::exception_ptr problem;
    for (const ReadQueue::Done& done : room_->wait(std::max<size_t>(room_->pending() / 4, 1))) {
      const ReadSpan span = room_->span(done.slot);
      const bool whole = done.result == static_cast<int64_t>(span.bytes);
      copy(span, whole ? room_->data(done.slot) : nullptr);
      room_->finish(done.slot);
      if (whole || problem) continue;
      try {
        log_.file_.fail_read(span.offset, span.bytes, done.result);
      } catch (...) {
        problem = std::current_exception();
      }
    }
    if (problem) std::rethrow_exception(problem);
  }

  // data: (span.bytes), or null when there is nothing to copy. Unpins the lines' segments.
  void copy(const ReadSpan& span, const std::byte* data) {
    for (size_t i = span.first; i < span.last; ++i) {
      const Location location = room_->location(i);
      if (location == kNowhere) continue;
      if (data != nullptr) {
        const std::byte* line = data + (log_.offset_of(location) - span.offset);
        std::memcpy(reads_[i].line, line, log_.line_bytes_);
      }
      log_.unpin(location);
    }
  }

  void report() {
    const size_t before = complete_;
    complete_ = room_->oldest(span_.bytes != 0 ? span_.first : next_);
    if (done_ && complete_ > before) done_(complete_);
  }

  // Waits for reads in flight, and unpins all segments.
  void give_up() {
    if (carried_ != kNowhere) log_.unpin(carried_);
    copy(span_, nullptr);
    while (room_->pending() > 0) {
      for (const ReadQueue::Done& done : room_->wait(room_->pending())) {
        copy(room_->span(done.slot), nullptr);
        room_->finish(done.slot);
      }
    }
  }

  const LineLog& log_;
  const Entry* reads_;
  size_t count_;
  const Progress& done_;
  std::unique_ptr<ReadRoom> room_;
  ReadSpan span_;                // collected, not started
  Location carried_ = kNowhere;  // of reads_[next_], when it did not fit the span
  size_t next_ = 0;              // the first that no span has
  size_t complete_ = 0;          // how many of the first reads are complete
  uint64_t read_count_ = 0, read_bytes_ = 0;
};

void LineLog::read(const Read* reads, size_t count, const Progress& done) const {
  Reading<Read>(*this, reads, count, done).run();
}

void LineLog::read_at(const ReadAt* reads, size_t count, const Progress& done) const {
  Reading<ReadAt>(*this, reads, count, done).run();
}

// The line's location on disk, with its segment pinned; or copies it from memory and returns
// kNowhere.
LineLog::Location LineLog::resolve(const Read& read) const {
  while (true) {
    const Location found = location(read.partition, read.place);
    if (found == kNowhere) {
      fail(Code::kNotFound, "place %u of partition %u has no line on disk", read.place,
           read.partition);
    }
    segments_[segment_of(found)].pins.fetch_add(1);
    // The cleaner may have moved the line before the pin was visible.
    if (location(read.partition, read.place) == found) {
      if (!copy_from_memory(found, read.line)) return found;
      unpin(found);
      return kNowhere;
    }
    unpin(found);
  }
}

// The hold keeps the segment; the pin only makes both kinds of reads alike.
LineLog::Location LineLog::resolve(const ReadAt& read) const {
  if (copy_from_memory(read.location, read.line)) return kNowhere;
  segments_[segment_of(read.location)].pins.fetch_add(1);
  return read.location;
}

bool LineLog::copy_from_memory(Location location, std::byte* line) const {
  const Segment& segment = segments_[segment_of(location)];
  if (segment.state.load(std::memory_order_acquire) != kInMemory) return false;
  std::lock_guard lock(mutex_);
  if (segment.state.load(std::memory_order_relaxed) != kInMemory) return false;
  const std::byte* buffer = buffers_[segment.buffer].data();
  std::memcpy(line, buffer + location % segment_lines_ * line_bytes_, line_bytes_);
  return true;
}

std::unique_ptr<ReadRoom> LineLog::take_room() const {
  std::lock_guard lock(rooms_mutex_);
  if (rooms_.empty()) {
    make_room(rooms_, ++room_count_);  // give_room must not fail
    auto room = std::make_unique<ReadRoom>(file_, line_bytes_, options_.asynchronous);
    rooms_bytes_ += room->bytes();
    return room;
  }
  auto room = std::move(rooms_.back());
  rooms_.pop_back();
  return room;
}

void LineLog::give_room(std::unique_ptr<ReadRoom> room) const {
  std::lock_guard lock(rooms_mutex_);
  rooms_.push_back(std::move(room));
}

}  // namespace hotrow
