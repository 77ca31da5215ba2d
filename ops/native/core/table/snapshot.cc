#include "core/table/snapshot.h"

#include <algorithm>
#include <utility>

#include "core/kernels/finite_lines.h"
#include "core/table/row_digest.h"
#include "core/table/table.h"

namespace hotrow {

Snapshot::Snapshot(Table& table, bool due_only, std::shared_ptr<SnapshotBudget> budget)
    : table_(&table),
      due_only_(due_only),
      step_(table.step_),
      state_(table.state_in_lock()),
      budget_(std::move(budget)) {
  if (table.shape().log != nullptr) table.shape().log->hold();
  size_t begun = 0;
  try {
    for (; begun < table.partition_count(); ++begun) begin(table.partition(begun));
  } catch (...) {
    for (size_t p = 0; p < begun; ++p) table.partition(p).end_snapshot(false);
    if (table.shape().log != nullptr) table.shape().log->release_hold();
    open_ = false;
    throw;
  }
  std::sort(removed_.begin(), removed_.end());
  removed_.erase(std::unique(removed_.begin(), removed_.end()), removed_.end());
}

void Snapshot::begin(Partition& partition) {
  if (due_only_) {
    for (int64_t key : partition.removed_so_far()) {
      if (partition.find(mix64(static_cast<uint64_t>(key)), key) == Partition::kAbsent) {
        removed_.push_back(key);
      }
    }
  }
  rows_ += partition.begin_snapshot(due_only_);
  digests_all_ = digests_all_ && (partition.reads_all() || table_->shape().log == nullptr);
  budget_->add_table(partition.size() * table_->shape().host_stride);
}

Snapshot::~Snapshot() { close(false); }

void Snapshot::measure_copies() {
  size_t bytes = 0;
  for (size_t p = 0; p < table_->partition_count(); ++p) {
    Partition& partition = table_->partition(p);
    std::lock_guard lock(partition.mutex);
    bytes += partition.copied_bytes();
  }
  budget_->change(copied_bytes_.exchange(bytes), bytes);
}

size_t Snapshot::read(size_t count, const RowArrays& out) {
  size_t written = 0;
  while (written == 0) {
    {
      std::lock_guard own(mutex_);
      check_open();
      if (partition_ == table_->partition_count()) return 0;
      later_.clear();
      if (budget_->short_of_memory()) written = read_copies(count, out);
      if (written == 0) {
        Partition& partition = table_->partition(partition_);
        {
          std::lock_guard partition_lock(partition.mutex);
          written = partition.read_snapshot(count, out, &later_);
        }
        if (written == 0) ++partition_;
      }
      // The log keeps old versions, so steps continue meanwhile.
      if (!later_.empty()) table_->shape().log->read_at(later_.data(), later_.size());
      if (out.lines != nullptr) {
        nonfinite_rows_ += count_nonfinite_lines(table_->shape().layout, out.lines, written);
      }
      add_rows_digest(out.keys, out.lines, out.clocks, out.counts, written, table_->line_bytes(),
                      digest_);
      if (copied_bytes_ != 0) measure_copies();
    }
    budget_->note_progress();
  }
  return written;
}

void Snapshot::check_open() const {
  if (budget_->lost()) {
    fail(Code::kFailedPrecondition,
         "the snapshot of table %s was given up: nothing was read for %d s while training waited",
         table_->name().c_str(), SnapshotBudget::kPatienceSeconds);
  }
  if (lost_to_disk_) {
    fail(Code::kResourceExhausted,
         "the snapshot of table %s was given up: the disk of %s is full, and the snapshot kept old "
         "versions of rows there that training needs the room of; leave more room, or write "
         "checkpoints faster",
         table_->name().c_str(), table_->options().disk.c_str());
  }
  if (!open_) fail(Code::kFailedPrecondition, "the snapshot is closed");
}

size_t Snapshot::add_unchanged(size_t count) {
  size_t added = 0;
  while (added == 0) {
    {
      std::lock_guard own(mutex_);
      check_open();
      if (unchanged_partition_ == table_->partition_count()) return 0;
      Partition& partition = table_->partition(unchanged_partition_);
      std::lock_guard partition_lock(partition.mutex);
      added = partition.add_unchanged(count);
      if (added == 0) ++unchanged_partition_;
    }
    budget_->note_progress();
  }
  return added;
}

bool Snapshot::digest(uint64_t digest[2]) {
  std::lock_guard own(mutex_);
  const size_t partitions = table_->partition_count();
  if (!digests_all_ || partition_ < partitions || unchanged_partition_ < partitions) return false;
  std::copy_n(digest_, 2, digest);
  for (size_t p = 0; p < partitions; ++p) {
    for (int half = 0; half < 2; ++half) {
      digest[half] += table_->partition(p).unchanged_digest()[half];
    }
  }
  return true;
}

// Copies of one partition, the one after the last; 0 when there are none.
size_t Snapshot::read_copies(size_t count, const RowArrays& out) {
  size_t written = 0;
  for (size_t p = 0; p < table_->partition_count() && written == 0; ++p) {
    Partition& partition = table_->partition(copies_partition_);
    std::lock_guard lock(partition.mutex);
    written = partition.read_copies(count, out, &later_);
    if (written == 0) copies_partition_ = (copies_partition_ + 1) % table_->partition_count();
  }
  return written;
}

void Snapshot::end(bool keep) {
  // Once it is not open, another thread may destroy it.
  const std::shared_ptr<SnapshotBudget> budget = budget_;
  {
    std::lock_guard own(mutex_);
    if (!open_) return;
    for (size_t p = 0; p < table_->partition_count(); ++p) table_->partition(p).end_snapshot(keep);
    if (table_->shape().log != nullptr) table_->shape().log->release_hold();
    open_ = false;
    table_->snapshot_ = nullptr;
    budget->change(copied_bytes_.exchange(0), 0);
  }
  budget->note_progress();
}

void Snapshot::close(bool keep) {
  {
    std::lock_guard own(mutex_);
    if (!open_) return;
  }
  budget_->close();  // a step may wait in the table's lock
  std::unique_lock lock(table_->mutex());
  end(keep);
}

void Table::wait_for_snapshot() {
  if (snapshot_ == nullptr) return;
  Snapshot& snapshot = *snapshot_;
  snapshot.measure_copies();
  snapshot.waited_nanoseconds_ += static_cast<uint64_t>(1e9 * snapshot.budget_->wait());
  if (snapshot.budget_->lost()) snapshot.end(false);
}

bool Table::give_up_snapshot_for_disk() {
  std::unique_lock lock(mutex_);
  if (snapshot_ == nullptr || shape_.log == nullptr || !shape_.log->lacks_room()) return false;
  Snapshot& snapshot = *snapshot_;
  snapshot.lost_to_disk_ = true;
  snapshot.end(false);
  return true;
}

}  // namespace hotrow
