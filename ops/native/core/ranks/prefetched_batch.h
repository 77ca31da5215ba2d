// A batch whose keys go to their owners while the batch before it is trained.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <vector>

#include "core/ranks/rank_pass.h"
#include "core/table/training.h"

namespace hotrow {

// Copies the keys. They are made distinct in a thread of their own; the exchange of sizes and keys
// is put on the queue when the batch before it has its rows, so it delays nobody.
class PrefetchedBatch {
 public:
  // others: kept alive as long as this.
  PrefetchedBatch(const LayerCall& call, HeldPass pass, std::vector<std::shared_ptr<Table>> others);
  ~PrefetchedBatch();
  PrefetchedBatch(const PrefetchedBatch&) = delete;

  // Puts the exchange on the queue, once.
  void send_keys();
  // Waits until the keys are where they belong, and gives the pass away. Throws what failed.
  HeldPass wait();
  // Whether these are the tables and features, value by value.
  bool is(const LayerCall& call) const;

 private:
  struct Values {
    std::vector<int64_t> keys, row_splits;
    std::vector<float> weights;
  };
  LayerCall call_;
  std::vector<std::shared_ptr<Table>> others_;
  std::vector<Values> values_;  // (F)
  HeldPass pass_;
  std::future<void> collected_;
  uint64_t ticket_ = 0;
  bool sent_ = false;
};

// Of the layer whose first table it is: the prefetched batch that is due, or null.
std::unique_ptr<PrefetchedBatch> next_prefetched(Table& first);
// The batch after that one is sent, if there is one.
void send_keys_of_next(Table& first);

}  // namespace hotrow
