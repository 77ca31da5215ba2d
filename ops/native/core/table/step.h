// Forward, backward and commit of a layer's tables in one process, over a backend: the memory of
// the host (table/training.cc) or of a GPU (gpu/step/layer.cu). ranks/step_on_ranks.h has the steps
// over several ranks around it.
//
// A backend is made for one call and holds the locks of its tables. Its Batch is what a lookup
// found, with the ticket of the forward pass; its Gradients are the gradients of distinct keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/table/find.h"
#include "core/table/table.h"
#include "core/table/training.h"

namespace hotrow {

struct CommitOptions {
  const float* learning_rates = nullptr;  // (T), or null: those of the options
  float global_clip_norm = 0.0f;          // 0: none
};

// As forward_local. Backend:
//   const std::vector<Table*>& tables();
//   Batch& next_batch();               for a forward pass that a backward pass follows
//   Batch& own_batch();                for this call alone
//   void find(Find, Batch*);           finds the rows of all keys
//   size_t missing(const Batch&);      how many distinct keys have none
//   void pool(const Batch&, pooled);
template <typename Backend>
int64_t step_forward(Backend& backend, bool insert, const std::vector<float*>& pooled,
                     size_t* missing) {
  if (insert) {
    for (Table* table : backend.tables()) {
      table->passes.begin_forward();
      table->wait_for_snapshot();
    }
  }
  auto& batch = insert ? backend.next_batch() : backend.own_batch();
  batch.ticket = 0;  // no pass's, if this fails
  backend.find(insert ? Find::kTrain : Find::kRead, &batch);
  backend.pool(batch, pooled);
  if (missing != nullptr) *missing = backend.missing(batch);
  if (!insert) return 0;
  batch.ticket = next_ticket();
  return batch.ticket;
}

// As backward_local. Backend:
//   Batch& batch_of(int64_t ticket);   of a forward pass; found again when rows moved since
//   Gradients sum(const Batch&, gradients);
//   void keep(const Batch&, const Gradients&, size_t slot);    in the tables' passes
//   void update(const Batch&, const Gradients&, options);      optimizers, then expiry
template <typename Backend>
void step_backward(Backend& backend, const std::vector<const float*>& gradients,
                   const BackwardOptions& options) {
  auto& batch = backend.batch_of(options.ticket);
  if (options.what == Backward::kCommit) {
    for (Table* table : backend.tables()) table->passes.begin_immediate(options.slot);
  }
  const auto summed = backend.sum(batch, gradients);
  if (options.what == Backward::kAccumulate) {
    backend.keep(batch, summed, options.slot);
  } else {
    backend.update(batch, summed, options);
  }
}

// As commit. Backend:
//   void apply(taken, options);        taken: (T) the passes of each table; some table has one
template <typename Backend>
void step_commit(Backend& backend, const float* commit_token, const CommitOptions& options) {
  std::vector<const GradientPasses::Taken*> taken;
  bool any = false;
  for (Table* table : backend.tables()) {
    taken.push_back(&table->passes.end_step(commit_token));
    any = any || !taken.back()->empty();
  }
  if (any) backend.apply(taken, options);
}

}  // namespace hotrow
