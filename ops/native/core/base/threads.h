// Threads of the core's own, for work that no caller brings threads for.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

#include "core/base/c_types.h"

namespace hotrow {

// A pool of `count` threads, the caller's included. One call at a time uses it; concurrent calls
// run on their own thread alone.
class Threads {
 public:
  explicit Threads(size_t count) : executor_{this, count, &Threads::run} {
    for (size_t i = 1; i < count; ++i) threads_.emplace_back([this, i] { serve(i); });
  }
  ~Threads() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  Threads(const Threads&) = delete;
  const hr_executor* executor() const { return &executor_; }

 private:
  using Task = void (*)(void* argument, size_t i);

  static void run(void* context, size_t tasks, Task task, void* argument) {
    static_cast<Threads*>(context)->run(tasks, task, argument);
  }
  void run(size_t tasks, Task task, void* argument) {
    std::unique_lock own(used_, std::try_to_lock);
    if (!own.owns_lock()) {
      for (size_t i = 0; i < tasks; ++i) task(argument, i);
      return;
    }
    {
      std::lock_guard lock(mutex_);
      task_ = task;
      argument_ = argument;
      tasks_ = tasks;
      busy_ = threads_.size();
      ++round_;
    }
    changed_.notify_all();
    // Thread i runs tasks i, i + count, ...
    for (size_t i = 0; i < tasks; i += executor_.threads) task(argument, i);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return busy_ == 0; });
  }
  void serve(size_t number) {
    size_t seen = 0;
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stop_ || round_ != seen; });
      if (stop_) return;
      seen = round_;
      lock.unlock();
      for (size_t i = number; i < tasks_; i += executor_.threads) task_(argument_, i);
      lock.lock();
      if (--busy_ == 0) changed_.notify_all();
    }
  }

  hr_executor executor_;
  std::mutex used_, mutex_;
  std::condition_variable changed_;
  Task task_ = nullptr;
  void* argument_ = nullptr;
  size_t tasks_ = 0, busy_ = 0, round_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace hotrow
