// Failures in steps of tables on several ranks, with their device tiers on a GPU, reach all ranks;
// errors name the refused option.
#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "core/gpu/step/rank_step.h"
#include "core/ranks/step.h"
#include "tests/gpu/ranked_sides.h"

namespace hotrow {

TEST_CASE("device ranks: a key that one rank may not have fails on all, and changes nothing") {
  std::vector<Split> splits(2);
  splits[1].kind.vocabulary_size = 100;
  constexpr Scheme kSchemes[] = {Scheme::kRow, Scheme::kTable, Scheme::kColumn, Scheme::kReplicated,
                                 Scheme::kRowBroadcast};
  for (size_t number = 0; number < std::size(kSchemes); ++number) {
    const size_t wrong_rank = number % 3;
    splits[1].scheme = kSchemes[number];
    CAPTURE(scheme_name(kSchemes[number]));
    Ranked ranked(splits, 3, DeviceCollectives::kAuto);
    const auto outcomes = on_ranks(3, [&](int rank) {
      const auto r = static_cast<size_t>(rank);
      const Stream stream;
      std::vector<Input> inputs(1);
      inputs[0].table = 1;
      inputs[0].samples = 3;
      inputs[0].keys = {1, r == wrong_rank ? 100 : 5, 99};
      inputs[0].gradients.assign(3 * splits[1].kind.width, 0.5f);
      Outcome found;
      {
        DeviceSide side(ranked.tiered[r], inputs, Executor(), stream);
        found = outcome_of([&] { side.forward(true); });
      }
      CHECK(ranked.tiered[r].all[1]->size() == 0);
      inputs[0].keys[1] = 5;
      DeviceSide side(ranked.tiered[r], inputs, Executor(), stream);
      side.backward(now(side.forward(true)));  // the next step works
      fail(found.code, "%s", found.message.c_str());
    });
    const std::string wanted = "rank " + std::to_string(wrong_rank) +
                               ": table t1: key 100; its vocabulary_size allows [0, 100)";
    for (const Outcome& outcome : outcomes) {
      CHECK(outcome.code == Code::kOutOfRange);
      CHECK(outcome.message == wanted);
    }
  }
}

TEST_CASE("device ranks: a rank that fails in a step ends all with its words") {
  for (const DeviceCollectives way : {DeviceCollectives::kAuto, DeviceCollectives::kHost}) {
    Ranked ranked({Split()}, 2, way);
    const auto outcomes = on_ranks(2, [&](int rank) {
      const auto r = static_cast<size_t>(rank);
      const Stream stream;
      Draw draw(3);
      Batch batch(ranked.plain[r], ranked.tiered[r], draw, 40, Executor(), stream);
      const int64_t ticket = batch.device.forward(true);
      if (rank == 1) ranked.devices[r]->fail(Code::kResourceExhausted, "no memory");
      batch.device.backward(now(ticket));
      batch.device.forward(true);
    });
    for (const Outcome& outcome : outcomes) {
      CHECK(outcome.code == Code::kResourceExhausted);
      CHECK(outcome.message == "rank 1: no memory");
    }
  }
}

TEST_CASE("device ranks: a batch that was not prefetched ends the step of all ranks") {
  std::vector<Split> splits(2);
  splits[1].scheme = Scheme::kColumn;
  enum class Other { kKey, kSplit, kWeight, kSize };
  for (const Other other : {Other::kKey, Other::kSplit, Other::kWeight, Other::kSize}) {
    CAPTURE(static_cast<int>(other));
    Ranked ranked(splits, 2, DeviceCollectives::kAuto);
    const auto outcomes = on_ranks(2, [&](int rank) {
      const auto r = static_cast<size_t>(rank);
      const Stream stream;
      std::vector<Input> inputs(2);
      for (size_t t = 0; t < 2; ++t) {
        inputs[t].table = t;
        inputs[t].combiner = Combiner::kSum;
        inputs[t].samples = 3;
        inputs[t].keys = {1, 5, 99, 7};
        inputs[t].splits = {0, 1, 2, 4};
        inputs[t].weights = {1.0f, 0.5f, 0.25f, 2.0f};
        inputs[t].gradients.assign(3 * splits[t].kind.width, 0.5f);
      }
      const std::vector<Input> prefetched = inputs;
      const DeviceSide before(ranked.tiered[r], prefetched, Executor(), stream);
      rank_prefetch(before.call_in_memory());
      if (rank == 1) {
        Input& input = inputs[1];
        if (other == Other::kKey) input.keys[2] = 98;
        if (other == Other::kSplit) input.splits[2] = 3;
        if (other == Other::kWeight) input.weights[3] = 2.5f;
        if (other == Other::kSize) input.keys.pop_back(), input.splits[3] = 3;
        if (other == Other::kSize) input.weights.pop_back();
      }
      DeviceSide side(ranked.tiered[r], inputs, Executor(), stream);
      side.backward(now(side.forward(true)));
    });
    for (const Outcome& outcome : outcomes) {
      CHECK(outcome.code == Code::kFailedPrecondition);
      CHECK(outcome.message.find("not the batch that was prefetched") != outcome.message.npos);
    }
  }
}

TEST_CASE("device ranks: staleness is refused by name") {
  const Group group = group_of(1);
  Sharding sharding;
  sharding.ranks = group[0];
  sharding.width = 5;
  sharding.staleness = {2, 10};
  const Outcome found =
      outcome_of([&] { Table("t", options_of(Kind(), true), 1, false, sharding); });
  CHECK(found.code == Code::kUnimplemented);
  CHECK(found.message.find("table t: staleness with a cache on a GPU") == 0);
}

TEST_CASE("device ranks: NCCL is refused to ranks with one GPU, on all of them") {
  Ranked ranked({Split()}, 2, DeviceCollectives::kNccl);
  const auto outcomes = on_ranks(2, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    const Stream stream;
    Draw draw(3);
    Batch batch(ranked.plain[r], ranked.tiered[r], draw, 4, Executor(), stream);
    batch.device.forward(true);
  });
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.code == Code::kInvalidArgument);
    CHECK(outcome.message.find("ranks 0 and 1 have one GPU") == 0);
  }
}

}  // namespace hotrow
