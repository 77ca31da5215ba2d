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

// forward_local and backward_local of table/training.h, on one rank or on several. On several
// ranks, each has its own batch, and all make the same calls in the same order. When a rank's keys
// are wrong, all ranks fail with "rank 1: ...", and nothing has changed. Any other failure ends the
// collectives of all ranks.
int64_t forward(const LayerCall& call, bool insert, const std::vector<float*>& pooled,
                size_t* missing);
void backward(const LayerCall& call, const std::vector<const float*>& gradients,
              const BackwardOptions& options);
// Prefetches a batch, after those that were prefetched before. Its keys go to their owners while
// the batch before it is trained, and the owners bring its rows into their device tiers. Copies the
// features. The batches must then be trained in this order. Results do not change. With staleness
// it does nothing. Safe while another thread steps, if all ranks prefetch a batch before the
// forward pass of the batch before it begins, or all after that pass ended. A failure here ends the
// collectives of all ranks. others: the tables of the call without the first, which keeps the
// batch; they live until the batch has arrived.
void rank_prefetch(const LayerCall& call, std::vector<std::shared_ptr<Table>> others = {});

// With staleness: sends all pending gradients to their owners, as a step of the tables; else does
// nothing. Afterwards the owners' rows include all updates: for checkpoints, exports and
// evaluation.
void rank_push_all(const std::vector<Table*>& tables, const float* learning_rates,
                   const Executor& executor);

}  // namespace hotrow
