// What a step asks of the device: a change that adds a launch, a copy or a wait shows here.
#if defined(HOTROW_SIMT)
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "tests/gpu/layer_sides.h"

namespace hotrow {
namespace {

constexpr size_t kKeys = 500;

// kKeys distinct keys from `first` on for each table, each a sample.
std::vector<Input> plain_inputs(size_t tables, size_t width, int64_t first) {
  std::vector<Input> inputs(tables);
  for (size_t t = 0; t < tables; ++t) {
    inputs[t].table = t;
    inputs[t].samples = kKeys;
    for (size_t i = 0; i < kKeys; ++i) inputs[t].keys.push_back(first + static_cast<int64_t>(i));
    inputs[t].gradients.assign(kKeys * width, 0.5f);
  }
  return inputs;
}

struct Costs {
  simt::Counts forward, backward;
};

Costs costs_of(const Tables& tables, const std::vector<Input>& inputs, const Stream& stream) {
  DeviceSide side(tables, inputs, Executor(), stream);
  // Bytes of rows are counted when the device moves them.
  const auto of = [&](auto&& call) {
    must(cudaDeviceSynchronize());
    const simt::Counts before = simt::counts();
    call();
    simt::Counts costs = simt::counts() - before;
    must(cudaDeviceSynchronize());
    costs.bus_bytes = (simt::counts() - before).bus_bytes;
    return costs;
  };
  int64_t ticket = 0;
  Costs costs;
  costs.forward = of([&] { ticket = side.forward(true); });
  costs.backward = of([&] { side.backward(now(ticket)); });
  return costs;
}

void check(const simt::Counts& costs, const simt::Counts& expected) {
  CHECK(costs.launches == expected.launches);
  CHECK(costs.copies == expected.copies);
  CHECK(costs.copied_bytes == expected.copied_bytes);
  CHECK(costs.records == expected.records);
  CHECK(costs.stream_waits == expected.stream_waits);
  CHECK(costs.waits == expected.waits);
  CHECK(costs.bus_bytes == expected.bus_bytes);
}

}  // namespace

TEST_CASE("device costs: of a step whose rows are cached, and of one whose rows come in") {
  // As many launches, copies, events and waits for any number of tables. A copy and a launch of
  // those of rows that come in are for blocks of new rows. The last column: bytes of rows over the
  // bus.
  struct Expected {
    size_t tables;
    simt::Counts cached, missing;  // forward
  };
  const simt::Counts backward{7, 0, 0, 1, 1, 0, 0};
  for (const Expected& expected :
       {Expected{1, {14, 0, 0, 4, 3, 2, 0}, {26, 3, 2156, 5, 3, 3, 40000}},
        Expected{8, {14, 0, 0, 4, 3, 2, 0}, {26, 3, 17220, 5, 3, 3, 320000}}}) {
    CAPTURE(expected.tables);
    Kind kind;
    kind.width = 8;
    kind.cache_rows = 4 * kKeys;
    Tables tables(std::vector<Kind>(expected.tables, kind), true);
    const Stream stream;
    const std::vector<Input> first = plain_inputs(expected.tables, kind.width, 0);
    const std::vector<Input> second = plain_inputs(expected.tables, kind.width, 10'000);
    for (int i = 0; i < 3; ++i) costs_of(tables, first, stream);  // memory is there now
    const Costs cached = costs_of(tables, first, stream);
    check(cached.forward, expected.cached);
    check(cached.backward, backward);
    const Costs missing = costs_of(tables, second, stream);
    check(missing.forward, expected.missing);
    check(missing.backward, backward);
  }
}

TEST_CASE("device costs: of a step whose rows are outside the slots") {
  // The rows that the step before sends back are taken on the device: over the bus go its own.
  struct Expected {
    size_t tables;
    simt::Counts forward, backward;
  };
  for (const Expected& expected :
       {Expected{1, {25, 2, 1884, 5, 3, 3, 0}, {11, 0, 0, 3, 3, 0, 37440}},
        Expected{8, {25, 2, 15044, 5, 3, 3, 0}, {11, 0, 0, 3, 3, 0, 299520}}}) {
    CAPTURE(expected.tables);
    Kind kind;
    kind.width = 8;
    kind.cache_rows = 32;
    Tables tables(std::vector<Kind>(expected.tables, kind), true);
    const Stream stream;
    const std::vector<Input> inputs = plain_inputs(expected.tables, kind.width, 0);
    for (int i = 0; i < 4; ++i) costs_of(tables, inputs, stream);
    const Costs costs = costs_of(tables, inputs, stream);
    check(costs.forward, expected.forward);
    check(costs.backward, expected.backward);
  }
}

TEST_CASE("device costs: rows are pooled, and pins end, before a call knows that all are cached") {
  Kind kind;
  kind.width = 8;
  kind.cache_rows = 4 * kKeys;
  Tables tables({kind, kind}, true);
  const Stream stream;
  const std::vector<Input> inputs = plain_inputs(2, kind.width, 0);
  for (int i = 0; i < 3; ++i) costs_of(tables, inputs, stream);
  DeviceSide side(tables, inputs, Executor(), stream);
  stream.wait();
  const simt::Counts before = simt::counts();
  {
    // Its wait for the answer.
    const simt::Failures failures(simt::kWaits, 1);
    CHECK_THROWS_AS(side.forward(true), Error);
    CHECK(failures.count() == 1);
  }
  // The wait before the locks was not for the call's own keys: behind them the device goes on.
  CHECK(simt::waiting() >= 14);
  stream.wait();
  // All that it launches, and the end of pins that it cannot know to be none.
  CHECK((simt::counts() - before).launches == 14 + 1);
  const Outputs pooled = side.outputs();
  side.forward(true);
  CHECK(same_bits(side.outputs(), pooled));
}

TEST_CASE("device costs: a step loads and stores no more bytes of rows than its floor") {
  // docs/gpu.md, without headers. Every row twice in a batch: the pool loads it again (from a cache
  // of the GPU's), the update does not. So do Momentum's states.
  for (const bool momentum : {false, true}) {
    CAPTURE(momentum);
    Kind kind;
    kind.optimizer = momentum ? OptimizerKind::kMomentum : OptimizerKind::kSgd;
    kind.width = 32;
    kind.cache_rows = 4 * kKeys;
    Tables tables({kind, kind}, true);
    const Stream stream;
    std::vector<Input> inputs = plain_inputs(2, kind.width, 0);
    for (Input& input : inputs) {
      for (size_t i = 0; i < kKeys; ++i) input.keys[i] /= 2;
    }
    for (int i = 0; i < 2; ++i) costs_of(tables, inputs, stream);
    DeviceSide side(tables, inputs, Executor(), stream);
    const size_t outputs = 2 * kKeys * kind.width * sizeof(float), weights = outputs / 2;
    const size_t rows = momentum ? 2 * weights : weights;
    const simt::RowBytes before = simt::row_bytes();
    const int64_t ticket = side.forward(true);
    stream.wait();
    const simt::RowBytes between = simt::row_bytes();
    CHECK(between.loaded - before.loaded == outputs);
    CHECK(between.stored - before.stored == outputs);
    side.backward(now(ticket));
    stream.wait();
    CHECK(simt::row_bytes().loaded - between.loaded == outputs + rows);
    CHECK(simt::row_bytes().stored - between.stored == rows);
  }
}

}  // namespace hotrow
#endif
