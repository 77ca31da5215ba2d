#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "core/device_keys.h"
#include "core/device_layer.h"
#include "core/device_pooling.h"
#include "core/device_update.h"
#include "core/device_workspace.h"
#include "core/gpu_tier.h"
#include "core/table_locks.h"

namespace hotrow {
namespace {

// What the host reads back of a lookup.
struct Answer {
  Answer(DeviceArena& arena, size_t tables, size_t missing) {
    wrong = arena.take<WrongKeys>(1);
    table_first = arena.take<uint32_t>(tables + 1);
    missing_first = arena.take<uint32_t>(tables + 1);
    keys = arena.take<int64_t>(missing);
    counts = arena.take<uint32_t>(missing);
  }
  WrongKeys* wrong;
  uint32_t *table_first, *missing_first;
  int64_t* keys;
  uint32_t* counts;
};

// And of an insertion.
struct InsertAnswer {
  InsertAnswer(DeviceArena& arena, size_t tables, size_t missing) {
    victim_first = arena.take<uint32_t>(tables + 1);
    bypass_first = arena.take<uint32_t>(tables + 1);
    evicted = arena.take<uint32_t>(tables);
    victim_places = arena.take<uint32_t>(missing);
    bypass_places = arena.take<uint32_t>(missing);
  }
  uint32_t *victim_first, *bypass_first, *evicted, *victim_places, *bypass_places;
};

// What a call needs on the device before its lookup.
struct Described {
  Described(DeviceArena& arena, size_t features, size_t tables, size_t keys) {
    pieces = arena.take<DeviceKeyPiece>(features);
    begins = arena.take<uint32_t>(features + 1);
    split_begins = arena.take<uint32_t>(features + 1);
    table_begins = arena.take<uint32_t>(tables + 1);
    wrong = arena.take<WrongKeys>(1);
    this->keys = arena.take<int64_t>(keys);
    missing_counts = arena.take<uint32_t>(keys);
  }
  DeviceKeyPiece* pieces;
  uint32_t *begins, *split_begins, *table_begins;
  WrongKeys* wrong;
  int64_t* keys;
  uint32_t* missing_counts;
};

// --- a call
// ---------------------------------------------------------------------------------------

enum class Find { kRead, kTrain, kTrainUncounted };

class DeviceCall {
 public:
  DeviceCall(const LayerCall& call, DeviceStream stream)
      : call_(call), stream_(stream), locks_(call.tables, true) {
    if (call.tables.empty()) fail(Code::kInvalidArgument, "a call without tables");
    for (Table* table : call.tables) {
      GpuTier* tier = gpu_tier_of(*table);
      if (tier == nullptr) {
        fail(Code::kFailedPrecondition,
             "table %s: its rows are in RAM; give it a cache on the GPU for keys that are there",
             table->name().c_str());
      }
      if (!tiers_.empty() && tier->device() != tiers_[0]->device()) {
        fail(Code::kInvalidArgument, "tables %s and %s are on different GPUs",
             call.tables[0]->name().c_str(), table->name().c_str());
      }
      tiers_.push_back(tier);
      caches_.push_back(tier->cache());
    }
    on_device_.emplace(tiers_[0]->device());
    if (tiers_[0]->workspace == nullptr) {
      tiers_[0]->workspace = std::make_unique<DeviceWorkspace>();
    }
    work_ = tiers_[0]->workspace.get();
    for (GpuTier* tier : tiers_) tier->begin(stream);
  }
  // Whatever became of the call, later ones come after what it put on the stream.
  ~DeviceCall() {
    try {
      for (GpuTier* tier : tiers_) tier->end(stream_);
    } catch (const Error&) {
    }
  }
  DeviceCall(const DeviceCall&) = delete;

  DeviceWorkspace& work() { return *work_; }

