// Queues of batches, and the threads that run them, with the rules of TensorFlow's shared batch
// scheduler: queues take turns, a batch runs when it is full or its first task has waited long
// enough, and a full queue refuses tasks. A free thread forms the next batch while other threads
// run theirs.
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

// A request in a queue. A split request is in several batches.
struct BatchTask {
  Run run;  // with feeds and fetches in the queue's order
  Ended ended;
  int64_t rows;  // of every input: their 0th dimension
  SteadyTime enqueued;
  std::vector<size_t> places;  // of the request's fetches among the queue's fetches

  // The results of its parts, in the order of its rows; the last part to end finishes the task.
  struct Part {
    std::shared_ptr<const Results> results;  // of the whole batch
    int64_t first;                           // row of the batch
    int64_t rows;
  };
  std::vector<Part> parts;
  std::mutex mutex;            // guards what follows
  int missing = 0;             // parts that have not ended
  std::exception_ptr failure;  // of a part
};

// Rows of a task.
struct Slice {
  std::shared_ptr<BatchTask> task;
  size_t part;  // its number in the task
  int64_t first;
  int64_t rows;
};

class BatchThreads;

class BatchQueue {
 public:
  // process: runs a batch, on one of the threads.
  using Process = std::function<void(const std::vector<Slice>&)>;

  // Both must outlive it; it must be empty when it is destroyed.
  BatchQueue(BatchThreads* threads, const hotrow::Batching& options, Process process);
  ~BatchQueue();
  BatchQueue(const BatchQueue&) = delete;

  // Fails with INVALID_ARGUMENT for more rows than a request may have, and with UNAVAILABLE when
  // the queue is full.
  void add(std::shared_ptr<BatchTask> task);
  // Applies to later tasks.
  void set_options(const hotrow::Batching& options);

 private:
  friend class BatchThreads;
  struct Batch {
    std::vector<Slice> slices;
    int64_t rows = 0;
    SteadyTime opened;
  };

  // The caller holds the threads' lock for all of these.
  void check_room(int64_t rows) const;
  void append(Slice slice);
  int64_t most_rows() const;
  // When its next batch is due; max: there is none.
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

  // Surplus threads end when they have run their batch; the others run until the process ends.
  void resize(int threads);

 private:
  friend class BatchQueue;
  void work();
  // The next batch that is due, and its queue; null: no batch is due before *due.
  BatchQueue* next(std::vector<Slice>* batch, SteadyTime* due);

  std::mutex mutex_;
  std::condition_variable changed_;
  int wanted_ = 0;
  int threads_ = 0;
  std::vector<BatchQueue*> queues_;
  size_t turn_ = 0;  // of the queue that is checked first
};

}  // namespace hotrow_server
