// Updates that are not finite, on every path of a table: they are left out and counted.
#include <doctest/doctest.h>
#include <farmhash.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "tests/error_code.h"
#include "tests/one_table.h"
#include "tests/temporary_directory.h"

namespace hotrow {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr size_t kWidth = 4;

TableOptions adagrad_options() {
  TableOptions options = plain_options(kWidth);
  options.optimizer.kind = OptimizerKind::kAdagrad;
  options.init = {InitKind::kUniform, 0.1f, 5, 7};
  return options;
}

std::vector<int64_t> keys_to(int64_t end) {
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < end; ++key) keys.push_back(key);
  return keys;
}

bool is_bad(int64_t key, int step) { return key % 10 == step || key % 10 == step + 4; }

// A gradient of each key; bad ones have one value that is not finite.
std::vector<float> gradients_of(const std::vector<int64_t>& keys, int step) {
  std::vector<float> gradients;
  for (const int64_t key : keys) {
    for (size_t j = 0; j < kWidth; ++j) {
      gradients.push_back(0.1f * static_cast<float>(key % 5) + static_cast<float>(j) - 1.0f);
    }
    if (is_bad(key, step)) gradients.back() = key % 10 == step ? kNan : kInfinity;
  }
  return gradients;
}

struct Side {
  Table table;
  explicit Side(const TableOptions& options, int32_t shards) : table("t", options, shards, false) {}

  void step(const std::vector<int64_t>& keys, const std::vector<float>& gradients, float clip,
            const Executor& executor = Executor()) {
    const LayerCall call = call_of(table, keys, executor);
    std::vector<float> rows(keys.size() * kWidth);
    BackwardOptions options;
    options.what = Backward::kUpdate;
    options.ticket = forward(call, true, {rows.data()}, nullptr);
    options.global_clip_norm = clip;
    backward(call, {gradients.data()}, options);
  }
};

// Trains with bad gradients, and another table with the good ones of the same keys alone.
void compare(const TableOptions& options, int32_t shards, float clip, bool snapshot) {
  Side trained(options, shards), expected(adagrad_options(), shards);
  const std::vector<int64_t> keys = keys_to(200);
  const std::vector<float> first(keys.size() * kWidth, 0.5f);
  trained.step(keys, first, clip);
  expected.step(keys, first, clip);
  for (int step = 0; step < 4; ++step) {
    const auto open = snapshot ? trained.table.open_snapshot(Since::kAll) : nullptr;
    trained.step(keys, gradients_of(keys, step), clip, ManyThreads(3).executor());
    std::vector<int64_t> good;
    for (const int64_t key : keys) {
      if (!is_bad(key, step)) good.push_back(key);
    }
    expected.step(good, gradients_of(good, step), clip);
  }
  CHECK(sorted(exported(trained.table)) == sorted(exported(expected.table)));
  const Table::Statistics statistics = trained.table.statistics();
  CHECK(statistics.updates == 5 * 200);
  CHECK(statistics.nonfinite_updates == 4 * 40);
  CHECK(expected.table.statistics().nonfinite_updates == 0);
  CHECK(expected.table.statistics().updates == 200 + 4 * 160);
}

}  // namespace

TEST_CASE("table: updates that are not finite leave rows as they were, and are counted") {
  for (const int32_t shards : {1, 3}) {
    compare(adagrad_options(), shards, 0.0f, false);
    compare(adagrad_options(), shards, 0.0f, true);
    compare(adagrad_options(), shards, 2.0f, false);  // they do not count in the norm of all
  }
}

TEST_CASE("table: the same with a cache, and with rows on disk") {
  TableOptions options = adagrad_options();
  options.cache = {32, CachePolicy::kLfu};
  compare(options, 1, 0.0f, false);
  compare(options, 1, 2.0f, true);
  const TemporaryDirectory directory;
  options.disk = directory / "";
  compare(options, 1, 0.0f, false);
  compare(options, 3, 0.0f, true);
}

TEST_CASE("table: counts of updates are part of its state; states without them are read") {
  Side one(adagrad_options(), 1);
  const std::vector<int64_t> keys = keys_to(50);
  one.step(keys, gradients_of(keys, 2), 0.0f);
  const std::vector<uint8_t> state = one.table.state();
  Side restored(adagrad_options(), 1);
  restored.table.set_state(state.data(), state.size());
  CHECK(restored.table.statistics().updates == 50);
  CHECK(restored.table.statistics().nonfinite_updates == 10);
  Side merged(adagrad_options(), 1);
  merged.table.merge_states(
      {{state.data(), state.size(), true}, {state.data(), state.size(), false}});
  CHECK(merged.table.statistics().nonfinite_updates == 10);

  // Version 1: magic, step, partitions and lookups, then directly the partitions.
  std::vector<uint8_t> old = state;
  old[7] = '1';
  old.erase(old.begin() + 24, old.begin() + 44);
  const uint64_t fingerprint =
      util::Fingerprint64(reinterpret_cast<const char*>(old.data()), old.size() - sizeof(uint64_t));
  std::memcpy(old.data() + old.size() - sizeof(fingerprint), &fingerprint, sizeof(fingerprint));
  restored.table.set_state(old.data(), old.size());
  CHECK(restored.table.step() == 1);
  CHECK(restored.table.statistics().lookups == one.table.statistics().lookups);
  CHECK(restored.table.statistics().updates == 0);
  CHECK(restored.table.statistics().nonfinite_updates == 0);
}

TEST_CASE("snapshot: counts the rows that hold a NaN or an infinity while they are read") {
  TableOptions in_memory = adagrad_options(), on_disk = adagrad_options();
  const TemporaryDirectory directory;
  on_disk.cache = {8, CachePolicy::kLfu};
  on_disk.disk = directory / "";
  for (const TableOptions& options : {in_memory, on_disk}) {
    Side side(options, 1);
    const std::vector<int64_t> keys = keys_to(60);
    side.step(keys, std::vector<float>(keys.size() * kWidth, 0.5f), 0.0f);
    Rows rows = exported(side.table);
    for (Row& row : rows) {
      if (row.key % 20 == 3) std::memcpy(row.line.data() + 4, &kNan, sizeof(kNan));
      if (row.key % 20 == 7) std::memcpy(row.line.data() + 4 * kWidth, &kInfinity, 4);
    }
    import_all(side.table, rows, true);
    const auto snapshot = side.table.open_snapshot(Since::kAll);
    CHECK(snapshot->nonfinite_rows() == 0);
    CHECK(read_all(side.table, *snapshot).size() == 60);
    CHECK(snapshot->nonfinite_rows() == 6);
  }
}

}  // namespace hotrow
