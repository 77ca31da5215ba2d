// When batches run, what they contain, and which tasks are refused.
#include "batching/batch_threads.h"

#include <doctest/doctest.h>

#include <string>

#include "base/refused.h"

namespace hotrow_server {
namespace {

constexpr int64_t kLongMicros = 600'000'000;

hotrow::Batching options_of(int64_t most_rows, int64_t timeout_micros, int64_t queued) {
  hotrow::Batching options;
  options.set_max_batch_size(most_rows);
  options.set_max_execution_batch_size(most_rows);
  options.set_batch_timeout_micros(timeout_micros);
  options.set_max_enqueued_batches(queued);
  return options;
}

std::shared_ptr<BatchTask> task_of(int64_t rows) {
  auto task = std::make_shared<BatchTask>();
  task->rows = rows;
  return task;
}

// The rows of each slice of each batch that ran.
class Ran {
 public:
  void add(const std::vector<Slice>& batch) {
    std::vector<int64_t> rows;
    for (const Slice& slice : batch) rows.push_back(slice.rows);
    const std::lock_guard lock(mutex_);
    batches_.push_back(rows);
    changed_.notify_all();
  }
  std::vector<std::vector<int64_t>> wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, std::chrono::seconds(60),
                              [&] { return batches_.size() >= count; }));
    return batches_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<int64_t>> batches_;
};

std::string refusal_of(BatchQueue* queue, int64_t rows, grpc::StatusCode code) {
  try {
    queue->add(task_of(rows));
  } catch (const Refused& refused) {
    CHECK(refused.code() == code);
    return refused.what();
  }
  return "";
}

// A queue with a thread. The thread runs until the process ends, so both live until then.
struct Running {
  explicit Running(const hotrow::Batching& options)
      : ran(*new Ran),
        threads(*new BatchThreads),
        queue(*new BatchQueue(
            &threads, options,
            [this_ran = &ran](const std::vector<Slice>& batch) { this_ran->add(batch); })) {
    threads.resize(1);
  }
  Ran& ran;
  BatchThreads& threads;
  BatchQueue& queue;
};

TEST_CASE("a batch goes when it is full") {
  const Running running(options_of(4, kLongMicros, 10));
  for (const int64_t rows : {1, 2, 1}) running.queue.add(task_of(rows));
  CHECK(running.ran.wait_for(1) == std::vector<std::vector<int64_t>>{{1, 2, 1}});
}

TEST_CASE("a batch goes when the next task has no room in it") {
  const Running running(options_of(4, kLongMicros, 10));
  for (const int64_t rows : {3, 2, 2}) running.queue.add(task_of(rows));
  CHECK(running.ran.wait_for(2) == std::vector<std::vector<int64_t>>{{3}, {2, 2}});
}

TEST_CASE("a batch goes when its first task has waited long enough") {
  const Running running(options_of(4, 1000, 10));
  running.queue.add(task_of(1));
  CHECK(running.ran.wait_for(1) == std::vector<std::vector<int64_t>>{{1}});
}

TEST_CASE("a large task is split, and its parts follow each other") {
  hotrow::Batching options = options_of(4, kLongMicros, 10);
  options.set_max_batch_size(10);
  options.set_split_large_batches(true);
  const Running running(options);
  running.queue.add(task_of(1));
  const auto large = task_of(10);
  running.queue.add(large);
  CHECK(large->missing == 3);
  running.queue.add(task_of(1));
  CHECK(running.ran.wait_for(3) == std::vector<std::vector<int64_t>>{{1, 3}, {4}, {3, 1}});
}

TEST_CASE("more rows than a batch has are refused") {
  BatchThreads idle;  // runs nothing
  BatchQueue queue(&idle, options_of(4, kLongMicros, 10), [](const auto&) {});
  CHECK(refusal_of(&queue, 5, grpc::StatusCode::INVALID_ARGUMENT) ==
        "Task size 5 is larger than maximum input batch size 4");
  CHECK(refusal_of(&queue, 4, grpc::StatusCode::OK).empty());
}

TEST_CASE("a full queue refuses") {
  BatchThreads idle;
  BatchQueue queue(&idle, options_of(4, kLongMicros, 2), [](const auto&) {});
  for (const int64_t rows : {3, 3, 1}) queue.add(task_of(rows));
  CHECK(refusal_of(&queue, 1, grpc::StatusCode::UNAVAILABLE) ==
        "The batch scheduling queue to which this task was submitted is full; currently 2 batches "
        "enqueued and max_enqueued_batches is 2");
}

TEST_CASE("a queue without room for all parts refuses") {
  BatchThreads idle;
  hotrow::Batching options = options_of(4, kLongMicros, 2);
  options.set_max_batch_size(100);
  options.set_split_large_batches(true);
  BatchQueue queue(&idle, options, [](const auto&) {});
  queue.add(task_of(5));
  CHECK(refusal_of(&queue, 4, grpc::StatusCode::UNAVAILABLE) ==
        "The batch scheduling queue to which this task was submitted is full; task size is 4 but "
        "scheduling capacity is only 3 (num_enqueued_batches=2, max_enqueued_batches=2, "
        "open_batch_size=1, max_execution_batch_size=4)");
  CHECK(refusal_of(&queue, 3, grpc::StatusCode::OK).empty());
}

}  // namespace
}  // namespace hotrow_server
