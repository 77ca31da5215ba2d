// The lines of a table's rows on disk: a log of segments, cleaned while rows are rewritten.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/anonymous_array.h"
#include "core/base/growing_array.h"
#include "core/base/slab_memory.h"
#include "core/base/status.h"
#include "core/disk/direct_file.h"

namespace hotrow {

class ReadRoom;

struct LineLogOptions {
  size_t buffer_bytes = size_t{8} << 20;   // for lines that wait to be written; at least 2 segments
  size_t segment_bytes = size_t{1} << 20;  // written at once; made to hold 8 lines at least
  uint32_t line_limit = 0xfffffffe;        // lines that the file may hold, old versions too
  bool direct = true;                      // past the page cache, where the file system can
  bool asynchronous = true;                // many reads in flight by Linux AIO
};

// The log of Rosenblum and Ousterhout ("The Design and Implementation of a Log-Structured File
// System", 1992). A line is appended to a segment, a buffer in memory that is written in one piece
// when it is full; the row's older line is then garbage. When segments take 1.35 times the bytes of
// lines, a thread starts cleaning: it copies the lines of the emptiest segments together and frees
// these segments. It cleans more for each written segment as the ratio grows: at 1.55 it keeps up
// with random writes, at 1.8 writers wait for it. A segment ends with the owners of its lines.
// Memory holds 4 bytes for each row: its line's number in the file.
//
// Scratch space: nothing survives the process. Safe from several threads, but no other call may be
// in flight during `clear`. A read during a write returns the old or the new line, never a mix. The
// next `write` throws the error of a background thread; that of a full disk when all buffers are
// full, too. Lines of a segment that could not be written stay in memory, and the write is retried.
class LineLog {
 public:
  using Options = LineLogOptions;

  // directory: where the file is created. line_bytes: a multiple of 4. Partitions are numbered
  // below `partitions`. Fails with InvalidArgument, NotFound, PermissionDenied, ResourceExhausted
  // or Unavailable.
  LineLog(const std::string& directory, size_t line_bytes, size_t partitions,
          const Options& options = Options());
  ~LineLog();
  LineLog(const LineLog&) = delete;

  size_t line_bytes() const { return line_bytes_; }

  // --- lines ------------------------------------------------------------------------------------
  // Replaces the line of a row. It is readable when this returns. Waits while the buffers are full.
  // line: (line_bytes). Fails with ResourceExhausted when the disk is full or the file holds as
  // many lines as it may, and as DirectFile::write; then this line was not stored, and all others
  // are still there.
  void write(uint32_t partition, uint32_t place, const std::byte* line);
  bool has(uint32_t partition, uint32_t place) const {
    return location(partition, place) != kNowhere;
  }
  // Removes the row's line.
  void forget(uint32_t partition, uint32_t place);
  struct Read {
    uint32_t partition;
    uint32_t place;
    std::byte* line;  // (line_bytes) out
  };
  // Called with n when the first n reads of a request are complete.
  using Progress = std::function<void(size_t)>;
  // Reads many lines at once; returns when all are there. Lines that are adjacent on disk and in
  // the request are read together. Fails with NotFound for a row without a line, and as
  // DirectFile::read; then any of the other lines may have been read.
  void read(const Read* reads, size_t count, const Progress& done = nullptr) const;
  // Removes all lines and empties the file. Fails with FailedPrecondition while held.
  void clear();

  // --- old versions, for snapshots --------------------------------------------------------------
  // The number of a line in the file.
  using Location = uint32_t;
  static constexpr Location kNowhere = 0xffffffff;

  // Identifies a hold.
  using Hold = uint64_t;
  // Until its `release`, every line that is current now stays readable at its location. Segments
  // that are opened meanwhile are cleaned as always, so the file grows by at most 1.8 times the
  // lines of the rows that are rewritten. Several may hold; what only a released one kept is
  // cleaned from then on.
  Hold hold();
  void release(Hold hold);
  // kNowhere: the row has no line.
  Location location(uint32_t partition, uint32_t place) const {
    const std::atomic<uint32_t>* found = map_[partition].find(place);
    return found == nullptr ? kNowhere : found->load() - 1;
  }
  struct ReadAt {
    Location location;
    std::byte* line;  // (line_bytes) out
  };
  // As `read`, for lines that were current at some time during the hold.
  void read_at(const ReadAt* reads, size_t count, const Progress& done = nullptr) const;

