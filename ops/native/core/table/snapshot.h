// Rows of a table as they were at one moment, read while training goes on (copy-on-write).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "core/table/partition.h"

namespace hotrow {

class Table;

// Until it is closed, a step first copies a row that was not read yet before it writes the row. The
// copies take at most 10 % of the table's memory, at least 64 MiB; then a step waits for the
// reader. A reader that reads nothing for 120 seconds while a step waits loses its snapshot. One
// thread reads; the table must live.
class Snapshot {
 public:
  // In the table's lock.
  Snapshot(Table& table, bool due_only);
  ~Snapshot();  // closes

  size_t rows() const { return rows_; }  // to come at most
  uint32_t step() const { return step_; }
  const std::vector<uint8_t>& state() const { return state_; }  // Table::state at the moment
  // Keys that had a row in the last kept snapshot and were removed since, unless they have a row
  // again.
  const std::vector<int64_t>& removed() const { return removed_; }
  size_t side_bytes() const { return side_bytes_; }
  // Copies up to `count` rows; returns 0 at the end. Fails with FailedPrecondition when the
  // snapshot was lost.
  size_t read(size_t count, const RowArrays& out);
  // Ends the snapshot. keep: it is the base of later due_only snapshots; else its rows stay due.
  void close(bool keep);

 private:
  friend class Table;
  size_t budget() const;
  size_t measure_side();
  void end(bool keep);  // in the table's lock

  Table* table_;
  bool due_only_;
  size_t rows_ = 0;
  uint32_t step_ = 0;
  std::vector<uint8_t> state_;
  std::vector<int64_t> removed_;
  std::vector<LineLog::ReadAt> later_;  // lines of the rows being read
  size_t partition_ = 0;                // the one being read
  std::atomic<size_t> side_bytes_{0};
  std::atomic<uint64_t> reads_{0};
  bool open_ = true;
  bool lost_ = false;
  bool closing_ = false;
  bool keep_ = false;  // `keep` of the closing thread
  size_t table_bytes_ = 0;
  std::mutex mutex_;  // of the condition
  std::condition_variable was_read_;
};

}  // namespace hotrow
