#include <algorithm>
#include <limits>

#include "core/gpu/kernels/device_code.h"
#include "core/gpu/kernels/pooling.h"
#include "core/gpu/step/call.h"
#include "core/gpu/step/layer.h"
#include "core/gpu/step/passes.h"
#include "core/gpu/step/rank_step.h"
#include "core/ranks/step.h"

namespace hotrow {
namespace {

class LayerOnDevice {
 public:
  LayerOnDevice(const LayerCall& call, DeviceStream stream)
      : call_(call), here_(call.tables, call.executor, stream) {}

  DeviceWorkspace& work() const { return here_.work(); }

  // Finds the rows of all keys. Returns how many distinct keys have none.
  size_t find(Find how, DeviceBatch* batch);
  void pool(const DeviceBatch& batch, const std::vector<float*>& pooled);
  // The batch of a forward pass, if its keys have the rows that they had, wherever those are now.
  DeviceBatch* find_batch(int64_t ticket);
  // A key that had no row in the forward pass gets no gradient, even if it has a row now.
  void keep_absent(const DeviceBatch& before, DeviceBatch* batch);
  // Of the distinct keys of a batch, from those of the outputs.
  DeviceGradients gradients_of(const DeviceBatch& batch,
                               const std::vector<const float*>& gradients);
  // They wait in a slot of the tables' passes.
  void keep(const DeviceBatch& batch, const DeviceGradients& gradients, size_t slot);
  void update(const DeviceBatch& batch, const DeviceGradients& gradients,
              const BackwardOptions& options);

 private:
  // wrong: by value, since the key is read to where it may lie.
  [[noreturn]] void refuse(const KeyPlaces& places, const CallKeys& keys, WrongKeys wrong);
  void count_lookups(const CallKeys& keys, DeviceBatch* batch);
  std::vector<DeviceFeature> features_of(const DeviceBatch& batch) const;

