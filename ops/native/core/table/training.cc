#include "core/table/training.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>

#include "core/kernels/float_mode.h"
#include "core/kernels/key_gradients.h"
#include "core/table/batch_rows.h"
#include "core/table/due_gradients.h"
#include "core/table/step.h"
#include "core/table/table_changes.h"
#include "core/table/table_locks.h"

namespace hotrow {
namespace {

// Keys below which a call does not pay for threads.
constexpr size_t kLeastKeys = 2048;

struct Task {
  size_t table;
  size_t part;
};

Executor executor_for(const LayerCall& call) {
  if (call.features.empty()) return call.executor;  // a commit
  size_t keys = 0;
  for (const Feature& feature : call.features) keys += feature.segments.keys;
  return keys < kLeastKeys ? Executor() : call.executor;
}

// One task for each (table, part).
template <typename Parts>
std::vector<Task> tasks_of(const FoundRows& found, Parts&& parts) {
  std::vector<Task> tasks;
  for (size_t t = 0; t < found.tables.size(); ++t) {
    for (size_t p = 0; p < parts(*found.tables[t]); ++p) tasks.push_back({t, p});
  }
  return tasks;
}

// Finds the rows of all keys, in the locks.
void find_all(const LayerCall& call, const Executor& executor, Find how, FoundRows* found) {
  const auto places = call.features_by_table();
  while (found->tables.size() < call.tables.size()) {
    found->tables.push_back(std::make_unique<BatchRows>());
  }
  found->tables.resize(call.tables.size());
  std::vector<const Feature*> features;
  for (size_t t = 0; t < call.tables.size(); ++t) {
    features.clear();
    for (size_t f : places[t]) features.push_back(&call.features[f]);
    found->tables[t]->collect(*call.tables[t], features, executor.threads());
  }
  const auto chunks = tasks_of(*found, [](const BatchRows& rows) { return rows.chunk_count(); });
  executor.run(chunks.size(),
               [&](size_t i) { found->tables[chunks[i].table]->count_chunk(chunks[i].part); });
  for (auto& rows : found->tables) rows->end_count();
  executor.run(chunks.size(),
               [&](size_t i) { found->tables[chunks[i].table]->scatter_chunk(chunks[i].part); });
  const auto groups = tasks_of(*found, [](const BatchRows& rows) { return rows.group_count(); });
  // Moved rows void what older passes found, whether this lookup succeeded or failed.
  struct End {
    FoundRows* found;
    Find how;
    ~End() {
      for (auto& rows : found->tables) rows->end_find(how);
    }
  } end{found, how};
  executor.run(groups.size(), [&](size_t i) {
    BatchRows& rows = *found->tables[groups[i].table];
    in_table(rows.table(), [&] { rows.find_rows(groups[i].part, how); });
  });
}

void pool_all(const LayerCall& call, const Executor& executor, const FoundRows& found,
              const std::vector<float*>& pooled) {
  struct Piece {
    size_t feature, first_key, first, last;
  };
  std::vector<Piece> pieces;
  std::vector<size_t> next(call.tables.size(), 0);
  for (size_t f = 0; f < call.features.size(); ++f) {
    const Segments& segments = call.features[f].segments;
    const size_t outputs = pooled[f] == nullptr ? 0 : segments.outputs();
    for (size_t first = 0; first < outputs; first += kPoolOutputs) {
      pieces.push_back({f, next[call.table_of[f]], first, std::min(outputs, first + kPoolOutputs)});
    }
    next[call.table_of[f]] += segments.keys;
  }
  executor.run(pieces.size(), [&](size_t i) {
    const Piece& piece = pieces[i];
    const Table& table = *call.tables[call.table_of[piece.feature]];
    const LineLayout& layout = table.shape().layout;
    const Kernels& kernels = *table.shape().kernels;
    const Segments& segments = call.features[piece.feature].segments;
    const std::byte* const* lines =
        found.tables[call.table_of[piece.feature]]->line_of() + piece.first_key;
    float* out = pooled[piece.feature];
    const IeeeFloatMode exact;
    if (segments.plain()) {
      kernels.gather(layout, lines + piece.first, piece.last - piece.first,
                     out + piece.first * layout.width);
      return;
    }
    pool(
        segments, piece.first, piece.last, layout.width, out,
        [&](size_t key, float factor, float* sum) { kernels.add(layout, lines[key], factor, sum); },
        [&](float divisor, float* sum) { kernels.divide(layout.width, divisor, sum); });
  });
}

// --- backward -----------------------------------------------------------------------------------

KeysInBatch keys_of(const BatchRows::Group& group) {
  const Unique& unique = group.unique;
  return {group.positions, group.count, unique.inverse(), unique.size(), unique.counts()};
}

// Makes room in `sums` for the gradients of a pass.
void make_room(const BatchRows& rows, SummedGradients* sums) {
  sums->epoch = rows.epoch();
  sums->group_begins.assign(1, 0);
  for (size_t g = 0; g < rows.group_count(); ++g) {
    sums->group_begins.push_back(sums->group_begins.back() + rows.group(g).unique.size());
  }
  const size_t distinct = sums->group_begins.back();
  sums->keys.resize(distinct);
  sums->places.resize(distinct);
  sums->lines.resize(distinct);
  sums->counts.resize(distinct);
  sums->gradients.resize(distinct * rows.table().width());
}

void sum_group(const BatchRows& rows, size_t g, const KeyGradients& gradients,
               SummedGradients* sums) {
  const BatchRows::Group& group = rows.group(g);
  const size_t first = sums->group_begins[g], distinct = group.unique.size();
  const size_t width = rows.table().width();
  std::copy_n(group.unique.keys(), distinct, sums->keys.data() + first);
  std::copy_n(group.lookups(), distinct, sums->counts.data() + first);
  std::copy_n(group.places.data(), distinct, sums->places.data() + first);
  std::copy_n(group.lines.data(), distinct, sums->lines.data() + first);
  const RowGradients order = ordered_gradients().order(keys_of(group), gradients);
  rows.table().shape().kernels->sum(order, width, 0, distinct,
                                    sums->gradients.data() + first * width);
}

// Returns the tables. Rows of a table on a GPU are newer there: a read brings the host tier up to
// date first, and a step on the CPU fails.
const std::vector<Table*>& in_memory(const std::vector<Table*>& tables, bool reads_only) {
  for (const Table* table : tables) {
    if (!table->on_gpu()) continue;
    if (!reads_only) {
      fail(Code::kFailedPrecondition,
           "table %s has its device tier on a GPU: train it with keys, outputs and gradients there",
           table->name().c_str());
    }
    table->settle();
  }
  return tables;
}

// Runs what may write rows to a disk. A full disk ends a snapshot that keeps old versions there,
// not the training: then it runs again.
template <typename Attempt>
auto with_disk_room(const std::vector<Table*>& tables, bool (Table::*give_up_snapshot)(),
                    const Attempt& attempt) {
  for (bool is_last = false;;) {
    try {
      return attempt();
    } catch (const Error& error) {
      if (error.code() != Code::kResourceExhausted || is_last) throw;
      bool ended = false, has_room = false;
      for (Table* table : tables) {
        ended |= (table->*give_up_snapshot)();
        has_room |= table->has_disk() && !table->lacks_disk();
      }
      if (!ended && !has_room) throw;
      is_last = !ended;  // an error of prefetching, from before there was room
    }
  }
}

// The backend of table/step.h for rows in the host's memory.
class LayerInMemory {
 public:
  // reads_only: other calls that only read may run at the same time.
  LayerInMemory(const LayerCall& call, bool reads_only)
      : call_(call),
        executor_(executor_for(call)),
        locks_(in_memory(call.tables, reads_only), !reads_only) {
    // A step may have begun after the tables were settled.
    for (const Table* table : call.tables) table->tier().wait_for_host_rows();
    if (!reads_only) changes_.emplace(call.tables);
  }

