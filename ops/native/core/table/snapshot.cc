#include "core/table/snapshot.h"

#include <algorithm>
#include <utility>

#include "core/kernels/finite_lines.h"
#include "core/table/row_digest.h"
#include "core/table/table.h"

namespace hotrow {

Snapshot::Snapshot(Table& table, Since since, std::shared_ptr<SnapshotBudget> budget)
    : table_(&table),
      since_(since),
      kind_(kind_of(since)),
      step_(table.step_),
      budget_(std::move(budget)) {
  // Large with admission, and of no use to servers.
  if (!publishes()) state_ = table.state_in_lock();
  if (table.shape().log != nullptr) hold_ = table.shape().log->hold();
  size_t begun = 0;
  try {
    for (; begun < table.partition_count(); ++begun) begin(table.partition(begun));
  } catch (...) {
    for (size_t p = 0; p < begun; ++p) table.partition(p).end_snapshot(kind_, false);
    release_hold();
    throw;
  }
  std::sort(removed_.begin(), removed_.end());
  removed_.erase(std::unique(removed_.begin(), removed_.end()), removed_.end());
}

void Snapshot::begin(Partition& partition) {
  if (since_ != Since::kAll) {
    for (int64_t key : partition.snapshot(kind_).removed_so_far()) {
      if (partition.find(mix64(static_cast<uint64_t>(key)), key) == Partition::kAbsent) {
        removed_.push_back(key);
      }
    }
  }
  // The reader of a snapshot of the other kind uses the partition, too.
  const std::lock_guard lock(partition.mutex);
  rows_ += partition.begin_snapshot(kind_, since_ != Since::kAll, !publishes());
  digests_all_ = digests_all_ && !publishes() &&
                 (partition.snapshot(kind_).reads_all() || table_->shape().log == nullptr);
  budget_->add_table(partition.size() * table_->shape().host_stride);
}

Snapshot::~Snapshot() { close(false); }

// The reader and a step may measure at the same time; the sum of the later one counts.
void Snapshot::measure_copies() {
  const std::lock_guard measuring(measuring_);
  size_t bytes = 0;
  for (size_t p = 0; p < table_->partition_count(); ++p) {
    Partition& partition = table_->partition(p);
    std::lock_guard lock(partition.mutex);
    bytes += partition.snapshot(kind_).copied_bytes();
  }
  budget_->change(copied_bytes_.exchange(bytes), bytes);
}

size_t Snapshot::read(size_t count, const RowArrays& out) {
  size_t written = 0;
  while (written == 0) {
    {
      std::lock_guard own(mutex_);
      check_open();
      if (partition_ == table_->partition_count()) {
        measure_copies();
        end_reading();
        return 0;
      }
      later_.clear();
      if (budget_->short_of_memory()) written = read_copies(count, out);
      if (written == 0) {
        Partition& partition = table_->partition(partition_);
        {
          std::lock_guard partition_lock(partition.mutex);
          // Steps end partitions of a snapshot that they give up, in their locks.
          if (!given_up_) written = partition.snapshot(kind_).read(count, out, &later_);
        }
        check_open();
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

void Snapshot::end_reading() {
  read_to_end_ = true;
  release_hold();
}

void Snapshot::release_hold() {
  if (!hold_.has_value()) return;
  table_->shape().log->release(*hold_);
  hold_.reset();
}

void Snapshot::check_open() const {
  if (lost_to_disk_) {
    fail(Code::kResourceExhausted,
         "the snapshot of table %s was given up: the disk of %s is full, and the snapshot kept old "
         "versions of rows there that training needs the room of; leave more room, or write "
         "checkpoints faster",
         table_->name().c_str(), table_->options().disk.c_str());
  }
  if (lost() && publishes()) {
    fail(Code::kFailedPrecondition,
         "the snapshot of table %s was given up: rows that training changed before they were read "
         "took more than %zu bytes of memory; they stay marked: close it and open another one, and "
         "read faster",
         table_->name().c_str(), budget_->limit());
  }
  if (lost()) {
    fail(Code::kFailedPrecondition,
         "the snapshot of table %s was given up: nothing was read for %d s while training waited",
         table_->name().c_str(), SnapshotBudget::kPatienceSeconds);
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
      added = partition.snapshot(kind_).add_unchanged(count);
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
      digest[half] += table_->partition(p).snapshot(kind_).unchanged_digest()[half];
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
    if (!given_up_) written = partition.snapshot(kind_).read_copies(count, out, &later_);
    if (written == 0) copies_partition_ = (copies_partition_ + 1) % table_->partition_count();
  }
  return written;
}

void Snapshot::end_partitions(bool keep) {
  for (size_t p = 0; p < table_->partition_count(); ++p) {
    Partition& partition = table_->partition(p);
    // The reader of a snapshot of the other kind uses it, too.
    const std::lock_guard lock(partition.mutex);
    partition.end_snapshot(kind_, keep);
  }
  open_ = false;
  table_->snapshots_[number_of(kind_)] = nullptr;
  budget_->change(copied_bytes_.exchange(0), 0);
}

void Snapshot::end(bool keep) {
  {
    std::lock_guard own(mutex_);
    if (open_) end_partitions(keep);
    release_hold();
  }
  budget_->note_progress();
}

// Frees the copies without waiting for a reader that waits for the disk. It or `close` releases the
// hold.
void Snapshot::give_up() {
  given_up_ = true;
  end_partitions(false);
  if (const std::unique_lock own(mutex_, std::try_to_lock); own.owns_lock()) release_hold();
}

void Snapshot::close(bool keep) {
  budget_->close();  // a step may wait in the table's lock
  // Taken also when it has ended: the step that ended it may still use it.
  std::unique_lock lock(table_->mutex());
  if (keep && publishes()) {
    std::lock_guard own(mutex_);
    if (lost()) check_open();
    if (open_ && !read_to_end_) {
      fail(Code::kFailedPrecondition,
           "the snapshot of table %s cannot be kept: it was not read to its end; read until there "
           "are no more rows, or close it",
           table_->name().c_str());
    }
  }
  end(keep);
}

void Snapshot::before_step() {
  measure_copies();
  waited_nanoseconds_ += static_cast<uint64_t>(1e9 * budget_->wait());
  if (!lost()) return;
  if (publishes()) {
    give_up();
  } else {
    end(false);
  }
}

bool Snapshot::give_up_for_disk() {
  {
    std::lock_guard own(mutex_);
    // Once it was read to its end, it keeps nothing there.
    if (!hold_.has_value()) return false;
    lost_to_disk_ = true;
  }
  end(false);
  return true;
}

void Table::wait_for_snapshot() {
  for (Snapshot* snapshot : snapshots_) {
    if (snapshot != nullptr) snapshot->before_step();
  }
}

bool Table::give_up_snapshot_for_disk() {
  std::unique_lock lock(mutex_);
  return give_up_snapshot_for_disk_in_lock();
}

bool Table::give_up_snapshot_for_disk_in_lock() {
  if (!lacks_disk()) return false;
  // That of a cut first: another cut follows soon.
  for (const SnapshotKind kind : {SnapshotKind::kPublish, SnapshotKind::kCheckpoint}) {
    Snapshot* snapshot = snapshots_[number_of(kind)];
    if (snapshot != nullptr && snapshot->give_up_for_disk()) return true;
  }
  return false;
}

// --- marks for publishing -----------------------------------------------------------------------

void Table::begin_publishing(std::optional<uint32_t> since) {
  tier_->settle_ahead();
  std::unique_lock lock(mutex_);
  if (snapshots_[number_of(SnapshotKind::kPublish)] != nullptr) {
    fail(Code::kFailedPrecondition,
         "table %s: cannot mark rows anew while a snapshot for publishing is open; close it first",
         name_.c_str());
  }
  if (since.has_value() && *since > step_) {
    fail(Code::kInvalidArgument, "table %s: changes since step %u; at most its step, %u",
         name_.c_str(), *since, step_);
  }
  if (since.has_value() && *since < forgotten_in_lock()) {
    fail(Code::kFailedPrecondition,
         "table %s has forgotten which keys expired up to step %u, and changes since step %u are "
         "to be published; make a full export",
         name_.c_str(), forgotten_in_lock(), *since);
  }
  // Clocks in the host tier are then the newest. Passes that found rows must search again, so that
  // they find them watched.
  settle_in_lock();
  tier_->wait_for_host_rows();
  void_found();
  try {
    for (Partition& partition : partitions_) mark_changes(partition, since);
  } catch (...) {
    for (Partition& partition : partitions_) partition.stop_tracking(SnapshotKind::kPublish);
    throw;
  }
}

void Table::mark_changes(Partition& partition, std::optional<uint32_t> since) {
  // The reader of a checkpoint's snapshot uses it, too.
  const std::lock_guard lock(partition.mutex);
  partition.track(SnapshotKind::kPublish);
  PartitionSnapshot& marks = partition.snapshot(SnapshotKind::kPublish);
  for (size_t p = 0; p < partition.places(); ++p) {
    const auto place = static_cast<uint32_t>(p);
    const uint32_t clock = partition.header(place).clock;
    if (clock != Partition::kFree && (!since.has_value() || clock > *since)) marks.mark(place);
  }
  if (!since.has_value()) return;
  marks.reserve_removals(partition.tombstones.size());
  partition.tombstones.each([&](int64_t key, uint32_t step) {
    if (step > *since) marks.mark_removed(key);
  });
}

void Table::mark_for_publishing(const int64_t* keys, size_t count) {
  check_keys(keys, count);
  std::unique_lock lock(mutex_);
  check_publishing();
  for (size_t i = 0; i < count; ++i) {
    if (sharding_.owner_of(keys[i]) != sharding_.rank()) continue;
    const uint64_t hash = mix64(static_cast<uint64_t>(keys[i]));
    Partition& partition = partitions_[partition_number(keys[i], hash)];
    PartitionSnapshot& marks = partition.snapshot(SnapshotKind::kPublish);
    const uint32_t place = partition.find(hash, keys[i]);
    if (place != Partition::kAbsent) {
      marks.mark(place);
    } else {
      marks.reserve_removals(1);
      marks.mark_removed(keys[i]);
    }
  }
}

size_t Table::marked_rows() const {
  std::shared_lock lock(mutex_);
  size_t rows = 0;
  for (const Partition& partition : partitions_) {
    rows += partition.snapshot(SnapshotKind::kPublish).marked();
  }
  return rows;
}

void Table::check_publishing() const {
  if (partitions_[0].snapshot(SnapshotKind::kPublish).tracking()) return;
  fail(Code::kFailedPrecondition,
       "table %s does not mark rows for publishing; call begin_publishing first", name_.c_str());
}

}  // namespace hotrow
