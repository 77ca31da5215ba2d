// The part of the C ABI for training tables.
#include "core/table/table.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <shared_mutex>

#include "core/abi/c_api.h"
#include "core/abi/guard.h"
#include "core/abi/rows.h"
#include "core/base/fingerprint.h"
#include "core/base/hash.h"
#include "core/gpu/kernels/allocator.h"
#include "core/gpu/step/layer.h"
#include "core/ranks/step.h"
#include "core/table/registry.h"
#include "core/table/row_digest.h"
#include "core/table/snapshot.h"
#include "core/table/training.h"
#include "core/table/update_counts.h"

static_assert(HR_SLOTS == hotrow::GradientPasses::kSlots);
static_assert(HR_RAM == static_cast<int>(hotrow::CacheDevice::kRam));
static_assert(HR_GPU == static_cast<int>(hotrow::CacheDevice::kGpu));
static_assert(HR_UNIT == hotrow::GradientPasses::kUnit);
static_assert(HR_UNCHANGED == hotrow::GradientPasses::kUnchanged);

struct hr_table {
  std::shared_ptr<hotrow::Table> table;
};
struct hr_snapshot {
  std::shared_ptr<hotrow::Table> table;  // outlives the snapshot
  std::unique_ptr<hotrow::Snapshot> snapshot;
};

