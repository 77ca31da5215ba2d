// Batches requests of a servable. One queue for each set of inputs and outputs; the rules and texts
// are those of TF Serving's batching_session.cc.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "batching/batch_threads.h"
#include "session/session.h"

namespace hotrow_server {

class Batcher {
 public:
  // Both must outlive it.
  Batcher(const Session* session, BatchThreads* threads, const hotrow::Batching& options)
      : session_(session), threads_(threads), options_(options) {}

  // Calls `ended` once, from one of the threads. Throws at once, without calling `ended`, when the
  // run cannot be part of a batch or its queue is full.
  void run(Run run, Ended ended);
  // Applies to later requests.
  void set_options(const hotrow::Batching& options);

 private:
  struct Queue {
    std::vector<TF_Output> fetches;
    std::atomic<int64_t> typical_nanos{0};
    std::unique_ptr<BatchQueue> queue;
  };

  Queue* queue_of(const Run& run);
  void process(Queue* queue, const std::vector<Slice>& batch, const hotrow::Batching& options);
  hotrow::Batching options() const;

  const Session* const session_;
  BatchThreads* const threads_;
  mutable std::mutex mutex_;
  hotrow::Batching options_;
  // By feeds, their types, and fetches.
  std::map<std::string, Queue> queues_;
};

}  // namespace hotrow_server
