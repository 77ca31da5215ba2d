#include "core/table/due_gradients.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>

#include "core/base/unique.h"
#include "core/kernels/key_gradients.h"
#include "core/table/batch_rows.h"

namespace hotrow {
namespace {

// Rows whose headers are checked before they are written.
constexpr size_t kWatchRows = 256;

// A piece of work: a part of one of the tables.
struct Task {
  size_t table;
  size_t part;
};

// The squared norm of a table's gradients: by partition first, so that it does not depend on how
// rows were grouped. Gradients that are not finite do not count: their rows are not updated.
double squared_norm(const Due& due) {
  const Table& table = *due.table;
  std::vector<double> sums(table.partition_count(), 0.0);
  const size_t width = table.width();
  for (size_t u = 0; u < due.sums->keys.size(); ++u) {
    if (due.sums->lines[u] == nullptr) continue;
    const int64_t key = due.sums->keys[u];
    const double squares =
        table.shape().kernels->squares(due.sums->gradients.data() + u * width, width);
    if (!std::isfinite(squares)) continue;
    sums[table.partition_number(key, mix64(static_cast<uint64_t>(key)))] += squares;
  }
  double total = 0.0;
  for (double sum : sums) total += sum;
  return total * static_cast<double>(due.factor) * static_cast<double>(due.factor);
}

// The squares of tables that only this rank holds, summed over all ranks.
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

// Squares of the gradients of rows that are split by column over ranks, summed over all columns.
// The ranks have the same keys, grouped by their own numbers of threads.
class WholeSquares {
 public:
  // Stores them in the step.
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

bool any_expires(const std::vector<Table*>& tables) {
  return std::any_of(tables.begin(), tables.end(),
                     [](const Table* table) { return table->options().expiry.any(); });
}

}  // namespace

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

void apply(std::vector<Due>* dues, const float* learning_rates, float global_clip_norm,
           const Executor& executor, TableChanges* changes) {
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
  std::vector<Table*> tables;
  std::vector<RowGradients> gradients;
  std::vector<WholeSquares> squares(dues->size());
  thread_local std::vector<OrderedGradients> ordered;
  if (ordered.size() < dues->size()) ordered.resize(dues->size());
  for (size_t i = 0; i < dues->size(); ++i) {
    Due& due = (*dues)[i];
    const SummedGradients& sums = *due.sums;
    tables.push_back(due.table);
    steps.push_back(due.table->prepare_update(rate_of(learning_rates, due.number), due.factor));
    if (due.table->measures_together()) squares[i].measure(due, &steps.back());
    gradients.push_back(
        ordered[i].of_sums(sums.gradients.data(), due.table->width(), 0, sums.keys.size()));
    for (size_t g = 0; g + 1 < sums.group_begins.size(); ++g) tasks.push_back({i, g});
  }
  const auto rows_of = [&](const Task& task) -> RowsToUpdate {
    const SummedGradients& sums = *(*dues)[task.table].sums;
    return {sums.keys.data(),  sums.places.data(),           sums.counts.data(),
            sums.lines.data(), sums.group_begins[task.part], sums.group_begins[task.part + 1]};
  };
  const auto locked = [&](const Task& task) {
    const Due& due = (*dues)[task.table];
    return GroupLock(*due.table, task.part, due.sums->group_begins.size() - 1);
  };
  executor.run(tasks.size(), [&](size_t i) {
    const GroupLock lock = locked(tasks[i]);
    watch_rows(*tables[tasks[i].table], rows_of(tasks[i]));
  });
  prepare_sweeps(tables, executor);
  // From here on, nothing fails.
  changes->keep();
  for (Table* table : tables) table->begin_update();
  executor.run(tasks.size(), [&](size_t i) {
    const size_t t = tasks[i].table;
    const GroupLock lock = locked(tasks[i]);
    update_rows(*tables[t], steps[t], gradients[t], rows_of(tasks[i]));
  });
  sweep_all(tables, executor);
}

void watch_rows(Table& table, const RowsToUpdate& rows) {
  if (!table.partition(0).watching()) return;
  for (size_t block = rows.first; block < rows.last; block += kWatchRows) {
    const size_t end = std::min(rows.last, block + kWatchRows);
    for (size_t u = block; u < end; ++u) {
      if (rows.lines[u] != nullptr) __builtin_prefetch(rows.lines[u]);
    }
    for (size_t u = block; u < end; ++u) {
      if (rows.lines[u] == nullptr) continue;
      const uint64_t hash = mix64(static_cast<uint64_t>(rows.keys[u]));
      Partition& partition = table.partition(table.partition_number(rows.keys[u], hash));
      // A row in the device tier is written to its place in the host tier later.
      if (rows.lines[u] == partition.at(rows.places[u])) partition.before_write(rows.places[u]);
    }
  }
}

void update_rows(Table& table, const UpdateStep& step, const RowGradients& gradients,
                 const RowsToUpdate& rows) {
  uint64_t lookups = 0, updates = 0;
  for (size_t u = rows.first; u < rows.last; ++u) {
    lookups += rows.lines[u] == nullptr ? 0 : rows.counts[u];
    updates += rows.lines[u] != nullptr;
  }
  table.add_lookups(lookups);
  const uint64_t nonfinite = table.shape().kernels->update(step, gradients, rows.counts, rows.first,
                                                           rows.last, rows.lines);
  table.add_updates(updates, nonfinite);
}

float rate_of(const float* learning_rates, size_t table) {
  return learning_rates == nullptr ? std::numeric_limits<float>::quiet_NaN()
                                   : learning_rates[table];
}

// One task takes the partitions of all shards whose keys share their top bits: they share sets of
// the cache.
void prepare_sweeps(const std::vector<Table*>& tables, const Executor& executor) {
  if (!any_expires(tables)) return;
  executor.run(tables.size() * Table::kPartitions, [&](size_t i) {
    Table& table = *tables[i / Table::kPartitions];
    table.prepare_sweep(i % Table::kPartitions, Table::kPartitions, table.step_in_lock() + 1);
  });
}

void sweep_all(const std::vector<Table*>& tables, const Executor& executor) {
  if (!any_expires(tables)) return;
  executor.run(tables.size() * Table::kPartitions, [&](size_t i) {
    tables[i / Table::kPartitions]->sweep(i % Table::kPartitions, Table::kPartitions);
  });
  for (Table* table : tables) table->end_sweep();
}

}  // namespace hotrow
