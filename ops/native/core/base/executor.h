// Threads that the caller owns: TensorFlow's pool, or none.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>

#include "core/base/c_types.h"

namespace hotrow {

// Runs tasks 0, 1, ... on the caller's thread and the pool's threads. Results never depend on the
// number of threads.
class Executor {
 public:
  // pool: null runs everything on the caller's thread. It must outlive the executor.
  explicit Executor(const hr_executor* pool = nullptr) : pool_(pool) {}

  size_t threads() const { return pool_ == nullptr ? 1 : pool_->threads; }

  // Calls task(i) once for every i < tasks; throws the exception of the first task that failed.
  template <typename Task>
  void run(size_t tasks, Task&& task) const {
    if (tasks <= 1 || threads() <= 1) {
      for (size_t i = 0; i < tasks; ++i) task(i);
      return;
    }
    struct Shared {
      Task* task;
      size_t tasks;
      std::atomic<size_t> next{0};
      std::mutex mutex;
      std::exception_ptr failure;
    } shared;
    shared.task = &task;
    shared.tasks = tasks;
    const size_t workers = tasks < threads() ? tasks : threads();
    pool_->run(
        pool_->context, workers,
        [](void* argument, size_t) {
          Shared& s = *static_cast<Shared*>(argument);
          for (size_t i; (i = s.next.fetch_add(1, std::memory_order_relaxed)) < s.tasks;) {
            try {
              (*s.task)(i);
            } catch (...) {
              std::lock_guard lock(s.mutex);
              if (!s.failure) s.failure = std::current_exception();
            }
          }
        },
        &shared);
    if (shared.failure) std::rethrow_exception(shared.failure);
  }

 private:
  const hr_executor* pool_;
};

}  // namespace hotrow
