// The steps of tables that are split over ranks: input dispatcher -> local pass at the owner ->
// output dispatcher, and the same way back for gradients (docs/design/0009-ranks.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/table/training.h"

namespace hotrow {

// Whether the tables of a call are split over ranks. Fails unless all are, over the same ranks, or
// none is.
bool on_ranks(const std::vector<Table*>& tables);

// forward_local and backward_local of table/training.h, on one rank or on several. On several, each
// has a batch of its own, and all make the same calls in the same order. What one rank finds wrong
// about its keys fails on all with "rank 1: ...", and nothing has changed; any other failure ends
// the collectives of all ranks.
int64_t forward(const LayerCall& call, bool insert, const std::vector<float*>& pooled,
                size_t* missing);
void backward(const LayerCall& call, const std::vector<const float*>& gradients,
              const BackwardOptions& options);
// Prefetches a batch, after those that were prefetched before: its keys go to their owners
// while the batch before it is trained, and the owners bring its rows into their device tiers.
// Copies the features. The batches must then be trained in this order. Nothing that is computed
// changes. With staleness nothing happens. Safe beside the steps of another thread, if on all ranks
// a batch is prefetched before the forward pass of the one before it begins, or on all after it
// ended. What fails here ends the collectives of all ranks. others: the tables of the call but the
// first, which keeps the batch; they live until it has come.
void rank_prefetch(const LayerCall& call, std::vector<std::shared_ptr<Table>> others = {});

// With staleness: sends the owners all pending gradients; a step of the
// tables. Without, nothing happens. Rows are then those of the model as a whole: for checkpoints,
// exports and evaluation.
void rank_push_all(const std::vector<Table*>& tables, const float* learning_rates,
                   const Executor& executor);

}  // namespace hotrow
