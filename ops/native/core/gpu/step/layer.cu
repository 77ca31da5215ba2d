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
  // The norm over ranks goes through the host; the other ranks are waited for.
  const bool norm = options.global_clip_norm > 0.0f && call.tables[0]->sharding().ranks != nullptr;
  return norm || any_measures_together(call.tables) || end_waits(*found) ? DeviceWork::kWait
                                                                         : DeviceWork::kEnqueue;
}

// The backend of table/step.h for rows on a GPU, except for commits (gpu/step/commit.cu).
class LayerOnDevice {
 public:
  // pooled: of a forward pass, else null.
  LayerOnDevice(const LayerCall& call, const std::vector<float*>* pooled, DeviceWork work,
                DeviceStream stream)
      : call_(call),
        ahead_(work == DeviceWork::kLookUp ? std::make_unique<DeviceKeysAhead>(call, pooled, stream)
                                           : nullptr),
        here_(call.tables, call.executor, stream, work,
              ahead_ == nullptr ? std::nullopt : std::optional(ahead_->idle())) {}

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
  DeviceLookupKeys keys_of(DeviceBatch* batch);
  void pool(const DeviceBatch& batch, const DeviceIf& condition);
  // passes: (T)
  void sum_into(const DeviceBatch& batch, const DeviceGradients& gradients,
                const std::vector<SummedGradients*>& passes);
  void drop_absent(const DeviceBatch& before, DeviceBatch* batch);

  const LayerCall& call_;
  const std::unique_ptr<DeviceKeysAhead> ahead_;
  bool given_ = false;  // to a batch
  DeviceCall here_;
  DevicePieces pool_;
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
DeviceLookupKeys LayerOnDevice::keys_of(DeviceBatch* batch) {
  if (ahead_ != nullptr && !std::exchange(given_, true)) return ahead_->give_to(batch);
  DeviceWorkspace& work = here_.work();
  return find_distinct(call_, nullptr, batch, &work.described, &work.scratch, here_.stream());
}

void LayerOnDevice::find(Find how, DeviceBatch* batch) {
  const DeviceLookupKeys found = keys_of(batch);
  const CallKeys& keys = found.keys;
  pool_ = found.pool;
  batch->lookups.clear();
  const size_t tables = call_.tables.size();
  for (size_t t = 0; t < tables; ++t) batch->lookups.push_back(batch->keys.count_of(t));
  batch->absent = here_.find({how, found.caches, keys.wrong,
                              [&](const WrongKeys& wrong) { refuse(batch->keys, keys, wrong); },
                              [&](const DeviceIf& none_missing) { pool(*batch, none_missing); }},
                             batch);
}

void LayerOnDevice::pool(const DeviceBatch& batch, const DeviceIf& condition) {
  device_pool(pool_, batch.probed.lines, batch.unique.inverse, condition, here_.stream());
}

// A forward pass has described what it pools with its keys. Without missing keys, `find` pooled.
void LayerOnDevice::pool(const DeviceBatch& batch, const std::vector<float*>&) {
  if (batch.missing > 0) pool(batch, DeviceIf{});
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
  const size_t tables = call_.tables.size();
  const std::vector<DeviceFeature> features = features_of(call_, batch.keys);
  // Gradient rows of plain features are found by their positions; terms say where the others are.
  std::vector<DevicePlainRows> plain;
  std::vector<uint32_t> plain_first(tables + 1, 0);
  std::vector<DeviceFeature> others;
  std::vector<const float*> of_others;
  each_feature(call_, [&](size_t t, size_t f) {
    const bool is_plain = features[f].segments.plain();
    plain.push_back({is_plain ? gradients[f] : nullptr, features[f].first_key});
    plain_first[t + 1] = static_cast<uint32_t>(plain.size());
    if (is_plain) return;
    others.push_back(features[f]);
    of_others.push_back(gradients[f]);
  });
  for (size_t t = 0; t < tables; ++t) {
    plain_first[t + 1] = std::max(plain_first[t], plain_first[t + 1]);
  }
  const bool all_plain = others.empty();
  DeviceTerms terms;
  DevicePositions positions;
  take_from(here_.work().terms, [&](DeviceArena& arena) {
    if (!all_plain) terms = DeviceTerms::take(arena, count, true);
    positions = DevicePositions::take(arena, count);
  });
  DeviceDescribed* const described = here_.describe(features.size());
  here_.expect_terms(describe_terms(others.data(), of_others.data(), others.size(), described),
                     terms);
  DeviceGradients out = {terms.rows, terms.shares, positions.begins, positions.order,
                         count,      nullptr,      nullptr};
  if (others.size() < features.size()) {
    out.plain = described->add(plain);
    out.plain_first = described->add(plain_first);
  }
  const size_t bytes = device_positions_scratch(count);
  device_positions(batch.unique, count, positions, here_.scratch(bytes), bytes, here_.stream());
  return out;
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
  const DeviceSummed* const to = here_.described()->add(summed);
  const DescribedSums there = describe_sums(sums.data(), tables, here_.described());
  here_.send_described();
  DeviceUnique noted = batch.unique;
  noted.counts = batch.counts();
  device_note_keys(to, tables, noted, batch.probed.lines, batch.count(), here_.stream());
  const size_t sum_bytes = device_sum_scratch(batch.count(), tables, most_width);
  device_sum(there, batch.unique.table_first, gradients, here_.scratch(sum_bytes), sum_bytes,
             here_.stream());
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
  LayerOnDevice layer(call, &pooled, DeviceWork::kLookUp, stream);
  return step_forward(layer, insert, pooled, missing);
}

void device_backward_local(const LayerCall& call, const std::vector<const float*>& gradients,
                           const BackwardOptions& options, DeviceStream stream) {
  LayerOnDevice layer(call, nullptr, work_of(call, options), stream);
  step_backward(layer, gradients, options);
}

}  // namespace hotrow
