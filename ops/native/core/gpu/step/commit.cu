// The end of a step of tables on a GPU: the sibling of commit in table/training.cc.
#include <limits>

#include "core/gpu/step/call.h"
#include "core/gpu/step/layer.h"
#include "core/gpu/step/passes.h"

namespace hotrow {
namespace {

// What a commit has on the device beside a batch.
struct Merged {
  Merged(DeviceArena& arena, size_t entries, size_t tables)
      : entries(DeviceEntries::take(arena, entries, tables)),
        positions(DevicePositions::take(arena, entries)),
        counts(arena.take<uint32_t>(entries)) {}
  DeviceEntries entries;
  DevicePositions positions;
  uint32_t* counts;  // (E) lookups of distinct keys
};

}  // namespace

void device_commit(const std::vector<Table*>& tables, const float* commit_token,
                   const float* learning_rates, float global_clip_norm, const Executor& executor,
                   DeviceStream stream) {
  DeviceCall call(tables, executor, stream);
  DeviceBatch& batch = call.work().own;
  batch.keys.begins.assign(1, 0);
  batch.lookups.assign(tables.size(), 0);
  std::vector<DeviceShare> shares;
  std::vector<uint32_t> share_first(1, 0);
  DeviceDue due;
  due.factors.resize(tables.size());
  due.learning_rates = learning_rates;
  due.global_clip_norm = global_clip_norm;
  size_t count = 0;
  for (size_t t = 0; t < tables.size(); ++t) {
    const GradientPasses::Taken& taken = tables[t]->passes.end_step(commit_token);
    // As on the CPU: the factor of one pass scales its sums, those of several their addends.
    const bool one = taken.size() == 1;
    if (!taken.empty()) due.factors[t] = one ? taken[0].second : 1.0f;
    for (const auto& [sums, factor] : taken) {
      const DevicePass& pass = *sums->device;
      shares.push_back({pass.summed, pass.distinct, tables[t]->width(), one ? 1.0f : factor});
      batch.lookups[t] += pass.lookups;
      count += pass.distinct;
    }
    if (count > size_t{std::numeric_limits<int32_t>::max()} - 1) {
      fail(Code::kInvalidArgument, "more than 2147483646 gradients in one step");
    }
    share_first.push_back(static_cast<uint32_t>(shares.size()));
    batch.keys.begins.push_back(static_cast<uint32_t>(count));
  }
  if (shares.empty()) return;

  const Merged merged = take_from(
      call.work().terms, [&](DeviceArena& arena) { return Merged(arena, count, tables.size()); });
  const DeviceEntries& entries = merged.entries;
  const size_t list_bytes = device_list_entries_scratch(shares.size(), tables.size(), count);
  device_list_entries(shares.data(), share_first.data(), tables.size(), count, entries,
                      call.scratch(list_bytes), list_bytes, stream);
  call.distinct({entries.keys, count, entries.table_begins, tables.size() + 1}, &batch);
  device_add_counts(entries, batch.unique.inverse, count, merged.counts, stream);
  batch.counted = {merged.counts, nullptr};
  call.find(Find::kTrainUncounted, nullptr, {}, &batch);
  const size_t order_bytes = device_positions_scratch(count);
  device_positions(batch.unique, count, merged.positions, call.scratch(order_bytes), order_bytes,
                   stream);
  due.gradients = {entries.rows, entries.factors, merged.positions.begins, merged.positions.order,
                   count};
  due.counts = merged.counts;
  call.apply(batch, due);
  call.end_update(batch, due);
}

}  // namespace hotrow
