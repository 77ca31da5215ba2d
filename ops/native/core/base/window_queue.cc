#include "core/base/window_queue.h"

#include <utility>

namespace hotrow {
namespace {

constexpr size_t kMostWaiting = 2;

}  // namespace

WindowQueue::WindowQueue(std::function<void(const std::vector<int64_t>&)> bring_in)
    : bring_in_(std::move(bring_in)), thread_([this] { run(); }) {}

void WindowQueue::add(const int64_t* keys, size_t count) {
  {
    std::lock_guard lock(mutex_);
    if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
    if (waiting_.size() == kMostWaiting) waiting_.pop_front();
    waiting_.emplace_back(keys, keys + count);
  }
  changed_.notify_all();
}

void WindowQueue::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return waiting_.empty() && !busy_; });
  if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
}

bool WindowQueue::stopping() {
  std::lock_guard lock(mutex_);
  return stop_;
}

void WindowQueue::stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void WindowQueue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !waiting_.empty(); });
    if (stop_) return;
    const std::vector<int64_t> keys = std::move(waiting_.front());
    waiting_.pop_front();
    busy_ = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      bring_in_(keys);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    busy_ = false;
    if (error != nullptr) error_ = error;
    changed_.notify_all();
  }
}

}  // namespace hotrow