namespace {

using hotrow::Code;
using hotrow::capi::guarded;
using hotrow::capi::one_feature;
using hotrow::capi::to_features;

template <typename Enum>
Enum to_enum(int value, int last, const char* what) {
  if (value < 0 || value > last) {
    hotrow::fail(Code::kInvalidArgument, "%s %d; one of 0 to %d", what, value, last);
  }
  return static_cast<Enum>(value);
}

hotrow::Optimizer to_optimizer(const hr_optimizer& from) {
  hotrow::Optimizer o;
  o.kind = to_enum<hotrow::OptimizerKind>(from.kind, 5, "optimizer kind");
  o.learning_rate = from.learning_rate;
  o.clip_row_norm = from.clip_row_norm;
  o.l2 = from.l2;
  o.weight_decay = from.weight_decay;
  o.momentum = from.momentum;
  o.nesterov = from.nesterov != 0;
  o.initial_accumulator = from.initial_accumulator;
  o.epsilon = from.epsilon;
  o.beta_1 = from.beta_1;
  o.beta_2 = from.beta_2;
  o.row_steps = from.row_steps != 0;
  o.l1 = from.l1;
  o.ftrl_l2 = from.ftrl_l2;
  o.l2_shrinkage = from.l2_shrinkage;
  o.beta = from.beta;
  return o;
}

hotrow::TableOptions to_options(const hr_table_options& from) {
  hotrow::TableOptions options;
  options.width = from.width;
  options.vocabulary_size = from.vocabulary_size;
  options.default_value = from.default_value;
  options.init.kind = to_enum<hotrow::InitKind>(from.init_kind, 2, "initializer kind");
  options.init.scale = from.init_scale;
  options.init.seed = from.seed;
  int64_t name_key = 0;
  const int64_t offsets[2] = {0, static_cast<int64_t>(std::strlen(from.name))};
  hotrow::fingerprint64("", 0, from.name, offsets, 1, &name_key);
  options.init.table = static_cast<uint64_t>(name_key);
  options.optimizer = to_optimizer(from.optimizer);
  options.weights = to_enum<hotrow::RowType>(from.weights_type, 2, "weights type");
  options.state = to_enum<hotrow::RowType>(from.state_type, 2, "state type");
  options.admission.kind = to_enum<hotrow::AdmissionKind>(from.admission.kind, 2, "admission kind");
  options.admission.occurrences = from.admission.occurrences;
  options.admission.expected_keys = from.admission.expected_keys;
  options.admission.error_rate = from.admission.error_rate;
  options.expiry.after_steps = from.expiry.after_steps;
  options.expiry.rare_count = from.expiry.rare_count;
  options.expiry.rare_after_steps = from.expiry.rare_after_steps;
  options.expiry.sweep_steps = from.expiry.sweep_steps;
  options.expiry.tombstones = from.expiry.tombstones;
  options.cache.rows = from.cache.rows;
  if (from.cache.bytes > 0) {
    const size_t row_bytes = options.layout().bytes() + hotrow::RowCache::overhead();
    options.cache.rows = std::max<size_t>(from.cache.bytes / row_bytes, 1);
  }
  if (from.cache.disk != nullptr) options.disk = from.cache.disk;
  options.cache.device = to_enum<hotrow::CacheDevice>(from.cache.device, HR_GPU, "cache device");
  options.cache.gpu = from.cache.gpu;
  options.cache.policy = to_enum<hotrow::CachePolicy>(from.cache.policy, 1, "cache policy");
  return options;
}

hotrow::Sharding to_sharding(const hr_table_options& from) {
  hotrow::Sharding sharding;
  sharding.width = from.width;
  if (from.ranks == nullptr || from.ranks[0] == 0) return sharding;
  sharding.ranks = hotrow::find_collectives(from.ranks);
  sharding.scheme = to_enum<hotrow::Scheme>(from.scheme, 4, "sharding scheme");
  sharding.hashed = from.hashed != 0;
  sharding.owner = from.owner;
  if (from.owner < 0 || from.owner >= sharding.size()) {
    hotrow::fail(Code::kInvalidArgument, "table %s: owner %d; one of 0 to %d", from.name,
                 from.owner, sharding.size() - 1);
  }
  if (sharding.scheme == hotrow::Scheme::kColumn &&
      from.width < static_cast<size_t>(sharding.size())) {
    hotrow::fail(Code::kInvalidArgument,
                 "table %s: its %zu columns cannot be split over %d ranks; choose another sharding",
                 from.name, from.width, sharding.size());
  }
  sharding.staleness = {from.staleness, from.replica_rows};
  const bool owned =
      sharding.scheme == hotrow::Scheme::kRow || sharding.scheme == hotrow::Scheme::kTable;
  if (from.staleness > hotrow::UpdateVersion::kMostBehind) {
    hotrow::fail(Code::kInvalidArgument, "table %s: staleness %u; at most %u", from.name,
                 from.staleness, hotrow::UpdateVersion::kMostBehind);
  }
  if (from.staleness > 0 && !owned) {
    hotrow::fail(Code::kInvalidArgument,
                 "table %s: staleness is for sharding row and table, where a row has one owner",
                 from.name);
  }
  if (from.staleness > 0 &&
      (from.admission.kind != 0 || from.expiry.after_steps != 0 || from.expiry.rare_count != 0)) {
    hotrow::fail(Code::kUnimplemented,
                 "table %s: staleness with admission or expiry is not built yet; leave one out",
                 from.name);
  }
  return sharding;
}

hotrow::RowArrays to_arrays(const hr_rows& rows) {
  return {rows.keys, reinterpret_cast<std::byte*>(rows.lines), rows.clocks, rows.counts,
          rows.places};
}

template <typename T>
void copy_out(const std::vector<T>& from, hr_bytes* to) {
  const size_t size = from.size() * sizeof(T);
  to->data = static_cast<uint8_t*>(std::malloc(size == 0 ? 1 : size));
  if (to->data == nullptr) throw std::bad_alloc();
  if (size != 0) std::memcpy(to->data, from.data(), size);
  to->size = size;
}

hotrow::LayerCall one_table(hr_table* table, const int64_t* keys, size_t count,
                            const hr_executor* executor) {
  return {{table->table.get()}, one_feature(keys, count), {0}, hotrow::Executor(executor)};
}

std::vector<hotrow::Table*> to_tables(hr_table* const* tables, size_t count) {
  std::vector<hotrow::Table*> all;
  for (size_t t = 0; t < count; ++t) all.push_back(tables[t]->table.get());
  return all;
}

hotrow::LayerCall to_call(const hr_layer_call& from) {
  hotrow::LayerCall call;
  for (size_t t = 0; t < from.table_count; ++t) {
    hotrow::Table& table = *from.tables[t]->table;
    if (from.widths != nullptr && table.sharding().width != from.widths[t]) {
      hotrow::fail(Code::kFailedPrecondition, "table %s: width %zu; the graph needs %zu",
                   table.name().c_str(), table.sharding().width, from.widths[t]);
    }
    if (std::find(call.tables.begin(), call.tables.end(), &table) != call.tables.end()) {
      hotrow::fail(Code::kInvalidArgument, "table %s is given twice in one call",
                   table.name().c_str());
    }
    call.tables.push_back(&table);
  }
  call.features = to_features(from.features, from.feature_count);
  for (size_t f = 0; f < from.feature_count; ++f) {
    if (from.features[f].table >= from.table_count) {
      hotrow::fail(Code::kInvalidArgument, "feature %s: table %zu of %zu", from.features[f].name,
                   from.features[f].table, from.table_count);
    }
    call.table_of.push_back(from.features[f].table);
  }
  call.executor = hotrow::Executor(from.executor);
  return call;
}

hotrow::DeviceStream to_stream(const hr_stream& on) {
  return static_cast<hotrow::DeviceStream>(on.stream);
}

}  // namespace

