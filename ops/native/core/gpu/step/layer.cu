#include <algorithm>
#include <memory>
#include <utility>

#include "core/gpu/kernels/device_code.h"
#include "core/gpu/kernels/pooling.h"
#include "core/gpu/step/call.h"
#include "core/gpu/step/keys_ahead.h"
#include "core/gpu/step/layer.h"
#include "core/gpu/step/passes.h"
#include "core/gpu/step/rank_step.h"
#include "core/ranks/step.h"
#include "core/table/step.h"

namespace hotrow {
namespace {

// The batch of a forward pass, if its keys still have the same rows, in whatever tier.
DeviceBatch* find_batch(DeviceWorkspace& work, const LayerCall& call, int64_t ticket) {
  if (ticket == 0) return nullptr;
  const KeyPlaces wanted = KeyPlaces::of(call);
  for (DeviceBatch& batch : work.batches) {
    if (batch.ticket != ticket || batch.tables != call.tables) continue;
    return batch.keys == wanted && batch.holds_in_host() ? &batch : nullptr;
  }
  return nullptr;
}

// Whether the end of an update waits, for rows that look expired.
bool end_waits(const DeviceBatch& batch) {
  return std::any_of(batch.tables.begin(), batch.tables.end(),
                     [](const Table* table) { return table->options().expiry.any(); });
}

// What a backward pass does, if no row moves before it has the locks.
DeviceWork work_of(const LayerCall& call, const BackwardOptions& options) {
  const std::vector<GpuTier*> tiers = tiers_on_one_gpu(call.tables);
  const TableLocks locks(call.tables, false);
  DeviceWorkspace* const work = tiers[0]->workspace.get();
  const DeviceBatch* found = nullptr;
  if (work != nullptr) found = find_batch(*work, call, options.ticket);
  if (found == nullptr || !found->holds()) return DeviceWork::kLookUp;
  if (options.what == Backward::kAccumulate) return DeviceWork::kEnqueue;
  // The norm over ranks goes through the host.
  const bool norm = options.global_clip_norm > 0.0f && call.tables[0]->sharding().ranks != nullptr;
  return norm || end_waits(*found) ? DeviceWork::kWait : DeviceWork::kEnqueue;
}

// The backend of table/step.h for rows on a GPU, except for commits (gpu/step/commit.cu).
class LayerOnDevice {
 public:
  LayerOnDevice(const LayerCall& call, DeviceWork work, DeviceStream stream)
      : call_(call),
        ahead_(work == DeviceWork::kLookUp ? std::make_unique<DeviceKeysAhead>(call, stream)
                                           : nullptr),
        here_(call.tables, call.executor, stream, work) {}

  const std::vector<Table*>& tables() const { return call_.tables; }
  DeviceBatch& next_batch();
  DeviceBatch& own_batch() { return here_.work().own; }
  DeviceBatch& batch_of(int64_t ticket);
  void find(Find how, DeviceBatch* batch);
  size_t missing(const DeviceBatch& batch) const { return batch.absent; }
  void pool(const DeviceBatch& batch, const std::vector<float*>& pooled);
  DeviceGradients sum(const DeviceBatch& batch, const std::vector<const float*>& gradients);
  void keep(const DeviceBatch& batch, const DeviceGradients& gradients, size_t slot);
  void update(const DeviceBatch& batch, const DeviceGradients& gradients,
              const BackwardOptions& options);

 private:
  // wrong: by value, since reading the key may overwrite its memory.
  [[noreturn]] void refuse(const KeyPlaces& places, const CallKeys& keys, WrongKeys wrong);
  CallKeys keys_of(DeviceBatch* batch);
  // passes: (T)
  void sum_into(const DeviceBatch& batch, const DeviceGradients& gradients,
                const std::vector<SummedGradients*>& passes);
  void drop_absent(const DeviceBatch& before, DeviceBatch* batch);
  std::vector<DeviceFeature> features_of(const DeviceBatch& batch) const;

