// A batch whose keys go to their owners while the batch before it is trained.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <vector>

#include "core/ranks/rank_pass.h"
#include "core/table/training.h"

namespace hotrow {

// Copies the keys. A separate thread makes them distinct. The exchange of sizes and keys is put on
// the queue when the batch before it has its rows, so it delays no other exchange.
class PrefetchedBatch {
 public:
  // others: kept alive as long as this.
  PrefetchedBatch(const LayerCall& call, HeldPass pass, std::vector<std::shared_ptr<Table>> others);
  ~PrefetchedBatch();
  PrefetchedBatch(const PrefetchedBatch&) = delete;

  // Puts the exchange on the queue, once.
  void send_keys();
  // Waits until the keys are at their owners, and returns the pass. Throws the failure, if any.
  HeldPass wait();
  // Whether the call has the same tables and features, value by value.
  bool is(const LayerCall& call) const;
  // The same but for the values, which may be on a GPU.
  bool has_shape_of(const LayerCall& call) const;
  // Of the values (kernels/feature_fingerprint.h), with caches on GPUs. After `wait`.
  uint64_t fingerprint() const { return fingerprint_; }
  // Throws the error of a call that is not this batch.
  [[noreturn]] void refuse(const LayerCall& call) const;

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
  uint64_t fingerprint_ = 0;
  uint64_t ticket_ = 0;
  bool sent_ = false;
};

// The prefetched batch that is next for the layer with this first table, or null.
std::unique_ptr<PrefetchedBatch> next_prefetched(Table& first);
// Sends the keys of the batch after it, if there is one.
void send_keys_of_next(Table& first);

}  // namespace hotrow
