// A table with a device tier gives the same results as a table without one, bit for bit.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/error_code.h"
#include "tests/one_table.h"
#include "tests/temporary_directory.h"
#include "tests/test_size.h"

namespace hotrow {
namespace {

struct Case {
  OptimizerKind kind = OptimizerKind::kAdagrad;
  size_t cache_rows = 1;
  CachePolicy policy = CachePolicy::kLfu;
  int32_t shards = 1;
  size_t threads = 1;
  RowType type = RowType::kFloat32;
  bool expiry = false, admission = false;
  size_t window = 0;  // batches of a prefetch window; 0: none
  std::string disk;   // directory of the lines; empty: in memory
};

TableOptions options_of(const Case& c, bool cached) {
  TableOptions options;
  options.width = 5;
  options.init.kind = InitKind::kUniform;
  options.init.scale = 0.1f;
  options.optimizer.kind = c.kind;
  options.weights = options.state = c.type;
  if (c.expiry) {
    options.expiry.after_steps = 6;
    options.expiry.rare_count = 3;
    options.expiry.rare_after_steps = 3;
    options.expiry.sweep_steps = 4;
  }
  if (c.admission) {
    options.admission.kind = AdmissionKind::kCounter;
    options.admission.occurrences = 2;
  }
  if (cached) {
    options.cache = {c.cache_rows, c.policy};
    options.disk = c.disk;
  }
  return options;
}

// Keys of a batch, skewed: a few keys occur often, many rarely.
std::vector<int64_t> batch_of(std::mt19937_64& random, size_t count, size_t rows) {
  std::vector<int64_t> keys(count);
  for (int64_t& key : keys) {
    const double u = static_cast<double>(random() >> 11) * 0x1p-53;
    key = static_cast<int64_t>(std::pow(u, 4.0) * static_cast<double>(rows)) - 7;
  }
  return keys;
}

std::vector<float> gradients_of(std::mt19937_64& random, size_t count) {
  std::vector<float> gradients(count);
  for (float& g : gradients) g = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
  return gradients;
}

// A forward pass, and a backward pass that waits in `slot`.
std::vector<float> pass(Table& table, const std::vector<int64_t>& keys,
                        const std::vector<float>& gradients, const Executor& executor,
                        size_t slot) {
  std::vector<float> rows(keys.size() * table.width());
  const LayerCall call = call_of(table, keys, executor);
  BackwardOptions options;
  options.ticket = forward(call, true, {rows.data()}, nullptr);
  options.slot = slot;
  backward(call, {gradients.data()}, options);
  return rows;
}

void commit_slots(Table& table, const std::vector<size_t>& slots, const Executor& executor) {
  std::vector<float> commit_token(GradientPasses::kSlots, 0.0f);
  for (size_t slot : slots) commit_token[slot] = GradientPasses::kUnit;
  commit({&table}, commit_token.data(), nullptr, 0.0f, executor);
}

void check_same(const Table& plain, const Table& tiered) {
  REQUIRE(exported(plain, 1000) == exported(tiered, 1000));
  REQUIRE(digest_of(plain) == digest_of(tiered));
  REQUIRE(plain.state() == tiered.state());
}

// The keys of a step's batches, with their gradients.
struct StepKeys {
  std::vector<int64_t> keys, others;
  std::vector<float> gradients, other_gradients;
};

std::vector<StepKeys> steps_of(std::mt19937_64& random, size_t count, size_t width) {
  std::vector<StepKeys> steps(count);
  for (size_t i = 0; i < count; ++i) {
    // Batches of more distinct rows than the smallest cache holds, and of enough keys for several
    // threads.
    steps[i].keys = batch_of(random, i % 3 == 0 ? 9000 : 500, 20000);
    steps[i].others = batch_of(random, 200, 20000);
    steps[i].gradients = gradients_of(random, steps[i].keys.size() * width);
    steps[i].other_gradients = gradients_of(random, steps[i].others.size() * width);
  }
  return steps;
}

// Prefetches windows as a loader does when a step begins: the first two at the start, and later the
// window after the one that begins.
void prefetch(Table& table, const std::vector<StepKeys>& steps, size_t step, size_t window) {
  if (window == 0 || step % window != 0) return;
  const auto hand = [&](size_t first) {
    std::vector<int64_t> keys;
    for (size_t i = first; i < std::min(steps.size(), first + window); ++i) {
      keys.insert(keys.end(), steps[i].keys.begin(), steps[i].keys.end());
      keys.insert(keys.end(), steps[i].others.begin(), steps[i].others.end());
    }
    table.prefetch(keys.data(), keys.size());
  };
  if (step == 0) hand(0);
  hand(step + window);
  // Tests both racing steps and steps after the prefetch has ended.
  if (step % (2 * window) == 0) table.wait_for_prefetch();
}

void check_case(const Case& c) {
  CAPTURE(static_cast<int>(c.kind));
  CAPTURE(c.cache_rows);
  CAPTURE(static_cast<int>(c.policy));
  CAPTURE(c.shards);
  CAPTURE(c.threads);
  CAPTURE(static_cast<int>(c.type));
  CAPTURE(c.expiry);
  CAPTURE(c.admission);
  CAPTURE(c.window);
  CAPTURE(c.disk);
  ManyThreads threads(c.threads);
  const Executor executor = c.threads > 1 ? threads.executor() : Executor();
  Table plain("t", options_of(c, false), c.shards, false);
  Table tiered("t", options_of(c, true), c.shards, false);
  REQUIRE(tiered.ram_tier() != nullptr);
  std::mt19937_64 random(11);
  const std::vector<StepKeys> steps = steps_of(random, 24, plain.width());
  for (size_t step = 0; step < steps.size(); ++step) {
    const std::vector<int64_t>&keys = steps[step].keys, &others = steps[step].others;
    const std::vector<float>& gradients = steps[step].gradients;
    const std::vector<float>& other_gradients = steps[step].other_gradients;
    prefetch(tiered, steps, step, c.window);
    const auto both = [&](auto&& act) {
      const auto expected = act(plain);
      REQUIRE(act(tiered) == expected);
    };
    switch (step % 4) {
      case 0:  // forward and a fused backward
        both([&](Table& table) {
          const auto rows = look_up(table, keys, true, executor);
          update(table, keys, gradients, executor);
          return rows;
        });
        break;
      case 1:  // a pass and its commit
        both([&](Table& table) {
          const size_t slot = table.passes.next_slot();
          const auto rows = pass(table, keys, gradients, executor, slot);
          commit_slots(table, {slot}, executor);
          return rows;
        });
        break;
      case 2:  // two forward passes before their backward passes: the second moves rows
        both([&](Table& table) {
          auto rows = look_up(table, keys, true, executor);
          const LayerCall call = call_of(table, keys, executor);
          BackwardOptions first;
          first.what = Backward::kUpdate;
          first.ticket = forward(call, true, {rows.data()}, nullptr);
          look_up(table, others, true, executor);
          backward(call, {gradients.data()}, first);
          return rows;
        });
        break;
      default:  // two passes in one commit, read without training in between
        both([&](Table& table) {
          const size_t a = table.passes.next_slot(), b = table.passes.next_slot();
          auto rows = pass(table, keys, gradients, executor, a);
          const auto more = pass(table, others, other_gradients, executor, b);
          const auto seen = look_up(table, keys, false, executor);
          commit_slots(table, {a, b}, executor);
          rows.insert(rows.end(), more.begin(), more.end());
          rows.insert(rows.end(), seen.begin(), seen.end());
          return rows;
        });
    }
    both([&](Table& table) { return look_up(table, others, false, executor); });
    if (step % 7 == 6) check_same(plain, tiered);
  }
  check_same(plain, tiered);
  const std::vector<int64_t> gone = batch_of(random, 300, 20000);
  CHECK(plain.remove_rows(gone.data(), gone.size()) ==
        tiered.remove_rows(gone.data(), gone.size()));
  check_same(plain, tiered);
}

}  // namespace

TEST_CASE("tiers: every optimizer and size of cache gives the table without one") {
  for (const OptimizerKind kind :
       {OptimizerKind::kSgd, OptimizerKind::kMomentum, OptimizerKind::kAdagrad,
        OptimizerKind::kRowwiseAdagrad, OptimizerKind::kAdam, OptimizerKind::kFtrl}) {
    for (const size_t rows : {size_t{1}, size_t{2000}, size_t{40000}}) {
      Case c;
      c.kind = kind;
      c.cache_rows = rows;
      check_case(c);
    }
  }
}

TEST_CASE("tiers: with shards, threads, policies, types, expiry and admission") {
  for (const int32_t shards : {1, 3}) {
    for (const size_t threads : {size_t{1}, size_t{3}}) {
      Case c;
      c.shards = shards;
      c.threads = threads;
      c.cache_rows = 1500;
      check_case(c);
      c.policy = CachePolicy::kLru;
      check_case(c);
      c.type = RowType::kBfloat16;
      c.expiry = true;
      check_case(c);
      c.policy = CachePolicy::kLfu;
      c.admission = true;
      check_case(c);
    }
  }
}

TEST_CASE("tiers: a row imported with a clock ahead expires by the clock of its last update") {
  const TemporaryDirectory directory;
  Case c;
  c.expiry = true;
  SUBCASE("lines in memory") {}
  SUBCASE("lines on disk") { c.disk = directory / ""; }
  c.cache_rows = 600;
  Table plain("t", options_of(c, false), 1, false), tiered("t", options_of(c, true), 1, false);
  for (Table* table : {&plain, &tiered}) {
    train(*table, {1, 2, 3}, 1.0f);
    Rows rows = exported(*table);
    for (Row& row : rows) row.clock = 60;
    import_all(*table, rows, true);
    train(*table, {1, 2}, 1.0f);
    for (int i = 0; i < 20; ++i) train(*table, {9}, 1.0f);
  }
  CHECK(plain.size() == 2);  // 3 waits for step 60
  check_same(plain, tiered);
}

TEST_CASE("tiers: with prefetching of any window") {
  for (const size_t window : {size_t{1}, size_t{3}, size_t{8}, size_t{32}}) {
    for (const size_t rows : {size_t{1}, size_t{2000}, size_t{9000}, size_t{40000}}) {
      if (kLess && rows != (window == 1 ? 1 : window == 3 ? 9000 : window == 8 ? 2000 : 40000)) {
        continue;
      }
      Case c;
      c.window = window;
      c.cache_rows = rows;
      check_case(c);
      c.shards = 3;
      c.threads = 3;
      c.expiry = true;
      c.kind = OptimizerKind::kAdam;
      c.policy = CachePolicy::kLru;
      check_case(c);
      c.admission = true;
      check_case(c);
    }
  }
}

TEST_CASE("tiers: lines on disk, with any size of cache and window") {
  const TemporaryDirectory directory;
  size_t n = 0;
  for (const OptimizerKind kind :
       {OptimizerKind::kSgd, OptimizerKind::kMomentum, OptimizerKind::kAdagrad,
        OptimizerKind::kRowwiseAdagrad, OptimizerKind::kAdam, OptimizerKind::kFtrl}) {
    for (const size_t window : {size_t{0}, size_t{1}, size_t{8}}) {
      if (kLess && n++ % 9 != 2) continue;
      Case c;
      c.disk = directory / "";
      c.kind = kind;
      c.window = window;
      c.cache_rows = kind == OptimizerKind::kAdagrad ? 40000 : 2000;
      check_case(c);
      c.cache_rows = 1;
      c.shards = 3;
      c.threads = 3;
      c.expiry = true;
      check_case(c);
      c.admission = true;
      c.cache_rows = 3000;
      c.policy = CachePolicy::kLru;
      c.type = RowType::kBfloat16;
      check_case(c);
    }
  }
}

TEST_CASE("tiers: while the disk is full steps fail, and nothing is lost") {
  const TemporaryDirectory directory;
  Case c;
  c.disk = directory / "";
  c.cache_rows = 600;
  Table plain("t", options_of(c, false), 1, false), tiered("t", options_of(c, true), 1, false);
  std::mt19937_64 random(17);
  const auto step = [](Table& table, const StepKeys& keys) {
    look_up(table, keys.keys, true);
    update(table, keys.keys, keys.gradients);
  };
  // Steps of thousands of lines of 56 bytes, enough that the log writes its buffers.
  rlimit before;
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto old_action = std::signal(SIGXFSZ, SIG_IGN);
  int failures = 0;
  for (int round = 0; round < (kLess ? 40 : 80); ++round) {
    StepKeys keys;
    keys.keys = batch_of(random, 9000, 400000);
    keys.gradients = gradients_of(random, keys.keys.size() * plain.width());
    const auto next = batch_of(random, 9000, 400000);
    step(plain, keys);
    const rlimit small{size_t{1} << 20, before.rlim_max};
    // Until a step fails: when the log writes depends on its thread.
    if (round % 4 == 1) REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
    for (bool done = false; !done;) {
      // Forward may have brought rows in; a step that failed is done again, as a user would.
      const Code code = error_code([&] {
        tiered.prefetch(next.data(), next.size());
        step(tiered, keys);
      });
      done = code == Code::kOk;
      if (done) break;
      ++failures;
      REQUIRE(code == Code::kResourceExhausted);
      REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
    }
  }
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, old_action);
  CHECK(failures > 0);
  (void)error_code([&] { tiered.wait_for_prefetch(); });
  (void)error_code([&] { (void)exported(tiered, 1000); });
  check_same(plain, tiered);
}

