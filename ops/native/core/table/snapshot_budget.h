// The memory that copies of rows may take while snapshots are read.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "core/table/partition_snapshot.h"

namespace hotrow {

// Shared by the snapshots of one checkpoint, or of one cut. Its tables are written one after the
// other, so the copies of those that wait take most of the memory. While more than half of it is
// taken, readers read copied rows first, which frees them. While all of it is taken, steps wait for
// the readers of a checkpoint; a cut's snapshots are lost instead.
//
// When no reader reads anything for 120 seconds while a step waits, all of the snapshots are lost.
class SnapshotBudget {
 public:
  enum class WhenSpent { kWait, kLose };
  // least_limit: bytes that the copies may take however small the tables are.
  explicit SnapshotBudget(WhenSpent when_spent = WhenSpent::kWait,
                          size_t least_limit = size_t{64} << 20)
      : when_spent_(when_spent), least_limit_(least_limit) {}

  // A table whose rows take `bytes` of memory has a snapshot.
  void add_table(size_t bytes) { table_bytes_ += bytes; }
  // 10 % of the tables' memory, at least the least limit.
  size_t limit() const;
  size_t copied_bytes() const { return copied_bytes_; }
  // The copies of a table take `now` bytes instead of `before`.
  void change(size_t before, size_t now) { copied_bytes_ += now - before; }
  bool short_of_memory() const { return copied_bytes_ > limit() / 2; }
  bool lost() const { return lost_; }

  // A reader read, or a snapshot ended.
  void note_progress();
  // The snapshots are about to be closed: steps wait no longer.
  void close();
  // Waits while the copies take more than the limit, or loses the snapshots at once. Returns the
  // seconds that it waited.
  double wait();

  // The longest time that a step waits for a reader that reads nothing.
  static constexpr int kPatienceSeconds = 120;

 private:
  const WhenSpent when_spent_;
  const size_t least_limit_;
  std::atomic<size_t> table_bytes_{0};
  std::atomic<size_t> copied_bytes_{0};
  std::atomic<bool> lost_{false};
  std::mutex mutex_;  // of the two below
  uint64_t progress_ = 0;
  bool closing_ = false;
  std::condition_variable changed_;
};

// Of a snapshot.
inline SnapshotBudget::WhenSpent when_spent(Since since) {
  return since == Since::kPublish ? SnapshotBudget::WhenSpent::kLose
                                  : SnapshotBudget::WhenSpent::kWait;
}

}  // namespace hotrow