int hr_table_create(const char* handle, const hr_table_options* options, hr_table** table) {
  return guarded([&] {
    hotrow::Sharding sharding = to_sharding(*options);
    hr_table_options part = *options;  // of this rank
    part.width = sharding.columns(sharding.rank());
    hotrow::TableOptions own = to_options(part);
    own.init.first_column = sharding.first_column(sharding.rank());
    *table = new hr_table{hotrow::create_table(handle, options->name, own, options->shards,
                                               options->hashed != 0, std::move(sharding))};
  });
}

int hr_table_open(const char* handle, hr_table** table) {
  return guarded([&] { *table = new hr_table{hotrow::find_table(handle)}; });
}

void hr_table_release(hr_table* table) { delete table; }
void hr_table_drop(const char* handle) { hotrow::drop_table(handle); }

void hr_table_layout(const hr_table* table, hr_layout* layout) {
  const hotrow::LineLayout& from = table->table->shape().layout;
  *layout = {from.width,
             static_cast<int>(from.weights),
             static_cast<int>(from.state),
             from.vectors,
             from.scalars,
             from.state_offset(),
             from.scalars_offset(),
             from.bytes()};
}

void hr_table_columns(const hr_table* table, size_t* first, size_t* count, size_t* all) {
  const hotrow::Sharding& sharding = table->table->sharding();
  *first = sharding.first_column(sharding.rank());
  *count = sharding.columns(sharding.rank());
  *all = sharding.width;
}

void hr_table_owns(const hr_table* table, const int64_t* keys, size_t count, uint8_t* owned) {
  const hotrow::Sharding& sharding = table->table->sharding();
  for (size_t i = 0; i < count; ++i) owned[i] = sharding.owner_of(keys[i]) == sharding.rank();
}

float hr_table_default_value(const hr_table* table) { return table->table->default_value(); }
size_t hr_table_size(const hr_table* table) { return table->table->size(); }
size_t hr_table_bytes(const hr_table* table) { return table->table->bytes(); }
uint32_t hr_table_step(const hr_table* table) { return table->table->step(); }
void hr_table_set_step(hr_table* table, uint32_t step) { table->table->set_step(step); }

void hr_table_statistics(const hr_table* table, hr_statistics* statistics) {
  const hotrow::Table::Statistics s = table->table->statistics();
  *statistics = {
      s.rows,
      s.bytes,
      s.lookups,
      s.admitted,
      s.refused,
      s.waiting,
      s.expired,
      s.tombstones,
      s.tombstones_dropped,
      s.cache_slots,
      s.cache.hits,
      s.cache.hit_lookups,
      s.cache.misses,
      s.cache.inserted,
      s.cache.evicted,
      s.cache.written_back,
      s.cache.prefetched,
      s.cache.stall_ns,
      s.disk_bytes,
      s.disk_lines_read,
      s.disk_lines_written,
      s.updates,
      s.nonfinite_updates,
  };
}

