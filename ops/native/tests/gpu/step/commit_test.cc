// Gradients that wait on a GPU for a commit, and clipping by the norm of all, result in the same
// tables as without a device tier, bit for bit.
#include <doctest/doctest.h>

#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "tests/error_code.h"
#include "tests/gpu/layer_sides.h"

namespace hotrow {
namespace {

using CommitToken = std::vector<float>;

CommitToken commit_token_of(float value = 0.0f) {
  return CommitToken(GradientPasses::kSlots, value);
}

// The tables of one side, and its passes.
template <typename Side>
struct Trained {
  Tables tables;
  Executor executor;
  std::vector<float> rates = {};
  float clip = 0.0f;
  std::vector<std::unique_ptr<Side>> passes = {};
  const Stream* stream = nullptr;  // of commits

  // Keeps the gradients of a pass in a slot.
  size_t wait(size_t pass, int64_t ticket) {
    BackwardOptions options;
    options.ticket = ticket;
    options.slot = tables.all[0]->passes.next_slot();
    passes[pass]->backward(options);
    return options.slot;
  }
  size_t wait(size_t pass) { return wait(pass, passes[pass]->forward(true)); }
  BackwardOptions at_once(size_t pass, Backward what) {
    BackwardOptions options;
    options.what = what;
    options.ticket = passes[pass]->forward(true);
    options.slot = tables.all[0]->passes.next_slot();
    options.learning_rates = rates.data();
    options.global_clip_norm = clip;
    passes[pass]->backward(options);
    return options;
  }
  void end(const CommitToken& commit_token) {
    const float* const own = rates.empty() ? nullptr : rates.data();
    if constexpr (std::is_same_v<Side, HostSide>) {
      commit(tables.all, commit_token.data(), own, clip, executor);
    } else {
      device_commit(tables.all, commit_token.data(), own, clip, executor, stream->get());
    }
  }
};

constexpr int kWays = 8;

// One step, of up to three passes.
template <typename Side>
void take_step(int way, Trained<Side>& side, const std::vector<int64_t>& removed) {
  constexpr float kUnit = GradientPasses::kUnit;
  CommitToken commit_token = commit_token_of();
  switch (way) {
    case 0:  // as most steps are
      commit_token[side.wait(0)] = kUnit;
      break;
    case 1: {  // accumulated over three micro-steps
      const size_t first = side.wait(0);
      side.end(commit_token_of(GradientPasses::kUnchanged));
      const size_t second = side.wait(1);
      side.end(commit_token_of(GradientPasses::kUnchanged));
      commit_token[side.wait(2)] = kUnit;
      commit_token[first] = kUnit;
      commit_token[second] = 0.75f * kUnit;
      break;
    }
    case 2: {  // tables used twice before their gradients come, in the other order
      const int64_t first = side.passes[0]->forward(true), second = side.passes[1]->forward(true);
      commit_token[side.wait(1, second)] = -1.5f * kUnit;
      commit_token[side.wait(0, first)] = 0.3f * kUnit;
      break;
    }
    case 3: {  // a step that was skipped, and is caught up
      const size_t first = side.wait(0);
      side.end(commit_token);
      commit_token[side.wait(1)] = kUnit;
      commit_token[first] = 0.5f * kUnit;
      break;
    }
    case 4:  // all tables are read, and rows are removed, while gradients wait
      commit_token[side.wait(0, 0)] = kUnit;
      commit_token[side.wait(1)] = kUnit;
      for (Table* table : side.tables.all) {
        (void)exported(*table, 1000);
        table->remove_rows(removed.data(), removed.size());
      }
      side.passes[2]->forward(true);
      break;
    case 5:  // other steps while gradients wait
      commit_token[side.wait(0)] = 0.7f * kUnit;
      side.at_once(1, Backward::kUpdate);
      side.at_once(2, Backward::kUpdate);
      break;
    case 6:  // a hand-written update
      side.wait(0);
      commit_token = commit_token_of(-1.0f);
      break;
    default:  // applied at once; the commit checks
      commit_token[side.at_once(0, Backward::kCommit).slot] = kUnit;
  }
  side.end(commit_token);
}

void check_steps(const std::vector<Kind>& kinds, float clip, size_t threads = 1,
                 int steps = 2 * kWays) {
  ManyThreads pool(threads);
  const Executor executor = threads > 1 ? pool.executor() : Executor();
  const Stream streams[2];
  Trained<HostSide> plain{Tables(kinds, false), executor};
  Trained<DeviceSide> tiered{Tables(kinds, true), executor};
  std::mt19937_64 random(kinds[0].cache_rows + threads);
  if (kLess) steps = kWays;
  for (int step = 0; step < steps; ++step) {
    CAPTURE(step);
    std::vector<std::vector<Input>> inputs;
    for (size_t i = 0; i < 3; ++i) {
      inputs.push_back(
          spoiled(random, inputs_of(random, plain.tables, 100 * kScale + random() % 50)));
      plain.passes.push_back(std::make_unique<HostSide>(plain.tables, inputs[i], executor));
      tiered.passes.push_back(
          std::make_unique<DeviceSide>(tiered.tables, inputs[i], executor, streams[random() % 2]));
    }
    tiered.stream = &streams[random() % 2];
    plain.rates.clear();
    for (size_t t = 0; t < kinds.size() && step % 3 > 0; ++t) {
      plain.rates.push_back(0.01f + 0.001f * static_cast<float>(random() % 7));
    }
    if (step % kWays == 5 || step % kWays == 7) plain.rates.assign(kinds.size(), 0.02f);
    tiered.rates = plain.rates;
    // Now and then every gradient is small enough.
    plain.clip = tiered.clip = step % 5 == 4 ? clip * 1e6f : clip;
    const std::vector<int64_t> removed(inputs[0][0].keys.begin(),
                                       inputs[0][0].keys.begin() + inputs[0][0].keys.size() / 2);
    take_step(step % kWays, plain, removed);
    take_step(step % kWays, tiered, removed);
    const size_t pass = step % kWays == 4 ? 1 : 0;  // there, nothing reads the first
    REQUIRE(same_bits(plain.passes[pass]->outputs(), tiered.passes[pass]->outputs()));
    plain.passes.clear();
    tiered.passes.clear();
    if (step % 3 == 2) check_same(plain.tables, tiered.tables);
  }
  check_same(plain.tables, tiered.tables);
}

constexpr OptimizerKind kAllKinds[] = {OptimizerKind::kSgd,     OptimizerKind::kMomentum,
                                       OptimizerKind::kAdagrad, OptimizerKind::kRowwiseAdagrad,
                                       OptimizerKind::kAdam,    OptimizerKind::kFtrl};

}  // namespace

TEST_CASE("device commit: every optimizer and size of cache gives the table without one") {
  for (const OptimizerKind optimizer : kAllKinds) {
    for (const size_t rows : {size_t{1}, size_t{200}, size_t{6000}}) {
      if (kLess && rows != (optimizer == OptimizerKind::kAdam ? 1 : 200)) continue;
      CAPTURE(static_cast<int>(optimizer));
      CAPTURE(rows);
      Kind kind;
      kind.optimizer = optimizer;
      kind.cache_rows = rows;
      check_steps({kind}, 0.0f);
    }
  }
}

TEST_CASE("device commit: clipped by the norm of all tables, of different widths and types") {
  for (const size_t threads : {size_t{1}, size_t{3}}) {
    for (const size_t rows : {size_t{1}, size_t{300}, size_t{6000}}) {
      if (kLess && rows != (threads == 1 ? 1 : 300)) continue;
      CAPTURE(rows);
      CAPTURE(threads);
      std::vector<Kind> kinds(4);
      for (size_t t = 0; t < kinds.size(); ++t) {
        kinds[t].width = std::vector<size_t>{16, 3, 33, 70}[t];
        kinds[t].optimizer = kAllKinds[(t * 4 + rows) % 6];
        kinds[t].cache_rows = rows;
        kinds[t].shards = t % 2 == 0 ? 1 : 3;
        kinds[t].policy = t < 2 ? CachePolicy::kLfu : CachePolicy::kLru;
        kinds[t].type = t == 2 ? RowType::kBfloat16 : RowType::kFloat32;
      }
      check_steps(kinds, 0.5f, threads);
    }
  }
}

TEST_CASE("device commit: admission and expiry, clipped and not") {
  for (const size_t rows : {size_t{1}, size_t{300}, size_t{6000}}) {
    if (kLess && rows != 300) continue;
    CAPTURE(rows);
    std::vector<Kind> kinds(2);
    kinds[0].expiry = true;
    kinds[0].cache_rows = rows;
    kinds[1].cache_rows = rows;
    kinds[1].width = 7;
    kinds[1].admission = true;
    check_steps(kinds, 0.0f, 1, 3 * kWays);
    kinds[1].expiry = true;
    kinds[0].admission = true;
    kinds[0].type = RowType::kFloat16;
    check_steps(kinds, 0.25f, 3, 3 * kWays);
  }
}

TEST_CASE("device commit: a key of more passes than are summed by a warp") {
  const Stream stream;
  Kind kind;
  kind.cache_rows = 32;
  kind.optimizer = OptimizerKind::kAdam;
  const std::vector<Kind> kinds(2, kind);
  Trained<HostSide> plain{Tables(kinds, false), Executor()};
  Trained<DeviceSide> tiered{Tables(kinds, true), Executor()};
  std::mt19937_64 random(3);
  for (const float clip : {0.0f, 1.0f}) {
    plain.clip = tiered.clip = clip;
    tiered.stream = &stream;
    CommitToken commit_token = commit_token_of();
    for (size_t i = 0; i < 150; ++i) {
      const std::vector<Input> inputs = inputs_of(random, plain.tables, 3, 20);
      plain.passes.push_back(std::make_unique<HostSide>(plain.tables, inputs, Executor()));
      tiered.passes.push_back(
          std::make_unique<DeviceSide>(tiered.tables, inputs, Executor(), stream));
      const size_t slot = plain.wait(i);
      REQUIRE(tiered.wait(i) == slot);
      commit_token[slot] = GradientPasses::kUnit * (0.5f + random_float(random));
    }
    plain.end(commit_token);
    tiered.end(commit_token);
    check_same(plain.tables, tiered.tables);
    plain.passes.clear();
    tiered.passes.clear();
  }
}

TEST_CASE("device commit: layers that share a table have their own steps") {
  const Stream one, two;
  Kind kind;
  kind.cache_rows = 150;
  std::vector<Kind> kinds(3, kind);
  kinds[1].width = 12;
  kinds[2].expiry = true;
  Tables plain(kinds, false), tiered(kinds, true);
  const auto some = [](const Tables& from, size_t a, size_t b) {
    Tables tables({}, false);
    tables.all = {from.all[a], from.all[b]};
    return tables;
  };
  std::mt19937_64 random(8);
  const Executor executor;
  for (int step = 0; step < 10; ++step) {
    CAPTURE(step);
    const std::vector<Input> inputs = inputs_of(random, some(plain, 0, 1), 100);
    const std::vector<Input> others = inputs_of(random, some(plain, 2, 1), 100);
    HostSide a(some(plain, 0, 1), inputs, executor), b(some(plain, 2, 1), others, executor);
    DeviceSide c(some(tiered, 0, 1), inputs, executor, one);
    DeviceSide d(some(tiered, 2, 1), others, executor, two);
    const auto run = [&](const Tables& tables, auto& first, auto& second, auto&& end) {
      BackwardOptions options;
      options.ticket = first.forward(true);
      options.slot = 3;
      const int64_t ticket = second.forward(true);
      first.backward(options);
      options.ticket = ticket;
      options.slot = 4;
      second.backward(options);
      // The pass of the other layer still waits in the table that both layers share.
      CommitToken commit_token = commit_token_of();
      commit_token[4] = GradientPasses::kUnit;
      end(std::vector<Table*>{tables.all[2], tables.all[1]}, commit_token.data());
      if (step % 2 == 0) return;
      commit_token = commit_token_of();
      commit_token[3] = GradientPasses::kUnit;
      // And the third table has no part in this.
      end(tables.all, commit_token.data());
    };
    run(plain, a, b, [&](const std::vector<Table*>& tables, const float* commit_token) {
      commit(tables, commit_token, nullptr, 2.0f, executor);
    });
    run(tiered, c, d, [&](const std::vector<Table*>& tables, const float* commit_token) {
      device_commit(tables, commit_token, nullptr, 2.0f, executor, two.get());
    });
    REQUIRE(same_bits(b.outputs(), d.outputs()));
    if (step % 4 == 3) check_same(plain, tiered);
  }
  check_same(plain, tiered);
}

TEST_CASE("device commit: a snapshot has the rows of before, whenever it is read") {
  const Stream stream;
  Kind kind;
  kind.cache_rows = 100;
  const std::vector<Kind> kinds(2, kind);
  Trained<HostSide> plain{Tables(kinds, false), Executor()};
  Trained<DeviceSide> tiered{Tables(kinds, true), Executor()};
  tiered.stream = &stream;
  std::mt19937_64 random(5);
  for (int round = 0; round < 4; ++round) {
    CAPTURE(round);
    const std::vector<Input> inputs = inputs_of(random, plain.tables, 200);
    plain.clip = tiered.clip = round % 2 == 0 ? 0.0f : 0.5f;
    plain.passes.push_back(std::make_unique<HostSide>(plain.tables, inputs, Executor()));
    tiered.passes.push_back(
        std::make_unique<DeviceSide>(tiered.tables, inputs, Executor(), stream));
    const auto run = [&](auto& side) {
      Table& table = *side.tables.all[0];
      CommitToken commit_token = commit_token_of();
      commit_token[side.wait(0)] = GradientPasses::kUnit;
      auto snapshot = table.open_snapshot(round > 0 ? Since::kCheckpoint : Since::kAll);
      Rows read = read_all(table, *snapshot, 50);
      side.end(commit_token);
      (void)digest_of(table);
      const Rows rest = read_all(table, *snapshot, 100);
      read.insert(read.end(), rest.begin(), rest.end());
      snapshot->close(true);
      side.passes.clear();
      return sorted(read);
    };
    const Rows expected = run(plain);
    REQUIRE(!expected.empty());
    REQUIRE(run(tiered) == expected);
    check_same(plain.tables, tiered.tables);
  }
}

TEST_CASE("device commit: rows beside the slots that a commit changed are looked for again") {
  const Stream stream;
  Kind kind;
  kind.cache_rows = 32;
  Trained<HostSide> plain{Tables({kind}, false), Executor()};
  Trained<DeviceSide> tiered{Tables({kind}, true), Executor()};
  tiered.stream = &stream;
  // The first 32 keys fill the slots, and are used so often that no other key gets one.
  std::vector<Input> inputs(1);
  for (int64_t key = 0; key < 40; ++key) inputs[0].keys.push_back(key);
  inputs[0].samples = inputs[0].keys.size();
  inputs[0].gradients.assign(inputs[0].samples * kind.width, 0.5f);
  std::vector<Input> hot = inputs;
  hot[0].keys.resize(32);
  hot[0].samples = 32;
  hot[0].gradients.resize(32 * kind.width);
  for (const std::vector<Input>* const input : {&hot, &inputs, &inputs}) {
    plain.passes.push_back(std::make_unique<HostSide>(plain.tables, *input, Executor()));
    tiered.passes.push_back(
        std::make_unique<DeviceSide>(tiered.tables, *input, Executor(), stream));
  }
  const auto run = [](auto& side) {
    for (int i = 0; i < 6; ++i) side.passes[0]->forward(true);
    const int64_t first = side.passes[1]->forward(true), second = side.passes[2]->forward(true);
    CommitToken commit_token = commit_token_of();
    commit_token[side.wait(1, first)] = GradientPasses::kUnit;
    side.end(commit_token);
    side.passes[2]->backward(now(second));
    side.passes.clear();
  };
  run(plain);
  run(tiered);
  CHECK(tiered.tables.all[0]->statistics().cache.inserted == 32);
  check_same(plain.tables, tiered.tables);
}

TEST_CASE("device commit: batches without keys, and nothing to commit") {
  const Stream stream;
  const std::vector<Kind> kinds(2);
  Trained<HostSide> plain{Tables(kinds, false), Executor()};
  Trained<DeviceSide> tiered{Tables(kinds, true), Executor()};
  tiered.stream = &stream;
  for (const float clip : {0.0f, 1.0f}) {
    plain.clip = tiered.clip = clip;
    const std::vector<Input> inputs(1);
    plain.passes.push_back(std::make_unique<HostSide>(plain.tables, inputs, Executor()));
    tiered.passes.push_back(
        std::make_unique<DeviceSide>(tiered.tables, inputs, Executor(), stream));
    const auto run = [&](auto& side) {
      side.end(commit_token_of());
      CommitToken commit_token = commit_token_of();
      commit_token[side.wait(0)] = GradientPasses::kUnit;
      side.end(commit_token);
      side.passes.clear();
    };
    run(plain);
    run(tiered);
    check_same(plain.tables, tiered.tables);
  }
  CHECK(tiered.tables.all[0]->step() == 2);
}

TEST_CASE("device commit: what was applied at once is not scaled, and cleared tables forget") {
  const Stream stream;
  const Executor executor;
  std::mt19937_64 random(9);
  Tables tiered({Kind()}, true);
  Table& table = *tiered.all[0];
  DeviceSide device(tiered, inputs_of(random, tiered, 50), executor, stream);
  BackwardOptions options;
  options.what = Backward::kCommit;
  options.ticket = device.forward(true);
  options.slot = 7;
  device.backward(options);
  CommitToken commit_token = commit_token_of();
  commit_token[7] = 0.5f * GradientPasses::kUnit;
  const auto end = [&] {
    device_commit(tiered.all, commit_token.data(), nullptr, 0.0f, executor, stream.get());
  };
  CHECK(error_code(end) == Code::kFailedPrecondition);
  CHECK(table.step() == 1);
  options.what = Backward::kAccumulate;
  options.ticket = device.forward(true);
  device.backward(options);
  table.clear();
  end();
  CHECK(table.size() == 0);
  CHECK(table.step() == 0);
}

#if defined(HOTROW_SIMT)
TEST_CASE("device commit: a step takes no memory once it has seen such passes") {
  const Stream stream;
  Kind kind;
  kind.cache_rows = 300;
  Trained<DeviceSide> tiered{Tables({kind, kind}, true), Executor()};
  tiered.stream = &stream;
  tiered.clip = 1.0f;
  std::mt19937_64 random(12);
  size_t taken = 0;
  for (int step = 0; step < 20; ++step) {
    for (int i = 0; i < 2; ++i) {
      tiered.passes.push_back(std::make_unique<DeviceSide>(
          tiered.tables, inputs_of(random, tiered.tables, step < 12 ? 200 : 80), Executor(),
          stream));
    }
    const size_t before = simt::allocations();
    CommitToken commit_token = commit_token_of();
    commit_token[tiered.wait(0)] = GradientPasses::kUnit;
    commit_token[tiered.wait(1)] = GradientPasses::kUnit;
    tiered.end(commit_token);
    if (step >= 12) taken += simt::allocations() - before;
    tiered.passes.clear();
  }
  CHECK(taken == 0);
}
#endif

}  // namespace hotrow
