// Batches in the making, and the threads that run them; with the rules of TensorFlow's shared batch
// scheduler: queues take turns, a batch goes when it is full or its first task has waited long
// enough, and a full queue refuses. A thread that is free forms the next batch while others run.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "hotrow/protos/control.pb.h"
#include "session/run.h"

namespace hotrow_server {

using SteadyTime = std::chrono::steady_clock::time_point;

// A request in a queue. Split ones are in several batches.
struct BatchTask {
  Run run;  // with feeds and fetches in the queue's order
  Ended ended;
  int64_t rows;  // of every input: their 0th dimension
  SteadyTime enqueued;
  std::vector<size_t> places;  // of what the request fetches among the queue's fetches

  // The results of its parts in the order of its rows; of whom the last one finishes the task.
  struct Part {
    std::shared_ptr<const Results> results;  // of the whole batch
    int64_t first;                           // row of the batch
    int64_t rows;
  };
  std::vector<Part> parts;
  std::mutex mutex;            // of what follows
  int missing = 0;             // parts that are not there yet
  std::exception_ptr failure;  // of a part
};

// Rows of a task.
struct Slice {
  std::shared_ptr<BatchTask> task;
  size_t part;  // which one of the task's
  int64_t first;
  int64_t rows;
};

class BatchThreads;

class BatchQueue {
 public:
  // process: runs a batch, in one of the threads.
  using Process = std::function<void(const std::vector<Slice>&)>;

  // Both outlive it; it is empty when it goes.
  BatchQueue(BatchThreads* threads, const hotrow::Batching& options, Process process);
  ~BatchQueue();
  BatchQueue(const BatchQueue&) = delete;

  // Fails with INVALID_ARGUMENT for more rows than a request may have, UNAVAILABLE when it is full.
  void add(std::shared_ptr<BatchTask> task);
  // For tasks to come.
  void set_options(const hotrow::Batching& options);

 private:
  friend class BatchThreads;
  struct Batch {
    std::vector<Slice> slices;
    int64_t rows = 0;
    SteadyTime opened;
  };

  // All with the lock of the threads.
  void check_room(int64_t rows) const;
  void append(Slice slice);
  int64_t most_rows() const;
  // When its next batch goes; max: there is none.
  SteadyTime due() const;

  BatchThreads* const threads_;
  hotrow::Batching options_;
  const Process process_;
  std::deque<Batch> batches_;  // the last one is open
};

class BatchThreads {
 public:
  BatchThreads() = default;
  BatchThreads(const BatchThreads&) = delete;

  // Threads end when they have run their batch. They go on until the process ends.
  void resize(int threads);

 private:
  friend class BatchQueue;
  void work();
  // The next batch that is due, and its queue; null: none is before *due.
  BatchQueue* next(std::vector<Slice>* batch, SteadyTime* due);

  std::mutex mutex_;
  std::condition_variable changed_;
  int wanted_ = 0;
  int threads_ = 0;
  std::vector<BatchQueue*> queues_;
  size_t turn_ = 0;  // of the queue to be asked first
};

}  // namespace hotrow_server
