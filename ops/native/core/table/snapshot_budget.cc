#include "core/table/snapshot_budget.h"

#include <algorithm>
#include <chrono>

namespace hotrow {
size_t SnapshotBudget::limit() const { return std::max(least_limit_, table_bytes_ / 10); }

void SnapshotBudget::note_progress() {
  {
    std::lock_guard lock(mutex_);
    ++progress_;
  }
  changed_.notify_all();
}

void SnapshotBudget::close() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
}

double SnapshotBudget::wait() {
  if (copied_bytes_ <= limit()) return 0.0;
  if (when_spent_ == WhenSpent::kLose) {
    lost_ = true;
    return 0.0;
  }
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  while (copied_bytes_ > limit() && !closing_ && !lost_) {
    const uint64_t before = progress_;
    lost_ = !changed_.wait_for(lock, std::chrono::seconds(kPatienceSeconds),
                               [&] { return progress_ != before || closing_; });
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace hotrow
