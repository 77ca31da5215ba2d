// Rows of a GPU that are written back for whoever looks at the host tier: a piece at a time, beside
// steps.
#include <doctest/doctest.h>

#include <vector>

#include "core/gpu/step/tier.h"
#include "tests/gpu/prefetched_pair.h"

namespace hotrow {
namespace {

// Several pieces of slots.
TableOptions several_pieces() {
  Kind kind = kind_of(6000);
  kind.piece_bytes = 40000;
  return options_of(kind, true);
}

void train(Table& table, const std::vector<Input>& inputs, const Stream& stream) {
  Tables one({}, true);
  one.all.push_back(&table);
  DeviceSide side(one, inputs, Executor(), stream);
  side.backward(now(side.forward(true)));
}

}  // namespace

TEST_CASE("device settle: what was written back ahead is clean, and steps make it dirty again") {
  Pair pair(kind_of(6000));
  const Stream stream;
  Table table("t", several_pieces(), 1, false);
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
  kind.piece_bytes = 4000;  // many pieces
  Pair pair(kind);
  pair.train(range(0, 4000));
  for (int64_t step = 0; step < 3; ++step) {
    // A pass whose rows are written back before its backward pass finds them again.
    pair.train(range(step * 500, 700), [&] { gpu_tier_of(pair.table())->settle_ahead(); });
  }
  pair.check();
}

}  // namespace hotrow
