// Rows of a table as they were at one moment, read while training goes on (copy-on-write).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/table/partition.h"
#include "core/table/snapshot_budget.h"

namespace hotrow {

class Table;

// Until it was read to its end or is closed, a step first copies a row that was not read yet before
// it writes the row. The copies take memory of a budget; see SnapshotBudget. One thread reads; the
// table must live.
class Snapshot {
 public:
  // In the table's lock.
  Snapshot(Table& table, Since since, std::shared_ptr<SnapshotBudget> budget);
  ~Snapshot();  // closes

  size_t rows() const { return rows_; }  // to come at most
  uint32_t step() const { return step_; }
  // Table::state at the moment; empty for publishing.
  const std::vector<uint8_t>& state() const { return state_; }
  // Keys that had a row in the last kept snapshot and were removed since, unless they have a row
  // again. For publishing also the keys marked without one.
  const std::vector<int64_t>& removed() const { return removed_; }
  // How many of the rows that were read so far hold a NaN or an infinity.
  size_t nonfinite_rows() const { return nonfinite_rows_; }
  // Memory of the copies.
  size_t copied_bytes() const { return copied_bytes_; }
  const SnapshotBudget& budget() const { return *budget_; }
  // How long steps waited because the copies took too much memory.
  double waited_seconds() const { return 1e-9 * static_cast<double>(waited_nanoseconds_); }
  // Whether it was given up before it was read to its end. Its rows are marked again, or will be.
  bool lost() const { return lost_to_disk_ || (budget_->lost() && !read_to_end_); }
  // Copies up to `count` rows, in any order; returns 0 at the end. out: all arrays. Fails with
  // FailedPrecondition when the snapshot was lost, and with ResourceExhausted when it was given up
  // for a full disk.
  size_t read(size_t count, const RowArrays& out);
  // Adds up to `count` rows that are not due to the digest; returns 0 at the end. Fails as `read`.
  size_t add_unchanged(size_t count);
  // The digest of all of the table's rows at the moment, as Table::digest. Returns false when it is
  // not known: before `read` and `add_unchanged` have returned 0, when rows were not due and have
  // their lines on disk, and for publishing.
  bool digest(uint64_t digest[2]);
  // Whether `digest` is known at the end.
  bool digests_all() const { return digests_all_; }
  // Ends the snapshot. keep: it is the base of later snapshots of its kind; else its rows and
  // removed keys are marked again. Does nothing when it has ended. Fails with FailedPrecondition,
  // and changes nothing, if a snapshot for publishing is to be kept and was not read to its end.
  void close(bool keep);

 private:
  friend class Table;
  bool publishes() const { return kind_ == SnapshotKind::kPublish; }
  void check_open() const;  // in mutex_
  void begin(Partition& partition);
  void measure_copies();
  size_t read_copies(size_t count, const RowArrays& out);
  void end_reading();   // in mutex_
  void release_hold();  // in mutex_
  // In the table's lock.
  void before_step();
  bool give_up_for_disk();
  void end(bool keep);
  void end_partitions(bool keep);
  void give_up();

  Table* table_;
  const Since since_;
  const SnapshotKind kind_;
  size_t rows_ = 0;
  uint32_t step_ = 0;
  std::vector<uint8_t> state_;
  std::vector<int64_t> removed_;
  bool digests_all_ = true;
  uint64_t digest_[2] = {0, 0};         // of the rows that were read
  std::vector<LineLog::ReadAt> later_;  // lines of the rows being read
  size_t partition_ = 0;                // the one being read
  size_t copies_partition_ = 0;         // the one whose copies were read last
  std::atomic<size_t> nonfinite_rows_{0};
  size_t unchanged_partition_ = 0;  // the one of add_unchanged
  std::atomic<size_t> copied_bytes_{0};
  std::atomic<uint64_t> waited_nanoseconds_{0};
  std::shared_ptr<SnapshotBudget> budget_;
  std::mutex measuring_;               // measure_copies alone; taken last but for partitions
  std::mutex mutex_;                   // held while rows are read
  std::optional<LineLog::Hold> hold_;  // in mutex_; until it was read to its end
  std::atomic<bool> open_{true};       // written in the table's lock
  std::atomic<bool> given_up_{false};  // written before its partitions end
  std::atomic<bool> read_to_end_{false};
  std::atomic<bool> lost_to_disk_{false};
};

}  // namespace hotrow
