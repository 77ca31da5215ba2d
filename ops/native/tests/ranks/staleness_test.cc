// Replicas of other ranks' rows that may lag behind their owners; ranks are threads.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <random>

#include "core/ranks/step.h"
#include "core/table/replica_cache.h"
#include "tests/error_code.h"
#include "tests/one_table.h"
#include "tests/ranks/rank_threads.h"

namespace hotrow {
namespace {

// Bytes of a stage that all ranks sent.
uint64_t bytes_of(const std::vector<std::shared_ptr<Collectives>>& ranks, const char* stage) {
  uint64_t total = 0;
  for (const auto& rank : ranks) {
    for (const StageCount& count : rank->counts()) {
      if (count.stage == stage) total += count.bytes_sent;
    }
  }
  return total;
}

// One feature of one table on ranks; rows begin at 0, SGD with rate 1.
struct Replicas {
  std::vector<std::shared_ptr<Collectives>> ranks;
  std::vector<std::unique_ptr<Table>> tables;

  Replicas(int count, uint32_t updates, size_t rows, OptimizerKind kind = OptimizerKind::kSgd)
      : ranks(ranks_of(count)) {
    for (const auto& rank : ranks) {
      TableOptions options = plain_options(2);
      options.optimizer.kind = kind;
      Sharding sharding;
      sharding.ranks = rank;
      sharding.width = 2;
      sharding.staleness = {updates, rows};
      tables.push_back(std::make_unique<Table>("t", options, 1, false, sharding));
    }
  }

