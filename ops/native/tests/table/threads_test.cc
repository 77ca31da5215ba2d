// Several threads in one table: the same bits as one thread, and no torn row.
#include <doctest/doctest.h>

#include <atomic>
#include <random>
#include <thread>

#include "tests/one_table.h"

namespace hotrow {
namespace {

// Keys of a batch: most of them few hot ones, as in a recommender.
std::vector<int64_t> batch(std::mt19937_64& random, size_t count) {
  std::vector<int64_t> keys(count);
  for (int64_t& key : keys) {
    key = static_cast<int64_t>(random() % 3 == 0 ? random() % 100000 : random() % 500) - 200;
  }
  return keys;
}

TableOptions options_of(int kind) {
  TableOptions options;
  options.width = 8;
  options.init = {InitKind::kNormal, 0.1f, 3, 4};
  options.optimizer.kind = kind == 0 ? OptimizerKind::kAdam : OptimizerKind::kRowwiseAdagrad;
  if (kind == 1) {
    options.weights = RowType::kBfloat16;
    options.admission = {AdmissionKind::kCounter, 2, 0, 0.01};
    options.expiry.after_steps = 3;
    options.expiry.sweep_steps = 2;
  }
  return options;
}

// Two tables, two features of each, pooled: a layer as the ops call it.
struct Layer {
  Table users{"users", options_of(0), 2, false};
  Table items{"items", options_of(1), 3, true};

  // One step; the gradients are a function of the pooled values.
  void step(std::mt19937_64& random, const Executor& executor) {
    constexpr size_t kSamples = 3000;
    std::vector<std::vector<int64_t>> keys, splits;
    std::vector<std::vector<float>> weights, pooled;
    LayerCall call;
    call.tables = {&users, &items};
    call.executor = executor;
    std::vector<float*> outputs;
    std::vector<const float*> gradients;
    keys.reserve(4), splits.reserve(4), weights.reserve(4), pooled.reserve(4);
    for (size_t f = 0; f < 4; ++f) {
      splits.push_back({0});
      for (size_t b = 0; b < kSamples; ++b) {
        splits[f].push_back(splits[f].back() + static_cast<int64_t>(f < 2 ? 1 : random() % 4));
      }
      keys.push_back(batch(random, static_cast<size_t>(splits[f].back())));
      weights.emplace_back();
      for (size_t i = 0; i < keys[f].size(); ++i) {
        weights[f].push_back(static_cast<float>(random() % 8) / 4.0f);
      }
      Feature feature;
      feature.keys = keys[f].data();
      feature.segments.keys = keys[f].size();
      feature.segments.samples = kSamples;
      if (f >= 2) {
        feature.segments.combiner = f == 2 ? Combiner::kMean : Combiner::kSqrtn;
        feature.segments.row_splits = splits[f].data();
        feature.segments.weights = f == 3 ? weights[f].data() : nullptr;
      }
      call.features.push_back(feature);
      call.table_of.push_back(f % 2);
      pooled.emplace_back(feature.segments.outputs() * 8);
      outputs.push_back(pooled[f].data());
      gradients.push_back(pooled[f].data());
    }
    BackwardOptions options;
    options.ticket = forward(call, true, outputs, nullptr);
    options.what = Backward::kUpdate;
    options.global_clip_norm = 1.0f;
    backward(call, gradients, options);
  }
};

}  // namespace

TEST_CASE("threads: four threads give the bits and the places of one") {
  Layer one, four;
  std::mt19937_64 random_one(1), random_four(1);
  const ManyThreads threads(4);
  for (int step = 0; step < 12; ++step) {
    one.step(random_one, Executor());
    four.step(random_four, threads.executor());
    REQUIRE(digest_of(one.users) == digest_of(four.users));
    REQUIRE(digest_of(one.items) == digest_of(four.items));
  }
  CHECK(exported(one.users, 1000) == exported(four.users, 1000));
  CHECK(exported(one.items, 1000) == exported(four.items, 1000));
  CHECK(one.items.state() == four.items.state());
  CHECK(one.users.state() == four.users.state());
  CHECK(one.items.statistics().expired > 0);
  CHECK(one.items.statistics().waiting > 0);
}

TEST_CASE("threads: readers see rows of one step while others train, export and snapshot") {
  // All weights of a row are equal after every step.
  Table table("t", plain_options(16), 2, false);
  constexpr size_t kKeys = 4000;
  std::vector<int64_t> keys(kKeys);
  for (size_t i = 0; i < kKeys; ++i) keys[i] = static_cast<int64_t>(i);
  train(table, keys, 1.0f);
  std::atomic<bool> done{false};
  std::atomic<size_t> torn{0}, reads{0}, exports{0};
  const auto is_torn = [](const float* row) {
    return !std::all_of(row, row + 16, [&](float value) { return value == row[0]; });
  };
  std::vector<std::thread> others;
  for (int t = 0; t < 2; ++t) {
    others.emplace_back([&] {
      const ManyThreads threads(2);
      for (; !done; ++reads) {
        const std::vector<float> rows = look_up(table, keys, false, threads.executor());
        // A lookup reads one step: every key has had the same updates.
        for (size_t i = 0; i < kKeys; ++i) {
          torn += is_torn(rows.data() + i * 16) || rows[i * 16] != rows[0];
        }
      }
    });
  }
  others.emplace_back([&] {
    for (; !done; ++exports) {
      const auto snapshot =
          table.open_snapshot(exports % 2 == 1 ? Since::kCheckpoint : Since::kAll);
      for (const Row& row : read_all(table, *snapshot, 500)) {
        float weights[16];
        std::memcpy(weights, row.line.data(), sizeof(weights));
        torn += is_torn(weights);
      }
      snapshot->close(exports % 3 != 0);
      torn += table.statistics().rows < kKeys;
      (void)table.state();
    }
  });
  const ManyThreads threads(3);
  for (int step = 0; step < 200 || reads < 10 || exports < 10; ++step) {
    train(table, keys, 1.0f, threads.executor());
    const int64_t extra = 10000 + step;
    look_up(table, {extra}, true);
  }
  done = true;
  for (std::thread& other : others) other.join();
  CHECK(torn == 0);
  CHECK(table.step() >= 201);
}

TEST_CASE("threads: two trainers of one table lose no gradient") {
  Table table("t", plain_options(2), 1, false);
  const std::vector<int64_t> shared = {1, 2, 3};
  std::vector<std::thread> trainers;
  for (int t = 0; t < 2; ++t) {
    trainers.emplace_back([&, t] {
      for (int step = 0; step < 500; ++step) {
        std::vector<int64_t> keys = shared;
        keys.push_back(100 + 1000 * t + step);
        train(table, keys, 1.0f);
      }
    });
  }
  for (std::thread& trainer : trainers) trainer.join();
  CHECK(look_up(table, shared, false) == std::vector<float>(6, -1000.0f));
  CHECK(table.size() == 1003);
  CHECK(table.step() == 1000);
}

}  // namespace hotrow