int hr_table_lookup(hr_table* table, const int64_t* keys, size_t count, int insert, float* rows,
                    size_t* unknown, const hr_executor* executor) {
  return guarded([&] {
    hotrow::forward(one_table(table, keys, count, executor), insert != 0, {rows}, unknown);
  });
}

int hr_table_update(hr_table* table, const int64_t* keys, size_t count, const float* gradients,
                    float learning_rate, const hr_executor* executor) {
  return guarded([&] {
    hotrow::BackwardOptions options;
    options.what = hotrow::Backward::kUpdate;
    options.learning_rates = &learning_rate;
    hotrow::backward(one_table(table, keys, count, executor), {gradients}, options);
  });
}

size_t hr_table_shard_count(const hr_table* table) { return table->table->shard_count(); }

int hr_table_export(const hr_table* table, uint64_t cursor, size_t count, const hr_rows* rows,
                    size_t* written, uint64_t* next) {
  return guarded(
      [&] { *written = table->table->export_rows(cursor, count, to_arrays(*rows), next); });
}

int hr_table_import(hr_table* table, const int64_t* keys, size_t count, const uint8_t* lines,
                    const uint32_t* clocks, const uint32_t* counts, const uint32_t* places) {
  return guarded([&] {
    table->table->import_rows(keys, count, reinterpret_cast<const std::byte*>(lines), clocks,
                              counts, places);
  });
}

int hr_table_remove(hr_table* table, const int64_t* keys, size_t count, size_t* removed) {
  return guarded([&] { *removed = table->table->remove_rows(keys, count); });
}

int hr_table_read(const hr_table* table, const int64_t* keys, size_t count, const hr_rows* rows,
                  uint8_t* found) {
  return guarded([&] {
    const hotrow::Table& from = *table->table;
    const auto lock = from.lock_settled();
    for (size_t i = 0; i < count; ++i) {
      const uint64_t hash = hotrow::mix64(static_cast<uint64_t>(keys[i]));
      const hotrow::Partition& partition = from.partition(from.partition_number(keys[i], hash));
      const uint32_t place = partition.find(hash, keys[i]);
      found[i] = place != hotrow::Partition::kAbsent;
      if (!found[i] || rows == nullptr) continue;
      size_t next = 0;
      const hotrow::RowArrays at = {
          rows->keys + i, reinterpret_cast<std::byte*>(rows->lines) + i * from.line_bytes(),
          rows->clocks + i, rows->counts + i, rows->places + i};
      partition.export_rows(place, 1, at, &next);
    }
  });
}

int hr_table_bury(hr_table* table, const int64_t* keys, size_t count, size_t* removed) {
  return guarded([&] { *removed = table->table->bury_rows(keys, count); });
}

int hr_table_digest(const hr_table* table, int weights_only, uint64_t digest[2]) {
  return guarded([&] { table->table->digest(weights_only != 0, digest); });
}

int hr_lines_digest(const int64_t* keys, const uint8_t* lines, const uint32_t* clocks,
                    const uint32_t* counts, size_t count, size_t line_bytes, uint64_t digest[2]) {
  return guarded([&] {
    digest[0] = digest[1] = 0;
    hotrow::add_rows_digest(keys, reinterpret_cast<const std::byte*>(lines), clocks, counts, count,
                            line_bytes, digest);
  });
}

int hr_table_clear(hr_table* table) {
  return guarded([&] { table->table->clear(); });
}

int hr_table_prefetch(hr_table* table, const int64_t* keys, size_t count) {
  return guarded([&] { table->table->prefetch(keys, count); });
}

int hr_table_wait_for_prefetch(hr_table* table) {
  return guarded([&] { table->table->wait_for_prefetch(); });
}