  // Finds the rows of all keys. Returns how many distinct keys have none.
  size_t find(Find how, DeviceBatch* batch);
  void pool(const DeviceBatch& batch, const std::vector<float*>& pooled);
  // The batch of a forward pass, if its keys have the rows that they had, wherever those are now.
  DeviceBatch* find_batch(int64_t ticket);
  // A key that had no row in the forward pass gets no gradient, even if it has a row now.
  void keep_absent(const DeviceBatch& before, DeviceBatch* batch);
  void update(const DeviceBatch& batch, const std::vector<const float*>& gradients,
              const float* learning_rates);
  void end_update(DeviceBatch* batch);

 private:
  size_t table_count() const { return call_.tables.size(); }
  void order_features(DeviceBatch* batch) const;
  void collect(DeviceBatch* batch, Described* described);
  Answer read_answer(const DeviceBatch& batch, const Described& described);
  [[noreturn]] void refuse(const DeviceBatch& batch, const Described& described, const Answer& a);
  void find_in_host(const Answer& answer, Find how, uint32_t* places,
                    std::vector<std::vector<const std::byte*>>* lines);
  size_t bring_in(const Answer& answer, Find how, DeviceBatch* batch);
  void unpin(const DeviceBatch& batch);
  std::vector<DeviceFeature> features_of(const DeviceBatch& batch) const;
  // Scratch memory for one kernel.
  void* scratch(size_t bytes) {
    work_->scratch.reserve(bytes);
    return work_->scratch.data();
  }

