// Calls of CUDA that fail in the middle of a step, one after the other: afterwards the rows are
// those of a table in memory, bit for bit, or the table refuses by name.
#include <doctest/doctest.h>

#include "tests/gpu/layer_sides.h"

#if defined(HOTROW_SIMT)

#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "core/gpu/step/tier.h"
#include "tests/error_code.h"

namespace hotrow {
namespace {

std::vector<int64_t> range(int64_t first, size_t count) {
  std::vector<int64_t> keys(count);
  std::iota(keys.begin(), keys.end(), first);
  return keys;
}

// One set, and windows of several pieces.
Kind small_cache() {
  Kind kind;
  kind.cache_rows = 32;
  kind.piece_bytes = 1000;
  return kind;
}

const auto kBatch = range(30, 60);

// Slots with a pin.
size_t pinned_slots(Table& table) {
  std::unique_lock lock(table.mutex());
  const GpuTier& tier = *gpu_tier_of(table);
  std::vector<DeviceSet> sets(tier.cache().set_count);
  must(cudaDeviceSynchronize());
  must(cudaMemcpyAsync(sets.data(), tier.cache().sets, sets.size() * sizeof(DeviceSet),
                       cudaMemcpyDefault, kStream));
  size_t count = 0;
  for (const DeviceSet& set : sets) {
    for (uint32_t way = 0; way < kDeviceWays; ++way) {
      count += set.tags[way] != 0 && (set.states[way] & 0x7f) != 0;
    }
  }
  return count;
}

void let_go_of_windows(Table& table) {
  std::unique_lock lock(table.mutex());
  table.tier().let_go_of_windows();
}

// A table on a GPU, its slots full of rows that only they have, and a table in memory: the same
// steps.
class Pair {
 public:
  Pair() : plain_({small_cache()}, false), tiered_({small_cache()}, true) { warm(); }

  Table& plain() { return *plain_.all[0]; }
  Table& tiered() { return *tiered_.all[0]; }

  // --- a step, the device's side first -----------------------------------------------------------
  void begin(const std::vector<int64_t>& keys) {
    Input input;
    input.keys = keys;
    input.samples = keys.size();
    for (size_t i = 0; i < keys.size() * plain().width(); ++i) {
      input.gradients.push_back(static_cast<float>(i % 7) - 2.5f);
    }
    device_.reset();
    inputs_ = {input};
    device_ = std::make_unique<DeviceSide>(tiered_, inputs_, Executor(), stream_);
  }
  void forward(bool insert) {
    options_ = now(device_->forward(insert));
    options_.slot = tiered().passes.next_slot();
  }
  void backward(Backward what = Backward::kUpdate) {
    options_.what = what;
    device_->backward(options_);
  }
  void commit_device() {
    device_commit(tiered_.all, token().data(), nullptr, 0.0f, Executor(), stream_.get());
  }
  // The same in memory, and compares what was looked up.
  void end(bool insert = true, bool update = true) {
    HostSide host(plain_, inputs_, Executor());
    BackwardOptions options = options_;
    options.ticket = host.forward(insert);
    if (update) host.backward(options);
    if (update && options.what == Backward::kAccumulate) {
      commit(plain_.all, token().data(), nullptr, 0.0f, Executor());
    }
    REQUIRE(same_bits(host.outputs(), device_->outputs()));
  }
  void train(const std::vector<int64_t>& keys) {
    begin(keys);
    forward(true);
    backward();
    end();
  }

  void prefetch(const std::vector<int64_t>& keys) {
    tiered().prefetch(keys.data(), keys.size());
    tiered().wait_for_prefetch();
  }
  void check() { check_same(plain_, tiered_); }
  void clear() {
    plain().clear();
    tiered().clear();
    warm();
  }
  // Slots with a pin, besides those of windows.
  size_t pinned() {
    let_go_of_windows(tiered());
    return pinned_slots(tiered());
  }

 private:
  void warm() {
    for (const int64_t first : {0, 20, 0}) train(range(first, 40));
  }
  std::vector<float> token() const {
    std::vector<float> token(GradientPasses::kSlots, 0.0f);
    token[options_.slot] = GradientPasses::kUnit;
    return token;
  }

