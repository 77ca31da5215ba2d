// The end of a step of tables on a GPU.
#include <limits>

#include "core/gpu/step/call.h"
#include "core/gpu/step/keys_ahead.h"
#include "core/gpu/step/layer.h"
#include "core/gpu/step/passes.h"
#include "core/table/step.h"

namespace hotrow {
namespace {

// A commit's memory on the device besides a batch.
struct Merged {
  Merged(DeviceArena& arena, size_t entries, size_t tables)
      : entries(DeviceEntries::take(arena, entries, tables)),
        positions(DevicePositions::take(arena, entries)),
        counts(arena.take<uint32_t>(entries)) {}
  DeviceEntries entries;
  DevicePositions positions;
  uint32_t* counts;  // (E) lookups of distinct keys
};

// What a commit does, if no pass ends before it has the locks.
DeviceWork work_of(const std::vector<Table*>& tables, const float* commit_token) {
  const TableLocks locks(tables, false);
  bool takes = false;
  for (const Table* table : tables) takes = takes || table->passes.takes(commit_token);
  return takes ? DeviceWork::kLookUp : DeviceWork::kEnqueue;
}

// The backend of table/step.h for a commit.
class CommitOnDevice {
 public:
  CommitOnDevice(const std::vector<Table*>& tables, const Executor& executor, DeviceStream stream,
                 DeviceWork work)
      : here_(tables, executor, stream, work) {}

  const std::vector<Table*>& tables() const { return here_.tables(); }
  void apply(const std::vector<const GradientPasses::Taken*>& taken, const CommitOptions& options);

 private:
  void apply_shares(const std::vector<DeviceShare>& shares,
                    const std::vector<uint32_t>& share_first, DeviceBatch* batch, DeviceDue* due);

  DeviceCall here_;
};

void CommitOnDevice::apply(const std::vector<const GradientPasses::Taken*>& taken,
                           const CommitOptions& options) {
  DeviceBatch& batch = here_.work().own;
  batch.keys.begins.assign(1, 0);
  batch.lookups.assign(tables().size(), 0);
  std::vector<DeviceShare> shares;
  std::vector<uint32_t> share_first(1, 0);
  DeviceDue due;
  due.factors.resize(tables().size());
  due.learning_rates = options.learning_rates;
  due.global_clip_norm = options.global_clip_norm;
  size_t count = 0;
  for (size_t t = 0; t < tables().size(); ++t) {
    // As on the CPU: with one pass the factor scales the sums, with several it scales the addends.
    const bool one = taken[t]->size() == 1;
    if (!taken[t]->empty()) due.factors[t] = one ? taken[t]->front().second : 1.0f;
    for (const auto& [sums, factor] : *taken[t]) {
      const DevicePass& pass = *sums->device;
      shares.push_back({pass.summed, pass.distinct, tables()[t]->width(), one ? 1.0f : factor});
      batch.lookups[t] += pass.lookups;
      count += pass.distinct;
    }
    if (count > size_t{std::numeric_limits<int32_t>::max()} - 1) {
      fail(Code::kInvalidArgument, "more than 2147483646 gradients in one step");
    }
    share_first.push_back(static_cast<uint32_t>(shares.size()));
    batch.keys.begins.push_back(static_cast<uint32_t>(count));
  }
  apply_shares(shares, share_first, &batch, &due);
}

void CommitOnDevice::apply_shares(const std::vector<DeviceShare>& shares,
                                  const std::vector<uint32_t>& share_first, DeviceBatch* batch,
                                  DeviceDue* due) {
  const size_t count = batch->count();
  const DeviceStream stream = here_.stream();
  const Merged merged = take_from(here_.work().terms, [&](DeviceArena& arena) {
    return Merged(arena, count, tables().size());
  });
  const DeviceEntries& entries = merged.entries;
  DeviceDescribed* const described = here_.describe(shares.size());
  const DeviceCache* const caches = describe_caches(here_.tiers(), described);
  const DescribedShares there =
      describe_shares(shares.data(), share_first.data(), tables().size(), described);
  described->upload(stream);
  const size_t list_bytes = device_list_entries_scratch(count);
  device_list_entries(there, tables().size(), count, entries, here_.scratch(list_bytes), list_bytes,
                      stream);
  make_distinct({entries.keys, count, entries.table_begins, tables().size() + 1}, tables().size(),
                batch, &here_.work().scratch, stream);
  device_add_counts(entries, batch->unique.inverse, count, merged.counts, stream);
  batch->counted = {merged.counts, nullptr};
  here_.find({Find::kTrainUncounted, caches, nullptr, {}, {}}, batch);
  const size_t order_bytes = device_positions_scratch(count);
  device_positions(batch->unique, count, merged.positions, here_.scratch(order_bytes), order_bytes,
                   stream);
  due->gradients = {
      entries.rows, entries.factors, merged.positions.begins, merged.positions.order, count,
      nullptr,      nullptr};
  due->counts = merged.counts;
  here_.apply(*batch, *due);
  here_.end_update(*batch, *due);
}

}  // namespace

void device_commit(const std::vector<Table*>& tables, const float* commit_token,
                   const float* learning_rates, float global_clip_norm, const Executor& executor,
                   DeviceStream stream) {
  CommitOnDevice layer(tables, executor, stream, work_of(tables, commit_token));
  step_commit(layer, commit_token, {learning_rates, global_clip_norm});
}

}  // namespace hotrow
