#include <algorithm>
#include <string>

#include "core/comm/rank_stage.h"
#include "core/gpu/kernels/device_code.h"
#include "core/gpu/kernels/fingerprint.h"
#include "core/gpu/step/layer.h"
#include "core/gpu/step/rank_exchange.h"

namespace hotrow {

DeviceRankExchange::DeviceRankExchange(const LayerCall& call, DeviceCommunicator& on_gpu,
                                       DeviceRankWork* work, DeviceRankPass* pass,
                                       DeviceStream stream)
    : call_(call),
      on_gpu_(on_gpu),
      pass_(pass),
      ranks_(*call.tables[0]->sharding().ranks),
      here_{call,
            work->memory,
            pass->messages,
            stream,
            static_cast<size_t>(ranks_.size()),
            static_cast<size_t>(ranks_.rank())} {}

// --- input dispatcher ----------------------------------------------------------------------------

void DeviceRankExchange::collect() {
  RankStage stage(ranks_, "distinct");
  release_ahead();
  pass_->tables = call_.tables;
  pass_->failure = RankFailure::of([this] {
    pass_->places = KeyPlaces::of(call_);
    pass_->keys.collect(here_);
    pass_->batches.collect(here_, false);
    check_keys();
  });
}

void DeviceRankExchange::check_keys() {
  take_from(here_.memory.answer, [this](DeviceArena& arena) {
    pass_->keys.take_answer(here_, arena);
    pass_->batches.take_answer(here_, arena);
    return 0;
  });
  pass_->keys.copy_answer(here_);
  pass_->batches.copy_answer(here_);
  here_.memory.ready.record(here_.stream);
  here_.memory.ready.wait();
  pass_->keys.check(here_);
  pass_->batches.check(here_);
}

void DeviceRankExchange::exchange_facts(bool insert) {
  const size_t tables = call_.tables.size();
  std::vector<size_t> features(tables, 0), firsts;
  for (const size_t t : call_.table_of) ++features[t];
  size_t count = 0;
  for (size_t t = 0; t < tables; ++t) {
    firsts.push_back(count);
    count += here_.shares_batches(t) ? DeviceRankBatches::facts(features[t]) : 1;
  }
  RankFacts facts(ranks_, count);
  for (size_t t = 0; t < tables && pass_->failure.code == Code::kOk; ++t) {
    for (size_t r = 0; r < here_.ranks; ++r) {
      int64_t* const to = facts.to(r) + firsts[t];
      if (here_.shares_batches(t)) {
        pass_->batches.write_facts(here_, t, r, to);
      } else {
        *to = static_cast<int64_t>(pass_->keys.sent(here_.group(t, r)));
      }
    }
  }
  facts.exchange(
      [&](const char* what, const Collectives::Work& work) {
        ranks_.run(what + (" of " + call_.tables[0]->name()), work);
      },
      pass_->failure, call_, features, insert ? "insert, on a GPU" : "read, on a GPU");
  for (size_t t = 0; t < tables; ++t) {
    for (size_t r = 0; r < here_.ranks; ++r) {
      const int64_t* const from = facts.from(r) + firsts[t];
      if (here_.shares_batches(t)) {
        pass_->batches.read_facts(here_, t, r, from);
      } else {
        pass_->keys.set_received(here_.group(t, r), static_cast<size_t>(*from));
      }
    }
  }
}

void DeviceRankExchange::lay_out(Leg leg, DeviceMessages* home, DeviceMessages* owner) {
  home->lay_out(call_.tables.size(), here_.ranks, [&](size_t t, size_t r) {
    return here_.shares_batches(t) ? pass_->batches.home_bytes(here_, leg, t, r)
                                   : pass_->keys.home_bytes(here_, leg, t, r);
  });
  owner->lay_out(call_.tables.size(), here_.ranks, [&](size_t t, size_t r) {
    return here_.shares_batches(t) ? pass_->batches.owner_bytes(here_, leg, t, r)
                                   : pass_->keys.owner_bytes(here_, leg, t, r);
  });
}

void DeviceRankExchange::send_keys(bool insert) {
  exchange_facts(insert);
  lay_out(Leg::kKeys, &pass_->messages.keys_sent, &pass_->messages.keys_received);
  lay_out(Leg::kRows, &pass_->messages.home_rows, &pass_->messages.owner_rows);
  pass_->keys.place_keys(here_, false);
  pass_->batches.write_keys(here_);
  exchange("keys", pass_->messages.keys_sent, pass_->messages.keys_received);
  pass_->owner = {};
  for (size_t t = 0; t < call_.tables.size(); ++t) {
    if (here_.shares_batches(t)) {
      pass_->batches.add_features(here_, t, &pass_->owner);
    } else {
      pass_->keys.add_features(here_, t, &pass_->owner);
    }
  }
  add_outputs();
}

void DeviceRankExchange::release_ahead() {
  if (pass_->ahead == nullptr) return;
  pass_->ahead->release(here_.stream);
  pass_->ahead.reset();
}

void DeviceRankExchange::take_prefetched(const PrefetchedBatch& batch, const RankPass& keys) {
  RankStage stage(ranks_, "distinct");
  release_ahead();
  prefetched_ = &batch;
  pass_->tables = call_.tables;
  pass_->places = KeyPlaces::of(call_);
  pass_->keys.collect(here_);
  pass_->batches.collect(here_, true);
  pass_->keys.set_sent(here_, keys);
  pass_->batches.set_sent(here_);
  pass_->ahead = std::static_pointer_cast<DeviceFeaturesAhead>(keys.ahead);
  pass_->owner = {};
  pass_->owner.features = pass_->ahead->use(here_.stream);
  pass_->owner.table_of = keys.owner.table_of;
  const Feature* next = pass_->owner.features.data();
  for (size_t t = 0; t < call_.tables.size(); ++t) {
    if (here_.shares_batches(t)) {
      pass_->batches.take_received(here_, t, next);
    } else {
      pass_->keys.take_received(here_, t, next);
    }
    next += std::count(pass_->owner.table_of.begin(), pass_->owner.table_of.end(), t);
  }
  lay_out(Leg::kRows, &pass_->messages.home_rows, &pass_->messages.owner_rows);
  pass_->keys.place_keys(here_, true);
  add_outputs();
  const size_t bytes = device_fingerprint_scratch(call_.features.size());
  uint64_t* const there = take_from(here_.memory.fingerprint,
                                    [](DeviceArena& arena) { return arena.take<uint64_t>(1); });
  fingerprint_ =
      take_from(here_.memory.answer, [](DeviceArena& arena) { return arena.take<uint64_t>(1); });
  device_fingerprint(call_.features.data(), call_.features.size(), there, here_.scratch(bytes),
                     bytes, here_.stream);
  copy_async(fingerprint_, there, 1, here_.stream);
  here_.memory.ready.record(here_.stream);
}

bool DeviceRankExchange::is_prefetched() {
  here_.memory.ready.wait();
  return *fingerprint_ == prefetched_->fingerprint();
}

void DeviceRankExchange::add_outputs() {
  for (size_t t = 0; t < call_.tables.size(); ++t) {
    if (here_.shares_batches(t)) {
      pass_->batches.add_outputs(here_, t, &pass_->owner);
    } else {
      pass_->keys.add_outputs(here_, t, &pass_->owner);
    }
  }
  pass_->owner_ticket = 0;
}

LayerCall DeviceRankExchange::owner_call() const {
  return {call_.tables, pass_->owner.features, pass_->owner.table_of, call_.executor};
}

// --- lookup at the owner, and output dispatcher --------------------------------------------------

void DeviceRankExchange::look_up(bool insert, size_t* missing) {
  {
    RankStage stage(ranks_, "lookup");
    pass_->owner_ticket =
        device_forward_local(owner_call(), insert, pass_->owner.outputs, missing, here_.stream);
  }
  // The device has done this long before: the lookup waited for what comes after it.
  if (prefetched_ != nullptr && !is_prefetched()) prefetched_->refuse(call_);
  bool travel = false;  // rows of replicated tables are here
  for (size_t t = 0; t < call_.tables.size(); ++t) travel = travel || !here_.is_replicated(t);
  if (travel) exchange("rows", pass_->messages.owner_rows, pass_->messages.home_rows);
}

void DeviceRankExchange::pool(const std::vector<float*>& pooled) {
  RankStage stage(ranks_, "pool");
  pass_->keys.pool(here_, pooled);
  pass_->batches.pool(here_, pooled);
}

// --- the same way back ---------------------------------------------------------------------------

void DeviceRankExchange::backward(const std::vector<const float*>& gradients,
                                  const BackwardOptions& options) {
  {
    RankStage stage(ranks_, "sum");
    lay_out(Leg::kGradients, &pass_->messages.home_rows, &pass_->messages.owner_rows);
    pass_->keys.write_gradients(here_, gradients);
    pass_->batches.write_gradients(here_, gradients);
  }
  exchange("gradients", pass_->messages.home_rows, pass_->messages.owner_rows);
  RankStage stage(ranks_, "update");
  std::vector<const float*>& received = pass_->owner.gradients;
  received.clear();
  for (size_t t = 0; t < call_.tables.size(); ++t) {
    if (here_.shares_batches(t)) {
      pass_->batches.add_gradients(here_, t, &pass_->owner);
    } else {
      pass_->keys.add_gradients(here_, t, &pass_->owner);
    }
  }
  BackwardOptions here = options;
  here.ticket = pass_->owner_ticket;
  device_backward_local(owner_call(), received, here, here_.stream);
}

void DeviceRankExchange::exchange(const char* leg, const DeviceMessages& sent,
                                  const DeviceMessages& received) {
  RankStage stage(ranks_, leg);
  stage.count(sent.bytes, received.bytes);
  const std::string what = leg + (" of " + call_.tables[0]->name());
  const auto first = [](const DeviceMessages& messages) {
    return messages.total == 0 ? nullptr : messages.memory.data();
  };
  ranks_.run(what, [&](Communicator&) {
    on_gpu_.begin(what);
    on_gpu_.all_to_all(first(sent), sent.bytes.data(), first(received), received.bytes.data(),
                       here_.stream);
  });
  // No caller waits for the arrival. The queue waits for it, and so detects ranks that fail
  // meanwhile.
  ranks_.when_done(
      ranks_.submit("the arrival of " + what, [gpu = &on_gpu_](Communicator&) { gpu->finish(); }),
      [](std::exception_ptr) {});
}

}  // namespace hotrow
