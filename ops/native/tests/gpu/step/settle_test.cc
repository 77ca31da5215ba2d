// Rows of a GPU that are written back for whoever looks at the host tier: by several threads, a
// piece at a time, beside steps.
#include <doctest/doctest.h>

#include <vector>

#include "core/gpu/step/tier.h"
#include "tests/gpu/prefetched_pair.h"

namespace hotrow {
namespace {

// Several pieces of slots, and chunks that are worth several threads.
TableOptions options_of(size_t threads) {
  Kind kind = kind_of(6000);
  kind.staging_bytes = 40000;
  TableOptions options = options_of(kind, true);
  options.cache.settle_threads = threads;
  return options;
}

void train(Table& table, const std::vector<Input>& inputs, const Stream& stream) {
  Tables one({}, true);
  one.all.push_back(&table);
  DeviceSide side(one, inputs, Executor(), stream);
  side.backward(now(side.forward(true)));
}

}  // namespace

TEST_CASE("device settle: several threads write the rows of one thread back, bit for bit") {
  Pair pair(kind_of(6000));
  const Stream stream;
  std::vector<Rows> all;
  std::vector<uint64_t> written;
  for (const size_t threads : {1, 2, 5}) {
    Table table("t", options_of(threads), 1, false);
    train(table, pair.inputs(range(0, 5000)), stream);
    train(table, pair.inputs(range(1000, 3000)), stream);
    all.push_back(exported(table, 1000));
    written.push_back(table.statistics().cache.written_back);
  }
  CHECK(all[0].size() == 5000);
  CHECK(written[0] > 4000);
  for (size_t i = 1; i < all.size(); ++i) {
    CHECK(all[i] == all[0]);
    CHECK(written[i] == written[0]);
  }
}

TEST_CASE("device settle: what was written back ahead is clean, and steps make it dirty again") {
  Pair pair(kind_of(6000));
  const Stream stream;
  Table table("t", options_of(2), 1, false);
  GpuTier& tier = *gpu_tier_of(table);
  const auto behind = [&] {
    const OnDevice here(tier.device());
    return tier.settle();
  };
  train(table, pair.inputs(range(0, 3000)), stream);
  const uint64_t before = table.statistics().cache.written_back;
  tier.settle_ahead();
  CHECK(table.statistics().cache.written_back - before >= 2500);
  CHECK(behind() == 0);
  train(table, pair.inputs(range(100, 50)), stream);
  CHECK(behind() == 50);
}

TEST_CASE("device settle: steps between the pieces lose nothing") {
  Kind kind = kind_of(6000);
  kind.staging_bytes = 4000;  // many pieces
  Pair pair(kind);
  pair.train(range(0, 4000));
  for (int64_t step = 0; step < 3; ++step) {
    // A pass whose rows are written back before its backward pass finds them again.
    pair.train(range(step * 500, 700), [&] { gpu_tier_of(pair.table())->settle_ahead(); });
  }
  pair.check();
}

}  // namespace hotrow
