// Rows of a table as they were at one moment, read while training goes on (copy-on-write).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/table/partition.h"
#include "core/table/snapshot_budget.h"

namespace hotrow {

class Table;

// Until it is closed, a step first copies a row that was not read yet before it writes the row. The
// copies take memory of a budget; see SnapshotBudget. One thread reads; the table must live.
class Snapshot {
 public:
  // In the table's lock.
  Snapshot(Table& table, bool due_only, std::shared_ptr<SnapshotBudget> budget);
  ~Snapshot();  // closes

  size_t rows() const { return rows_; }  // to come at most
  uint32_t step() const { return step_; }
  const std::vector<uint8_t>& state() const { return state_; }  // Table::state at the moment
  // Keys that had a row in the last kept snapshot and were removed since, unless they have a row
  // again.
  const std::vector<int64_t>& removed() const { return removed_; }
  // Memory of the copies.
  size_t copied_bytes() const { return copied_bytes_; }
  const SnapshotBudget& budget() const { return *budget_; }
  // How long steps waited because the copies took too much memory.
  double waited_seconds() const { return 1e-9 * static_cast<double>(waited_nanoseconds_); }
  // Copies up to `count` rows, in any order; returns 0 at the end. Fails with FailedPrecondition
  // when the snapshot was lost, and with ResourceExhausted when it was given up for a full disk.
  size_t read(size_t count, const RowArrays& out);
  // Ends the snapshot. keep: it is the base of later due_only snapshots; else its rows stay due.
  void close(bool keep);

 private:
  friend class Table;
  void begin(Partition& partition);
  void measure_copies();
  size_t read_copies(size_t count, const RowArrays& out);
  void end(bool keep);  // in the table's lock

  Table* table_;
  bool due_only_;
  size_t rows_ = 0;
  uint32_t step_ = 0;
  std::vector<uint8_t> state_;
  std::vector<int64_t> removed_;
  std::vector<LineLog::ReadAt> later_;  // lines of the rows being read
  size_t partition_ = 0;                // the one being read
  size_t copies_partition_ = 0;         // the one whose copies were read last
  std::atomic<size_t> copied_bytes_{0};
  std::atomic<uint64_t> waited_nanoseconds_{0};
  std::shared_ptr<SnapshotBudget> budget_;
  std::mutex mutex_;  // held while rows are read; guards open_
  bool open_ = true;
  std::atomic<bool> lost_to_disk_{false};
};

}  // namespace hotrow