  const LayerCall& call_;
  const std::unique_ptr<DeviceKeysAhead> ahead_;
  bool given_ = false;  // to a batch
  DeviceCall here_;
};

void LayerOnDevice::refuse(const KeyPlaces& places, const CallKeys& keys, WrongKeys wrong) {
  if (wrong.feature != WrongKeys::kNone) refuse_splits(call_, wrong);
  auto* const key = reinterpret_cast<int64_t*>(here_.work().answer.data());
  here_.read(key, keys.keys + wrong.key, 1);
  refuse_key(call_, places, wrong, *key);
}

DeviceBatch& LayerOnDevice::next_batch() {
  DeviceBatch& batch = here_.work().next_batch();
  batch.spent = false;
  return batch;
}

// Writes the keys of a batch: the first time those found ahead, if any.
CallKeys LayerOnDevice::keys_of(DeviceBatch* batch) {
  if (ahead_ != nullptr && !std::exchange(given_, true)) return ahead_->give_to(batch);
  DeviceWorkspace& work = here_.work();
  return find_distinct(call_, batch, &work.described, &work.scratch, here_.stream());
}

void LayerOnDevice::find(Find how, DeviceBatch* batch) {
  const CallKeys keys = keys_of(batch);
  batch->lookups.clear();
  const size_t tables = call_.tables.size();
  for (size_t t = 0; t < tables; ++t) batch->lookups.push_back(batch->keys.count_of(t));
  batch->absent = here_.find(
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

DeviceBatch& LayerOnDevice::batch_of(int64_t ticket) {
  DeviceBatch* const before = find_batch(here_.work(), call_, ticket);
  DeviceBatch* batch = before;
  if (before == nullptr || !before->holds()) {
    batch = &own_batch();
    find(Find::kTrainUncounted, batch);
    if (before != nullptr) drop_absent(*before, batch);
  }
  if (before != nullptr) before->spent = true;
  return *batch;
}

// A key that had no row in the forward pass gets no gradient, even if it has a row now.
void LayerOnDevice::drop_absent(const DeviceBatch& before, DeviceBatch* batch) {
  device_drop_absent(before.probed, batch->unique.table_first + call_.tables.size(), batch->count(),
                     batch->probed, here_.stream());
  batch->lookups = before.lookups;
}

DeviceGradients LayerOnDevice::sum(const DeviceBatch& batch,
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
  std::vector<SummedGradients*> passes;
  passes.reserve(call_.tables.size());
  try {
    for (Table* table : call_.tables) passes.push_back(&table->passes.begin_pass(slot));
    sum_into(batch, gradients, passes);
  } catch (...) {
    for (size_t t = 0; t < passes.size(); ++t) call_.tables[t]->passes.drop_pass(slot);
    throw;
  }
}

void LayerOnDevice::sum_into(const DeviceBatch& batch, const DeviceGradients& gradients,
                             const std::vector<SummedGradients*>& passes) {
  const size_t tables = call_.tables.size();
  std::vector<DeviceSummed> summed;
  std::vector<DeviceSums> sums;
  size_t most_width = 0;
  for (size_t t = 0; t < tables; ++t) {
    const size_t width = call_.tables[t]->width();
    most_width = std::max(most_width, width);
    std::shared_ptr<DevicePass>& pass = passes[t]->device;
    if (pass == nullptr) pass = std::make_shared<DevicePass>();
    pass->distinct = batch.distinct_first[t + 1] - batch.distinct_first[t];
    pass->summed = take_from(pass->memory, [&](DeviceArena& arena) {
      return DeviceSummed::take(arena, pass->distinct, width);
    });
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
  LayerOnDevice layer(call, DeviceWork::kLookUp, stream);
  return step_forward(layer, insert, pooled, missing);
}

void device_backward_local(const LayerCall& call, const std::vector<const float*>& gradients,
                           const BackwardOptions& options, DeviceStream stream) {
  LayerOnDevice layer(call, work_of(call, options), stream);
  step_backward(layer, gradients, options);
}

}  // namespace hotrow
