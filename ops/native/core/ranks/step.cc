#include "core/ranks/step.h"

#include <algorithm>
#include <mutex>

#include "core/ranks/exchange.h"
#include "core/ranks/prefetched_batch.h"
#include "core/ranks/session.h"
#include "core/ranks/step_on_ranks.h"

namespace hotrow {
namespace {

constexpr size_t kMostPasses = 64;

// A pass's exchanges are made for the tables of one call; a pass of another layer cannot be reused.
void fit(RankPass* pass, const LayerCall& call) {
  bool same = pass->tables.size() == call.tables.size();
  for (size_t t = 0; same && t < call.tables.size(); ++t) {
    same = &pass->tables[t]->table() == call.tables[t];
  }
  if (!same) pass->tables.clear();
}

// The pass that a forward pass kept for its backward pass; empty when it was reused.
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

// A pass that no backward pass waits for; when too many wait, the oldest of them.
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

// The pass of a prefetched batch; its keys are at their owners.
HeldPass pass_of(const LayerCall& call, PrefetchedBatch* prefetched) {
  if (!prefetched->is(call)) prefetched->refuse(call);
  return prefetched->wait();
}

// The Step of ranks/step_on_ranks.h for rows in the host's memory.
class StepInMemory {
 public:
  StepInMemory(const LayerCall& call, PrefetchedBatch* prefetched)
      : StepInMemory(call, prefetched == nullptr ? HeldPass() : pass_of(call, prefetched)) {}
  StepInMemory(const LayerCall& call, int64_t ticket)
      : StepInMemory(call, ticket == 0 ? HeldPass() : find_pass(call, ticket)) {}

  bool dispatched() const { return dispatched_; }
  void dispatch(bool insert) {
    exchange_.collect(insert);
    exchange_.send_keys(insert);
  }
  void dispatch_again() {
    dispatch(true);
    exchange_.prepare_owner();
  }
  void look_up(bool insert, size_t* missing) { exchange_.look_up(insert, missing); }
  void pool(const std::vector<float*>& pooled) { exchange_.pool(pooled); }
  void push_all() { exchange_.push_all(); }
  void backward(const std::vector<const float*>& gradients, const BackwardOptions& options) {
    exchange_.backward(gradients, options);
  }
  void leave_to(int64_t ticket) { pass_.leave_to(ticket); }

 private:
  // found: a pass whose keys are at their owners, or empty.
  StepInMemory(const LayerCall& call, HeldPass found)
      : dispatched_(found.get() != nullptr),
        pass_(dispatched_ ? std::move(found) : new_pass(call)),
        exchange_(call, pass_.get()) {}

  const bool dispatched_;
  HeldPass pass_;
  RankExchange exchange_;
};

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
  return on_ranks(call.tables) ? forward_on_ranks<StepInMemory>(call, insert, pooled, missing)
                               : forward_local(call, insert, pooled, missing);
}

void backward(const LayerCall& call, const std::vector<const float*>& gradients,
              const BackwardOptions& options) {
  if (on_ranks(call.tables)) {
    backward_on_ranks<StepInMemory>(call, gradients, options);
  } else {
    backward_local(call, gradients, options);
  }
}

void rank_prefetch(const LayerCall& call, std::vector<std::shared_ptr<Table>> others) {
  for (const Table* table : call.tables) {
    if (table->stale() != nullptr) return;  // replicas are not known before the previous batch
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
    StepInMemory step(call, int64_t{0});
    step.dispatch_again();
    step.push_all();
    step.backward({}, options);
  });
}

}  // namespace hotrow
