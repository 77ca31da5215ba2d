#include "core/ranks/step.h"

#include <algorithm>
#include <mutex>

#include "core/ranks/exchange.h"
#include "core/ranks/prefetched_batch.h"
#include "core/ranks/session.h"

namespace hotrow {
namespace {

constexpr size_t kMostPasses = 64;

// Exchanges are made for the tables of a call; a pass of another layer is of no use.
void fit(RankPass* pass, const LayerCall& call) {
  bool same = pass->tables.size() == call.tables.size();
  for (size_t t = 0; same && t < call.tables.size(); ++t) {
    same = &pass->tables[t]->table() == call.tables[t];
  }
  if (!same) pass->tables.clear();
}

// The pass that a forward pass left to its backward pass; empty when it is gone.
HeldPass find_pass(const LayerCall& call, int64_t ticket) {
  RankSession& session = session_of(*call.tables[0]);
  std::lock_guard lock(session.mutex);
  for (auto& pass : session.waiting) {
    if (pass->ticket == ticket && pass->tables.size() == call.tables.size()) {
      pass->ticket = RankPass::kHeld;
      return HeldPass(pass.get());
    }
  }
  return {};
}

// A pass that nobody waits for; when there are too many, the oldest one whose backward pass
// has not come.
RankPass* free_pass(std::vector<std::unique_ptr<RankPass>>& waiting) {
  for (const auto& pass : waiting) {
    if (pass->ticket == 0) return pass.get();
  }
  if (waiting.size() < kMostPasses) {
    waiting.push_back(std::make_unique<RankPass>());
    return waiting.back().get();
  }
  RankPass* oldest = nullptr;
  for (const auto& pass : waiting) {
    if (pass->ticket == RankPass::kHeld) continue;
    if (oldest == nullptr || pass->ticket < oldest->ticket) oldest = pass.get();
  }
  if (oldest == nullptr) {
    fail(Code::kResourceExhausted, "%zu batches are prefetched; train some first", kMostPasses);
  }
  return oldest;
}

HeldPass new_pass(const LayerCall& call) {
  RankPass* pass;
  {
    RankSession& session = session_of(*call.tables[0]);
    std::lock_guard lock(session.mutex);
    pass = free_pass(session.waiting);
    pass->ticket = RankPass::kHeld;
  }
  fit(pass, call);
  return HeldPass(pass);
}

int64_t rank_forward(const LayerCall& call, bool insert, const std::vector<float*>& pooled,
                     size_t* missing) {
  Table& first = *call.tables[0];
  int64_t ticket = 0;
  // Outlives what fails: it may wait for others, which must know of the failure first.
  std::unique_ptr<PrefetchedBatch> prefetched;
  for_all_ranks(*first.sharding().ranks, [&] {
    if (insert) prefetched = next_prefetched(first);
    HeldPass pass;
    if (prefetched == nullptr) {
      pass = new_pass(call);
    } else {
      if (!prefetched->is(call)) {
        fail(Code::kFailedPrecondition,
             "this is not the batch that was prefetched (here table %s and more); train "
             "batches in the order in which they were prefetched",
             first.name().c_str());
      }
      pass = prefetched->wait();
    }
    RankExchange step(call, pass.get());
    if (prefetched == nullptr) {
      step.collect(insert);
      step.send_keys(insert);
    }
    step.look_up(insert, missing);
    if (insert) send_keys_of_next(first);
    step.pool(pooled);
    if (insert) pass.leave_to(ticket = next_ticket());
  });
  return ticket;
}

void rank_backward(const LayerCall& call, const std::vector<const float*>& gradients,
                   const BackwardOptions& options) {
  for_all_ranks(*call.tables[0]->sharding().ranks, [&] {
    HeldPass pass;
    if (options.ticket != 0) pass = find_pass(call, options.ticket);
    const bool again = pass.get() == nullptr;
    if (again) pass = new_pass(call);
    RankExchange step(call, pass.get());
    if (again) {
      step.collect(true);
      step.send_keys(true);
      step.prepare_owner();
    }
    step.backward(gradients, options);
  });
}

}  // namespace

bool on_ranks(const std::vector<Table*>& tables) {
  const auto& ranks = tables[0]->sharding().ranks;
  for (const Table* table : tables) {
    if (table->sharding().ranks != ranks) {
      fail(Code::kInvalidArgument,
           "tables %s and %s are split over other ranks; those of a layer must be alike",
           tables[0]->name().c_str(), table->name().c_str());
    }
  }
  return ranks != nullptr;
}

int64_t forward(const LayerCall& call, bool insert, const std::vector<float*>& pooled,
                size_t* missing) {
  return on_ranks(call.tables) ? rank_forward(call, insert, pooled, missing)
                               : forward_local(call, insert, pooled, missing);
}

void backward(const LayerCall& call, const std::vector<const float*>& gradients,
              const BackwardOptions& options) {
  if (on_ranks(call.tables)) {
    rank_backward(call, gradients, options);
  } else {
    backward_local(call, gradients, options);
  }
}

void rank_prefetch(const LayerCall& call, std::vector<std::shared_ptr<Table>> others) {
  for (const Table* table : call.tables) {
    if (table->stale() != nullptr) return;  // what is kept is not known before the batch before it
  }
  Table& first = *call.tables[0];
  for_all_ranks(*first.sharding().ranks, [&] {
    auto batch = std::make_unique<PrefetchedBatch>(call, new_pass(call), std::move(others));
    RankSession& session = session_of(first);
    std::lock_guard lock(session.mutex);
    session.prefetched.push_back(std::move(batch));
  });
}

void rank_push_all(const std::vector<Table*>& tables, const float* learning_rates,
                   const Executor& executor) {
  if (!on_ranks(tables)) return;
  std::vector<Table*> stale;
  for (Table* table : tables) {
    if (table->stale() != nullptr) stale.push_back(table);
  }
  if (stale.empty()) return;
  LayerCall call;
  call.tables = stale;
  call.executor = executor;
  std::vector<float> rates;
  BackwardOptions options;
  options.what = Backward::kUpdate;
  if (learning_rates != nullptr) {
    for (size_t t = 0; t < tables.size(); ++t) {
      if (tables[t]->stale() != nullptr) rates.push_back(learning_rates[t]);
    }
    options.learning_rates = rates.data();
  }
  for_all_ranks(*stale[0]->sharding().ranks, [&] {
    const HeldPass pass = new_pass(call);
    RankExchange step(call, pass.get());
    step.collect(true);
    step.send_keys(true);
    step.prepare_owner();
    step.push_all();
    step.backward({}, options);
  });
}

}  // namespace hotrow
