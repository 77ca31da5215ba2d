// Gradients that are not finite, of tables on several ranks; ranks are threads.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "core/ranks/step.h"
#include "tests/one_table.h"
#include "tests/ranks/rank_threads.h"

namespace hotrow {
namespace {

constexpr int kRanks = 3;
constexpr size_t kWidth = 5;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Ranked {
  std::vector<std::shared_ptr<Collectives>> ranks = ranks_of(kRanks);
  std::vector<std::unique_ptr<Table>> tables;

  Ranked(Scheme scheme, OptimizerKind kind, StalenessOptions staleness = {}) {
    for (const auto& rank : ranks) {
      TableOptions options = plain_options(kWidth);
      options.optimizer.kind = kind;
      options.init = {InitKind::kUniform, 0.1f, 5, 7};
      Sharding sharding;
      sharding.ranks = rank;
      sharding.scheme = scheme;
      sharding.width = kWidth;
      sharding.staleness = staleness;
      options.width = sharding.columns(rank->rank());
      options.init.first_column = sharding.first_column(rank->rank());
      tables.push_back(std::make_unique<Table>("t", options, 1, false, sharding));
    }
  }

  // Rank r trains keys 0 to 29; one value of rank `bad`'s gradient of key 7 is NaN.
  void step(int bad, size_t column) {
    on_each(kRanks, [&](int r) {
      std::vector<int64_t> keys;
      for (int64_t key = 0; key < 30; ++key) keys.push_back(key);
      std::vector<float> gradients(keys.size() * kWidth, 0.25f), rows(gradients.size());
      if (r == bad) gradients[7 * kWidth + column] = kNan;
      Table& table = *tables[static_cast<size_t>(r)];
      const LayerCall call = call_of(table, keys);
      BackwardOptions options;
      options.what = Backward::kUpdate;
      options.ticket = forward(call, true, {rows.data()}, nullptr);
      backward(call, {gradients.data()}, options);
    });
  }
  void push_all() {
    on_each(kRanks, [&](int r) {
      rank_push_all({tables[static_cast<size_t>(r)].get()}, nullptr, Executor());
    });
  }
  std::map<int64_t, Row> rows(size_t rank) const {
    std::map<int64_t, Row> found;
    for (const Row& row : exported(*tables[rank])) found[row.key] = row;
    return found;
  }
};

}  // namespace

TEST_CASE("ranks: no rank updates any column of a row whose gradient is not finite") {
  const Scheme schemes[] = {Scheme::kRow, Scheme::kColumn, Scheme::kRowBroadcast, Scheme::kTable,
                            Scheme::kReplicated};
  for (const Scheme scheme : schemes) {
    for (const OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kRowwiseAdagrad}) {
      for (size_t column = 0; column < kWidth; ++column) {
        CAPTURE(static_cast<int>(scheme));
        CAPTURE(column);
        Ranked ranked(scheme, kind);
        ranked.step(-1, 0);
        std::vector<std::map<int64_t, Row>> before;
        for (size_t r = 0; r < kRanks; ++r) before.push_back(ranked.rows(r));
        ranked.step(static_cast<int>(column % kRanks), column);
        uint64_t left_out = 0;
        for (size_t r = 0; r < kRanks; ++r) {
          for (const auto& [key, row] : ranked.rows(r))
            CHECK((row == before[r][key]) == (key == 7));
          left_out += ranked.tables[r]->statistics().nonfinite_updates;
        }
        const bool everywhere = scheme == Scheme::kColumn || scheme == Scheme::kReplicated;
        CHECK(left_out == (everywhere ? kRanks : 1));
      }
    }
  }
}

TEST_CASE("staleness: a gradient that is not finite spoils no sum of a replica") {
  StalenessOptions staleness;
  staleness.updates = 100;
  staleness.replica_rows = 64;
  Ranked ranked(Scheme::kRow, OptimizerKind::kSgd, staleness),
      expected(Scheme::kRow, OptimizerKind::kSgd, staleness);
  for (int step = 0; step < 12; ++step) {
    ranked.step(step == 6 ? 0 : -1, 2);
    if (step != 6) expected.step(-1, 0);
  }
  ranked.push_all();
  expected.push_all();
  ranked.step(-1, 0);
  expected.step(-1, 0);
  uint64_t left_out = 0;
  for (size_t r = 0; r < kRanks; ++r) {
    left_out += ranked.tables[r]->statistics().nonfinite_updates;
    for (const auto& [key, row] : ranked.rows(r)) {
      float weight;
      std::memcpy(&weight, row.line.data(), sizeof(weight));
      CHECK(std::isfinite(weight));
      if (key != 7) continue;
      float wanted;
      std::memcpy(&wanted, expected.rows(r)[key].line.data(), sizeof(wanted));
      // At most the gradients of the other two ranks in that step.
      CHECK(std::fabs(weight - wanted) <= 0.51f);
    }
  }
  CHECK(left_out == 1);
}

}  // namespace hotrow
