#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "core/gpu/kernels/device_code.h"
#include "core/gpu/kernels/norm.h"
#include "core/gpu/step/call.h"

namespace hotrow {

// What the host reads back from an insertion.
struct DeviceCall::InsertAnswer {
  InsertAnswer() = default;
  InsertAnswer(DeviceArena& arena, size_t tables, size_t missing) {
    victim_first = arena.take<uint32_t>(tables + 1);
    bypass_first = arena.take<uint32_t>(tables + 1);
    evicted = arena.take<uint32_t>(tables);
    victim_places = arena.take<uint32_t>(missing);
    bypass_places = arena.take<uint32_t>(missing);
  }
  uint32_t *victim_first, *bypass_first, *evicted, *victim_places, *bypass_places;
};

std::vector<GpuTier*> tiers_on_one_gpu(const std::vector<Table*>& tables) {
  if (tables.empty()) fail(Code::kInvalidArgument, "a call without tables");
  std::vector<GpuTier*> tiers;
  for (Table* table : tables) {
    GpuTier* tier = gpu_tier_of(*table);
    if (tier == nullptr) {
      fail(Code::kFailedPrecondition,
           "table %s: its rows are in RAM; give it a cache on the GPU for keys that are there",
           table->name().c_str());
    }
    if (!tiers.empty() && tier->device() != tiers[0]->device()) {
      fail(Code::kInvalidArgument, "tables %s and %s are on different GPUs",
           tables[0]->name().c_str(), table->name().c_str());
    }
    tiers.push_back(tier);
  }
  return tiers;
}

DeviceCall::DeviceCall(const std::vector<Table*>& tables, const Executor& executor,
                       DeviceStream stream, DeviceWork work, const std::optional<DeviceIdle>& idle)
    : tables_(tables), executor_(executor), stream_(stream), tiers_(tiers_on_one_gpu(tables)) {
  on_device_.emplace(tiers_[0]->device());
  if (work == DeviceWork::kEnqueue) {
    locks_.emplace(tables_, true);
  } else {
    const auto lock = [&] { return TableLocks(tables_, true); };
    if (idle.has_value()) {
      locks_ = lock_when_idle(tiers_, stream, idle->event, lock, idle->uses);
    } else {
      DeviceEvent now;
      locks_ = lock_when_idle(tiers_, stream, &now, lock);
    }
  }
  for (GpuTier* tier : tiers_) caches_.push_back(tier->cache());
  if (tiers_[0]->workspace == nullptr) {
    tiers_[0]->workspace = std::make_unique<DeviceWorkspace>();
  }
  work_ = tiers_[0]->workspace.get();
  use_ = work_->used_by(tables_);
  for (const GpuTier* tier : tiers_) tier->refuse_if_lost();
  hold_all(tiers_, stream);
}

DeviceCall::~DeviceCall() {
  use_->record_or_wait(stream_);
  for (GpuTier* tier : tiers_) tier->end(use_);
}

template <typename Change>
void DeviceCall::change_slots(Change&& change) {
  try {
    change();
  } catch (const std::exception& error) {
    for (GpuTier* tier : tiers_) tier->lose_rows(error.what());
    throw;
  }
}

// --- rows are found ------------------------------------------------------------------------------

size_t DeviceCall::find(const Lookup& lookup, DeviceBatch* batch) {
  batch->tables = tables_;
  const size_t bytes = device_cache_probe_scratch(batch->count());
  void* const memory = scratch(bytes);
  const auto probe = [&](DeviceLookup how) {
    device_cache_probe(lookup.caches, tables_.size(), batch->unique, batch->count(), how,
                       batch->probed, memory, bytes, stream_);
  };
  size_t absent = 0;
  if (lookup.how == Find::kRead) {
    probe(DeviceLookup::kRead);
    absent = find_missing(lookup, batch, nullptr);
  } else {
    change_slots([&] { probe(DeviceLookup::kTrain); });
    DeviceIf pinned;
    try {
      absent = find_missing(lookup, batch, &pinned);
    } catch (...) {
      try {
        unpin(lookup, *batch, pinned);
      } catch (const std::exception&) {  // the first error is the reason for this one
      }
      throw;
    }
    if (batch->missing > 0) unpin(lookup, *batch, pinned);
  }
  batch->note_epochs();
  return absent;
}

size_t DeviceCall::find_missing(const Lookup& lookup, DeviceBatch* batch, DeviceIf* pinned) {
  const size_t count = batch->count(), tables = tables_.size();
  const Answer answer = take_from(
      work_->answer, [&](DeviceArena& arena) { return Answer::take(arena, tables, count); });
  device_answer(batch->probed, tables, batch->unique.table_first, batch->counts(),
                batch->counted.table_first, lookup.wrong, count, answer, stream_);
  work_->ready.record(stream_);
  // Meanwhile the device goes on as if no key were missing.
  const uint32_t* const missing = batch->probed.missing_first + tables;
  if (pinned != nullptr) {
    unpin(lookup, *batch, {missing, false});
    *pinned = {missing, true};
  }
  if (lookup.ahead) lookup.ahead({missing, false});
  work_->ready.wait();
  batch->missing = answer.missing_first[tables];
  if (answer.wrong->key != WrongKeys::kNone || answer.wrong->feature != WrongKeys::kNone) {
    lookup.refuse(*answer.wrong);
  }
  for (size_t t = 0; t < tables && batch->counted.table_first != nullptr; ++t) {
    batch->lookups[t] = answer.lookups_first[t + 1] - answer.lookups_first[t];
  }
  return bring_in(answer, lookup.how, batch);
}

void DeviceCall::unpin(const Lookup& lookup, const DeviceBatch& batch, const DeviceIf& condition) {
  change_slots([&] {
    device_cache_unpin(lookup.caches, tables_.size(), batch.unique.table_first, batch.probed.slots,
                       batch.count(), condition, stream_);
  });
}

void DeviceCall::find_in_host(const Answer& answer, Find how, uint32_t* places,
                              std::vector<std::vector<const std::byte*>>* lines) {
  for (size_t t = 0; t < tables_.size(); ++t) {
    Table& table = *tables_[t];
    const size_t first = answer.missing_first[t];
    const size_t missing = answer.missing_first[t + 1] - first;
    (*lines)[t].assign(missing, nullptr);
    if (missing == 0) continue;
    // Rows on their way from the device are newer than the host tier's.
    tiers_[t]->finish(executor_);
    const uint32_t clock = table.step_in_lock() + 1;
    // Each task has its own partitions, and finds their keys in the order of the batch.
    const size_t tasks = missing < 2048 ? 1 : std::min<size_t>(executor_.threads(), 32);
    executor_.run(tasks, [&](size_t task) {
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

// Missing keys whose rows come in.
struct DeviceCall::Incoming {
  size_t missing;
  std::vector<std::vector<const std::byte*>> lines;  // (T, its M) in the host tier; null: no row
  uint32_t *sent, *places;                           // (M) in the host tier: pinned, on the device
  DeviceInserted out;
  InsertAnswer answer;
  void* scratch;
  size_t scratch_bytes;
};

// Finds the rows in the host tier, and allocates all memory before the first slot changes.
DeviceCall::Incoming DeviceCall::make_room(const Answer& answer, Find how, DeviceBatch* batch) {
  const size_t tables = tables_.size();
  Incoming in;
  in.missing = answer.missing_first[tables];
  in.answer = take_from(work_->sent, [&](DeviceArena& arena) {
    in.sent = arena.take<uint32_t>(in.missing);
    return InsertAnswer(arena, tables, in.missing);
  });
  in.lines.resize(tables);
  find_in_host(answer, how, in.sent, &in.lines);
  size_t stride = 0;
  for (size_t t = 0; t < tables; ++t) {
    stride = std::max(stride, tiers_[t]->stride());
    if (!in.lines[t].empty()) tiers_[t]->reserve(in.lines[t].size());
  }
  batch->bypass_memory.reserve(in.missing * stride);
  batch->bypass = {batch->bypass_memory.data(), stride};
  batch->bypass_places.reserve(in.missing);
  in.out = take_from(work_->missing, [&](DeviceArena& arena) {
    in.places = arena.take<uint32_t>(in.missing);
    return DeviceInserted::take(arena, in.missing, tables);
  });
  in.scratch_bytes = device_cache_insert_scratch(in.missing, tables);
  in.scratch = scratch(in.scratch_bytes);
  return in;
}

void DeviceCall::choose_slots(const Incoming& in, DeviceBatch* batch) {
  const size_t tables = tables_.size();
  const DeviceInserted& out = in.out;
  device_cache_insert(caches_.data(), tables, batch->unique, batch->probed, in.missing, in.places,
                      DeviceLookup::kTrain, RowCache::Admit::kIfWorthMore, batch->bypass, out,
                      in.scratch, in.scratch_bytes, stream_);
  copy_async(in.answer.victim_first, out.victim_first, tables + 1, stream_);
  copy_async(in.answer.bypass_first, out.bypass_first, tables + 1, stream_);
  copy_async(in.answer.evicted, out.evicted, tables, stream_);
  copy_async(in.answer.victim_places, out.victim_places, in.missing, stream_);
  copy_async(in.answer.bypass_places, out.bypass_places, in.missing, stream_);
  work_->ready.record(stream_);
}

size_t DeviceCall::begin_bring_in(const Answer& answer, Incoming* in, CacheCounts* counts,
                                  DeviceBatch* batch) {
  size_t absent = 0;
  for (size_t t = 0; t < tables_.size(); ++t) {
    auto& lines = in->lines[t];
    const auto none = std::count(lines.begin(), lines.end(), nullptr);
    absent += static_cast<size_t>(none);
    for (size_t i = 0; none > 0 && i < lines.size(); ++i) {
      if (lines[i] != nullptr) continue;
      batch->lookups[t] -= answer.counts[answer.missing_first[t] + i];
    }
    counts[t].inserted = lines.size() - static_cast<size_t>(none);
    tiers_[t]->begin_bring_in(std::move(lines), executor_);
  }
  return absent;
}

void DeviceCall::send_victims_back(const Incoming& in, CacheCounts* counts, DeviceBatch* batch) {
  const size_t tables = tables_.size();
  const InsertAnswer& inserted = in.answer;
  work_->ready.wait();
  batch->bypass_first.assign(inserted.bypass_first, inserted.bypass_first + tables + 1);
  batch->bypass_places.assign(inserted.bypass_places,
                              inserted.bypass_places + inserted.bypass_first[tables]);
  for (size_t t = 0; t < tables; ++t) {
    const uint32_t first = inserted.victim_first[t];
    tiers_[t]->send_back({in.out.victims + first, nullptr, 0}, inserted.victim_places + first,
                         inserted.victim_first[t + 1] - first, executor_, stream_);
    counts[t].inserted -= batch->bypass_first[t + 1] - batch->bypass_first[t];
    counts[t].evicted = inserted.evicted[t];
  }
}

size_t DeviceCall::bring_in_missing(const Answer& answer, Find how, CacheCounts* counts,
                                    DeviceBatch* batch) {
  Incoming in = make_room(answer, how, batch);
  copy_async(in.places, in.sent, in.missing, stream_);
  size_t absent = 0;
  const auto end = [&] {
    for (size_t t = 0; t < tables_.size(); ++t) {
      tiers_[t]->end_bring_in(in.out.targets + answer.missing_first[t], executor_, stream_);
    }
  };
  if (how == Find::kRead) {
    device_set_beside(batch->probed, in.missing, in.places, batch->bypass, in.out.targets, stream_);
    absent = begin_bring_in(answer, &in, counts, batch);
    end();
    return absent;
  }
  change_slots([&] {
    choose_slots(in, batch);
    // Meanwhile the first rows are on their way.
    absent = begin_bring_in(answer, &in, counts, batch);
    send_victims_back(in, counts, batch);
    end();
  });
  return absent;
}

size_t DeviceCall::bring_in(const Answer& answer, Find how, DeviceBatch* batch) {
  const size_t tables = tables_.size();
  batch->bypass_first.assign(tables + 1, 0);
  batch->bypass_places.clear();
  batch->distinct_first.assign(answer.table_first, answer.table_first + tables + 1);
  std::vector<CacheCounts> counts(tables);
  for (size_t t = 0; t < tables; ++t) {
    counts[t].misses = answer.missing_first[t + 1] - answer.missing_first[t];
    counts[t].hits = answer.table_first[t + 1] - answer.table_first[t] - counts[t].misses;
    const uint32_t* const times = answer.counts;
    counts[t].hit_lookups =
        batch->lookups[t] - std::accumulate(times + answer.missing_first[t],
                                            times + answer.missing_first[t + 1], uint64_t{0});
  }
  const size_t absent =
      answer.missing_first[tables] == 0 ? 0 : bring_in_missing(answer, how, counts.data(), batch);
  for (size_t t = 0; t < tables && how != Find::kRead; ++t) {
    if (how == Find::kTrainUncounted) {
      counts[t].hits = counts[t].hit_lookups = counts[t].misses = 0;
    }
    counts[t].written_back = tiers_[t]->take_written_back();
    tables_[t]->note_cached(counts[t]);
  }
  return absent;
}

// --- gradients are applied -----------------------------------------------------------------------

DeviceDescribed* DeviceCall::describe(size_t features) {
  const size_t bytes = DeviceDescribed::bytes_for(features, tables_.size());
  work_->described_update.reserve(bytes);
  described_ = DeviceDescribed(work_->described_update.data(), bytes);
  return &described_;
}

void DeviceCall::send_described() {
  described_.upload(stream_);
  device_terms(std::exchange(term_pieces_, {}), terms_, stream_);
}

// Sums the gradients first, and scales them down if their norm is too large.
void DeviceCall::clip(const DeviceBatch& batch, const DeviceDue& due,
                      std::vector<DeviceStep>* steps) {
  const size_t count = due.gradients.count, tables = tables_.size();
  std::vector<DeviceSums> sums(tables);
  float* factors = nullptr;
  take_from(work_->sums, [&](DeviceArena& arena) {
    factors = arena.take<float>(tables);
    for (size_t t = 0; t < tables; ++t) {
      const size_t distinct = batch.distinct_first[t + 1] - batch.distinct_first[t];
      sums[t] = {tables_[t]->width(), arena.take<float>(distinct * tables_[t]->width())};
    }
  });
  std::vector<DeviceNormed> normed;
  size_t most_width = 0;
  for (size_t t = 0; t < tables; ++t) {
    const Table& table = *tables_[t];
    most_width = std::max(most_width, table.width());
    normed.push_back({sums[t].sums, table.width(), due.factors[t].value_or(1.0f),
                      static_cast<int32_t>(table.shard_count()), table.hashed()});
    (*steps)[t].sums = sums[t].sums;
    (*steps)[t].scale = factors + t;
  }
  const DescribedSums there = describe_sums(sums.data(), tables, &described_);
  send_described();
  const size_t sum_bytes = device_sum_scratch(count, tables, most_width);
  device_sum(there, batch.unique.table_first, due.gradients, scratch(sum_bytes), sum_bytes,
             stream_);
  const size_t clip_bytes = device_clip_scratch(normed.data(), tables, count);
  void* const memory = scratch(clip_bytes);
  const auto& ranks = tables_[0]->sharding().ranks;
  if (ranks == nullptr) {
    device_clip(normed.data(), tables, batch.unique, count, batch.probed.lines,
                due.global_clip_norm, factors, memory, clip_bytes, stream_);
    return;
  }
  double* const total =
      take_from(work_->total, [](DeviceArena& arena) { return arena.take<double>(1); });
  device_squares(normed.data(), tables, batch.unique, count, batch.probed.lines, total, memory,
                 clip_bytes, stream_);
  auto* const sum = reinterpret_cast<double*>(work_->answer.data());
  read(sum, total, 1);
  double squares = *sum;
  ranks->run("norm of all gradients",
             [&](Communicator& communicator) { communicator.all_reduce(&squares, 1); });
  const double norm = std::sqrt(squares);
  float down = 1.0f;
  if (norm > static_cast<double>(due.global_clip_norm)) {
    down = static_cast<float>(static_cast<double>(due.global_clip_norm) / norm);
  }
  std::vector<float> scaled;
  for (const DeviceNormed& one : normed) scaled.push_back(one.factor * down);
  upload(factors, scaled.data(), tables, stream_);
}

void DeviceCall::apply(const DeviceBatch& batch, const DeviceDue& due) {
  const size_t count = due.gradients.count, tables = tables_.size();
  std::vector<DeviceStep> steps(tables);
  if (due.global_clip_norm > 0.0f) clip(batch, due, &steps);
  size_t most_width = 0;
  for (const Table* table : tables_) most_width = std::max(most_width, table->width());
  const size_t bytes = device_update_scratch(count, most_width);
  void* const memory = scratch(bytes);
  for (size_t t = 0; t < tables; ++t) {
    Table& table = *tables_[t];
    if (!due.factors[t].has_value()) {
      steps[t].step = table.step_settings();
      continue;
    }
    const float rate = due.learning_rates == nullptr ? std::numeric_limits<float>::quiet_NaN()
                                                     : due.learning_rates[t];
    steps[t].step = table.prepare_update(rate, *due.factors[t]);
    steps[t].step.corrections = tiers_[t]->corrections();
    steps[t].counts = tiers_[t]->update_counts();
  }
  const DescribedSteps there = describe_steps(steps.data(), tables, &described_);
  send_described();
  for (size_t t = 0; t < tables; ++t) {
    if (!due.factors[t].has_value()) continue;
    tables_[t]->begin_update();
    tables_[t]->add_lookups(batch.lookups[t]);
  }
  change_slots([&] {
    device_update(steps.data(), tables, there, batch.unique.table_first, due.gradients, due.counts,
                  batch.probed.lines, memory, bytes, stream_);
  });
}

void DeviceCall::end_update(const DeviceBatch& batch, const DeviceDue& due) {
  change_slots([&] {
    for (size_t t = 0; t < tables_.size(); ++t) send_bypass_back(batch, t);
  });
  for (size_t t = 0; t < tables_.size(); ++t) {
    if (due.factors[t].has_value() && tables_[t]->options().expiry.any()) expire(t);
  }
}

void DeviceCall::send_bypass_back(const DeviceBatch& batch, size_t table) {
  const uint32_t first = batch.bypass_first[table], last = batch.bypass_first[table + 1];
  if (last == first) return;
  // Other passes that hold these rows outside the slots must search again.
  tables_[table]->void_found();
  tiers_[table]->send_back(
      {nullptr, batch.bypass.lines + first * batch.bypass.stride, batch.bypass.stride},
      batch.bypass_places.data() + first, last - first, executor_, stream_);
}

void DeviceCall::expire(size_t t) {
  Table& table = *tables_[t];
  tiers_[t]->end(stream_);
  tiers_[t]->finish(executor_);
  table.prepare_sweep(0, 1, table.step_in_lock());
  table.sweep(0, 1);
  table.end_sweep();
  tiers_[t]->begin(stream_);
}

}  // namespace hotrow
