#include "core/table/snapshot.h"

#include <algorithm>
#include <chrono>

#include "core/table/table.h"

namespace hotrow {
namespace {

constexpr size_t kLeastBudget = size_t{64} << 20;
constexpr auto kPatience = std::chrono::seconds(120);

}  // namespace

Snapshot::Snapshot(Table& table, bool due_only)
    : table_(&table), due_only_(due_only), step_(table.step_), state_(table.state_in_lock()) {
  if (table.shape().log != nullptr) table.shape().log->hold();
  for (size_t p = 0; p < table.partition_count(); ++p) {
    Partition& partition = table.partition(p);
    rows_ += partition.begin_snapshot(due_only);
    table_bytes_ += partition.size() * table.shape().host_stride;
    if (!due_only) continue;
    for (int64_t key : partition.removed()) {
      if (partition.find(mix64(static_cast<uint64_t>(key)), key) == Partition::kAbsent) {
        removed_.push_back(key);
      }
    }
  }
  std::sort(removed_.begin(), removed_.end());
  removed_.erase(std::unique(removed_.begin(), removed_.end()), removed_.end());
}

Snapshot::~Snapshot() { close(false); }

size_t Snapshot::budget() const { return std::max(kLeastBudget, table_bytes_ / 10); }

size_t Snapshot::measure_side() {
  size_t bytes = 0;
  for (size_t p = 0; p < table_->partition_count(); ++p) {
    Partition& partition = table_->partition(p);
    std::lock_guard lock(partition.mutex);
    bytes += partition.side_bytes();
  }
  side_bytes_ = bytes;
  return bytes;
}

size_t Snapshot::read(size_t count, const RowArrays& out) {
  size_t written = 0;
  while (written == 0) {
    {
      std::lock_guard own(mutex_);
      if (lost_) {
        fail(Code::kFailedPrecondition,
             "the snapshot of table %s was given up: nothing was read from it for %lld s while "
             "training waited",
             table_->name().c_str(),
             static_cast<long long>(std::chrono::seconds(kPatience).count()));
      }
      if (!open_) fail(Code::kFailedPrecondition, "the snapshot is closed");
      if (partition_ == table_->partition_count()) {
        side_bytes_ = 0;
        return 0;
      }
      Partition& partition = table_->partition(partition_);
      later_.clear();
      {
        std::lock_guard partition_lock(partition.mutex);
        written = partition.read_snapshot(count, out, &later_);
      }
      // The log keeps old versions, so steps continue meanwhile.
      if (!later_.empty()) table_->shape().log->read_at(later_.data(), later_.size());
      if (written == 0) ++partition_;
    }
    ++reads_;
    was_read_.notify_all();
  }
  return written;
}

void Snapshot::end(bool keep) {
  std::lock_guard own(mutex_);
  if (!open_) return;
  for (size_t p = 0; p < table_->partition_count(); ++p) table_->partition(p).end_snapshot(keep);
  if (table_->shape().log != nullptr) table_->shape().log->release_hold();
  open_ = false;
  table_->snapshot_ = nullptr;
}

void Snapshot::close(bool keep) {
  {
    // A step may wait for this reader, in the table's lock.
    std::lock_guard own(mutex_);
    if (!open_) return;
    closing_ = true;
    keep_ = keep;
  }
  was_read_.notify_all();
  std::unique_lock lock(table_->mutex());
  end(keep);
}

void Table::wait_for_snapshot() {
  if (snapshot_ == nullptr || snapshot_->measure_side() <= snapshot_->budget()) return;
  Snapshot& snapshot = *snapshot_;
  while (snapshot.measure_side() > snapshot.budget()) {
    const uint64_t before = snapshot.reads_;
    std::unique_lock own(snapshot.mutex_);
    const bool moved = snapshot.was_read_.wait_for(
        own, kPatience, [&] { return snapshot.reads_ != before || snapshot.closing_; });
    if (moved && !snapshot.closing_) continue;
    snapshot.lost_ = !moved;
    const bool keep = moved && snapshot.keep_;
    own.unlock();
    snapshot.end(keep);
    return;
  }
}

}  // namespace hotrow
