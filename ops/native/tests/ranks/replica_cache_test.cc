// Replicas of other ranks' rows, and the updates that owners count.
#include "core/table/replica_cache.h"

#include <doctest/doctest.h>

#include <cstring>
#include <map>
#include <random>
#include <set>

#include "core/comm/thread_communicator.h"
#include "core/ranks/stale_words.h"
#include "core/ranks/step.h"
#include "tests/one_table.h"
#include "tests/rank_threads.h"

namespace hotrow {
namespace {

const LineLayout kLayout{2, RowType::kFloat32, RowType::kFloat32, 1, 0};

using Id = std::pair<size_t, int64_t>;

}  // namespace

TEST_CASE("replica cache: a row is found while it is cached, and what is evicted is sent once") {
  constexpr size_t kRows = 50, kTables = 3;
  ReplicaCache kept(kLayout, kRows, kTables);
  std::mt19937_64 random(5);
  std::map<Id, uint32_t> there;        // by our own account
  std::map<Id, float> sums, reported;  // of gradients
  for (int batch = 0; batch < 400; ++batch) {
    kept.begin_batch();
    std::set<Id> keys;
    while (keys.size() < 20) {
      const int64_t key = static_cast<int64_t>(random() % (random() % 3 == 0 ? 12 : 300)) - 5;
      keys.insert({random() % kTables, key});
    }
    std::map<Id, uint32_t> used;
    for (const auto& [table, key] : keys) {
      const auto at = there.find({table, key});
      CHECK(kept.find(table, key) == (at == there.end() ? ReplicaCache::kNone : at->second));
      used[{table, key}] = kept.use(table, key);
      CHECK(used[{table, key}] == kept.find(table, key));
    }
    kept.note_uses(keys.size());
    for (const auto& [table, key] : keys) {
      uint32_t& slot = used[{table, key}];
      if (slot == ReplicaCache::kNone) slot = kept.take(table, key);
      if (slot == ReplicaCache::kNone) continue;
      // The key that had this slot before has none now.
      for (auto other = there.begin(); other != there.end();) {
        other = other->second == slot ? there.erase(other) : std::next(other);
      }
      there[{table, key}] = slot;
    }
    for (const auto& [id, slot] : used) {
      if (slot == ReplicaCache::kNone) continue;
      CHECK(kept.find(id.first, id.second) == slot);  // no row of the batch was evicted
      kept.facts(slot).updates += 1;
      kept.sum(slot)[0] += 1.0f;
      sums[id] += 1.0f;
    }
    CHECK(kept.size() == there.size());
    CHECK(kept.size() <= kRows);
    if (batch == 200) {
      kept.clear(1);
      there.erase(there.lower_bound({1, INT64_MIN}), there.lower_bound({2, INT64_MIN}));
      sums.erase(sums.lower_bound({1, INT64_MIN}), sums.lower_bound({2, INT64_MIN}));
    }
  }
  for (size_t table = 0; table < kTables; ++table) {
    std::vector<PendingGradient>& pending = kept.evicted(table);
    kept.push_all(table, &pending);
    for (const PendingGradient& of : pending) reported[{table, of.key}] += of.gradient[0];
  }
  CHECK(reported == sums);
}

TEST_CASE("replica cache: the hottest rows of all tables stay") {
  ReplicaCache kept(kLayout, 20, 2);
  std::mt19937_64 random(5);
  for (int batch = 0; batch < 300; ++batch) {
    kept.begin_batch();
    std::set<Id> keys;
    for (int64_t hot = 0; hot < 15; ++hot) keys.insert({0, hot});
    for (int cold = 0; cold < 10; ++cold) keys.insert({1, static_cast<int64_t>(random() % 5000)});
    std::vector<Id> missing;
    for (const Id& id : keys) {
      if (kept.use(id.first, id.second) == ReplicaCache::kNone) missing.push_back(id);
    }
    kept.note_uses(keys.size());
    for (const Id& id : missing) kept.take(id.first, id.second);
  }
  for (int64_t hot = 0; hot < 15; ++hot) CHECK(kept.find(0, hot) != ReplicaCache::kNone);
}

TEST_CASE("staleness: tables of a layer keep their rows together, and lose nothing") {
  constexpr int kRanks = 3, kSteps = 50;
  std::vector<float> sums(2 * 400, 0.0f), found(sums.size(), 0.0f);
  std::vector<std::vector<std::unique_ptr<Table>>> models(kRanks);
  std::vector<std::shared_ptr<Collectives>> ranks;
  for (auto& own : thread_communicators(kRanks, 60)) {
    ranks.push_back(std::make_shared<Collectives>(std::move(own)));
  }
  std::vector<std::vector<int64_t>> hot(kSteps), cold(kSteps);
  std::mt19937_64 random(7);
  for (int step = 0; step < kSteps; ++step) {
    for (int64_t key = 0; key < 24; ++key) hot[static_cast<size_t>(step)].push_back(key);
    std::set<int64_t> keys;
    while (keys.size() < 12) keys.insert(static_cast<int64_t>(random() % 400));
    cold[static_cast<size_t>(step)].assign(keys.begin(), keys.end());
    for (int64_t key : hot[static_cast<size_t>(step)]) sums[static_cast<size_t>(key)] -= kRanks;
    for (int64_t key : keys) sums[400 + static_cast<size_t>(key)] -= kRanks;
  }
  const auto outcomes = on_ranks(kRanks, [&](int rank) {
    const size_t r = static_cast<size_t>(rank);
    for (int t = 0; t < 2; ++t) {
      Sharding sharding;
      sharding.ranks = ranks[r];
      sharding.width = 2;
      sharding.staleness = {4, 10};
      models[r].push_back(
          std::make_unique<Table>("t" + std::to_string(t), plain_options(2), 1, false, sharding));
    }
    LayerCall call;
    call.tables = {models[r][0].get(), models[r][1].get()};
    call.table_of = {0, 1};
    for (int step = 0; step < kSteps; ++step) {
      std::vector<float> rows[2], gradients[2];
      std::vector<int64_t>* keys[2] = {&hot[static_cast<size_t>(step)],
                                       &cold[static_cast<size_t>(step)]};
      call.features.assign(2, Feature());
      for (size_t t = 0; t < 2; ++t) {
        call.features[t].name = "f";
        call.features[t].keys = keys[t]->data();
        call.features[t].segments.keys = call.features[t].segments.samples = keys[t]->size();
        rows[t].resize(keys[t]->size() * 2);
        gradients[t].assign(keys[t]->size() * 2, 1.0f);
      }
      BackwardOptions options;
      options.what = Backward::kUpdate;
      options.ticket = forward(call, true, {rows[0].data(), rows[1].data()}, nullptr);
      backward(call, {gradients[0].data(), gradients[1].data()}, options);
    }
    rank_push_all(call.tables, nullptr, Executor());
  });
  for (const Outcome& outcome : outcomes) CHECK(outcome.message == "");
  for (size_t r = 0; r < kRanks; ++r) {
    const StaleState& first = *models[r][0]->stale();
    CHECK((first.kept == models[r][1]->stale()->kept));
    CHECK(first.kept->capacity() == 20);
    // More than its own 10, since the other table's rows are not worth theirs: of 16 of others.
    size_t there = 0;
    for (int64_t key = 0; key < 24; ++key) there += first.kept->find(0, key) != ReplicaCache::kNone;
    CHECK(there == 16);
    for (size_t t = 0; t < 2; ++t) {
      for (const Row& row : exported(*models[r][t])) {
        std::memcpy(&found[t * 400 + static_cast<size_t>(row.key)], row.line.data(), 4);
      }
    }
  }
  CHECK(found == sums);
}

TEST_CASE("update counts: a row that was forgotten is counted anew, far from what ranks have") {
  const StalenessOptions loosest{UpdateVersion::kMostBehind, 1};
  UpdateCounts counts(100);
  counts.watch(-1);
  for (int i = 0; i < 500; ++i) ++*counts.find(-1, false);
  const uint32_t word = StaleWord::of(*counts.find(-1, true), false);
  CHECK(UpdateVersion::age(*counts.find(-1, false)) == 500);
  // Other keys come and go; one key is requested all the time, and is not dropped.
  counts.watch(-2);
  *counts.find(-2, true) += 7;
  size_t most = 0;
  int again = 0;
  for (int64_t key = 0; key < 40000; ++key) {
    counts.watch(key);
    REQUIRE(counts.find(-2, true) != nullptr);
    most = std::max(most, counts.size());
    if (counts.find(-1, false) != nullptr) continue;
    counts.watch(-1);
    const uint32_t now = *counts.find(-1, true);
    CHECK(UpdateVersion::age(now) == 0);
    CHECK_FALSE(loosest.may_stay(StaleWord::behind(word, now), 2 * UpdateVersion::kMostBehind));
    CHECK_FALSE(loosest.may_stay(StaleWord::behind(word, now + 1), 2 * UpdateVersion::kMostBehind));
    ++again;
  }
  CHECK(again > 10);
  CHECK(*counts.find(-2, true) == 7);
  CHECK(most <= 3 * 1024);
}

}  // namespace hotrow