  // Whether a write found no room on the disk, or in the file, since the last hold or release.
  bool lacks_room() const { return lacks_room_.load(std::memory_order_relaxed); }

  // --- facts ------------------------------------------------------------------------------------
  struct Statistics {
    uint64_t lines;             // rows that have one
    uint64_t live_bytes;        // of these
    uint64_t file_bytes;        // of all segments
    uint64_t segments;          // in the file
    uint64_t free_segments;     // of these, segments that can be reused
    uint64_t segments_waiting;  // to be written, in memory
    uint64_t lines_written;     // by `write`
    uint64_t lines_cleaned;     // copied by the cleaner
    uint64_t segments_cleaned;
    uint64_t lines_owed;     // garbage that the cleaner should have freed by now
    uint64_t bytes_written;  // to the disk, by both
    uint64_t lines_read;     // by `read` and `read_at`
    uint64_t reads;          // of the disk for them; a cleaner's are segments_cleaned
    uint64_t bytes_read;     // from the disk for them
    uint64_t waits;          // of writers, for a buffer or the cleaner
  };
  Statistics statistics() const;
  bool direct() const { return file_.direct(); }
  // Bytes of memory: the map, segments and buffers.
  size_t bytes() const;

 private:
  static constexpr uint32_t kNone = 0xffffffff;
  enum State : uint32_t { kFree, kInMemory, kOnDisk, kDamaged };  // damaged: never cleaned

  // Written under mutex_, except pins.
  struct Segment {
    std::atomic<uint32_t> live;  // lines that are current
    std::atomic<uint32_t> pins;  // readers of its file; it is not reused meanwhile
    std::atomic<uint32_t> state;
    std::atomic<uint64_t> born;  // the number of its opening
    bool hole;                   // takes no blocks of the disk; while kFree
    uint32_t buffer;             // while kInMemory; while kFree, the next segment of its queue
  };
  // Free segments, first in, first out, linked by `buffer`: adding one allocates nothing.
  struct SegmentQueue {
    uint32_t first = kNone, last = kNone;
    size_t size = 0;
  };
  struct Owner {
    uint32_t partition;
    uint32_t place;
  };
  // The segment that lines are appended to; it is not full.
  struct Stream {
    uint32_t segment = kNone;
    uint32_t filled = 0;  // lines
  };
  template <typename Entry>
  class Reading;

  uint32_t segment_of(Location location) const { return location / segment_lines_; }
  uint64_t offset_of(Location location) const {
    return uint64_t{segment_of(location)} * segment_bytes_ +
           location % segment_lines_ * line_bytes_;
  }
  std::byte* owner_at(std::byte* segment, uint32_t i) const {
    return segment + segment_lines_ * line_bytes_ + i * sizeof(Owner);
  }

  // The caller holds mutex_ for all of these.
  // Whether a hold keeps the segment.
  bool is_kept(uint32_t segment) const {
    return segments_[segment].born.load(std::memory_order_relaxed) <= kept_to_;
  }
  void append(Stream& stream, std::atomic<uint32_t>& entry, Owner owner, const std::byte* line);
  void let_go(Location location);
  void make_free(uint32_t segment);
  void push(SegmentQueue& queue, uint32_t segment);
  uint32_t pop(SegmentQueue& queue);
  void free_held();  // what is kept no longer
  uint32_t take_segment();
  bool may_take_segment(uint32_t reserve) const;
  void start_segment(Stream& stream, uint32_t segment, uint32_t buffer);
  void open_segment(std::unique_lock<std::mutex>& lock);
  double used_ratio() const;
  bool may_clean() const;
  bool is_late() const;
  bool should_clean() const;
  bool must_wait() const;
  void pay_for_cleaning();
  void take_written(uint32_t segment);
  bool is_full() const { return error_ && error_->code() == Code::kResourceExhausted; }
  void throw_background_error();
  void write_again();
  void start_cleaned();
  // These open it meanwhile.
  void write_cleaned(std::unique_lock<std::mutex>& lock);
  std::optional<Error> write_segment(std::unique_lock<std::mutex>& lock, uint32_t segment);
  void free_blocks(std::unique_lock<std::mutex>& lock);