  const LayerCall& call_;
  DeviceStream stream_;
  TableLocks locks_;
  std::optional<OnDevice> on_device_;
  std::vector<GpuTier*> tiers_;
  std::vector<DeviceCache> caches_;
  DeviceWorkspace* work_;
};

void DeviceCall::order_features(DeviceBatch* batch) const {
  batch->first_key.assign(call_.features.size(), 0);
  batch->begins.assign(1, 0);
  size_t count = 0;
  for (size_t t = 0; t < table_count(); ++t) {
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
    batch->begins.push_back(static_cast<uint32_t>(count));
  }
}

void DeviceCall::collect(DeviceBatch* batch, Described* described) {
  const size_t count = batch->count(), features = call_.features.size();
  std::vector<DeviceKeyPiece> pieces;
  std::vector<uint32_t> begins, split_begins(1, 0);
  uint64_t splits = 0;
  for (size_t t = 0; t < table_count(); ++t) {
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
  upload(d.pieces, pieces.data(), features, stream_);
  upload(d.begins, begins.data(), features + 1, stream_);
  upload(d.table_begins, batch->begins.data(), table_count() + 1, stream_);
  if (splits > 0) upload(d.split_begins, split_begins.data(), features + 1, stream_);
  device_collect_keys({d.pieces, features, d.begins, splits == 0 ? nullptr : d.split_begins, count,
                       static_cast<size_t>(splits)},
                      d.keys, d.wrong, stream_);
}

Answer DeviceCall::read_answer(const DeviceBatch& batch, const Described& described) {
  const size_t tables = table_count(), count = batch.count();
  const size_t expected = std::min(work_->expected_missing, count);
  const Answer answer =
      take_from(work_->answer, [&](DeviceArena& arena) { return Answer(arena, tables, count); });
  copy_async(answer.wrong, described.wrong, 1, stream_);
  copy_async(answer.table_first, batch.unique.table_first, tables + 1, stream_);
  copy_async(answer.missing_first, batch.plan.missing_first, tables + 1, stream_);
  copy_async(answer.keys, batch.plan.missing_keys, expected, stream_);
  copy_async(answer.counts, described.missing_counts, expected, stream_);
  work_->ready.record(stream_);
  work_->ready.wait();
  const size_t missing = answer.missing_first[tables];
  work_->expected_missing = std::max(work_->expected_missing - work_->expected_missing / 8,
                                     std::max<size_t>(missing + missing / 4, 4096));
  if (missing > expected) {
    const size_t more = missing - expected;
    copy_async(answer.keys + expected, batch.plan.missing_keys + expected, more, stream_);
    copy_async(answer.counts + expected, described.missing_counts + expected, more, stream_);
    work_->ready.record(stream_);
    work_->ready.wait();
  }
  return answer;
}

void DeviceCall::refuse(const DeviceBatch& batch, const Described& described, const Answer& a) {
  if (a.wrong->feature != WrongKeys::kNone) {
    size_t number = a.wrong->feature;
    for (size_t t = 0; t < table_count(); ++t) {
      for (size_t f = 0; f < call_.features.size(); ++f) {
        if (call_.table_of[f] != t || number-- != 0) continue;
        fail(Code::kInvalidArgument, "feature %s: row_splits must ascend from 0 to %zu",
             call_.features[f].name, call_.features[f].segments.keys);
      }
    }
  }
  const size_t at = a.wrong->key;
  const auto next = std::upper_bound(batch.begins.begin(), batch.begins.end(), at);
  const Table& table = *call_.tables[static_cast<size_t>(next - batch.begins.begin()) - 1];
  copy_async(a.keys, described.keys + at, 1, stream_);
  work_->ready.record(stream_);
  work_->ready.wait();
  fail(Code::kOutOfRange, "table %s: key %lld; its vocabulary_size allows [0, %lld)",
       table.name().c_str(), static_cast<long long>(a.keys[0]),
       static_cast<long long>(table.options().vocabulary_size));
}

size_t DeviceCall::find(Find how, DeviceBatch* batch) {
  batch->ticket = 0;
  batch->spent = true;
  batch->tables = call_.tables;
  order_features(batch);
  const size_t count = batch->count(), tables = table_count();
  Described described = take_from(work_->described, [&](DeviceArena& arena) {
    return Described(arena, call_.features.size(), tables, count);
  });
  take_from(batch->memory, [&](DeviceArena& arena) {
    batch->unique = DeviceUnique::take(arena, count, tables);
    batch->plan = DevicePlan::take(arena, count, tables);
  });
  collect(batch, &described);
  const size_t unique_bytes = device_unique_scratch(count);
  device_unique({described.keys, count, described.table_begins, tables}, batch->unique,
                scratch(unique_bytes), unique_bytes, stream_);
  const size_t probe_bytes = device_cache_probe_scratch(count, tables);
  device_cache_probe(caches_.data(), tables, batch->unique, count,
                     how == Find::kRead ? DeviceLookup::kRead : DeviceLookup::kTrain, batch->plan,
                     scratch(probe_bytes), probe_bytes, stream_);
  device_count_missing(batch->plan, tables, batch->unique.counts, count, described.missing_counts,
                       stream_);
  size_t absent = 0;
  try {
    const Answer answer = read_answer(*batch, described);
    if (answer.wrong->key != WrongKeys::kNone || answer.wrong->feature != WrongKeys::kNone) {
      refuse(*batch, described, answer);
    }
    absent = bring_in(answer, how, batch);
  } catch (...) {
    if (how != Find::kRead) unpin(*batch);
    throw;
  }
  if (how != Find::kRead) unpin(*batch);
  batch->note_epochs();
  return absent;
}

void DeviceCall::unpin(const DeviceBatch& batch) {
  const size_t bytes = device_cache_unpin_scratch(table_count());
  device_cache_unpin(caches_.data(), table_count(), batch.unique.table_first, batch.plan.slots,
                     batch.count(), scratch(bytes), bytes, stream_);
}

void DeviceCall::find_in_host(const Answer& answer, Find how, uint32_t* places,
                              std::vector<std::vector<const std::byte*>>* lines) {
  for (size_t t = 0; t < table_count(); ++t) {
    Table& table = *call_.tables[t];
    const size_t first = answer.missing_first[t];
    const size_t missing = answer.missing_first[t + 1] - first;
    (*lines)[t].assign(missing, nullptr);
    if (missing == 0) continue;
    // What is on its way from the device is newer than the host tier's.
    tiers_[t]->finish(call_.executor);
    const uint32_t clock = table.step_in_lock() + 1;
    // A task has partitions to itself, and finds their keys in the order of the batch.
    const size_t tasks = missing < 2048 ? 1 : std::min<size_t>(call_.executor.threads(), 32);
    call_.executor.run(tasks, [&](size_t task) {
      for (size_t m = first; m < first + missing; ++m) {
        const int64_t key = answer.keys[m];
        const uint64_t hash = mix64(static_cast<uint64_t>(key));
        const size_t number = table.partition_number(key, hash);
        if (number % tasks != task) continue;
        Partition& partition = table.partition(number);
        std::unique_lock lock(partition.mutex, std::defer_lock);
        if (table.snapshot_open()) lock.lock();
        const uint32_t place =
            how == Find::kRead ? partition.find(hash, key)
                               : partition.find_or_insert(
                                     hash, key, how == Find::kTrain ? answer.counts[m] : 0, clock);
        places[m] = place == Partition::kAbsent ? kNoSlot : place;
        if (place != Partition::kAbsent) (*lines)[t][m - first] = partition.at(place);
      }
    });
  }
}

size_t DeviceCall::bring_in(const Answer& answer, Find how, DeviceBatch* batch) {
  const size_t tables = table_count(), missing = answer.missing_first[tables];
  const bool training = how != Find::kRead;
  batch->bypass_first.assign(tables + 1, 0);
  batch->bypass_places.clear();
  batch->lookups.assign(tables, 0);
  std::vector<CacheCounts> counts(tables);
  for (size_t t = 0; t < tables; ++t) {
    batch->lookups[t] = batch->begins[t + 1] - batch->begins[t];
    counts[t].misses = answer.missing_first[t + 1] - answer.missing_first[t];
    counts[t].hits = answer.table_first[t + 1] - answer.table_first[t] - counts[t].misses;
    const uint32_t* const times = answer.counts;
    counts[t].hit_lookups =
        batch->lookups[t] - std::accumulate(times + answer.missing_first[t],
                                            times + answer.missing_first[t + 1], uint64_t{0});
  }
  size_t absent = 0;
  if (missing > 0) {
    uint32_t* sent = nullptr;
    const InsertAnswer inserted = take_from(work_->sent, [&](DeviceArena& arena) {
      sent = arena.take<uint32_t>(missing);
      return InsertAnswer(arena, tables, missing);
    });
    std::vector<std::vector<const std::byte*>> lines(tables);
    find_in_host(answer, how, sent, &lines);
    // All memory before the first slot changes.
    size_t stride = 0;
    for (GpuTier* tier : tiers_) stride = std::max(stride, tier->stride());
    batch->bypass_memory.reserve(missing * stride);
    batch->bypass = {batch->bypass_memory.data(), stride};
    uint32_t* places = nullptr;
    const DeviceInserted out = take_from(work_->missing, [&](DeviceArena& arena) {
      places = arena.take<uint32_t>(missing);
      return DeviceInserted::take(arena, missing, tables);
    });
    const size_t insert_bytes = device_cache_insert_scratch(missing, tables);
    void* const insert_scratch = scratch(insert_bytes);
    copy_async(places, sent, missing, stream_);
    if (training) {
      device_cache_insert(caches_.data(), tables, batch->unique, batch->plan, missing, places,
                          DeviceLookup::kTrain, RowCache::Admit::kIfWorthMore, batch->bypass, out,
                          insert_scratch, insert_bytes, stream_);
      copy_async(inserted.victim_first, out.victim_first, tables + 1, stream_);
      copy_async(inserted.bypass_first, out.bypass_first, tables + 1, stream_);
      copy_async(inserted.evicted, out.evicted, tables, stream_);
      copy_async(inserted.victim_places, out.victim_places, missing, stream_);
      copy_async(inserted.bypass_places, out.bypass_places, missing, stream_);
      work_->ready.record(stream_);
    } else {
      device_set_beside(batch->plan, missing, places, batch->bypass, out.targets, stream_);
    }
    // Meanwhile the first rows are on their way.
    for (size_t t = 0; t < tables; ++t) {
      const auto none = std::count(lines[t].begin(), lines[t].end(), nullptr);
      absent += static_cast<size_t>(none);
      for (size_t i = 0; none > 0 && i < lines[t].size(); ++i) {
        if (lines[t][i] != nullptr) continue;
        batch->lookups[t] -= answer.counts[answer.missing_first[t] + i];
      }
      counts[t].inserted = lines[t].size() - static_cast<size_t>(none);
      tiers_[t]->begin_bring_in(std::move(lines[t]), call_.executor);
    }
    if (training) {
      work_->ready.wait();
      batch->bypass_first.assign(inserted.bypass_first, inserted.bypass_first + tables + 1);
      batch->bypass_places.assign(inserted.bypass_places,
                                  inserted.bypass_places + inserted.bypass_first[tables]);
      for (size_t t = 0; t < tables; ++t) {
        const uint32_t first = inserted.victim_first[t];
        tiers_[t]->send_back({out.victims + first, nullptr, 0}, inserted.victim_places + first,
                             inserted.victim_first[t + 1] - first, call_.executor, stream_);
        counts[t].inserted -= batch->bypass_first[t + 1] - batch->bypass_first[t];
        counts[t].evicted = inserted.evicted[t];
      }
    }
    for (size_t t = 0; t < tables; ++t) {
      tiers_[t]->end_bring_in(out.targets + answer.missing_first[t], call_.executor, stream_);
    }
  }
  for (size_t t = 0; t < tables && training; ++t) {
    if (how == Find::kTrainUncounted) {
      counts[t].hits = counts[t].hit_lookups = counts[t].misses = 0;
    }
    counts[t].written_back = tiers_[t]->take_written_back();
    call_.tables[t]->note_cached(counts[t]);
  }
  return absent;
}

std::vector<DeviceFeature> DeviceCall::features_of(const DeviceBatch& batch) const {
  std::vector<DeviceFeature> features;
  for (size_t f = 0; f < call_.features.size(); ++f) {
    const size_t t = call_.table_of[f];
    DeviceFeature feature;
    feature.segments = call_.features[f].segments;
    feature.first_key = batch.first_key[f];
    feature.width = call_.tables[t]->width();
    feature.weights = call_.tables[t]->shape().layout.weights;
    feature.default_line = tiers_[t]->default_line();
    features.push_back(feature);
  }
  return features;
}

void DeviceCall::pool(const DeviceBatch& batch, const std::vector<float*>& pooled) {
  std::vector<DeviceFeature> features = features_of(batch);
  for (size_t f = 0; f < features.size(); ++f) features[f].pooled = pooled[f];
  const size_t bytes = device_pool_scratch(features.size());
  device_pool(features.data(), features.size(), batch.plan.lines, batch.unique.inverse,
              scratch(bytes), bytes, stream_);
}

// --- backward
// -------------------------------------------------------------------------------------

DeviceBatch* DeviceCall::find_batch(int64_t ticket) {
  if (ticket == 0) return nullptr;
  DeviceBatch wanted;
  order_features(&wanted);
  for (DeviceBatch& batch : work_->batches) {
    if (batch.ticket != ticket || batch.tables != call_.tables) continue;
    const bool same = batch.first_key == wanted.first_key && batch.begins == wanted.begins;
    return same && batch.holds_in_host() ? &batch : nullptr;
  }
  return nullptr;
}

void DeviceCall::keep_absent(const DeviceBatch& before, DeviceBatch* batch) {
  device_drop_absent(before.plan, batch->unique.table_first + table_count(), batch->count(),
                     batch->plan, stream_);
  batch->lookups = before.lookups;
}

void DeviceCall::update(const DeviceBatch& batch, const std::vector<const float*>& gradients,
                        const float* learning_rates) {
  const size_t count = batch.count(), tables = table_count();
  const std::vector<DeviceFeature> features = features_of(batch);
  bool plain = true;
  size_t most_width = 0;
  for (const DeviceFeature& feature : features) plain = plain && feature.segments.plain();
  for (const Table* table : call_.tables) most_width = std::max(most_width, table->width());
  const size_t bytes =
      std::max({device_pool_scratch(features.size()), device_positions_scratch(count),
                device_update_scratch(count, tables, most_width)});
  std::byte* kernels = nullptr;
  DeviceTerms terms;
  DevicePositions positions;
  take_from(work_->scratch, [&](DeviceArena& arena) {
    kernels = arena.take<std::byte>(bytes);
    terms = DeviceTerms::take(arena, count, !plain);
    positions = DevicePositions::take(arena, count);
  });
  device_terms(features.data(), gradients.data(), features.size(), terms, kernels, bytes, stream_);
  device_positions(batch.unique, count, positions, kernels, bytes, stream_);
  std::vector<DeviceStep> steps(tables);
  for (size_t t = 0; t < tables; ++t) {
    Table& table = *call_.tables[t];
    const float rate =
        learning_rates == nullptr ? std::numeric_limits<float>::quiet_NaN() : learning_rates[t];
    steps[t].step = table.begin_update(rate, 1.0f);
    steps[t].step.corrections = tiers_[t]->corrections();
    table.add_lookups(batch.lookups[t]);
  }
  const DeviceGradients sums = {terms.rows, terms.shares, positions.begins, positions.order, count};
  device_update(steps.data(), tables, batch.unique.table_first, sums, batch.unique.counts,
                batch.plan.lines, kernels, bytes, stream_);
}

void DeviceCall::end_update(DeviceBatch* batch) {
  for (size_t t = 0; t < table_count(); ++t) {
    Table& table = *call_.tables[t];
    const uint32_t first = batch->bypass_first[t], last = batch->bypass_first[t + 1];
    if (last > first) {
      // Other passes that have these rows beside the slots must look again.
      table.void_plans();
      tiers_[t]->send_back(
          {nullptr, batch->bypass.lines + first * batch->bypass.stride, batch->bypass.stride},
          batch->bypass_places.data() + first, last - first, call_.executor, stream_);
    }
    if (!table.options().expiry.any()) continue;
    tiers_[t]->end(stream_);
    table.sweep_beside_device();
    table.end_sweep();
    tiers_[t]->begin(stream_);
  }
}

}  // namespace

int64_t device_forward(const LayerCall& call, bool insert, const std::vector<float*>& pooled,
                       size_t* missing, DeviceStream stream) {
  DeviceCall here(call, stream);
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
  if (options.what == Backward::kAccumulate || options.global_clip_norm > 0.0f) {
    fail(Code::kUnimplemented,
         "table %s: on a GPU gradients are applied at once: no accumulation, no global_clipnorm, "
         "no second use of a table in a step yet",
         call.tables.empty() ? "" : call.tables[0]->name().c_str());
  }
  DeviceCall here(call, stream);
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
  here.update(*batch, gradients, options.learning_rates);
  here.end_update(batch);
}

void device_commit(const std::vector<Table*>& tables, const float* witness, const float*, float,
                   const Executor& executor, DeviceStream stream) {
  LayerCall call;
  call.tables = tables;
  call.executor = executor;
  const DeviceCall here(call, stream);
  // Nothing waits: gradients that would are refused above.
  for (Table* table : tables) table->passes.end_step(witness);
}

}  // namespace hotrow