  // Every rank looks the keys up and gives each a gradient. Returns what each read.
  std::vector<std::vector<float>> step(const std::vector<int64_t>& keys, float gradient) {
    std::vector<std::vector<float>> read(ranks.size());
    on_each(static_cast<int>(ranks.size()), [&](int r) {
      Table& table = *tables[static_cast<size_t>(r)];
      std::vector<float>& rows = read[static_cast<size_t>(r)];
      rows.resize(keys.size() * 2);
      const LayerCall call = call_of(table, keys);
      BackwardOptions options;
      options.what = Backward::kUpdate;
      options.ticket = forward(call, true, {rows.data()}, nullptr);
      const std::vector<float> gradients(keys.size() * 2, gradient);
      backward(call, {gradients.data()}, options);
    });
    return read;
  }
  void push_all() {
    on_each(static_cast<int>(ranks.size()), [&](int r) {
      rank_push_all({tables[static_cast<size_t>(r)].get()}, nullptr, Executor());
    });
  }
};

TEST_CASE("staleness: a rank reads its own updates at once and those of others within the bound") {
  constexpr uint32_t kBound = 3;
  Replicas model(3, kBound, 64);
  // Key 0 is rank 0's own; all three give it gradient 1 each step.
  for (int step = 0; step < 40; ++step) {
    const auto read = model.step({0}, 1.0f);
    for (int r = 0; r < 3; ++r) {
      const float updates = -read[static_cast<size_t>(r)][0];
      CHECK(updates >= static_cast<float>(step));  // the own ones, all
      CHECK(updates <= static_cast<float>(3 * step));
      // The owner has all updates of the two other ranks, except up to the bound of each. A reader
      // lags the owner by at most the bound, too.
      CHECK(3.0f * static_cast<float>(step) - updates <= static_cast<float>(3 * kBound + 3));
    }
  }
  model.push_all();
  CHECK(model.tables[0]->size() == 1);
  CHECK(model.tables[1]->size() == 0);
  const Rows rows = exported(*model.tables[0]);
  float weight;
  std::memcpy(&weight, rows[0].line.data(), sizeof(weight));
  CHECK(weight == -120.0f);  // nothing is lost
  CHECK(rows[0].count == 120);
}

TEST_CASE("staleness: replicas save bytes, and evicted ones lose nothing") {
  std::mt19937_64 random(3);
  uint64_t bytes[2];
  std::map<int64_t, float> sums[2];
  for (int kept = 0; kept < 2; ++kept) {
    Replicas model(4, kept == 0 ? 0 : 10, 32);
    std::mt19937_64 keys_of(11);
    for (int step = 0; step < 60; ++step) {
      std::vector<int64_t> keys;
      for (int64_t hot = 0; hot < 16; ++hot) keys.push_back(hot);
      for (int cold = 0; cold < 6; ++cold) {
        keys.push_back(16 + static_cast<int64_t>(keys_of() % 200));
      }
      model.step(keys, 0.5f);
    }
    bytes[kept] = bytes_of(model.ranks, "rows") + bytes_of(model.ranks, "gradients");
    model.push_all();
    for (const auto& table : model.tables) {
      for (const Row& row : exported(*table)) {
        float weight;
        std::memcpy(&weight, row.line.data(), sizeof(weight));
        sums[kept][row.key] = weight;
      }
    }
  }
  CHECK(sums[0] == sums[1]);  // halves add up exactly
  CHECK(bytes[1] * 3 < bytes[0] * 2);
}

TEST_CASE("staleness: rows that were promised and did not come are asked for again") {
  Replicas model(2, 5, 64);
  // A backward pass whose forward pass did not train takes slots for keys that it never read.
  on_each(2, [&](int r) {
    Table& table = *model.tables[static_cast<size_t>(r)];
    const std::vector<int64_t> keys{5, 7};
    const LayerCall call = call_of(table, keys);
    const std::vector<float> gradients(4, 1.0f);
    BackwardOptions options;
    options.what = Backward::kUpdate;
    backward(call, {gradients.data()}, options);
  });
  for (const auto& rows : model.step({5, 7}, 0.0f)) {
    CHECK(rows == std::vector<float>{-2, -2, -2, -2});
  }
}

TEST_CASE("staleness: every optimizer works on replicas") {
  for (OptimizerKind kind :
       {OptimizerKind::kMomentum, OptimizerKind::kAdagrad, OptimizerKind::kRowwiseAdagrad,
        OptimizerKind::kAdam, OptimizerKind::kFtrl}) {
    CAPTURE(static_cast<int>(kind));
    Replicas model(3, 5, 64, kind);
    float last = 0.0f;
    for (int step = 0; step < 30; ++step) {
      const auto read = model.step({0, 1, 2, 7}, 0.25f);
      for (const auto& rows : read) {
        for (float value : rows) CHECK(std::isfinite(value));
      }
      last = read[1][0];
    }
    CHECK(last < -0.01f);
  }
}

TEST_CASE("staleness: a young row is renewed, and its gradients sent, long before the bound") {
  Replicas model(4, 1000, 64);
  float least = 1.0f;  // share of all updates that a rank reads
  for (int step = 0; step < 60; ++step) {
    for (const auto& read : model.step({0}, 1.0f)) {
      if (step > 0) least = std::min(least, -read[0] / static_cast<float>(4 * step));
    }
  }
  CHECK(least == 0.5f);  // the own ones, which it always sees, are a quarter
}

TEST_CASE("staleness: the state of a replica follows what others do to it") {
  Replicas model(3, 5, 64, OptimizerKind::kAdagrad);
  for (int step = 0; step < 200; ++step) model.step({0}, 1.0f);
  ReplicaCache& kept = *model.tables[1]->stale()->kept;
  const float here = kept.state(kept.find(0, 0))[0];
  float there;
  std::memcpy(&there, exported(*model.tables[0])[0].line.data() + 2 * sizeof(float), sizeof(there));
  // The own gradients alone are 200; those of the others come 6 steps at a time: 200 + 2 * 33 * 36.
  CHECK(there > 2000.0f);
  CHECK(here > 0.5f * there);
  CHECK(here < 1.1f * there);
}

}  // namespace
}  // namespace hotrow