  // A call that fails before this leaves its tables as they were.
  void keep_changes() { changes_->keep(); }

  const std::vector<Table*>& tables() const { return call_.tables; }
  FoundRows& next_batch();
  FoundRows& own_batch();
  FoundRows& batch_of(int64_t ticket);
  void find(Find how, FoundRows* found) { find_all(call_, executor_, how, found); }
  size_t missing(const FoundRows& found) const;
  void pool(const FoundRows& found, const std::vector<float*>& pooled) {
    pool_all(call_, executor_, found, pooled);
  }
  // (T), where the terms of the sums are; nothing is summed yet.
  const KeyGradients* sum(const FoundRows& found, const std::vector<const float*>& gradients);
  void keep(const FoundRows& found, const KeyGradients* gradients, size_t slot);
  void update(const FoundRows& found, const KeyGradients* gradients,
              const BackwardOptions& options);
  void apply(const std::vector<const GradientPasses::Taken*>& taken, const CommitOptions& options);

 private:
  FoundRows* find_batch(int64_t ticket);
  void sum_into(const FoundRows& found, const KeyGradients* gradients,
                const std::vector<SummedGradients*>& sums);
  void sum_and_update(const FoundRows& found, const KeyGradients* gradients,
                      const BackwardOptions& options);

  const LayerCall& call_;
  const Executor executor_;
  const TableLocks locks_;
  std::optional<TableChanges> changes_;
};

FoundRows& LayerInMemory::next_batch() {
  Table& first = *call_.tables[0];
  auto& slot = first.found_rows[first.next_found++ % Table::kFoundBatches];
  if (slot == nullptr) slot = std::make_unique<FoundRows>();
  return *slot;
}

FoundRows& LayerInMemory::own_batch() {
  thread_local FoundRows own;
  return own;
}

FoundRows& LayerInMemory::batch_of(int64_t ticket) {
  if (FoundRows* const found = find_batch(ticket)) return *found;
  // Rows that prefetching has evicted since the forward pass come back in.
  with_disk_room(call_.tables, &Table::give_up_snapshot_for_disk_in_lock,
                 [&] { find(Find::kTrainUncounted, &own_batch()); });
  return own_batch();
}

// The batch of a ticket, if it is still valid.
FoundRows* LayerInMemory::find_batch(int64_t ticket) {
  if (ticket == 0) return nullptr;
  for (const auto& found : call_.tables[0]->found_rows) {
    if (found == nullptr || found->ticket != ticket) continue;
    if (found->tables.size() != call_.tables.size()) return nullptr;
    std::vector<size_t> keys(call_.tables.size(), 0);
    for (size_t f = 0; f < call_.features.size(); ++f) {
      keys[call_.table_of[f]] += call_.features[f].segments.keys;
    }
    for (size_t t = 0; t < call_.tables.size(); ++t) {
      const BatchRows& rows = *found->tables[t];
      if (&rows.table() != call_.tables[t] || rows.epoch() != call_.tables[t]->epoch() ||
          rows.key_count() != keys[t]) {
        return nullptr;
      }
    }
    return found.get();
  }
  return nullptr;
}

size_t LayerInMemory::missing(const FoundRows& found) const {
  size_t missing = 0;
  for (const auto& rows : found.tables) {
    for (size_t g = 0; g < rows->group_count(); ++g) {
      const auto& lines = rows->group(g).lines;
      missing += static_cast<size_t>(std::count(lines.begin(), lines.end(), nullptr));
    }
  }
  return missing;
}

const KeyGradients* LayerInMemory::sum(const FoundRows&,
                                       const std::vector<const float*>& gradients) {
  const auto places = call_.features_by_table();
  thread_local std::vector<KeyGradients> key_gradients;
  key_gradients.resize(std::max(key_gradients.size(), call_.tables.size()));
  KeyGradients* const by_table = key_gradients.data();
  executor_.run(call_.tables.size(), [&](size_t t) {
    std::vector<const Feature*> features;
    std::vector<const float*> own;
    for (size_t f : places[t]) {
      features.push_back(&call_.features[f]);
      own.push_back(gradients[f]);
    }
    by_table[t].collect(features, own, call_.tables[t]->width());
  });
  return by_table;
}

void LayerInMemory::sum_into(const FoundRows& found, const KeyGradients* gradients,
                             const std::vector<SummedGradients*>& sums) {
  for (size_t t = 0; t < sums.size(); ++t) make_room(*found.tables[t], sums[t]);
  const auto tasks = tasks_of(found, [](const BatchRows& rows) { return rows.group_count(); });
  executor_.run(tasks.size(), [&](size_t i) {
    const size_t t = tasks[i].table;
    sum_group(*found.tables[t], tasks[i].part, gradients[t], sums[t]);
  });
}

void LayerInMemory::keep(const FoundRows& found, const KeyGradients* gradients, size_t slot) {
  std::vector<SummedGradients*> sums;
  sums.reserve(call_.tables.size());
  try {
    for (Table* table : call_.tables) sums.push_back(&table->passes.begin_pass(slot));
    sum_into(found, gradients, sums);
  } catch (...) {
    for (size_t t = 0; t < sums.size(); ++t) call_.tables[t]->passes.drop_pass(slot);
    throw;
  }
}

void LayerInMemory::update(const FoundRows& found, const KeyGradients* gradients,
                           const BackwardOptions& options) {
  const bool together = std::any_of(call_.tables.begin(), call_.tables.end(),
                                    [](const Table* table) { return table->measures_together(); });
  if (together || options.global_clip_norm > 0.0f) {
    std::vector<SummedGradients> summed(call_.tables.size());
    std::vector<SummedGradients*> sums;
    std::vector<Due> dues;
    for (size_t t = 0; t < call_.tables.size(); ++t) {
      sums.push_back(&summed[t]);
      dues.push_back({call_.tables[t], t, &summed[t], 1.0f});
    }
    sum_into(found, gradients, sums);
    hotrow::apply(&dues, options.learning_rates, options.global_clip_norm, executor_, &*changes_);
  } else {
    sum_and_update(found, gradients, options);
  }
}

// Sums and updates in one pass, with memory for the sum of one row at a time. Takes all other
// memory before it updates the first row.
void LayerInMemory::sum_and_update(const FoundRows& found, const KeyGradients* gradients,
                                   const BackwardOptions& options) {
  std::vector<UpdateStep> steps;
  for (size_t t = 0; t < call_.tables.size(); ++t) {
    steps.push_back(call_.tables[t]->prepare_update(rate_of(options.learning_rates, t), 1.0f));
  }
  const auto tasks = tasks_of(found, [](const BatchRows& rows) { return rows.group_count(); });
  std::vector<RowGradients> orders(tasks.size());
  thread_local std::vector<OrderedGradients> memory;
  if (memory.size() < tasks.size()) memory.resize(tasks.size());
  OrderedGradients* const ordered = memory.data();  // of this thread
  const auto each_group = [&](auto&& visit) {
    executor_.run(tasks.size(), [&](size_t i) {
      Table& table = *call_.tables[tasks[i].table];
      const BatchRows& rows = *found.tables[tasks[i].table];
      const BatchRows::Group& group = rows.group(tasks[i].part);
      const GroupLock lock(table, tasks[i].part, rows.group_count());
      visit(i, table, group,
            RowsToUpdate{group.unique.keys(), group.places.data(), group.lookups(),
                         group.lines.data(), 0, group.unique.size()});
    });
  };
  each_group([&](size_t i, Table& table, const BatchRows::Group& group, const RowsToUpdate& rows) {
    in_table(table, [&] {
      orders[i] = ordered[i].order(keys_of(group), gradients[tasks[i].table]);
      watch_rows(table, rows);
    });
  });
  prepare_sweeps(call_.tables, executor_);
  // From here on, nothing fails.
  changes_->keep();
  for (Table* table : call_.tables) table->begin_update();
  each_group([&](size_t i, Table& table, const BatchRows::Group&, const RowsToUpdate& rows) {
    update_rows(table, steps[tasks[i].table], orders[i], rows);
  });
  sweep_all(call_.tables, executor_);
}

void LayerInMemory::apply(const std::vector<const GradientPasses::Taken*>& taken,
                          const CommitOptions& options) {
  std::vector<Due> dues;
  std::vector<std::unique_ptr<SummedGradients>> merged;
  for (size_t t = 0; t < call_.tables.size(); ++t) {
    Table& table = *call_.tables[t];
    if (taken[t]->empty()) continue;
    with_disk_room({&table}, &Table::give_up_snapshot_for_disk_in_lock, [&] {
      for (const auto& [sums, factor] : *taken[t]) refresh(table, sums);
    });
    if (taken[t]->size() == 1) {
      dues.push_back({&table, t, taken[t]->front().first, taken[t]->front().second});
    } else {
      merged.push_back(merge(table, *taken[t]));
      dues.push_back({&table, t, merged.back().get(), 1.0f});
    }
  }
  hotrow::apply(&dues, options.learning_rates, options.global_clip_norm, executor_, &*changes_);
}

}  // namespace

std::vector<std::vector<size_t>> LayerCall::features_by_table() const {
  std::vector<std::vector<size_t>> places(tables.size());
  for (size_t f = 0; f < features.size(); ++f) places[table_of[f]].push_back(f);
  return places;
}

int64_t next_ticket() {
  static std::atomic<int64_t> tickets{0};
  return ++tickets;
}

int64_t forward_local(const LayerCall& call, bool insert, const std::vector<float*>& pooled,
                      size_t* missing) {
  const auto attempt = [&] {
    int64_t ticket = 0;
    in_table(*call.tables[0], [&] {
      LayerInMemory layer(call, !insert);
      ticket = step_forward(layer, insert, pooled, missing);
      if (insert) layer.keep_changes();
    });
    return ticket;
  };
  if (!insert) return attempt();
  return with_disk_room(call.tables, &Table::give_up_snapshot_for_disk, attempt);
}

void read_lines(const LayerCall& call, int64_t ticket,
                const std::function<void(size_t, const std::byte* const*)>& visit) {
  LayerInMemory layer(call, false);
  const FoundRows& found = layer.batch_of(ticket);
  layer.keep_changes();
  for (size_t t = 0; t < call.tables.size(); ++t) visit(t, found.tables[t]->line_of());
}

void backward_local(const LayerCall& call, const std::vector<const float*>& gradients,
                    const BackwardOptions& options) {
  in_table(*call.tables[0], [&] {
    LayerInMemory layer(call, false);
    step_backward(layer, gradients, options);
    layer.keep_changes();
  });
}

void commit(const std::vector<Table*>& tables, const float* commit_token,
            const float* learning_rates, float global_clip_norm, const Executor& executor) {
  const LayerCall call{tables, {}, {}, executor};
  in_table(*tables[0], [&] {
    LayerInMemory layer(call, false);
    step_commit(layer, commit_token, {learning_rates, global_clip_norm});
    layer.keep_changes();
  });
}

}  // namespace hotrow
