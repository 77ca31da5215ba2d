#include "batching/batch_threads.h"

#include <algorithm>
#include <string>
#include <thread>

#include "base/refused.h"

namespace hotrow_server {

BatchQueue::BatchQueue(BatchThreads* threads, const hotrow::Batching& options, Process process)
    : threads_(threads), options_(options), process_(std::move(process)), batches_(1) {
  const std::lock_guard lock(threads_->mutex_);
  threads_->queues_.push_back(this);
}

BatchQueue::~BatchQueue() {
  const std::lock_guard lock(threads_->mutex_);
  auto& queues = threads_->queues_;
  queues.erase(std::find(queues.begin(), queues.end(), this));
}

void BatchQueue::set_options(const hotrow::Batching& options) {
  const std::lock_guard lock(threads_->mutex_);
  options_ = options;
  threads_->changed_.notify_all();
}

int64_t BatchQueue::most_rows() const {
  return options_.split_large_batches() ? options_.max_execution_batch_size()
                                        : options_.max_batch_size();
}

void BatchQueue::check_room(int64_t rows) const {
  if (rows > options_.max_batch_size()) {
    refuse("Task size " + std::to_string(rows) + " is larger than maximum input batch size " +
           std::to_string(options_.max_batch_size()));
  }
  const auto queued = static_cast<int64_t>(batches_.size());
  const std::string full = "The batch scheduling queue to which this task was submitted is full; ";
  if (!options_.split_large_batches()) {
    if (batches_.back().rows + rows <= options_.max_batch_size() ||
        queued < options_.max_enqueued_batches()) {
      return;
    }
    throw Refused(grpc::StatusCode::UNAVAILABLE,
                  full + "currently " + std::to_string(queued) +
                      " batches enqueued and max_enqueued_batches is " +
                      std::to_string(options_.max_enqueued_batches()));
  }
  const int64_t capacity =
      (options_.max_enqueued_batches() - queued) * most_rows() + most_rows() - batches_.back().rows;
  if (rows <= capacity) return;
  throw Refused(grpc::StatusCode::UNAVAILABLE,
                full + "task size is " + std::to_string(rows) +
                    " but scheduling capacity is only " + std::to_string(capacity) +
                    " (num_enqueued_batches=" + std::to_string(queued) +
                    ", max_enqueued_batches=" + std::to_string(options_.max_enqueued_batches()) +
                    ", open_batch_size=" + std::to_string(batches_.back().rows) +
                    ", max_execution_batch_size=" + std::to_string(most_rows()) + ")");
}

void BatchQueue::append(Slice slice) {
  if (batches_.back().rows + slice.rows > most_rows() && !batches_.back().slices.empty()) {
    batches_.emplace_back();
  }
  Batch& open = batches_.back();
  if (open.slices.empty()) open.opened = slice.task->enqueued;
  open.rows += slice.rows;
  open.slices.push_back(std::move(slice));
}

void BatchQueue::add(std::shared_ptr<BatchTask> task) {
  task->enqueued = std::chrono::steady_clock::now();
  const std::lock_guard lock(threads_->mutex_);
  check_room(task->rows);
  std::vector<int64_t> sizes;
  const int64_t room = most_rows() - batches_.back().rows;
  if (options_.split_large_batches() && task->rows > room) {
    if (room > 0) sizes.push_back(room);
    for (int64_t left = task->rows - std::max<int64_t>(room, 0); left > 0; left -= sizes.back()) {
      sizes.push_back(std::min(left, most_rows()));
    }
  } else {
    sizes.push_back(task->rows);
  }
  task->parts.resize(sizes.size());
  task->missing = static_cast<int>(sizes.size());
  int64_t first = 0;
  for (size_t part = 0; part < sizes.size(); ++part) {
    append({task, part, first, sizes[part]});
    first += sizes[part];
  }
  threads_->changed_.notify_one();
}

SteadyTime BatchQueue::due() const {
  if (batches_.size() > 1) return SteadyTime::min();
  const Batch& open = batches_.front();
  if (open.slices.empty()) return SteadyTime::max();
  if (open.rows >= most_rows()) return SteadyTime::min();
  return open.opened + std::chrono::microseconds(options_.batch_timeout_micros());
}

BatchQueue* BatchThreads::next(std::vector<Slice>* batch, SteadyTime* due) {
  const SteadyTime now = std::chrono::steady_clock::now();
  *due = SteadyTime::max();
  for (size_t i = 0; i < queues_.size(); ++i) {
    BatchQueue* const queue = queues_[(turn_ + i) % queues_.size()];
    const SteadyTime its = queue->due();
    if (its > now) {
      *due = std::min(*due, its);
      continue;
    }
    turn_ = (turn_ + i + 1) % queues_.size();
    *batch = std::move(queue->batches_.front().slices);
    queue->batches_.pop_front();
    if (queue->batches_.empty()) queue->batches_.emplace_back();
    return queue;
  }
  return nullptr;
}

void BatchThreads::resize(int threads) {
  const std::lock_guard lock(mutex_);
  wanted_ = threads;
  for (; threads_ < wanted_; ++threads_) std::thread([this] { work(); }).detach();
  changed_.notify_all();
}

void BatchThreads::work() {
  std::unique_lock lock(mutex_);
  while (threads_ <= wanted_) {
    std::vector<Slice> batch;
    SteadyTime due;
    if (BatchQueue* const queue = next(&batch, &due)) {
      lock.unlock();
      // The queue lives as long as any task that has not ended.
      queue->process_(batch);
      batch.clear();
      lock.lock();
    } else if (due == SteadyTime::max()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, due);
    }
  }
  --threads_;
  // This thread may have received the notification of a batch.
  changed_.notify_one();
}

}  // namespace hotrow_server
