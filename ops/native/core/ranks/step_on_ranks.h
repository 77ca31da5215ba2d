// Forward and backward of tables that are split over ranks, over a Step in memory (ranks/step.cc)
// or on GPUs (gpu/step/rank_step.cu): input dispatcher -> local pass at the owner -> output
// dispatcher, and the same way back for gradients.
//
// A Step is made for one call and has its pass: what was dispatched, from forward to backward.
//   Step(call, PrefetchedBatch*, where...)   for a forward pass; null: nothing was prefetched
//   Step(call, int64_t ticket, where...)     for the backward pass of a forward pass
//   bool dispatched();                       whether the owners have this pass's keys
//   void dispatch(bool insert);              sends the keys to their owners
//   void dispatch_again();                   the same for a backward pass without a kept pass
//   void look_up(bool insert, size_t* missing);   owners find rows and send them home
//   void pool(pooled);
//   void backward(gradients, options);       gradients go to the owners, which update rows
//   void leave_to(int64_t ticket);           keeps the pass for the backward pass
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/ranks/facts.h"
#include "core/ranks/prefetched_batch.h"
#include "core/table/training.h"

namespace hotrow {

// As forward in ranks/step.h. where: what a Step takes besides the call.
template <typename Step, typename... Where>
int64_t forward_on_ranks(const LayerCall& call, bool insert, const std::vector<float*>& pooled,
                         size_t* missing, Where... where) {
  Table& first = *call.tables[0];
  int64_t ticket = 0;
  // Outlives the part that may fail: its destructor may wait for other ranks, which must receive
  // the failure first.
  std::unique_ptr<PrefetchedBatch> prefetched;
  for_all_ranks(*first.sharding().ranks, [&] {
    if (insert) prefetched = next_prefetched(first);
    Step step(call, prefetched.get(), where...);
    if (!step.dispatched()) step.dispatch(insert);
    step.look_up(insert, missing);
    if (insert) send_keys_of_next(first);
    step.pool(pooled);
    if (insert) step.leave_to(ticket = next_ticket());
  });
  return ticket;
}

// As backward in ranks/step.h.
template <typename Step, typename... Where>
void backward_on_ranks(const LayerCall& call, const std::vector<const float*>& gradients,
                       const BackwardOptions& options, Where... where) {
  for_all_ranks(*call.tables[0]->sharding().ranks, [&] {
    Step step(call, options.ticket, where...);
    if (!step.dispatched()) step.dispatch_again();
    step.backward(gradients, options);
  });
}

}  // namespace hotrow