int hr_table_warm_up(hr_table* table, const int64_t* keys, const uint32_t* counts, size_t count,
                     double share, size_t* warmed) {
  return guarded([&] { *warmed = table->table->warm_up(keys, counts, count, share); });
}

void hr_bytes_free(hr_bytes* bytes) {
  std::free(bytes->data);
  *bytes = {nullptr, 0};
}

int hr_table_tombstones(const hr_table* table, hr_bytes* keys, hr_bytes* steps) {
  return guarded([&] {
    std::vector<int64_t> k;
    std::vector<uint32_t> s;
    table->table->tombstones(&k, &s);
    copy_out(k, keys);
    copy_out(s, steps);
  });
}

int hr_table_forget_tombstones(hr_table* table, uint32_t up_to_step) {
  return guarded([&] { table->table->forget_tombstones(up_to_step); });
}

int hr_table_keep_tombstones(hr_table* table) {
  return guarded([&] { table->table->keep_tombstones(); });
}

uint32_t hr_table_forgotten_step(const hr_table* table) { return table->table->forgotten_step(); }

int hr_table_state(const hr_table* table, hr_bytes* state) {
  return guarded([&] { copy_out(table->table->state(), state); });
}

int hr_table_set_state(hr_table* table, const uint8_t* data, size_t size) {
  return guarded([&] { table->table->set_state(data, size); });
}

int hr_table_merge_states(hr_table* table, const uint8_t* const* data, const size_t* sizes,
                          const uint8_t* counts, size_t count) {
  return guarded([&] {
    std::vector<hotrow::Table::SavedState> saved;
    for (size_t i = 0; i < count; ++i) saved.push_back({data[i], sizes[i], counts[i] != 0});
    table->table->merge_states(saved);
  });
}

int hr_table_begin_publishing(hr_table* table, const uint32_t* since) {
  return guarded([&] {
    table->table->begin_publishing(since == nullptr ? std::nullopt : std::optional(*since));
  });
}

int hr_table_mark_for_publishing(hr_table* table, const int64_t* keys, size_t count) {
  return guarded([&] { table->table->mark_for_publishing(keys, count); });
}

size_t hr_table_marked_rows(const hr_table* table) { return table->table->marked_rows(); }

int hr_snapshots_open(hr_table* const* tables, size_t count, int since, hr_snapshot** snapshots) {
  return guarded([&] {
    const auto kind = static_cast<hotrow::Since>(since);
    const auto budget = std::make_shared<hotrow::SnapshotBudget>(hotrow::when_spent(kind));
    std::vector<std::unique_ptr<hr_snapshot>> opened;
    for (size_t i = 0; i < count; ++i) {
      opened.emplace_back(
          new hr_snapshot{tables[i]->table, tables[i]->table->open_snapshot(kind, budget)});
    }
    for (size_t i = 0; i < count; ++i) snapshots[i] = opened[i].release();
  });
}

size_t hr_snapshot_rows(const hr_snapshot* snapshot) { return snapshot->snapshot->rows(); }
uint32_t hr_snapshot_step(const hr_snapshot* snapshot) { return snapshot->snapshot->step(); }
int hr_snapshot_state(const hr_snapshot* snapshot, hr_bytes* state) {
  return guarded([&] { copy_out(snapshot->snapshot->state(), state); });
}

int hr_snapshot_removed(const hr_snapshot* snapshot, hr_bytes* keys) {
  return guarded([&] { copy_out(snapshot->snapshot->removed(), keys); });
}

size_t hr_snapshot_nonfinite_rows(const hr_snapshot* snapshot) {
  return snapshot->snapshot->nonfinite_rows();
}
size_t hr_snapshot_copied_bytes(const hr_snapshot* snapshot) {
  return snapshot->snapshot->copied_bytes();
}
int hr_snapshot_short_of_memory(const hr_snapshot* snapshot) {
  return snapshot->snapshot->budget().short_of_memory();
}
double hr_snapshot_waited_seconds(const hr_snapshot* snapshot) {
  return snapshot->snapshot->waited_seconds();
}
int hr_snapshot_lost(const hr_snapshot* snapshot) { return snapshot->snapshot->lost(); }