TEST_CASE("tiers: lines on disk need a device tier and a directory") {
  Case c;
  c.disk = "/nowhere/at/all";
  CHECK(error_code([&] { Table("t", options_of(c, true), 1, false); }) == Code::kNotFound);
  c.cache_rows = 0;
  CHECK(error_code([&] { Table("t", options_of(c, true), 1, false); }) == Code::kInvalidArgument);
}

TEST_CASE("tiers: a snapshot has the rows of its moment, and increments those written since") {
  const TemporaryDirectory directory;
  Case c;
  SUBCASE("lines in memory") {}
  SUBCASE("lines on disk") { c.disk = directory / ""; }
  c.cache_rows = 1500;
  Table plain("t", options_of(c, false), 1, false), tiered("t", options_of(c, true), 1, false);
  std::mt19937_64 random(5);
  for (int round = 0; round < 5; ++round) {
    std::vector<std::pair<std::vector<int64_t>, std::vector<float>>> steps;
    for (int i = 0; i < 4; ++i) {
      auto keys = batch_of(random, 3000, 20000);
      auto gradients = gradients_of(random, keys.size() * plain.width());
      steps.emplace_back(std::move(keys), std::move(gradients));
    }
    const auto run = [&](Table& table) {
      for (int i = 0; i < 2; ++i) {
        look_up(table, steps[i].first, true);
        update(table, steps[i].first, steps[i].second);
      }
      // Opened between a forward pass and its backward pass, and read while training goes on.
      const LayerCall call = call_of(table, steps[2].first);
      std::vector<float> rows(steps[2].first.size() * table.width());
      BackwardOptions options;
      options.what = Backward::kUpdate;
      options.ticket = forward(call, true, {rows.data()}, nullptr);
      auto snapshot = table.open_snapshot(round > 0 ? Since::kCheckpoint : Since::kAll);
      backward(call, {steps[2].second.data()}, options);
      Rows read = read_all(table, *snapshot, 500);
      look_up(table, steps[3].first, true);
      update(table, steps[3].first, steps[3].second);
      Rows rest = read_all(table, *snapshot, 500);
      read.insert(read.end(), rest.begin(), rest.end());
      snapshot->close(true);
      return sorted(read);
    };
    const Rows expected = run(plain);
    REQUIRE(!expected.empty());
    REQUIRE(run(tiered) == expected);
    check_same(plain, tiered);
  }
}

}  // namespace hotrow