  const LayerCall& call_;
  DeviceCall here_;
};

void LayerOnDevice::refuse(const KeyPlaces& places, const CallKeys& keys, WrongKeys wrong) {
  if (wrong.feature != WrongKeys::kNone) refuse_splits(call_, wrong);
  auto* const key = reinterpret_cast<int64_t*>(here_.work().answer.data());
  here_.read(key, keys.keys + wrong.key, 1);
  refuse_key(call_, places, wrong, *key);
}

void LayerOnDevice::count_lookups(const CallKeys& keys, DeviceBatch* batch) {
  const size_t count = batch->count(), tables = call_.tables.size();
  batch->counted = take_from(batch->counted_memory, [&](DeviceArena& arena) {
    return DeviceLookups::take(arena, count, tables);
  });
  const size_t bytes = device_count_lookups_scratch(count);
  device_count_lookups(keys.pieces, batch->unique.inverse, batch->unique.table_first, tables,
                       batch->counted, here_.scratch(bytes), bytes, here_.stream());
}

size_t LayerOnDevice::find(Find how, DeviceBatch* batch) {
  batch->ticket = 0;  // nobody's, if this fails
  batch->keys = KeyPlaces::of(call_);
  batch->counted = {};
  batch->lookups.clear();
  const size_t tables = call_.tables.size();
  for (size_t t = 0; t < tables; ++t) batch->lookups.push_back(batch->keys.count_of(t));
  const CallKeys keys =
      CallKeys::collect(call_, batch->keys, &here_.work().described, here_.stream());
  here_.distinct({keys.keys, batch->count(), keys.table_begins, tables}, batch);
  if (keys.counted) count_lookups(keys, batch);
  return here_.find(
      how, keys.wrong, [&](const WrongKeys& wrong) { refuse(batch->keys, keys, wrong); }, batch);
}

std::vector<DeviceFeature> LayerOnDevice::features_of(const DeviceBatch& batch) const {
  std::vector<DeviceFeature> features;
  for (size_t f = 0; f < call_.features.size(); ++f) {
    const size_t t = call_.table_of[f];
    DeviceFeature feature;
    feature.segments = call_.features[f].segments;
    feature.first_key = batch.keys.first_key[f];
    feature.width = call_.tables[t]->width();
    feature.weights = call_.tables[t]->shape().layout.weights;
    feature.default_line = here_.tier(t).default_line();
    features.push_back(feature);
  }
  return features;
}

void LayerOnDevice::pool(const DeviceBatch& batch, const std::vector<float*>& pooled) {
  std::vector<DeviceFeature> features = features_of(batch);
  for (size_t f = 0; f < features.size(); ++f) features[f].pooled = pooled[f];
  const size_t bytes = device_pool_scratch(features.size());
  device_pool(features.data(), features.size(), batch.probed.lines, batch.unique.inverse,
              here_.scratch(bytes), bytes, here_.stream());
}

// --- backward ------------------------------------------------------------------------------------

DeviceBatch* LayerOnDevice::find_batch(int64_t ticket) {
  if (ticket == 0) return nullptr;
  const KeyPlaces wanted = KeyPlaces::of(call_);
  for (DeviceBatch& batch : here_.work().batches) {
    if (batch.ticket != ticket || batch.tables != call_.tables) continue;
    return batch.keys == wanted && batch.holds_in_host() ? &batch : nullptr;
  }
  return nullptr;
}

void LayerOnDevice::keep_absent(const DeviceBatch& before, DeviceBatch* batch) {
  device_drop_absent(before.probed, batch->unique.table_first + call_.tables.size(), batch->count(),
                     batch->probed, here_.stream());
  batch->lookups = before.lookups;
}

DeviceGradients LayerOnDevice::gradients_of(const DeviceBatch& batch,
                                            const std::vector<const float*>& gradients) {
  const size_t count = batch.count();
  const std::vector<DeviceFeature> features = features_of(batch);
  bool plain = true;
  for (const DeviceFeature& feature : features) plain = plain && feature.segments.plain();
  DeviceTerms terms;
  DevicePositions positions;
  take_from(here_.work().terms, [&](DeviceArena& arena) {
    terms = DeviceTerms::take(arena, count, !plain);
    positions = DevicePositions::take(arena, count);
  });
  const size_t bytes =
      std::max(device_pool_scratch(features.size()), device_positions_scratch(count));
  device_terms(features.data(), gradients.data(), features.size(), terms, here_.scratch(bytes),
               bytes, here_.stream());
  device_positions(batch.unique, count, positions, here_.scratch(bytes), bytes, here_.stream());
  return {terms.rows, terms.shares, positions.begins, positions.order, count};
}

void LayerOnDevice::keep(const DeviceBatch& batch, const DeviceGradients& gradients, size_t slot) {
  const size_t tables = call_.tables.size();
  std::vector<DeviceSummed> summed;
  std::vector<DeviceSums> sums;
  size_t most_width = 0;
  for (size_t t = 0; t < tables; ++t) {
    const size_t width = call_.tables[t]->width();
    most_width = std::max(most_width, width);
    std::shared_ptr<DevicePass>& pass = call_.tables[t]->passes.begin_pass(slot).device;
    if (pass == nullptr) pass = std::make_shared<DevicePass>();
    pass->distinct = 0;  // if there is no memory
    const size_t distinct = batch.distinct_first[t + 1] - batch.distinct_first[t];
    pass->summed = take_from(pass->memory, [&](DeviceArena& arena) {
      return DeviceSummed::take(arena, distinct, width);
    });
    pass->distinct = distinct;
    pass->lookups = batch.lookups[t];
    summed.push_back(pass->summed);
    sums.push_back({width, pass->summed.sums});
  }
  const size_t note_bytes = device_note_keys_scratch(tables);
  DeviceUnique noted = batch.unique;
  noted.counts = batch.counts();
  device_note_keys(summed.data(), tables, noted, batch.probed.lines, batch.count(),
                   here_.scratch(note_bytes), note_bytes, here_.stream());
  const size_t sum_bytes = device_sum_scratch(batch.count(), tables, most_width);
  device_sum(sums.data(), tables, batch.unique.table_first, gradients, here_.scratch(sum_bytes),
             sum_bytes, here_.stream());
}

void LayerOnDevice::update(const DeviceBatch& batch, const DeviceGradients& gradients,
                           const BackwardOptions& options) {
  DeviceDue due;
  due.gradients = gradients;
  due.counts = batch.counts();
  due.factors.assign(call_.tables.size(), 1.0f);
  due.learning_rates = options.learning_rates;
  due.global_clip_norm = options.global_clip_norm;
  here_.apply(batch, due);
  here_.end_update(batch, due);
}

}  // namespace

int64_t device_forward(const LayerCall& call, bool insert, const std::vector<float*>& pooled,
                       size_t* missing, DeviceStream stream) {
  return on_ranks(call.tables) ? device_rank_forward(call, insert, pooled, missing, stream)
                               : device_forward_local(call, insert, pooled, missing, stream);
}

void device_backward(const LayerCall& call, const std::vector<const float*>& gradients,
                     const BackwardOptions& options, DeviceStream stream) {
  if (on_ranks(call.tables)) {
    device_rank_backward(call, gradients, options, stream);
  } else {
    device_backward_local(call, gradients, options, stream);
  }
}

int64_t device_forward_local(const LayerCall& call, bool insert, const std::vector<float*>& pooled,
                             size_t* missing, DeviceStream stream) {
  LayerOnDevice here(call, stream);
  DeviceWorkspace& work = here.work();
  DeviceBatch* batch = &work.own;
  if (insert) {
    for (Table* table : call.tables) {
      table->passes.begin_forward();
      table->wait_for_snapshot();
    }
    batch = &work.next_batch();
  }
  const size_t absent = here.find(insert ? Find::kTrain : Find::kRead, batch);
  here.pool(*batch, pooled);
  if (missing != nullptr) *missing = absent;
  if (!insert) return 0;
  batch->ticket = next_ticket();
  batch->spent = false;
  return batch->ticket;
}

void device_backward_local(const LayerCall& call, const std::vector<const float*>& gradients,
                           const BackwardOptions& options, DeviceStream stream) {
  LayerOnDevice here(call, stream);
  DeviceBatch* batch = here.find_batch(options.ticket);
  DeviceBatch* const before = batch;
  if (batch == nullptr || !batch->holds()) {
    batch = &here.work().own;
    here.find(Find::kTrainUncounted, batch);
    if (before != nullptr) here.keep_absent(*before, batch);
  }
  if (before != nullptr) before->spent = true;
  if (options.what == Backward::kCommit) {
    for (Table* table : call.tables) table->passes.begin_immediate(options.slot);
  }
  const DeviceGradients summed = here.gradients_of(*batch, gradients);
  if (options.what == Backward::kAccumulate) {
    here.keep(*batch, summed, options.slot);
  } else {
    here.update(*batch, summed, options);
  }
}

}  // namespace hotrow
