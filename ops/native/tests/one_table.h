// A training table of one feature without pooling, for tests: verbs that take vectors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "core/ranks/step.h"
#include "core/table/snapshot.h"
#include "core/table/table.h"

namespace hotrow {

struct Row {
  int64_t key = 0;
  uint32_t clock = 0;
  uint32_t count = 0;
  uint32_t place = 0;
  std::vector<std::byte> line;

  bool operator==(const Row& other) const {
    return key == other.key && clock == other.clock && count == other.count &&
           place == other.place && line == other.line;
  }
};

using Rows = std::vector<Row>;

inline Rows sorted(Rows rows) {
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.key < b.key; });
  return rows;
}

// Memory for rows of a table, and the rows written to it.
class RowRoom {
 public:
  RowRoom(const Table& table, size_t count)
      : line_bytes_(table.line_bytes()),
        keys_(count),
        lines_(count * line_bytes_),
        clocks_(count),
        counts_(count),
        places_(count) {}
  RowArrays arrays() {
    return {keys_.data(), lines_.data(), clocks_.data(), counts_.data(), places_.data()};
  }
  void append_to(Rows* rows, size_t count) const {
    for (size_t i = 0; i < count; ++i) {
      const std::byte* line = lines_.data() + i * line_bytes_;
      rows->push_back({keys_[i], clocks_[i], counts_[i], places_[i], {line, line + line_bytes_}});
    }
  }

 private:
  size_t line_bytes_;
  std::vector<int64_t> keys_;
  std::vector<std::byte> lines_;
  std::vector<uint32_t> clocks_, counts_, places_;
};

// All rows in the order of the export, `piece` at a time.
inline Rows exported(const Table& table, size_t piece = 7) {
  Rows rows;
  RowRoom room(table, piece);
  for (uint64_t cursor = 0; cursor != Table::kEnd;) {
    const size_t count = table.export_rows(cursor, piece, room.arrays(), &cursor);
    room.append_to(&rows, count);
  }
  return rows;
}

inline Rows read_all(const Table& table, Snapshot& snapshot, size_t piece = 7) {
  Rows rows;
  RowRoom room(table, piece);
  while (const size_t count = snapshot.read(piece, room.arrays())) room.append_to(&rows, count);
  return rows;
}

inline void import_all(Table& table, const Rows& rows, bool with_places) {
  std::vector<int64_t> keys;
  std::vector<std::byte> lines;
  std::vector<uint32_t> clocks, counts, places;
  for (const Row& row : rows) {
    keys.push_back(row.key);
    lines.insert(lines.end(), row.line.begin(), row.line.end());
    clocks.push_back(row.clock);
    counts.push_back(row.count);
    places.push_back(row.place);
  }
  table.import_rows(keys.data(), keys.size(), lines.data(), clocks.data(), counts.data(),
                    with_places ? places.data() : nullptr);
}

// Runs each task on its own thread.
class ManyThreads {
 public:
  explicit ManyThreads(size_t threads) : pool_{this, threads, &ManyThreads::run} {}
  Executor executor() const { return Executor(&pool_); }

 private:
  static void run(void*, size_t tasks, void (*task)(void*, size_t), void* argument) {
    std::vector<std::thread> threads;
    for (size_t i = 1; i < tasks; ++i) threads.emplace_back(task, argument, i);
    task(argument, 0);
    for (std::thread& thread : threads) thread.join();
  }
  hr_executor pool_;
};

inline LayerCall call_of(Table& table, const std::vector<int64_t>& keys,
                         const Executor& executor = Executor()) {
  LayerCall call;
  call.tables = {&table};
  Feature feature;
  feature.name = "f";
  feature.keys = keys.data();
  feature.segments.keys = feature.segments.samples = keys.size();
  call.features = {feature};
  call.table_of = {0};
  call.executor = executor;
  return call;
}

// (N, D), in the order of the keys.
inline std::vector<float> look_up(Table& table, const std::vector<int64_t>& keys, bool insert,
                                  const Executor& executor = Executor()) {
  std::vector<float> rows(keys.size() * table.width());
  forward(call_of(table, keys, executor), insert, {rows.data()}, nullptr);
  return rows;
}

// One step. gradients: (N, D).
inline void update(Table& table, const std::vector<int64_t>& keys,
                   const std::vector<float>& gradients, const Executor& executor = Executor()) {
  BackwardOptions options;
  options.what = Backward::kUpdate;
  backward(call_of(table, keys, executor), {gradients.data()}, options);
}

// Looks the keys up and gives each the same gradient, in one step.
inline void train(Table& table, const std::vector<int64_t>& keys, float gradient,
                  const Executor& executor = Executor()) {
  look_up(table, keys, true, executor);
  update(table, keys, std::vector<float>(keys.size() * table.width(), gradient), executor);
}

inline std::vector<uint64_t> digest_of(const Table& table, bool weights_only = false) {
  std::vector<uint64_t> digest(2);
  table.digest(weights_only, digest.data());
  return digest;
}

// SGD with learning rate 1 and rows that start at 0: a row is minus the sum of its gradients.
inline TableOptions plain_options(size_t width = 4) {
  TableOptions options;
  options.width = width;
  options.optimizer.kind = OptimizerKind::kSgd;
  options.optimizer.learning_rate = 1.0f;
  return options;
}

}  // namespace hotrow
