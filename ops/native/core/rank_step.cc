#include "core/rank_step.h"

#include <algorithm>
#include <mutex>

#include "core/coming_batch.h"
#include "core/rank_exchange.h"

namespace hotrow {
namespace {

constexpr size_t kMostPlans = 64;

// Runs a part of a step. What fails here ends the collectives of all ranks, unless all know.
template <typename Part>
void for_all(Collectives& ranks, Part&& part) {
  try {
    part();
  } catch (const AgreedError&) {
    throw;
  } catch (const Error& e) {
    ranks.fail(e.code(), e.what());
    throw;
  } catch (const std::bad_alloc&) {
    ranks.fail(Code::kResourceExhausted, "out of memory in a step");
    throw;
  }
}

std::mutex plans_mutex;

// The plan of a ticket; with ticket 0 one that nobody waits for.
RankPlan* plan_of(const LayerCall& call, int64_t ticket) {
  std::lock_guard lock(plans_mutex);
  auto& plans = call.tables[0]->rank_plans;
  for (auto& plan : plans) {
    if (plan->ticket == ticket && (ticket == 0 || plan->tables.size() == call.tables.size())) {
      return plan.get();
    }
  }
  if (ticket != 0) return nullptr;
  if (plans.size() < kMostPlans) {
    plans.push_back(std::make_unique<RankPlan>());
    return plans.back().get();
  }
  // The oldest one whose backward pass has not come.
  RankPlan* oldest = nullptr;
  for (const auto& plan : plans) {
    if (plan->ticket == RankPlan::kReserved) continue;
    if (oldest == nullptr || plan->ticket < oldest->ticket) oldest = plan.get();
  }
  if (oldest == nullptr) {
    fail(Code::kResourceExhausted, "%zu batches were told ahead; train some first", kMostPlans);
  }
  return oldest;
}

// Exchanges are made for the tables of a call; a plan of another layer is of no use.
void fit(RankPlan* plan, const LayerCall& call) {
  bool same = plan->tables.size() == call.tables.size();
  for (size_t t = 0; same && t < call.tables.size(); ++t) {
    same = &plan->tables[t]->table() == call.tables[t];
  }
  if (!same) plan->tables.clear();
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

int64_t rank_forward(const LayerCall& call, bool insert, const std::vector<float*>& pooled,
                     size_t* missing) {
  auto& coming = call.tables[0]->coming;
  int64_t ticket = 0;
  for_all(*call.tables[0]->sharding().ranks, [&] {
    RankPlan* plan;
    std::unique_ptr<ComingBatch> told;
    if (insert && !coming.empty()) {
      told = std::move(coming.front());
      coming.pop_front();
      if (!told->is(call)) {
        fail(Code::kFailedPrecondition,
             "this is not the batch that look_ahead was told of (here table %s and more); train "
             "batches in the order in which they were told",
             call.tables[0]->name().c_str());
      }
      told->wait();
      plan = told->plan();
    } else {
      plan = plan_of(call, 0);
      fit(plan, call);
    }
    RankExchange step(call, plan);
    if (told == nullptr) {
      step.collect(insert);
      step.send_keys(insert);
    }
    step.look_up(insert, missing);
    if (insert && !coming.empty()) coming.front()->send_keys();
    step.pool(pooled);
    told.reset();
    if (insert) ticket = plan->ticket = next_ticket();
  });
  return ticket;
}

void rank_look_ahead(const LayerCall& call, std::vector<std::shared_ptr<Table>> others) {
  for (const Table* table : call.tables) {
    if (table->stale() != nullptr) return;  // what is kept is not known before the batch before it
  }
  RankPlan* plan = plan_of(call, 0);
  fit(plan, call);
  plan->ticket = RankPlan::kReserved;
  call.tables[0]->coming.push_back(std::make_unique<ComingBatch>(call, plan, std::move(others)));
}

void rank_backward(const LayerCall& call, const std::vector<const float*>& gradients,
                   const BackwardOptions& options) {
  RankPlan* plan = options.ticket == 0 ? nullptr : plan_of(call, options.ticket);
  for_all(*call.tables[0]->sharding().ranks, [&] {
    const bool again = plan == nullptr;
    if (again) {
      plan = plan_of(call, 0);
      fit(plan, call);
    }
    plan->ticket = 0;
    RankExchange step(call, plan);
    if (again) {
      step.collect(true);
      step.send_keys(true);
      step.prepare_owner();
    }
    step.backward(gradients, options);
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
  RankPlan* plan = plan_of(call, 0);
  for_all(*stale[0]->sharding().ranks, [&] {
    fit(plan, call);
    RankExchange step(call, plan);
    step.collect(true);
    step.send_keys(true);
    step.prepare_owner();
    step.push_all();
    step.backward({}, options);
  });
}

}  // namespace hotrow