  // The caller does not hold it.
  void stop(std::thread& thread);
  void run_writer();
  void run_cleaner();
  bool clean_some();
  void clean_segment(uint32_t segment);
  bool move_lines(uint32_t segment, uint32_t first, uint32_t last);
  std::vector<uint32_t> emptiest_segments() const;
  Location resolve(const Read& read) const;
  Location resolve(const ReadAt& read) const;
  bool copy_from_memory(Location location, std::byte* line) const;
  void unpin(Location location) const { segments_[segment_of(location)].pins.fetch_sub(1); }
  std::unique_ptr<ReadRoom> take_room() const;
  void give_room(std::unique_ptr<ReadRoom> room) const;

  const Options options_;
  const size_t line_bytes_;
  const size_t partitions_;
  size_t segment_bytes_;
  uint32_t segment_lines_;
  uint32_t slack_segments_;
  std::string directory_;
  DirectFile file_;

  mutable std::mutex mutex_;
  std::condition_variable has_room_;  // for writers
  std::condition_variable to_write_, to_clean_, is_idle_;

  // 1 + location, by place; 0: no line. Read without mutex_.
  std::unique_ptr<GrowingArray<std::atomic<uint32_t>>[]> map_;
  GrowingArray<Segment> segments_;  // 0 ... segment_count_ - 1
  SlabMemory memory_;               // of both
  uint32_t segment_count_ = 0;
  uint32_t used_segments_ = 0;  // not free
  SegmentQueue free_;           // can be reused, once they have no readers
  SegmentQueue held_;           // can be reused, once they are not kept
  uint64_t live_lines_ = 0;
  uint64_t lines_to_free_ = 0;  // by the cleaner, as writers go on
  std::vector<Hold> holds_;     // each the last opening that it keeps
  std::atomic<bool> lacks_room_{false};
  uint64_t rooms_made_ = 0;  // how often a hold ended, or free segments gave their blocks back
  uint64_t openings_ = 0;    // of segments, from 1 on
  // Segments up to this opening are kept, the last of the holds; 0: none. Those after it that are
  // not free, and their current lines.
  uint64_t kept_to_ = 0;
  uint32_t young_segments_ = 0;
  uint64_t young_lines_ = 0;

  // Buffers are numbered: the writers', allocated when they are needed, then the cleaner's.
  std::vector<AnonymousArray<std::byte>> buffers_;
  std::vector<uint32_t> free_buffers_;
  Stream written_, cleaned_;
  std::vector<uint32_t> queue_;       // full segments, for the writing thread; has room for all
  AnonymousArray<std::byte> victim_;  // a segment being cleaned

  std::optional<Error> error_;  // of a thread in the background
  bool retry_ = true;           // the writing thread may try
  bool stuck_ = false;          // the cleaner found no work; reset when a segment is opened
  bool paused_ = false;         // by clear
  bool stopping_ = false;
  bool writing_ = false, cleaning_ = false, freeing_ = false;

  uint64_t lines_written_ = 0, lines_cleaned_ = 0, segments_cleaned_ = 0, waits_ = 0;
  uint64_t segments_written_ = 0;
  mutable std::atomic<uint64_t> lines_read_{0}, reads_{0}, bytes_read_{0};

  mutable std::mutex rooms_mutex_;
  mutable std::vector<std::unique_ptr<ReadRoom>> rooms_;  // idle ones
  mutable size_t room_count_ = 0;                         // all that were made
  mutable size_t rooms_bytes_ = 0;                        // of all that were made

  std::thread writer_, cleaner_;
};

}  // namespace hotrow
