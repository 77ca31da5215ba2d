// What a step of tables on two ranks asks of their devices, and what it sends: a change that adds a
// launch, a wait or an exchange shows here.
#if defined(HOTROW_SIMT)
#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/gpu/ranked_sides.h"

namespace hotrow {
namespace {

constexpr size_t kRanks = 2, kSamples = 200, kWidth = 8;

// Two keys a sample, some of them on both ranks.
std::vector<Input> inputs_of(size_t tables, size_t rank) {
  std::vector<Input> inputs(tables);
  for (size_t t = 0; t < tables; ++t) {
    Input& input = inputs[t];
    input.table = t;
    input.samples = kSamples;
    input.combiner = Combiner::kSum;
    input.splits.push_back(0);
    for (size_t b = 0; b < kSamples; ++b) {
      input.keys.push_back(static_cast<int64_t>(3 * b + rank));
      input.keys.push_back(static_cast<int64_t>(b));
      input.splits.push_back(static_cast<int64_t>(2 * b + 2));
    }
    input.gradients.assign(kSamples * kWidth, 0.5f);
  }
  return inputs;
}

struct Costs {
  size_t forward_launches, forward_waits, backward_launches, backward_waits;  // of both ranks
  uint64_t keys, rows, gradients;  // bytes from rank 0 to the other, a table
};

}  // namespace

TEST_CASE("device costs: of a step on ranks, for each scheme") {
  const std::map<Scheme, Costs> expected{
      {Scheme::kRow, {68, 12, 32, 4, 2016, 5344, 5344}},
      {Scheme::kColumn, {44, 12, 22, 4, 4816, 3200, 3200}},
      {Scheme::kReplicated, {72, 10, 36, 4, 4000, 0, 10656}},
      {Scheme::kRowBroadcast, {58, 12, 20, 4, 3216, 6400, 6400}},
  };
  for (const auto& [scheme, costs] : expected) {
    for (const size_t tables : {size_t{1}, size_t{8}}) {
      CAPTURE(scheme_name(scheme));
      CAPTURE(tables);
      std::vector<Split> splits(tables);
      for (Split& split : splits) {
        split.scheme = scheme;
        split.kind.width = kWidth;
        split.kind.cache_rows = 6000;
      }
      const Ranked ranked(splits, kRanks, DeviceCollectives::kAuto);
      std::vector<std::unique_ptr<Stream>> streams;
      std::vector<std::vector<Input>> inputs;
      std::vector<std::unique_ptr<DeviceSide>> sides;
      for (size_t r = 0; r < kRanks; ++r) {
        streams.push_back(std::make_unique<Stream>());
        inputs.push_back(inputs_of(tables, r));
      }
      for (size_t r = 0; r < kRanks; ++r) {
        sides.push_back(
            std::make_unique<DeviceSide>(ranked.tiered[r], inputs[r], Executor(), *streams[r]));
      }
      simt::Counts forward, backward;
      constexpr uint64_t kSteps = 4;  // in the last, all rows are cached and memory is there
      for (uint64_t step = 0; step < kSteps; ++step) {
        std::vector<int64_t> tickets(kRanks);
        const auto both = [&](auto&& act) {
          const simt::Counts before = simt::counts();
          on_ranks(static_cast<int>(kRanks), [&](int r) {
            const auto rank = static_cast<size_t>(r);
            act(rank);
            // After the arrivals, which the queue waits for.
            ranked.devices[rank]->run("the end", [](Communicator&) {});
          });
          for (const auto& stream : streams) stream->wait();
          return simt::counts() - before;
        };
        forward = both([&](size_t r) { tickets[r] = sides[r]->forward(true); });
        backward = both([&](size_t r) { sides[r]->backward(now(tickets[r])); });
      }
      CHECK(forward.launches == costs.forward_launches);
      CHECK(forward.waits == costs.forward_waits);
      CHECK(backward.launches == costs.backward_launches);
      CHECK(backward.waits == costs.backward_waits);
      std::map<std::string, uint64_t> sent;
      for (const StageCount& count : ranked.devices[0]->counts()) {
        sent[count.stage] = count.bytes_sent / kSteps / tables;
      }
      CHECK(sent["keys"] == costs.keys);
      CHECK(sent["rows"] == costs.rows);
      CHECK(sent["gradients"] == costs.gradients);
    }
  }
}

}  // namespace hotrow
#endif
