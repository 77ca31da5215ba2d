#include "core/table/training.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>

#include "core/kernels/float_mode.h"
#include "core/kernels/key_gradients.h"
#include "core/table/batch_rows.h"
#include "core/table/table_locks.h"

namespace hotrow {
namespace {

// Rows whose headers are looked at before they are written.
constexpr size_t kWatchRows = 256;
// Keys below which a call does not pay for threads.
constexpr size_t kLeastKeys = 2048;

struct Task {
  size_t table;
  size_t part;
};

Executor executor_for(const LayerCall& call) {
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
void find_all(const LayerCall& call, const Executor& executor, Missing missing, FoundRows* found) {
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
  // Rows that moved void what older passes found, whether all were found or one failed.
  struct End {
    FoundRows* found;
    Missing missing;
    ~End() {
      for (auto& rows : found->tables) rows->end_find(missing);
    }
  } end{found, missing};
  executor.run(groups.size(), [&](size_t i) {
    found->tables[groups[i].table]->find_rows(groups[i].part, missing);
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

// Applies the optimizer to rows [first, last), which belong to the calling thread.
void update_rows(Table& table, const UpdateStep& step, const RowGradients& gradients,
                 const int64_t* keys, const uint32_t* places, const uint32_t* counts,
                 std::byte* const* lines, size_t first, size_t last) {
  uint64_t lookups = 0;
  for (size_t u = first; u < last; ++u) lookups += lines[u] == nullptr ? 0 : counts[u];
  table.add_lookups(lookups);
  const Kernels& kernels = *table.shape().kernels;
  if (!table.partition(0).watching()) {
    kernels.update(step, gradients, counts, first, last, lines);
    return;
  }
  for (size_t block = first; block < last; block += kWatchRows) {
    const size_t end = std::min(last, block + kWatchRows);
    for (size_t u = block; u < end; ++u) {
      if (lines[u] != nullptr) __builtin_prefetch(lines[u]);
    }
    for (size_t u = block; u < end; ++u) {
      if (lines[u] == nullptr) continue;
      const uint64_t hash = mix64(static_cast<uint64_t>(keys[u]));
      Partition& partition = table.partition(table.partition_number(keys[u], hash));
      // A row in the device tier is written to its place later.
      if (lines[u] == partition.at(places[u])) partition.before_write(places[u]);
    }
    kernels.update(step, gradients, counts, block, end, lines);
  }
}

float rate_of(const float* learning_rates, size_t table) {
  return learning_rates == nullptr ? std::numeric_limits<float>::quiet_NaN()
                                   : learning_rates[table];
}

void sweep_all(const std::vector<Table*>& tables, const Executor& executor) {
  std::vector<Task> tasks;
  for (size_t t = 0; t < tables.size(); ++t) {
    if (!tables[t]->options().expiry.any()) continue;
    for (size_t p = 0; p < Table::kPartitions; ++p) tasks.push_back({t, p});
  }
  if (tasks.empty()) return;
  // The partitions of all shards whose keys share their top bits: they share sets of the cache.
  executor.run(tasks.size(),
               [&](size_t i) { tables[tasks[i].table]->sweep(tasks[i].part, Table::kPartitions); });
  for (Table* table : tables) table->end_sweep();
}

// Fills `sums` with the gradients of a pass.
void sum_pass(const BatchRows& rows, std::vector<SummedGradients*>* all, size_t table) {
  SummedGradients& sums = *(*all)[table];
  sums.epoch = rows.epoch();
  sums.group_begins.assign(1, 0);
  for (size_t g = 0; g < rows.group_count(); ++g) {
    sums.group_begins.push_back(sums.group_begins.back() + rows.group(g).unique.size());
  }
  const size_t distinct = sums.group_begins.back();
  sums.keys.resize(distinct);
  sums.places.resize(distinct);
  sums.lines.resize(distinct);
  sums.counts.resize(distinct);
  sums.gradients.resize(distinct * rows.table().width());
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

// The gradients of a table in a commit: one pass, or several merged.
struct Due {
  Table* table;
  size_t number;  // of the table in the call
  const SummedGradients* sums;
  float factor;
};

// Finds lines and places again when rows were removed since. A key that was not admitted when its
// gradient was computed stays without a line, and its gradient is dropped.
void refresh(Table& table, SummedGradients* sums) {
  if (sums->epoch == table.epoch()) return;
  const uint32_t clock = table.step_in_lock() + 1;
  for (size_t u = 0; u < sums->keys.size(); ++u) {
    if (sums->lines[u] == nullptr) continue;
    const int64_t key = sums->keys[u];
    const uint64_t hash = mix64(static_cast<uint64_t>(key));
    Partition& partition = table.partition(table.partition_number(key, hash));
    std::unique_lock lock(partition.mutex, std::defer_lock);
    if (table.snapshot_open()) lock.lock();
    const uint32_t place = partition.find_or_insert(hash, key, 0, clock);
    sums->places[u] = place;
    sums->lines[u] = table.line_to_update(key, hash, place);
  }
  sums->epoch = table.epoch();
}

// Sums several passes, in their order, into one.
std::unique_ptr<SummedGradients> merge(const Table& table, const GradientPasses::Taken& taken) {
  auto merged = std::make_unique<SummedGradients>();
  const size_t width = table.width();
  std::vector<int64_t> keys;
  std::vector<const float*> gradients;
  std::vector<float> factors;
  std::vector<const SummedGradients*> passes;
  std::vector<size_t> rows;
  for (const auto& [sums, factor] : taken) {
    for (size_t u = 0; u < sums->keys.size(); ++u) {
      if (sums->lines[u] == nullptr) continue;
      keys.push_back(sums->keys[u]);
      gradients.push_back(sums->gradients.data() + u * width);
      factors.push_back(factor);
      passes.push_back(sums);
      rows.push_back(u);
    }
  }
  Unique unique;
  unique.run(keys.data(), keys.size());
  const size_t distinct = unique.size();
  merged->keys.assign(unique.keys(), unique.keys() + distinct);
  merged->places.resize(distinct);
  merged->lines.resize(distinct);
  merged->counts.assign(distinct, 0);
  merged->gradients.resize(distinct * width);
  merged->group_begins = {0, distinct};
  merged->epoch = table.epoch();
  std::vector<uint32_t> begins{0};
  for (size_t u = 0; u < distinct; ++u) begins.push_back(begins.back() + unique.counts()[u]);
  std::vector<uint32_t> next(begins.begin(), begins.end() - 1);
  std::vector<const float*> ordered_rows(keys.size());
  std::vector<float> shares(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    const size_t u = static_cast<size_t>(unique.inverse()[i]);
    const uint32_t place = next[u]++;
    ordered_rows[place] = gradients[i];
    shares[place] = factors[i];
    merged->places[u] = passes[i]->places[rows[i]];
    merged->lines[u] = passes[i]->lines[rows[i]];
    merged->counts[u] += passes[i]->counts[rows[i]];
  }
  table.shape().kernels->sum({ordered_rows.data(), shares.data(), begins.data()}, width, 0,
                             distinct, merged->gradients.data());
  return merged;
}

// The squared norm of a table's gradients: by partition first, so that it does not depend on how
// rows were grouped.
double squared_norm(const Due& due) {
  const Table& table = *due.table;
  std::vector<double> sums(table.partition_count(), 0.0);
  const size_t width = table.width();
  for (size_t u = 0; u < due.sums->keys.size(); ++u) {
    if (due.sums->lines[u] == nullptr) continue;
    const int64_t key = due.sums->keys[u];
    sums[table.partition_number(key, mix64(static_cast<uint64_t>(key)))] +=
        table.shape().kernels->squares(due.sums->gradients.data() + u * width, width);
  }
  double total = 0.0;
  for (double sum : sums) total += sum;
  return total * static_cast<double>(due.factor) * static_cast<double>(due.factor);
}

// What of the squares of tables this rank has alone, summed over all ranks.
double sum_over_ranks(const std::vector<Due>& dues, const std::vector<double>& squares) {
  double total = 0.0;
  for (size_t i = 0; i < dues.size(); ++i) {
    const Sharding& sharding = dues[i].table->sharding();
    if (sharding.scheme != Scheme::kReplicated || sharding.rank() == 0) total += squares[i];
  }
  const auto& ranks = dues[0].table->sharding().ranks;
  if (ranks != nullptr) {
    ranks->run("norm of all gradients",
               [&](Communicator& communicator) { communicator.all_reduce(&total, 1); });
  }
  return total;
}

// Squares of the gradients of rows whose columns other ranks have, summed over all columns. The
// ranks have the same keys, grouped by their own numbers of threads.
class WholeSquares {
 public:
  // Leaves them in the step.
  void measure(const Due& due, UpdateStep* step) {
    const SummedGradients& sums = *due.sums;
    const size_t distinct = sums.keys.size();
    order_.resize(distinct);
    std::iota(order_.begin(), order_.end(), 0);
    std::sort(order_.begin(), order_.end(),
              [&](uint32_t a, uint32_t b) { return sums.keys[a] < sums.keys[b]; });
    if (step->optimizer.clip_row_norm > 0.0f) {
      measure(due, *step, false, &clip_);
      step->clip_squares = clip_.data();
    }
    if (step->optimizer.kind == OptimizerKind::kRowwiseAdagrad) {
      measure(due, *step, true, &finished_);
      step->finished_squares = finished_.data();
    }
  }

 private:
  void measure(const Due& due, const UpdateStep& step, bool finished, std::vector<float>* out) {
    const Table& table = *due.table;
    const SummedGradients& sums = *due.sums;
    const size_t distinct = sums.keys.size();
    out->resize(distinct);
    const RowGradients rows =
        ordered_gradients().of_sums(sums.gradients.data(), table.width(), 0, distinct);
    table.shape().kernels->measure(step, rows, finished, 0, distinct, sums.lines.data(),
                                   out->data());
    std::vector<float> sorted(distinct);
    for (size_t u = 0; u < distinct; ++u) sorted[u] = (*out)[order_[u]];
    table.sharding().ranks->run("squares of " + table.name(), [&](Communicator& communicator) {
      communicator.all_reduce(sorted.data(), distinct);
    });
    for (size_t u = 0; u < distinct; ++u) (*out)[order_[u]] = sorted[u];
  }

  std::vector<uint32_t> order_;  // by key
  std::vector<float> clip_, finished_;
};

// Applies gradients, after clipping by the norm of all, in the locks.
void apply(std::vector<Due>* dues, const float* learning_rates, float global_clip_norm,
           const Executor& executor) {
  if (dues->empty()) return;
  if (global_clip_norm > 0.0f) {
    std::vector<double> squares(dues->size());
    executor.run(dues->size(), [&](size_t i) { squares[i] = squared_norm((*dues)[i]); });
    const double total = sum_over_ranks(*dues, squares);
    const double norm = std::sqrt(total);
    if (norm > static_cast<double>(global_clip_norm)) {
      const float down = static_cast<float>(static_cast<double>(global_clip_norm) / norm);
      for (Due& due : *dues) due.factor *= down;
    }
  }
  std::vector<UpdateStep> steps;
  std::vector<Task> tasks;
  std::vector<WholeSquares> squares(dues->size());
  for (size_t i = 0; i < dues->size(); ++i) {
    Due& due = (*dues)[i];
    steps.push_back(due.table->begin_update(rate_of(learning_rates, due.number), due.factor));
    if (due.table->measures_together()) squares[i].measure(due, &steps.back());
    for (size_t g = 0; g + 1 < due.sums->group_begins.size(); ++g) tasks.push_back({i, g});
  }
  executor.run(tasks.size(), [&](size_t i) {
    const Due& due = (*dues)[tasks[i].table];
    const SummedGradients& sums = *due.sums;
    const size_t groups = sums.group_begins.size() - 1;
    GroupLock lock(*due.table, tasks[i].part, groups);
    const size_t first = sums.group_begins[tasks[i].part];
    const size_t last = sums.group_begins[tasks[i].part + 1];
    const RowGradients rows =
        ordered_gradients().of_sums(sums.gradients.data(), due.table->width(), first, last);
    update_rows(*due.table, steps[tasks[i].table], rows, sums.keys.data(), sums.places.data(),
                sums.counts.data(), sums.lines.data(), first, last);
  });
}

// The found of a ticket, if it still holds.
const FoundRows* found_by(const LayerCall& call, int64_t ticket) {
  if (ticket == 0) return nullptr;
  for (const auto& found : call.tables[0]->found_rows) {
    if (found == nullptr || found->ticket != ticket) continue;
    if (found->tables.size() != call.tables.size()) return nullptr;
    std::vector<size_t> keys(call.tables.size(), 0);
    for (size_t f = 0; f < call.features.size(); ++f) {
      keys[call.table_of[f]] += call.features[f].segments.keys;
    }
    for (size_t t = 0; t < call.tables.size(); ++t) {
      const BatchRows& rows = *found->tables[t];
      if (&rows.table() != call.tables[t] || rows.epoch() != call.tables[t]->epoch() ||
          rows.key_count() != keys[t]) {
        return nullptr;
      }
    }
    return found.get();
  }
  return nullptr;
}

// Rows of a table on a GPU are newer there, and steps of the CPU would not see them.
void check_in_memory(const std::vector<Table*>& tables, bool reads_only) {
  for (const Table* table : tables) {
    if (!table->on_gpu()) continue;
    if (!reads_only) {
      fail(Code::kFailedPrecondition,
           "table %s has its device tier on a GPU: train it with keys, outputs and gradients there",
           table->name().c_str());
    }
    table->settle();
  }
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
  const Executor executor = executor_for(call);
  check_in_memory(call.tables, !insert);
  TableLocks locks(call.tables, insert);
  FoundRows* found;
  if (insert) {
    for (Table* table : call.tables) {
      table->passes.begin_forward();
      table->wait_for_snapshot();
    }
    Table& first = *call.tables[0];
    auto& slot = first.found_rows[first.next_found++ % Table::kFoundBatches];
    if (slot == nullptr) slot = std::make_unique<FoundRows>();
    found = slot.get();
  } else {
    thread_local FoundRows own;
    found = &own;
  }
  found->ticket = 0;
  find_all(call, executor, insert ? Missing::kInsert : Missing::kReadDefault, found);
  pool_all(call, executor, *found, pooled);
  if (missing != nullptr) {
    *missing = 0;
    for (const auto& rows : found->tables) {
      for (size_t g = 0; g < rows->group_count(); ++g) {
        const auto& lines = rows->group(g).lines;
        *missing += static_cast<size_t>(std::count(lines.begin(), lines.end(), nullptr));
      }
    }
  }
  if (!insert) return 0;
  found->ticket = next_ticket();
  return found->ticket;
}

void read_lines(const LayerCall& call, int64_t ticket,
                const std::function<void(size_t, const std::byte* const*)>& visit) {
  TableLocks locks(call.tables, true);
  FoundRows again;
  const FoundRows* found = found_by(call, ticket);
  if (found == nullptr) {
    find_all(call, executor_for(call), Missing::kInsertUncounted, &again);
    found = &again;
  }
  for (size_t t = 0; t < call.tables.size(); ++t) visit(t, found->tables[t]->line_of());
}

void backward_local(const LayerCall& call, const std::vector<const float*>& gradients,
                    const BackwardOptions& options) {
  const Executor executor = executor_for(call);
  check_in_memory(call.tables, false);
  TableLocks locks(call.tables, true);
  const FoundRows* found = found_by(call, options.ticket);
  thread_local FoundRows own;
  if (found == nullptr) {
    find_all(call, executor, Missing::kInsertUncounted, &own);
    found = &own;
  }
  const auto places = call.features_by_table();
  thread_local std::vector<KeyGradients> key_gradients;
  key_gradients.resize(std::max(key_gradients.size(), call.tables.size()));
  KeyGradients* const by_table = key_gradients.data();
  executor.run(call.tables.size(), [&](size_t t) {
    std::vector<const Feature*> features;
    std::vector<const float*> own;
    for (size_t f : places[t]) {
      features.push_back(&call.features[f]);
      own.push_back(gradients[f]);
    }
    by_table[t].collect(features, own, call.tables[t]->width());
  });
  if (options.what == Backward::kCommit) {
    for (Table* table : call.tables) table->passes.begin_immediate(options.slot);
  }
  const auto tasks = tasks_of(*found, [](const BatchRows& rows) { return rows.group_count(); });
  const bool together = std::any_of(call.tables.begin(), call.tables.end(),
                                    [](const Table* table) { return table->measures_together(); });
  const bool fused =
      options.what != Backward::kAccumulate && options.global_clip_norm <= 0.0f && !together;
  if (fused) {
    std::vector<UpdateStep> steps;
    for (size_t t = 0; t < call.tables.size(); ++t) {
      steps.push_back(call.tables[t]->begin_update(rate_of(options.learning_rates, t), 1.0f));
    }
    executor.run(tasks.size(), [&](size_t i) {
      Table& table = *call.tables[tasks[i].table];
      const BatchRows& rows = *found->tables[tasks[i].table];
      const BatchRows::Group& group = rows.group(tasks[i].part);
      GroupLock lock(table, tasks[i].part, rows.group_count());
      const RowGradients order =
          ordered_gradients().order(keys_of(group), by_table[tasks[i].table]);
      update_rows(table, steps[tasks[i].table], order, group.unique.keys(), group.places.data(),
                  group.lookups(), group.lines.data(), 0, group.unique.size());
    });
    sweep_all(call.tables, executor);
    return;
  }
  const bool waits = options.what == Backward::kAccumulate;
  std::vector<SummedGradients> immediate(waits ? 0 : call.tables.size());
  std::vector<SummedGradients*> sums;
  for (size_t t = 0; t < call.tables.size(); ++t) {
    sums.push_back(waits ? &call.tables[t]->passes.begin_pass(options.slot) : &immediate[t]);
    sum_pass(*found->tables[t], &sums, t);
  }
  executor.run(tasks.size(), [&](size_t i) {
    const size_t t = tasks[i].table;
    sum_group(*found->tables[t], tasks[i].part, by_table[t], sums[t]);
  });
  if (waits) return;
  std::vector<Due> dues;
  for (size_t t = 0; t < call.tables.size(); ++t) {
    dues.push_back({call.tables[t], t, sums[t], 1.0f});
  }
  apply(&dues, options.learning_rates, options.global_clip_norm, executor);
  sweep_all(call.tables, executor);
}

void commit(const std::vector<Table*>& tables, const float* commit_token,
            const float* learning_rates, float global_clip_norm, const Executor& executor) {
  check_in_memory(tables, false);
  TableLocks locks(tables, true);
  std::vector<Due> dues;
  std::vector<std::unique_ptr<SummedGradients>> merged;
  std::vector<Table*> stepped;
  for (size_t t = 0; t < tables.size(); ++t) {
    const GradientPasses::Taken& taken = tables[t]->passes.end_step(commit_token);
    if (taken.empty()) continue;
    for (const auto& [sums, factor] : taken) refresh(*tables[t], sums);
    if (taken.size() == 1) {
      dues.push_back({tables[t], t, taken[0].first, taken[0].second});
    } else {
      merged.push_back(merge(*tables[t], taken));
      dues.push_back({tables[t], t, merged.back().get(), 1.0f});
    }
    stepped.push_back(tables[t]);
  }
  apply(&dues, learning_rates, global_clip_norm, executor);
  sweep_all(stepped, executor);
}

}  // namespace hotrow
