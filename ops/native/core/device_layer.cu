#include <algorithm>
#include <limits>

#include "core/device_call.h"
#include "core/device_code.h"
#include "core/device_layer.h"
#include "core/device_passes.h"
#include "core/device_pooling.h"

namespace hotrow {
namespace {

// What a call needs on the device before its lookup.
struct Described {
  Described(DeviceArena& arena, size_t features, size_t tables, size_t keys) {
    pieces = arena.take<DeviceKeyPiece>(features);
    begins = arena.take<uint32_t>(features + 1);
    split_begins = arena.take<uint32_t>(features + 1);
    table_begins = arena.take<uint32_t>(tables + 1);
    wrong = arena.take<WrongKeys>(1);
    this->keys = arena.take<int64_t>(keys);
  }
  DeviceKeyPiece* pieces;
  uint32_t *begins, *split_begins, *table_begins;
  WrongKeys* wrong;
  int64_t* keys;
};

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
  void order_features(DeviceBatch* batch) const;
  void collect(DeviceBatch* batch, Described* described);
  [[noreturn]] void refuse(const DeviceBatch& batch, const Described& described,
                           const WrongKeys& wrong);
  std::vector<DeviceFeature> features_of(const DeviceBatch& batch) const;

  const LayerCall& call_;
  DeviceCall here_;
};

void LayerOnDevice::order_features(DeviceBatch* batch) const {
  batch->first_key.assign(call_.features.size(), 0);
  batch->begins.assign(1, 0);
  batch->lookups.clear();
  size_t count = 0;
  for (size_t t = 0; t < call_.tables.size(); ++t) {
    for (size_t f = 0; f < call_.features.size(); ++f) {
      if (call_.table_of[f] != t) continue;
      const Segments& segments = call_.features[f].segments;
      // With row_splits, the device looks.
      if (segments.row_splits == nullptr) check_segments(segments, call_.features[f].name);
      batch->first_key[f] = count;
      count += segments.keys;
      if (count > size_t{std::numeric_limits<int32_t>::max()} - 1) {
        fail(Code::kInvalidArgument, "a batch of more than 2147483646 keys in one lookup");
      }
    }
    batch->lookups.push_back(count - batch->begins.back());
    batch->begins.push_back(static_cast<uint32_t>(count));
  }
}

void LayerOnDevice::collect(DeviceBatch* batch, Described* described) {
  const size_t count = batch->count(), features = call_.features.size();
  std::vector<DeviceKeyPiece> pieces;
  std::vector<uint32_t> begins, split_begins(1, 0);
  uint64_t splits = 0;
  for (size_t t = 0; t < call_.tables.size(); ++t) {
    for (size_t f = 0; f < features; ++f) {
      if (call_.table_of[f] != t) continue;
      const Segments& s = call_.features[f].segments;
      pieces.push_back({call_.features[f].keys, s.row_splits,
                        call_.tables[t]->options().vocabulary_size, static_cast<int64_t>(s.keys)});
      begins.push_back(static_cast<uint32_t>(batch->first_key[f]));
      splits += s.row_splits == nullptr ? 0 : s.samples + 1;
      if (splits > WrongKeys::kNone - 1)
        fail(Code::kInvalidArgument, "more than 2^32 - 2 row_splits");
      split_begins.push_back(static_cast<uint32_t>(splits));
    }
  }
  begins.push_back(static_cast<uint32_t>(count));
  const Described& d = *described;
  upload(d.pieces, pieces.data(), features, here_.stream());
  upload(d.begins, begins.data(), features + 1, here_.stream());
  upload(d.table_begins, batch->begins.data(), call_.tables.size() + 1, here_.stream());
  if (splits > 0) upload(d.split_begins, split_begins.data(), features + 1, here_.stream());
  device_collect_keys({d.pieces, features, d.begins, splits == 0 ? nullptr : d.split_begins, count,
                       static_cast<size_t>(splits)},
                      d.keys, d.wrong, here_.stream());
}

void LayerOnDevice::refuse(const DeviceBatch& batch, const Described& described,
                           const WrongKeys& wrong) {
  if (wrong.feature != WrongKeys::kNone) {
    size_t number = wrong.feature;
    for (size_t t = 0; t < call_.tables.size(); ++t) {
      for (size_t f = 0; f < call_.features.size(); ++f) {
        if (call_.table_of[f] != t || number-- != 0) continue;
        fail(Code::kInvalidArgument, "feature %s: row_splits must ascend from 0 to %zu",
             call_.features[f].name, call_.features[f].segments.keys);
      }
    }
  }
  const size_t at = wrong.key;
  const auto next = std::upper_bound(batch.begins.begin(), batch.begins.end(), at);
  const Table& table = *call_.tables[static_cast<size_t>(next - batch.begins.begin()) - 1];
  auto* const key = reinterpret_cast<int64_t*>(here_.work().answer.data());
  here_.read(key, described.keys + at, 1);
  fail(Code::kOutOfRange, "table %s: key %lld; its vocabulary_size allows [0, %lld)",
       table.name().c_str(), static_cast<long long>(*key),
       static_cast<long long>(table.options().vocabulary_size));
}

size_t LayerOnDevice::find(Find how, DeviceBatch* batch) {
  batch->ticket = 0;  // nobody's, if this fails
  order_features(batch);
  const size_t count = batch->count(), tables = call_.tables.size();
  Described described = take_from(here_.work().described, [&](DeviceArena& arena) {
    return Described(arena, call_.features.size(), tables, count);
  });
  collect(batch, &described);
  here_.distinct({described.keys, count, described.table_begins, tables}, batch);
  return here_.find(
      how, batch->unique.counts, described.wrong,
      [&](const WrongKeys& wrong) { refuse(*batch, described, wrong); }, batch);
}

std::vector<DeviceFeature> LayerOnDevice::features_of(const DeviceBatch& batch) const {
  std::vector<DeviceFeature> features;
  for (size_t f = 0; f < call_.features.size(); ++f) {
    const size_t t = call_.table_of[f];
    DeviceFeature feature;
    feature.segments = call_.features[f].segments;
    feature.first_key = batch.first_key[f];
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
  device_pool(features.data(), features.size(), batch.plan.lines, batch.unique.inverse,
              here_.scratch(bytes), bytes, here_.stream());
}

// --- backward ------------------------------------------------------------------------------------

DeviceBatch* LayerOnDevice::find_batch(int64_t ticket) {
  if (ticket == 0) return nullptr;
  DeviceBatch wanted;
  order_features(&wanted);
  for (DeviceBatch& batch : here_.work().batches) {
    if (batch.ticket != ticket || batch.tables != call_.tables) continue;
    const bool same = batch.first_key == wanted.first_key && batch.begins == wanted.begins;
    return same && batch.holds_in_host() ? &batch : nullptr;
  }
  return nullptr;
}

void LayerOnDevice::keep_absent(const DeviceBatch& before, DeviceBatch* batch) {
  device_drop_absent(before.plan, batch->unique.table_first + call_.tables.size(), batch->count(),
                     batch->plan, here_.stream());
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
  device_note_keys(summed.data(), tables, batch.unique, batch.plan.lines, batch.count(),
                   here_.scratch(note_bytes), note_bytes, here_.stream());
  const size_t sum_bytes = device_sum_scratch(batch.count(), tables, most_width);
  device_sum(sums.data(), tables, batch.unique.table_first, gradients, here_.scratch(sum_bytes),
             sum_bytes, here_.stream());
}

void LayerOnDevice::update(const DeviceBatch& batch, const DeviceGradients& gradients,
                           const BackwardOptions& options) {
  DeviceDue due;
  due.gradients = gradients;
  due.counts = batch.unique.counts;
  due.factors.assign(call_.tables.size(), 1.0f);
  due.learning_rates = options.learning_rates;
  due.global_clip_norm = options.global_clip_norm;
  here_.apply(batch, due);
  here_.end_update(batch, due);
}

}  // namespace

int64_t device_forward(const LayerCall& call, bool insert, const std::vector<float*>& pooled,
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

void device_backward(const LayerCall& call, const std::vector<const float*>& gradients,
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