int hr_snapshot_read(hr_snapshot* snapshot, size_t count, const hr_rows* rows, size_t* written) {
  return guarded([&] { *written = snapshot->snapshot->read(count, to_arrays(*rows)); });
}

int hr_snapshot_add_unchanged(hr_snapshot* snapshot, size_t count, size_t* added) {
  return guarded([&] { *added = snapshot->snapshot->add_unchanged(count); });
}

int hr_snapshot_digest(hr_snapshot* snapshot, uint64_t digest[2], int* known) {
  return guarded([&] { *known = snapshot->snapshot->digest(digest); });
}

int hr_snapshot_digests_all(const hr_snapshot* snapshot) {
  return snapshot->snapshot->digests_all();
}

int hr_snapshot_close(hr_snapshot* snapshot, int keep) {
  return guarded([&] { snapshot->snapshot->close(keep != 0); });
}

void hr_snapshot_free(hr_snapshot* snapshot) { delete snapshot; }

int hr_forward(const hr_layer_call* call, int insert, float* const* pooled, int64_t* ticket,
               size_t* unknown, const hr_stream* on) {
  return guarded([&] {
    const hotrow::LayerCall layer = to_call(*call);
    const std::vector<float*> out(pooled, pooled + call->feature_count);
    *ticket = on == nullptr
                  ? hotrow::forward(layer, insert != 0, out, unknown)
                  : hotrow::device_forward(layer, insert != 0, out, unknown, to_stream(*on));
  });
}

int hr_rank_prefetch(const hr_layer_call* call) {
  return guarded([&] {
    const hotrow::LayerCall batch = to_call(*call);
    if (!hotrow::on_ranks(batch.tables)) return;
    std::vector<std::shared_ptr<hotrow::Table>> others;
    for (size_t t = 1; t < call->table_count; ++t) others.push_back(call->tables[t]->table);
    hotrow::rank_prefetch(batch, std::move(others));
  });
}

int hr_tables_push_all(hr_table* const* tables, size_t table_count, const float* learning_rates) {
  return guarded([&] {
    if (table_count == 0) return;
    hotrow::rank_push_all(to_tables(tables, table_count), learning_rates, hotrow::Executor());
  });
}

size_t hr_next_slot(hr_table* table) {
  std::unique_lock lock(table->table->mutex());
  return table->table->passes.next_slot();
}

int hr_backward(const hr_layer_call* call, const float* const* gradients,
                const hr_backward_options* given, const hr_stream* on) {
  return guarded([&] {
    hotrow::BackwardOptions options;
    options.what = to_enum<hotrow::Backward>(given->what, HR_UPDATE, "what becomes of gradients:");
    options.slot = given->slot;
    options.ticket = given->ticket;
    options.learning_rates = given->learning_rates;
    options.global_clip_norm = given->global_clip_norm;
    const hotrow::LayerCall layer = to_call(*call);
    const std::vector<const float*> in(gradients, gradients + call->feature_count);
    if (on == nullptr) {
      hotrow::backward(layer, in, options);
    } else {
      hotrow::device_backward(layer, in, options, to_stream(*on));
    }
  });
}

int hr_commit(hr_table* const* tables, size_t table_count, const float* commit_token,
              const float* learning_rates, float global_clip_norm, const hr_executor* executor,
              const hr_stream* on) {
  return guarded([&] {
    const auto all = to_tables(tables, table_count);
    const hotrow::Executor threads(executor);
    if (on == nullptr) {
      hotrow::commit(all, commit_token, learning_rates, global_clip_norm, threads);
    } else {
      hotrow::device_commit(all, commit_token, learning_rates, global_clip_norm, threads,
                            to_stream(*on));
    }
  });
}

int hr_device_set_allocator(int device, const hr_device_allocator* allocator) {
  return guarded([&] {
    hotrow::set_allocator(device, allocator == nullptr ? hr_device_allocator{} : *allocator);
  });
}
