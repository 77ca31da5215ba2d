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

std::vector<std::byte> line_of(const Table& table, int64_t key) {
  for (const Row& row : exported(table)) {
    if (row.key == key) return row.line;
  }
  return {};
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
    return step_of(std::vector<std::vector<int64_t>>(ranks.size(), keys),
                   std::vector<float>(ranks.size(), gradient));
  }
  // The same, with keys and a gradient of each rank.
  std::vector<std::vector<float>> step_of(const std::vector<std::vector<int64_t>>& keys_of,
                                          const std::vector<float>& gradient_of) {
    std::vector<std::vector<float>> read(ranks.size());
    on_each(static_cast<int>(ranks.size()), [&](int r) {
      Table& table = *tables[static_cast<size_t>(r)];
      const std::vector<int64_t>& keys = keys_of[static_cast<size_t>(r)];
      std::vector<float>& rows = read[static_cast<size_t>(r)];
      rows.resize(keys.size() * 2);
      const LayerCall call = call_of(table, keys);
      BackwardOptions options;
      options.what = Backward::kUpdate;
      options.ticket = forward(call, true, {rows.data()}, nullptr);
      const std::vector<float> gradients(keys.size() * 2, gradient_of[static_cast<size_t>(r)]);
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

TEST_CASE("staleness: a rank reads its own updates once, and those of others within the bound") {
  constexpr int kBound = 3, kSteps = 40;
  // Key 0 is rank 0's own. A rank's gradient is a digit of its own in the sum, which is exact.
  const std::vector<float> gradients{1.0f, 256.0f, 65536.0f};
  Replicas model(3, kBound, 64);
  std::vector<int> done(3, 0);
  int most_missing = 0;
  for (int step = 0; step < kSteps; ++step) {
    // Rank 1 uses key 0 in every second step, so that others get ahead while it has unsent updates.
    const bool all = step % 2 == 0;
    const auto read = model.step_of({{0}, {all ? 0 : 1}, {0}}, gradients);
    for (int r = 0; r < 3; ++r) {
      if (r == 1 && !all) continue;
      const auto sum = static_cast<int>(-read[static_cast<size_t>(r)][0]);
      int missing = 0;
      for (int of = 0; of < 3; ++of) {
        const int updates = sum >> (8 * of) & 255;
        CHECK(updates <= done[static_cast<size_t>(of)]);
        if (of == r) CHECK(updates == done[static_cast<size_t>(of)]);
        missing += done[static_cast<size_t>(of)] - updates;
      }
      // The owner has all updates of the two other ranks, except up to the bound of each. A reader
      // lags the owner by at most the bound, too.
      CHECK(missing <= 3 * kBound + 3);
      most_missing = std::max(most_missing, missing);
    }
    for (int r = 0; r < 3; ++r) done[static_cast<size_t>(r)] += r != 1 || all;
  }
  CHECK(most_missing > kBound);
  model.push_all();
  CHECK(model.tables[0]->size() == 1);
  CHECK(model.tables[1]->size() == 1);  // key 1
  const Rows rows = exported(*model.tables[0]);
  float weight;
  std::memcpy(&weight, rows[0].line.data(), sizeof(weight));
  CHECK(weight == -(40.0f + 20.0f * 256.0f + 40.0f * 65536.0f));  // nothing is lost
  CHECK(rows[0].count == 100);
}

TEST_CASE("staleness: a replica's state has each of its rank's gradients once, also when renewed") {
  Replicas model(2, 3, 64, OptimizerKind::kAdagrad);
  ReplicaCache& kept = *model.tables[1]->stale()->kept;
  model.step({0}, 2.0f);
  float state = kept.state(kept.find(0, 0))[0];
  int renewed = 0;
  for (int step = 0; step < 200; ++step) {
    const ReplicaCache::Facts before = kept.facts(kept.find(0, 0));
    // Rank 1 uses key 0 in every fourth step, so that rank 0 gets ahead.
    const bool uses = step % 4 == 0;
    model.step_of({{0}, {uses ? 0 : 1}}, {2.0f, 2.0f});
    const uint32_t slot = kept.find(0, 0);
    const ReplicaCache::Facts after = kept.facts(slot);
    const float added = kept.state(slot)[0] - state;
    state += added;
    if (after.state_version != before.state_version) continue;  // the owner's came
    CHECK(added == doctest::Approx(uses ? 4.0f : 0.0f).epsilon(0.01));
    // The rank's own updates alone, sent or not, leave this sum or raise it by one.
    const uint32_t others = after.version + after.updates - before.version - before.updates - uses;
    if (before.updates > 0 && others > 0) ++renewed;
  }
  CHECK(renewed > 3);
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

TEST_CASE("staleness: a replica takes each of its rank's gradients, its owner their sum as one") {
  constexpr StalenessOptions kBound{3, 64};
  for (OptimizerKind kind :
       {OptimizerKind::kSgd, OptimizerKind::kMomentum, OptimizerKind::kAdagrad,
        OptimizerKind::kRowwiseAdagrad, OptimizerKind::kAdam, OptimizerKind::kFtrl}) {
    CAPTURE(static_cast<int>(kind));
    // Rank 0 has both keys, trains key 2 and never key 0, which rank 1 trains alone.
    Replicas model(2, kBound.updates, kBound.replica_rows, kind);
    TableOptions options = plain_options(2);
    options.optimizer.kind = kind;
    Table replica("t", options, 1, false), owner("t", options, 1, false);
    look_up(owner, {2, 0}, true);
    float sum = 0.0f;
    uint32_t updates = 0, due = 0;
    for (int step = 0; step < 40; ++step) {
      const float gradient = 0.25f * static_cast<float>(1 + step % 3);
      const auto read = model.step_of({{2}, {0}}, {gradient, gradient});
      CHECK(read[1] == look_up(replica, {0}, true));
      update(replica, {0}, {gradient, gradient});
      CHECK(read[0] == look_up(owner, {2}, true));
      update(owner, {2}, {gradient, gradient});
      sum += gradient;  // of quarters: exact
      if (++due <= kBound.most_behind(updates)) continue;
      update(owner, {0}, {sum, sum});
      updates += due;
      due = 0;
      sum = 0.0f;
    }
    REQUIRE(due > 0);
    CHECK(line_of(*model.tables[0], 0) == line_of(owner, 0));  // lags by what is due
    model.push_all();
    update(owner, {0}, {sum, sum});
    for (const int64_t key : {0, 2}) CHECK(line_of(*model.tables[0], key) == line_of(owner, key));
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
