// What the snapshots of one kind keep of a partition: marks of the rows that changed since the last
// kept snapshot, and the rows of an open one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/disk/line_log.h"
#include "core/table/copied_rows.h"

namespace hotrow {

class Partition;
struct RowArrays;

// Checkpoints and cuts (published changes) have their own marks, and their own open snapshot.
enum class SnapshotKind : uint8_t { kCheckpoint, kPublish };
inline constexpr size_t kSnapshotKinds = 2;
inline constexpr size_t number_of(SnapshotKind kind) { return static_cast<size_t>(kind); }

// Which rows a snapshot reads.
enum class Since : int {
  kAll = 0,         // all
  kCheckpoint = 1,  // those written or created since the last kept snapshot of the two above
  kPublish = 2,     // those marked since the last kept snapshot for publishing
};
inline constexpr SnapshotKind kind_of(Since since) {
  return since == Since::kPublish ? SnapshotKind::kPublish : SnapshotKind::kCheckpoint;
}

// Synchronized as its partition. While it tracks, it marks the rows that are written or created,
// and notes the keys whose rows are removed. A snapshot takes the marks; a row that it has to read
// is copied before it is first written after that. Of each place it has a bit in each of up to
// three sets; only copies of rows take more.
//
// A row that is read in place or copied is done. So a row is read once, in place or from its copy.
class PartitionSnapshot {
 public:
  explicit PartitionSnapshot(const Partition& partition) : partition_(&partition) {}

  // --- marks ------------------------------------------------------------------------------------
  bool tracking() const { return tracking_; }
  // Starts to track, without any marks. No snapshot may be open.
  void track();
  // Drops all marks.
  void stop_tracking() noexcept;
  // Marks a row; or a key without a row, after reserve_removals. Only while it tracks.
  void mark(uint32_t place) {
    uint64_t& word = marks_[place >> 6];
    const uint64_t bit = uint64_t{1} << (place & 63);
    marked_ += (word & bit) == 0;
    word |= bit;
  }
  void mark_removed(int64_t key) { removed_.push_back(key); }
  // Rows and removed keys that are marked; a key may count twice if it was removed and came back.
  size_t marked() const { return marked_ + removed_.size(); }
  // Keys removed since the last kept snapshot, in any order; they may have rows again.
  const std::vector<int64_t>& removed_so_far() const { return removed_; }

  // --- what the partition does ------------------------------------------------------------------
  // A place is added, the last.
  void add_place(size_t place) {
    if (tracking_ && marks_.size() * 64 <= place) marks_.push_back(0);
  }
  // The row at a place is written next. Without memory for its copy it fails.
  void note_write(uint32_t place) {
    if (tracking_) note_tracked_write(place);
  }
  // A free place has a row.
  void note_created(uint32_t place) noexcept;
  // The row of a new key is taken back.
  void note_taken_back(uint32_t place) noexcept { unmark(place); }
  // After note_write: the row is removed next. It does not fail after reserve_removals.
  void note_removed(uint32_t place) noexcept;
  void reserve_removals(size_t more);
  // All rows are removed next.
  void note_cleared();

  // --- the open snapshot ------------------------------------------------------------------------
  // due_only: only the rows marked since the last kept snapshot; reads all if it does not track
  // yet. digests: whether rows that are not due are added to a digest. Returns an upper bound of
  // how many rows will be read.
  size_t begin(bool due_only, bool digests);
  // Copies up to `count` rows as they were at `begin`, in any order; returns 0 at the end. From
  // there on, writes need no copies. later: lines that the caller has to read from the log.
  size_t read(size_t count, const RowArrays& out, std::vector<LineLog::ReadAt>* later);
  // The same for copied rows alone, the oldest first; frees their copies. Returns 0 when there are
  // no copies.
  size_t read_copies(size_t count, const RowArrays& out, std::vector<LineLog::ReadAt>* later);
  // Whether the snapshot reads all rows of its moment.
  bool reads_all() const { return !due_only_; }
  // Adds up to `count` rows that are not due, as they were at `begin`, to their digest. Returns how
  // many; 0 at the end. A step adds those that it writes before. Only of lines in memory.
  size_t add_unchanged(size_t count);
  // Of the rows that are not due; complete at the end of add_unchanged.
  const uint64_t* unchanged_digest() const { return unchanged_digest_; }
  size_t copied_bytes() const { return copies_.bytes(); }
  // keep: the next snapshot starts from this one; else its rows and removed keys are marked again.
  void end(bool keep) noexcept;

  size_t bytes() const;

 private:
  using Places = std::vector<uint64_t>;  // a bit a place

  // What a snapshot keeps of a row whose line is on disk.
  struct OldVersion;

  bool wanted(size_t place) const;
  bool done(size_t place) const { return (done_[place >> 6] >> (place & 63)) & 1; }
  void set_done(size_t place) { done_[place >> 6] |= uint64_t{1} << (place & 63); }
  void unmark(uint32_t place) noexcept;
  void note_tracked_write(uint32_t place);
  size_t copy_stride() const;
  void copy(uint32_t place);
  void give_row(uint32_t place, const std::byte* row, LineLog::Location location, size_t to,
                const RowArrays& out, std::vector<LineLog::ReadAt>* later) const;
  size_t give_copies(size_t first, size_t count, const RowArrays& out,
                     std::vector<LineLog::ReadAt>* later);
  void add_unchanged_row(uint32_t place);
  void end_reading() noexcept;

  const Partition* partition_;

  bool tracking_ = false;
  Places marks_;
  size_t marked_ = 0;  // places
  std::vector<int64_t> removed_;

  // The open snapshot: its marks, and the places that are done.
  bool due_only_ = false;
  bool was_tracking_ = false;
  Places old_marks_, done_;
  std::vector<int64_t> old_removed_;
  size_t places_ = 0;              // of its moment; 0: writes concern it no more
  size_t next_ = 0;                // the place to read next
  bool adding_unchanged_ = false;  // there may be rows for add_unchanged
  size_t unchanged_next_ = 0;
  uint64_t unchanged_digest_[2] = {0, 0};
  CopiedRows copies_;
};

}  // namespace hotrow
