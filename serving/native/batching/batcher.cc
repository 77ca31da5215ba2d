#include "batching/batcher.h"

#include <algorithm>
#include <numeric>

#include "base/metrics.h"
#include "base/refused.h"
#include "wire/tensor_rows.h"

namespace hotrow_server {
namespace {

Histograms queuing_latency(":tensorflow:serving:batching_session:queuing_latency",
                           {"thread_pool_name"}, exponential_buckets(100, 1.2, 52));
Counters wrapped_runs(":tensorflow:serving:batching_session:wrapped_run_count", {});
Histograms padding_sizes(":tensorflow:serving:batching_session:padding_size",
                         {"execution_batch_size"}, exponential_buckets(1, 2, 14));
Histograms input_sizes(":tensorflow:serving:batching_session:input_batch_size", {},
                       exponential_buckets(1, 2, 14));
Histograms processed_sizes(":tensorflow:serving:batching_session:processed_batch_size", {},
                           exponential_buckets(1, 2, 14));

bool before(const TF_Output& a, const TF_Output& b) {
  return std::tie(a.oper, a.index) < std::tie(b.oper, b.index);
}

void append_key(const TF_Output& output, std::string* key) {
  key->append(reinterpret_cast<const char*>(&output.oper), sizeof(output.oper));
  key->append(reinterpret_cast<const char*>(&output.index), sizeof(output.index));
}

// The number of rows that all inputs have.
int64_t rows_of(const Run& run) {
  if (run.inputs.empty()) refuse("Batching Run() must have at least one input tensor");
  for (const TF_Tensor* input : run.inputs) {
    if (TF_NumDims(input) == 0) {
      refuse("Batching Run() input tensors must have at least one dimension");
    }
    if (TF_Dim(input, 0) != TF_Dim(run.inputs[0], 0)) {
      refuse("Batching Run() input tensors must have equal 0th-dimension size");
    }
  }
  return TF_Dim(run.inputs[0], 0);
}

// Sorts feeds and inputs, so that their order does not depend on the request.
void sort_feeds(Run* run) {
  std::vector<size_t> order(run->feeds.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [run](size_t a, size_t b) { return before(run->feeds[a], run->feeds[b]); });
  std::vector<TF_Output> feeds;
  std::vector<TF_Tensor*> inputs;
  for (const size_t i : order) {
    feeds.push_back(run->feeds[i]);
    inputs.push_back(run->inputs[i]);
  }
  run->feeds = std::move(feeds);
  run->inputs = std::move(inputs);
}

// Sorts the fetches without duplicates; returns the place of each of the request's fetches.
std::vector<size_t> sort_fetches(Run* run) {
  const std::vector<TF_Output> asked = run->fetches;
  auto& fetches = run->fetches;
  std::sort(fetches.begin(), fetches.end(), before);
  fetches.erase(std::unique(fetches.begin(), fetches.end(), same), fetches.end());
  std::vector<size_t> places;
  for (const TF_Output& fetch : asked) {
    const auto found = std::lower_bound(fetches.begin(), fetches.end(), fetch, before);
    places.push_back(static_cast<size_t>(found - fetches.begin()));
  }
  return places;
}

// The smallest allowed batch size that holds the rows.
int64_t padded_size(const hotrow::Batching& options, int64_t rows) {
  for (const int64_t allowed : options.allowed_batch_sizes()) {
    if (allowed >= rows) return allowed;
  }
  return rows;
}

// The deadline of the batch's run is its requests' latest deadline. Fails with RESOURCE_EXHAUSTED
// when all deadlines have passed.
Deadline deadline_of(const std::vector<Slice>& batch) {
  const auto now = Clock::now();
  Deadline latest = Clock::time_point::min();
  for (const Slice& slice : batch) {
    const Deadline& its = slice.task->run.deadline;
    if (!its.has_value()) return std::nullopt;
    latest = std::max(latest, its);
  }
  if (*latest > now) return latest;
  throw Refused(grpc::StatusCode::RESOURCE_EXHAUSTED,
                "Run() timeout exceeded while waiting in batching queue");
}

std::string name_of(const TF_Output& output) {
  return std::string(TF_OperationName(output.oper)) + ":" + std::to_string(output.index);
}

Run merged_run(const std::vector<Slice>& batch, int64_t rows, const hotrow::Batching& options) {
  Run run;
  run.deadline = deadline_of(batch);
  run.feeds = batch[0].task->run.feeds;
  run.fetches = batch[0].task->run.fetches;
  const int64_t size = padded_size(options, rows);
  // Without a row there is nothing to pad with.
  const int64_t more = batch.back().rows > 0 ? size - rows : 0;
  padding_sizes.at({std::to_string(size)}).add(static_cast<double>(more));
  processed_sizes.at({}).add(static_cast<double>(size));
  const bool whole = batch.size() == 1 && batch[0].rows == batch[0].task->rows && more == 0;
  if (whole) {
    run.inputs = batch[0].task->run.inputs;
    return run;
  }
  for (size_t i = 0; i < run.feeds.size(); ++i) {
    std::vector<Rows> parts;
    for (const Slice& slice : batch) {
      parts.push_back({slice.task->run.inputs[i], slice.first, slice.rows});
    }
    run.owned.push_back(
        merge(parts, more, options.pad_variable_length_inputs(), name_of(run.feeds[i])));
    run.inputs.push_back(run.owned.back().get());
  }
  return run;
}

void check_outputs(const Results& results, int64_t rows) {
  for (size_t i = 0; i < results.size(); ++i) {
    if (TF_NumDims(results[i]) == 0) {
      throw Refused(grpc::StatusCode::FAILED_PRECONDITION,
                    "Batched output tensor has 0 dimensions");
    }
    if (TF_Dim(results[i], 0) != rows) {
      throw Refused(grpc::StatusCode::FAILED_PRECONDITION,
                    "Batched output tensor's 0th dimension does not equal the sum of the 0th "
                    "dimension sizes of the input tensors");
    }
  }
}

Results own_results(const BatchTask& task) {
  const BatchTask::Part& first = task.parts[0];
  if (task.parts.size() == 1 && first.results->size() > 0 &&
      TF_Dim((*first.results)[0], 0) == first.rows) {
    return {first.results, task.places};
  }
  std::vector<Tensor> owned;
  for (size_t i = 0; i < task.run.fetches.size(); ++i) {
    std::vector<Rows> rows;
    for (const BatchTask::Part& part : task.parts) {
      rows.push_back({(*part.results)[i], part.first, part.rows});
    }
    owned.push_back(concatenate(rows));
  }
  return {std::move(owned), task.places};
}

// Ends a part of a task; the last part ends the task.
void end_part(const Slice& slice, BatchTask::Part part, std::exception_ptr failure) {
  BatchTask& task = *slice.task;
  {
    const std::lock_guard lock(task.mutex);
    task.parts[slice.part] = std::move(part);
    if (failure != nullptr) task.failure = failure;
    if (--task.missing > 0) return;
  }
  task.ended(outcome_of([&task] {
    if (task.failure != nullptr) std::rethrow_exception(task.failure);
    return own_results(task);
  }));
}

}  // namespace

hotrow::Batching Batcher::options() const {
  const std::lock_guard lock(mutex_);
  return options_;
}

void Batcher::set_options(const hotrow::Batching& options) {
  const std::lock_guard lock(mutex_);
  options_ = options;
  for (auto& [key, queue] : queues_) queue.queue->set_options(options);
}

Batcher::Queue* Batcher::queue_of(const Run& run) {
  std::string key;
  for (size_t i = 0; i < run.feeds.size(); ++i) {
    append_key(run.feeds[i], &key);
    // A request with a wrong type fails alone.
    key.push_back(static_cast<char>(TF_TensorType(run.inputs[i])));
  }
  for (const TF_Output& fetch : run.fetches) append_key(fetch, &key);
  const std::lock_guard lock(mutex_);
  Queue& queue = queues_[key];
  if (queue.queue == nullptr) {
    queue.queue = std::make_unique<BatchQueue>(
        threads_, options_,
        [this, own = &queue](const std::vector<Slice>& batch) { process(own, batch, options()); });
  }
  return &queue;
}

void Batcher::run(Run run, Ended ended) {
  auto task = std::make_shared<BatchTask>();
  task->rows = rows_of(run);
  input_sizes.at({}).add(static_cast<double>(task->rows));
  sort_feeds(&run);
  task->places = sort_fetches(&run);
  Queue* const queue = queue_of(run);
  task->run = std::move(run);
  task->ended = std::move(ended);
  queue->queue->add(std::move(task));
}

void Batcher::process(Queue* queue, const std::vector<Slice>& batch,
                      const hotrow::Batching& options) {
  int64_t rows = 0;
  const auto now = std::chrono::steady_clock::now();
  for (const Slice& slice : batch) {
    rows += slice.rows;
    queuing_latency.at({options.thread_pool_name()})
        .add(std::chrono::duration<double, std::micro>(now - slice.task->enqueued).count());
  }
  std::exception_ptr failure;
  std::shared_ptr<const Results> results;
  try {
    Run run = merged_run(batch, rows, options);
    run.typical_nanos = &queue->typical_nanos;
    wrapped_runs.at({}).add();
    results = std::make_shared<const Results>(session_->run(run));
    check_outputs(*results, TF_Dim(run.inputs[0], 0));
  } catch (...) {
    failure = std::current_exception();
  }
  int64_t first = 0;
  for (const Slice& slice : batch) {
    end_part(slice, {results, first, slice.rows}, failure);
    first += slice.rows;
  }
}

}  // namespace hotrow_server
