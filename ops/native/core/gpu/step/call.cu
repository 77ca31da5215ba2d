#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "core/gpu/kernels/device_code.h"
#include "core/gpu/kernels/norm.h"
#include "core/gpu/step/call.h"
#include "core/table/host_search.h"

namespace hotrow {

// What the host reads back from an insertion. Of rows, only if a table is watched.
struct DeviceCall::InsertAnswer {
  InsertAnswer() = default;
  InsertAnswer(DeviceArena& arena, size_t tables, size_t missing, bool watching) {
    bypass_first = arena.take<uint32_t>(2 * tables + 1);
    evicted = bypass_first + tables + 1;
    if (!watching) return;
    victims = arena.take<RowHeader>(missing);
    victim_places = arena.take<uint32_t>(missing);
    bypass_keys = arena.take<int64_t>(missing);
    bypass_places = arena.take<uint32_t>(missing);
  }
  uint32_t *bypass_first, *evicted;
  RowHeader* victims;
  uint32_t *victim_places, *bypass_places;
  int64_t* bypass_keys;
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
  hold_slots(tiers_, stream);
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

void DeviceCall::find_in_host(const Answer& answer, Find how, uint32_t* places) {
  constexpr size_t kPieceKeys = 2048, kMostTasks = 32;
  const size_t tables = tables_.size(), missing = answer.missing_first[tables];
  const size_t tasks = missing < kPieceKeys ? 1 : std::min<size_t>(executor_.threads(), kMostTasks);
  std::vector<SoughtKey>& sought = work_->sought;
  if (sought.size() < missing) sought.resize(missing);
  executor_.run((missing + kPieceKeys - 1) / kPieceKeys, [&](size_t piece) {
    const size_t end = std::min(missing, (piece + 1) * kPieceKeys);
    size_t t = 0;
    for (size_t m = piece * kPieceKeys; m < end; ++m) {
      while (m >= answer.missing_first[t + 1]) ++t;
      Table& table = *tables_[t];
      const uint64_t hash = mix64(static_cast<uint64_t>(answer.keys[m]));
      const size_t number = table.partition_number(answer.keys[m], hash);
      sought[m] = {hash, &table.partition(number), table.snapshot_open(),
                   static_cast<uint8_t>(number % tasks)};
    }
  });
  std::vector<uint32_t> clocks;
  for (const Table* table : tables_) clocks.push_back(table->step_in_lock() + 1);
  // Each task has its own partitions, and finds their keys in the order of the batch.
  executor_.run(tasks, [&](size_t task) {
    std::vector<uint32_t> own;
    own.reserve(tasks == 1 ? missing : missing / tasks * 2);
    for (size_t m = 0; m < missing; ++m) {
      if (sought[m].task == task) own.push_back(static_cast<uint32_t>(m));
    }
    size_t t = 0;
    search_partitions(
        own.size(), [&](size_t i) -> Partition& { return *sought[own[i]].partition; },
        [&](size_t i) { return sought[own[i]].hash; },
        [&](size_t i, Partition& partition) {
          const size_t m = own[i];
          while (m >= answer.missing_first[t + 1]) ++t;
          std::unique_lock lock(partition.mutex, std::defer_lock);
          if (sought[m].beside_reader) lock.lock();
          const int64_t key = answer.keys[m];
          const uint32_t times = how == Find::kTrain ? answer.counts[m] : 0;
          const uint32_t place =
              how == Find::kRead ? partition.find(sought[m].hash, key)
                                 : partition.find_or_insert(sought[m].hash, key, times, clocks[t]);
          places[m] = place == Partition::kAbsent ? kNoSlot : place;
        });
  });
}

// Missing keys whose rows come in.
struct DeviceCall::Incoming {
  size_t missing;
  bool watching;
  uint32_t *sent, *places;  // (M) in the host tier: pinned, on the device
  DeviceInserted out;
  InsertAnswer answer;
  void* scratch;
  size_t scratch_bytes;
};

bool DeviceCall::watching() const {
  return std::any_of(tables_.begin(), tables_.end(),
                     [](const Table* table) { return table->watching(); });
}

std::vector<DeviceHostRows> DeviceCall::host_rows() const {
  std::vector<DeviceHostRows> rows;
  for (GpuTier* tier : tiers_) rows.push_back(tier->host_rows().rows());
  return rows;
}

// Finds the rows in the host tier, and allocates all memory before the first slot changes.
DeviceCall::Incoming DeviceCall::make_room(const Answer& answer, Find how, DeviceBatch* batch) {
  const size_t tables = tables_.size();
  Incoming in;
  in.missing = answer.missing_first[tables];
  in.watching = how != Find::kRead && watching();
  in.answer = take_from(work_->sent, [&](DeviceArena& arena) {
    in.sent = arena.take<uint32_t>(in.missing);
    return InsertAnswer(arena, tables, in.missing, in.watching);
  });
  find_in_host(answer, how, in.sent);
  std::vector<HostRows*> all;
  size_t stride = 0;
  for (GpuTier* tier : tiers_) {
    stride = std::max(stride, tier->stride());
    all.push_back(&tier->host_rows());
  }
  work_->new_blocks.send(all, stream_);
  work_->transit.reserve(how == Find::kRead ? 0 : in.missing, tables);
  batch->bypass.stride = stride;
  batch->bypass.lines = take_from(batch->bypass_memory, [&](DeviceArena& arena) {
    batch->bypass_places = arena.take<uint32_t>(in.missing);
    return arena.take<std::byte>(in.missing * stride);
  });
  batch->watched_keys.reserve(in.watching ? in.missing : 0);
  batch->watched_places.reserve(in.watching ? in.missing : 0);
  in.out = take_from(work_->missing, [&](DeviceArena& arena) {
    in.places = arena.take<uint32_t>(in.missing);
    return DeviceInserted::take(arena, in.missing, tables);
  });
  // Until the backward pass.
  in.out.bypass_places = batch->bypass_places;
  in.scratch_bytes =
      std::max(device_cache_insert_scratch(in.missing, tables), device_rows_scratch(tables));
  in.scratch = scratch(in.scratch_bytes);
  return in;
}

// Returns how many keys have no row, and notes whose they are.
size_t DeviceCall::count_absent(const Answer& answer, const Incoming& in, CacheCounts* counts,
                                DeviceBatch* batch) const {
  size_t absent = 0;
  for (size_t t = 0; t < tables_.size(); ++t) {
    const size_t first = answer.missing_first[t], last = answer.missing_first[t + 1];
    size_t none = 0;
    for (size_t m = first; m < last; ++m) {
      if (in.sent[m] != kNoSlot) continue;
      ++none;
      batch->lookups[t] -= answer.counts[m];
    }
    counts[t].inserted = last - first - none;
    absent += none;
  }
  return absent;
}

void DeviceCall::choose_slots(const Incoming& in, DeviceBatch* batch) {
  const size_t tables = tables_.size();
  const DeviceInserted& out = in.out;
  device_cache_insert(caches_.data(), tables, batch->unique, batch->probed, in.missing, in.places,
                      DeviceLookup::kTrain, RowCache::Admit::kIfWorthMore, batch->bypass, out,
                      in.scratch, in.scratch_bytes, stream_);
  copy_async(in.answer.bypass_first, out.bypass_first, 2 * tables + 1, stream_);
  if (in.watching) {
    copy_async(in.answer.victims, out.victims, in.missing, stream_);
    copy_async(in.answer.victim_places, out.victim_places, in.missing, stream_);
    copy_async(in.answer.bypass_keys, out.bypass_keys, in.missing, stream_);
    copy_async(in.answer.bypass_places, out.bypass_places, in.missing, stream_);
  }
  work_->ready.record(stream_);
}

void DeviceCall::note_inserted(const Answer& answer, const Incoming& in, CacheCounts* counts,
                               DeviceBatch* batch) {
  const size_t tables = tables_.size();
  const InsertAnswer& inserted = in.answer;
  work_->ready.wait();
  batch->bypass_first.assign(inserted.bypass_first, inserted.bypass_first + tables + 1);
  for (size_t t = 0; t < tables; ++t) {
    counts[t].inserted -= batch->bypass_first[t + 1] - batch->bypass_first[t];
    counts[t].evicted = inserted.evicted[t];
    if (!in.watching || !tables_[t]->watching()) continue;
    const size_t first = answer.missing_first[t];
    // None of the newest rows in transit is a victim.
    if (!work_->transit.newest(tiers_)) tiers_[t]->wait_for_transit();
    tiers_[t]->before_write_back(inserted.victims + first, inserted.victim_places + first,
                                 answer.missing_first[t + 1] - first, executor_);
  }
  if (!in.watching) return;
  const size_t bypassed = batch->bypass_first[tables];
  batch->watched_keys.assign(inserted.bypass_keys, inserted.bypass_keys + bypassed);
  batch->watched_places.assign(inserted.bypass_places, inserted.bypass_places + bypassed);
}

void DeviceCall::move_rows(const Incoming& in, const DeviceBatch& batch,
                           const uint32_t* victim_places) {
  const DeviceTransit transit = work_->transit.use(tiers_, victim_places != nullptr, stream_);
  const DeviceIncoming rows{batch.probed.missing_first,
                            batch.probed.missing_keys,
                            in.places,
                            in.out.targets,
                            victim_places,
                            transit};
  device_bring_in(host_rows().data(), tables_.size(), rows, in.missing, in.scratch,
                  in.scratch_bytes, stream_);
}

size_t DeviceCall::bring_in_missing(const Answer& answer, Find how, CacheCounts* counts,
                                    DeviceBatch* batch) {
  const Incoming in = make_room(answer, how, batch);
  copy_async(in.places, in.sent, in.missing, stream_);
  if (how == Find::kRead) {
    device_set_beside(batch->probed, in.missing, in.places, batch->bypass, in.out.targets, stream_);
    move_rows(in, *batch, nullptr);
    return count_absent(answer, in, counts, batch);
  }
  size_t absent = 0;
  change_slots([&] {
    choose_slots(in, batch);
    // Meanwhile the device chooses.
    absent = count_absent(answer, in, counts, batch);
    note_inserted(answer, in, counts, batch);
    move_rows(in, *batch, in.out.victim_places);
  });
  return absent;
}

size_t DeviceCall::bring_in(const Answer& answer, Find how, DeviceBatch* batch) {
  const size_t tables = tables_.size();
  batch->bypass_first.assign(tables + 1, 0);
  batch->watched_keys.clear();
  batch->watched_places.clear();
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

void DeviceCall::sum(const DeviceBatch& batch, const DeviceDue& due,
                     std::vector<DeviceStep>* steps) {
  const size_t count = due.gradients.count, tables = tables_.size();
  std::vector<DeviceSums> sums(tables);
  take_from(work_->sums, [&](DeviceArena& arena) {
    for (size_t t = 0; t < tables; ++t) {
      const size_t distinct = batch.distinct_first[t + 1] - batch.distinct_first[t];
      sums[t] = {tables_[t]->width(), arena.take<float>(distinct * tables_[t]->width())};
    }
    return 0;
  });
  size_t most_width = 0;
  for (size_t t = 0; t < tables; ++t) {
    most_width = std::max(most_width, sums[t].width);
    (*steps)[t].sums = sums[t].sums;
  }
  const DescribedSums there = describe_sums(sums.data(), tables, &described_);
  send_described();
  const size_t bytes = device_sum_scratch(count, tables, most_width);
  device_sum(there, batch.unique.table_first, due.gradients, scratch(bytes), bytes, stream_);
}

void DeviceCall::clip(const DeviceBatch& batch, const DeviceDue& due,
                      std::vector<DeviceStep>* steps) {
  const size_t count = due.gradients.count, tables = tables_.size();
  float* const factors =
      take_from(work_->factors, [&](DeviceArena& arena) { return arena.take<float>(tables); });
  std::vector<DeviceNormed> normed;
  for (size_t t = 0; t < tables; ++t) {
    const Table& table = *tables_[t];
    normed.push_back({(*steps)[t].sums, table.width(), due.factors[t].value_or(1.0f),
                      static_cast<int32_t>(table.shard_count()), table.hashed()});
    (*steps)[t].scale = factors + t;
  }
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
  // All ranks have the same rows of a replicated table: those of the first count.
  std::vector<DeviceNormed> counted = normed;
  for (size_t t = 0; t < tables; ++t) {
    const Sharding& sharding = tables_[t]->sharding();
    if (sharding.scheme == Scheme::kReplicated && sharding.rank() != 0) counted[t].factor = 0.0f;
  }
  device_squares(counted.data(), tables, batch.unique, count, batch.probed.lines, total, memory,
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
  const bool together = any_measures_together(tables_);
  if (due.global_clip_norm > 0.0f || together) sum(batch, due, &steps);
  if (due.global_clip_norm > 0.0f) clip(batch, due, &steps);
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
  if (together) measure_together(batch, due, &steps);
  size_t most_width = 0;
  for (const Table* table : tables_) most_width = std::max(most_width, table->width());
  const size_t bytes = device_update_scratch(count, most_width);
  void* const memory = scratch(bytes);
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
  if (batch.bypass_first[tables_.size()] > 0) {
    change_slots([&] { send_bypass_back(batch); });
  }
  for (size_t t = 0; t < tables_.size(); ++t) {
    if (due.factors[t].has_value() && tables_[t]->options().expiry.any()) expire(t);
  }
}

void DeviceCall::send_bypass_back(const DeviceBatch& batch) {
  const size_t tables = tables_.size();
  for (size_t t = 0; t < tables; ++t) {
    const size_t first = batch.bypass_first[t], count = batch.bypass_first[t + 1] - first;
    if (count == 0) continue;
    // Other passes that hold these rows outside the slots must search again.
    tables_[t]->void_found();
    if (!tables_[t]->watching()) continue;
    // A snapshot voids the passes before it, so the table was watched in the lookup.
    if (batch.watched_keys.size() < first + count) {
      fail(Code::kInternal, "table %s: rows outside the slots that no snapshot knows",
           tables_[t]->name().c_str());
    }
    tiers_[t]->before_write(batch.watched_keys.data() + first, batch.watched_places.data() + first,
                            count, executor_);
  }
  work_->transit.send(
      tiers_, host_rows(), batch.bypass_first,
      {nullptr, batch.bypass.lines, batch.bypass.stride, batch.bypass_places, nullptr},
      &batch.bypass_memory, stream_);
}

void DeviceCall::expire(size_t t) {
  Table& table = *tables_[t];
  tiers_[t]->end(stream_);
  tiers_[t]->end_transit();
  table.prepare_sweep(0, 1, table.step_in_lock());
  table.sweep(0, 1);
  table.end_sweep();
  tiers_[t]->begin(stream_);
}

}  // namespace hotrow