  Stream stream_;
  Tables plain_, tiered_;
  std::vector<Input> inputs_;
  BackwardOptions options_;
  std::unique_ptr<DeviceSide> device_;
};

// How often the tables agreed, and how often the table on the GPU refused.
struct Outcome {
  size_t exact = 0, refused = 0;
};

// Makes one call of CUDA after the other fail in run(pair), of a pair for which `before` ran. Then
// again(pair, ended) completes what run did not end, in memory, too; or the table refuses.
template <typename Before, typename Run, typename Again>
Outcome sweep(unsigned calls, Before&& before, Run&& run, Again&& again) {
  Outcome outcome;
  for (size_t number = 0;; ++number) {
    CAPTURE(number);
    Pair pair;
    before(pair);
    bool ended = false;
    {
      const simt::Failures failures(calls, number);
      ended = error_code([&] { run(pair); }) == Code::kOk;
      if (failures.count() == 0) return outcome;
    }
    REQUIRE(cudaPeekAtLastError() == cudaSuccess);
    const Code code = error_code([&] {
      again(pair, ended);
      pair.train(range(40, 40));
      pair.check();
      CHECK(pair.pinned() == 0);
    });
    if (code == Code::kOk) {
      ++outcome.exact;
      continue;
    }
    REQUIRE(code == Code::kDataLoss);
    ++outcome.refused;
    pair.clear();
    pair.check();
  }
}

const auto kNothing = [](Pair&) {};

void begin_batch(Pair& pair) { pair.begin(kBatch); }
void begin_pass(Pair& pair) {
  pair.begin(kBatch);
  pair.forward(true);
}
void begin_commit(Pair& pair) {
  begin_pass(pair);
  pair.backward(Backward::kAccumulate);
}

}  // namespace

TEST_CASE("device failures: without memory at any point of a step, the next goes on") {
  const auto large = range(20, 500);
  const auto step = [](Pair& pair) {
    pair.forward(true);
    pair.backward();
  };
  const Outcome outcome = sweep(
      simt::kAllocations | simt::kRegistrations | simt::kCreations,
      [&](Pair& pair) { pair.begin(large); }, step,
      [&](Pair& pair, bool ended) {
        if (!ended) step(pair);
        pair.end();
      });
  CHECK(outcome.exact > 5);
  CHECK(outcome.refused == 0);
}

TEST_CASE("device failures: a forward pass that fails anywhere leaves no key without its row") {
  const Outcome outcome = sweep(
      simt::kAllCalls, begin_batch, [](Pair& pair) { pair.forward(true); },
      [](Pair& pair, bool ended) {
        if (!ended) pair.forward(true);
        pair.backward();
        pair.end();
      });
  CHECK(outcome.exact > 10);
  CHECK(outcome.refused > 10);
}

TEST_CASE("device failures: of a forward pass whose rows are cached, pins end") {
  const auto cached = range(4, 8);
  const Outcome outcome = sweep(
      simt::kAllCalls,
      [&](Pair& pair) {
        pair.train(cached);
        pair.train(cached);
        pair.begin(cached);
      },
      [](Pair& pair) { pair.forward(true); },
      [](Pair& pair, bool ended) {
        if (!ended) pair.forward(true);
        pair.backward();
        pair.end();
      });
  CHECK(outcome.exact > 10);
  CHECK(outcome.refused > 2);
}

TEST_CASE("device failures: of a refused call whose rows are cached or come in, pins end") {
  for (const bool cached : {true, false}) {
    CAPTURE(cached);
    Kind kind = small_cache();
    kind.vocabulary_size = 100;
    Tables tables({kind}, true);
    const Stream stream;
    const auto forward = [&](std::vector<int64_t> keys, std::vector<int64_t> splits) {
      Input input;
      input.combiner = splits.empty() ? Combiner::kNone : Combiner::kSum;
      input.samples = splits.empty() ? keys.size() : splits.size() - 1;
      input.gradients.assign(input.samples * kind.width, 1.0f);
      input.keys = std::move(keys);
      input.splits = std::move(splits);
      const std::vector<Input> inputs = {input};
      DeviceSide device(tables, inputs, Executor(), stream);
      const Code code = error_code([&] { device.forward(true); });
      stream.wait();
      return code;
    };
    REQUIRE(forward(range(0, 20), {}) == Code::kOk);
    // A window's own pins stay.
    const auto window = range(2, 10);
    tables.all[0]->prefetch(window.data(), window.size());
    tables.all[0]->wait_for_prefetch();
    REQUIRE(pinned_slots(*tables.all[0]) == window.size());
    if (cached) {
      REQUIRE(forward({3, 4, 5}, {0, 4, 3}) == Code::kInvalidArgument);
    } else {
      REQUIRE(forward(range(10, 95), {}) == Code::kOutOfRange);
    }
    CHECK(pinned_slots(*tables.all[0]) == window.size());
    let_go_of_windows(*tables.all[0]);
    CHECK(pinned_slots(*tables.all[0]) == 0);
  }
}

TEST_CASE("device failures: a lookup that changes nothing fails without harm") {
  const Outcome outcome = sweep(
      simt::kAllCalls, begin_batch, [](Pair& pair) { pair.forward(false); },
      [](Pair& pair, bool ended) {
        if (!ended) pair.forward(false);
        pair.end(false, false);
      });
  CHECK(outcome.exact > 10);
  CHECK(outcome.refused == 0);
}

TEST_CASE("device failures: a backward pass that fails anywhere is applied once or never") {
  const Outcome outcome = sweep(
      simt::kAllCalls, begin_pass, [](Pair& pair) { pair.backward(); },
      [](Pair& pair, bool ended) {
        if (!ended) pair.backward();
        pair.end();
      });
  CHECK(outcome.exact > 5);
  CHECK(outcome.refused > 5);
}

TEST_CASE("device failures: gradients that wait are all there or none is applied") {
  const auto keep = [](Pair& pair) { pair.backward(Backward::kAccumulate); };
  const Outcome kept = sweep(simt::kAllCalls, begin_pass, keep, [&](Pair& pair, bool ended) {
    if (!ended) keep(pair);
    pair.commit_device();
    pair.end();
  });
  CHECK(kept.exact > 5);
  CHECK(kept.refused == 0);
  // A commit that fails takes its passes along.
  const Outcome committed = sweep(
      simt::kAllCalls, begin_commit, [](Pair& pair) { pair.commit_device(); },
      [](Pair& pair, bool ended) { pair.end(true, ended); });
  CHECK(committed.exact > 5);
  CHECK(committed.refused > 5);
}

TEST_CASE("device failures: rows that are brought to the host tier arrive, or the table refuses") {
  const auto read = [](Pair& pair) { exported(pair.tiered()); };
  const Outcome without_memory = sweep(simt::kAllocations, kNothing, read, [](Pair&, bool) {});
  CHECK(without_memory.exact > 0);
  CHECK(without_memory.refused == 0);
  const Outcome outcome = sweep(simt::kAllCalls, kNothing, read, [](Pair&, bool) {});
  CHECK(outcome.exact > 2);
  CHECK(outcome.refused > 2);
}

TEST_CASE("device failures: rows are removed, or are as before, or the table refuses") {
  const auto some = range(10, 15);
  const auto remove = [&](Table& table) { table.remove_rows(some.data(), some.size()); };
  const Outcome outcome = sweep(
      simt::kAllCalls, kNothing, [&](Pair& pair) { remove(pair.tiered()); },
      [&](Pair& pair, bool ended) {
        if (!ended) remove(pair.tiered());
        remove(pair.plain());
      });
  CHECK(outcome.exact > 2);
  CHECK(outcome.refused > 2);
}

TEST_CASE("device failures: a window that fails anywhere leaves no key without its row") {
  const Outcome outcome = sweep(
      simt::kAllCalls, kNothing, [](Pair& pair) { pair.prefetch(kBatch); },
      [](Pair& pair, bool) { pair.train(kBatch); });
  CHECK(outcome.exact > 10);
  CHECK(outcome.refused > 5);
}

TEST_CASE("device failures: a table that lost rows refuses all calls by name until it is cleared") {
  Pair pair;
  const int64_t key = 1;
  // The first call whose failure loses rows.
  std::string message;
  pair.begin(kBatch);
  for (size_t number = 0; message.empty(); ++number) {
    {
      const simt::Failures failures(simt::kEnqueued, number);
      (void)error_code([&] { pair.forward(true); });
      REQUIRE(failures.count() == 1);
    }
    try {
      pair.forward(true);
    } catch (const Error& error) {
      message = error.what();
      CHECK(error.code() == Code::kDataLoss);
    }
  }
  CHECK(message.find("table t0: rows on GPU 0 were lost when a call failed: ") == 0);
  CHECK(message.find("unknown error; continue from a checkpoint") != std::string::npos);
  const auto code = [](auto&& call) { return error_code(call); };
  CHECK(code([&] { pair.forward(false); }) == Code::kDataLoss);
  CHECK(code([&] { pair.backward(); }) == Code::kDataLoss);
  CHECK(code([&] { pair.commit_device(); }) == Code::kDataLoss);
  CHECK(code([&] { exported(pair.tiered()); }) == Code::kDataLoss);
  CHECK(code([&] { pair.tiered().open_snapshot(Since::kAll); }) == Code::kDataLoss);
  CHECK(code([&] { pair.tiered().remove_rows(&key, 1); }) == Code::kDataLoss);
  CHECK(code([&] { pair.prefetch({key}); }) == Code::kDataLoss);
  CHECK(pair.tiered().statistics().rows > 0);
  pair.clear();
  pair.train(kBatch);
  pair.check();
}

}  // namespace hotrow

#endif
