// Tables with their device tier on a GPU give the same results as tables without one, bit for bit.
#include "core/gpu/step/layer.h"

#include <doctest/doctest.h>

#include <memory>
#include <random>
#include <vector>

#include "tests/error_code.h"
#include "tests/gpu/layer_sides.h"

namespace hotrow {
namespace {

void check_case(const std::vector<Kind>& kinds, size_t threads = 1, int steps = 14) {
  if (kLess) steps /= 2;
  ManyThreads pool(threads);
  const Executor executor = threads > 1 ? pool.executor() : Executor();
  const Stream streams[2];
  Tables plain(kinds, false), tiered(kinds, true);
  std::mt19937_64 random(kinds[0].cache_rows + threads);
  std::vector<float> rates(kinds.size());
  for (int step = 0; step < steps; ++step) {
    CAPTURE(step);
    const size_t samples = step % 5 == 4 ? 3 : 150 * kScale + random() % 100;
    const std::vector<Input> inputs = spoiled(random, inputs_of(random, plain, samples));
    const std::vector<Input> others = spoiled(random, inputs_of(random, plain, 40));
    // Either stream; only the tables order work between the two.
    const Stream &one = streams[random() % 2], &two = streams[random() % 2];
    HostSide host(plain, inputs, executor), other_host(plain, others, executor);
    DeviceSide device(tiered, inputs, executor, one), other(tiered, others, executor, two);
    for (float& rate : rates) rate = 0.01f + 0.001f * static_cast<float>(random() % 7);
    const auto both = [&](auto&& act) {
      act(host, other_host);
      act(device, other);
    };
    switch (step % 4) {
      case 0:
      case 1:
        both([&](auto& side, auto&) {
          BackwardOptions options = now(side.forward(true));
          options.learning_rates = rates.data();
          side.backward(options);
        });
        break;
      case 2:  // two passes before their backward passes: the second moves rows, or shares them
        both([&](auto& side, auto& next) {
          const int64_t first = side.forward(true), second = next.forward(true);
          side.backward(now(first));
          next.backward(now(second));
        });
        break;
      default:  // without a forward pass; then all rows are read in between
        both([&](auto& side, auto& next) {
          side.backward(now(0));
          const int64_t ticket = next.forward(true);
          const Tables& tables = static_cast<const void*>(&side) == &host ? plain : tiered;
          for (Table* table : tables.all) (void)exported(*table, 1000);
          next.backward(now(ticket));
        });
    }
    if (step % 4 != 3) {
      REQUIRE(same_bits(host.outputs(), device.outputs()));
      REQUIRE(host.missing == device.missing);
    }
    both([&](auto&, auto& next) { next.forward(false); });
    REQUIRE(same_bits(other_host.outputs(), other.outputs()));
    REQUIRE(other_host.missing == other.missing);
    if (step % 5 == 4) check_same(plain, tiered);
  }
  check_same(plain, tiered);
  for (size_t t = 0; t < kinds.size(); ++t) {
    const Table::Statistics s = tiered.all[t]->statistics();
    CHECK(s.cache_slots >= kinds[t].cache_rows);
    CHECK(s.cache.hits + s.cache.misses > 0);
    CHECK(s.cache.hits <= s.cache.hit_lookups);
    CHECK(s.bytes > s.cache_slots * (sizeof(RowHeader) + tiered.all[t]->line_bytes()));
  }
}

constexpr OptimizerKind kAllKinds[] = {OptimizerKind::kSgd,     OptimizerKind::kMomentum,
                                       OptimizerKind::kAdagrad, OptimizerKind::kRowwiseAdagrad,
                                       OptimizerKind::kAdam,    OptimizerKind::kFtrl};

}  // namespace

TEST_CASE("device layer: every optimizer and size of cache gives the table without one") {
  for (const OptimizerKind optimizer : kAllKinds) {
    for (const size_t rows : {size_t{1}, size_t{200}, size_t{6000}}) {
      if (kLess && rows != (optimizer == OptimizerKind::kAdam ? 1 : 200)) continue;
      CAPTURE(static_cast<int>(optimizer));
      CAPTURE(rows);
      Kind kind;
      kind.optimizer = optimizer;
      kind.cache_rows = rows;
      check_case({kind});
    }
  }
}

TEST_CASE("device layer: several tables of different widths, types and optimizers") {
  for (const size_t threads : {size_t{1}, size_t{3}}) {
    for (const size_t rows : {size_t{1}, size_t{300}, size_t{6000}}) {
      if (kLess && rows != (threads == 1 ? 1 : 300)) continue;
      CAPTURE(rows);
      CAPTURE(threads);
      std::vector<Kind> kinds(4);
      for (size_t t = 0; t < kinds.size(); ++t) {
        kinds[t].width = std::vector<size_t>{16, 3, 33, 8}[t];
        kinds[t].optimizer = kAllKinds[(t * 4 + rows) % 6];
        kinds[t].cache_rows = rows;
        kinds[t].shards = t % 2 == 0 ? 1 : 3;
        kinds[t].policy = t < 2 ? CachePolicy::kLfu : CachePolicy::kLru;
        kinds[t].type = t == 2 ? RowType::kBfloat16 : RowType::kFloat32;
      }
      check_case(kinds, threads);
    }
  }
}

TEST_CASE("device layer: admission and expiry") {
  for (const size_t rows : {size_t{1}, size_t{300}, size_t{6000}}) {
    if (kLess && rows != 300) continue;
    CAPTURE(rows);
    std::vector<Kind> kinds(2);
    kinds[0].expiry = true;
    kinds[0].cache_rows = rows;
    kinds[1].cache_rows = rows;
    kinds[1].width = 7;
    kinds[1].admission = true;
    check_case(kinds, 1, 25);
    kinds[1].expiry = true;
    kinds[0].admission = true;
    kinds[0].type = RowType::kFloat16;
    check_case(kinds, 3, 25);
  }
}

TEST_CASE("device layer: a snapshot has the rows of its moment, and increments those since") {
  const Stream stream;
  Kind kind;
  kind.cache_rows = 200;
  const std::vector<Kind> kinds(2, kind);
  Tables plain(kinds, false), tiered(kinds, true);
  std::mt19937_64 random(5);
  const Executor executor;
  for (int round = 0; round < 5; ++round) {
    std::vector<std::vector<Input>> inputs;
    for (int i = 0; i < 3; ++i) inputs.push_back(inputs_of(random, plain, 200));
    const auto run = [&](Table& table, auto& first, auto& second, auto& third) {
      first.backward(now(first.forward(true)));
      // Opened between a forward pass and its backward pass, and read while training goes on.
      const int64_t ticket = second.forward(true);
      auto snapshot = table.open_snapshot(round > 0 ? Since::kCheckpoint : Since::kAll);
      second.backward(now(ticket));
      Rows read = read_all(table, *snapshot, 100);
      third.backward(now(third.forward(true)));
      (void)digest_of(table);
      const Rows rest = read_all(table, *snapshot, 100);
      read.insert(read.end(), rest.begin(), rest.end());
      snapshot->close(true);
      return sorted(read);
    };
    HostSide a(plain, inputs[0], executor), b(plain, inputs[1], executor);
    HostSide c(plain, inputs[2], executor);
    const Rows expected = run(*plain.all[0], a, b, c);
    REQUIRE(!expected.empty());
    DeviceSide d(tiered, inputs[0], executor, stream), e(tiered, inputs[1], executor, stream);
    DeviceSide f(tiered, inputs[2], executor, stream);
    REQUIRE(run(*tiered.all[0], d, e, f) == expected);
    check_same(plain, tiered);
  }
}

TEST_CASE("device layer: snapshots for publishing and for checkpoints are open side by side") {
  const Stream stream;
  Kind kind;
  kind.cache_rows = 200;
  kind.expiry = true;
  const std::vector<Kind> kinds(2, kind);
  Tables plain(kinds, false), tiered(kinds, true);
  for (const Tables* tables : {&plain, &tiered}) {
    for (Table* table : tables->all) table->keep_tombstones();
  }
  std::mt19937_64 random(8);
  const Executor executor;
  for (int round = 0; round < 6; ++round) {
    CAPTURE(round);
    std::vector<std::vector<Input>> inputs;
    for (int i = 0; i < 3; ++i) inputs.push_back(inputs_of(random, plain, 200));
    std::vector<int64_t> removed[2];
    const auto run = [&](Table& table, auto& first, auto& second, auto& third,
                         std::vector<int64_t>* gone) {
      first.backward(now(first.forward(true)));
      // Marks begin, and snapshots are opened, between a forward pass and its backward pass.
      int64_t ticket = second.forward(true);
      if (round % 3 == 0) table.begin_publishing(table.step() - table.step() / 3);
      second.backward(now(ticket));
      ticket = third.forward(true);
      auto publish = table.open_snapshot(Since::kPublish);
      *gone = publish->removed();
      Rows rows[2] = {read_all(table, *publish, 100), {}};
      auto checkpoint = table.open_snapshot(round > 0 ? Since::kCheckpoint : Since::kAll);
      third.backward(now(ticket));
      Snapshot* const both[] = {publish.get(), checkpoint.get()};
      for (size_t i = 0; i < 2; ++i) {
        const Rows rest = read_all(table, *both[i], 100);
        rows[i].insert(rows[i].end(), rest.begin(), rest.end());
      }
      // Not kept: the next one has its rows, too.
      publish->close(round % 2 == 0);
      checkpoint->close(true);
      Rows all = sorted(rows[0]);
      const Rows more = sorted(rows[1]);
      all.insert(all.end(), more.begin(), more.end());
      return all;
    };
    HostSide a(plain, inputs[0], executor), b(plain, inputs[1], executor);
    HostSide c(plain, inputs[2], executor);
    const Rows expected = run(*plain.all[0], a, b, c, &removed[0]);
    REQUIRE(!expected.empty());
    DeviceSide d(tiered, inputs[0], executor, stream), e(tiered, inputs[1], executor, stream);
    DeviceSide f(tiered, inputs[2], executor, stream);
    REQUIRE(run(*tiered.all[0], d, e, f, &removed[1]) == expected);
    REQUIRE(removed[0] == removed[1]);
    check_same(plain, tiered);
  }
}

TEST_CASE("device layer: rows are removed, imported and cleared under passes that go on") {
  const Stream stream;
  Kind kind;
  kind.cache_rows = 300;
  Tables plain({kind}, false), tiered({kind}, true);
  std::mt19937_64 random(6);
  const Executor executor;
  for (int round = 0; round < 6; ++round) {
    CAPTURE(round);
    const std::vector<Input> inputs = inputs_of(random, plain, 200);
    HostSide host(plain, inputs, executor);
    DeviceSide device(tiered, inputs, executor, stream);
    const auto run = [&](Table& table, auto& side) {
      const int64_t ticket = side.forward(true);
      if (round % 3 == 0) table.remove_rows(inputs[0].keys.data(), 20);
      if (round % 3 == 1) import_all(table, sorted(exported(table)), true);
      if (round == 5) table.clear();
      side.backward(now(ticket));
    };
    run(*plain.all[0], host);
    run(*tiered.all[0], device);
    check_same(plain, tiered);
  }
  // The CPU reads rows that are on the device.
  const std::vector<int64_t> keys = {-7, -6, -5, 1, 100, 1000, 4000};
  CHECK(look_up(*plain.all[0], keys, false) == look_up(*tiered.all[0], keys, false));
}

TEST_CASE("device layer: two layers share a table, and a step's commit checks") {
  const Stream one, two;
  Kind kind;
  kind.cache_rows = 150;
  const std::vector<Kind> kinds(3, kind);
  Tables plain(kinds, false), tiered(kinds, true);
  const auto some = [](const Tables& from, size_t a, size_t b) {
    Tables tables({}, false);
    tables.all = {from.all[a], from.all[b]};
    return tables;
  };
  std::mt19937_64 random(8);
  const Executor executor;
  for (int step = 0; step < 12; ++step) {
    const std::vector<Input> inputs = inputs_of(random, some(plain, 0, 1), 150);
    const std::vector<Input> others = inputs_of(random, some(plain, 2, 1), 150);
    HostSide a(some(plain, 0, 1), inputs, executor), b(some(plain, 2, 1), others, executor);
    DeviceSide c(some(tiered, 0, 1), inputs, executor, one);
    DeviceSide d(some(tiered, 2, 1), others, executor, two);
    const auto run = [&](const Tables& tables, auto& first, auto& second, auto&& end) {
      first.backward(now(first.forward(true)));
      BackwardOptions options;
      options.what = Backward::kCommit;
      options.ticket = second.forward(true);
      options.slot = tables.all[2]->passes.next_slot();
      second.backward(options);
      std::vector<float> commit_token(GradientPasses::kSlots, 0.0f);
      commit_token[options.slot] = GradientPasses::kUnit;
      end(std::vector<Table*>{tables.all[2], tables.all[1]}, commit_token.data());
    };
    run(plain, a, b, [&](const std::vector<Table*>& tables, const float* commit_token) {
      commit(tables, commit_token, nullptr, 0.0f, executor);
    });
    run(tiered, c, d, [&](const std::vector<Table*>& tables, const float* commit_token) {
      device_commit(tables, commit_token, nullptr, 0.0f, executor, two.get());
    });
    REQUIRE(same_bits(b.outputs(), d.outputs()));
    if (step % 4 == 3) check_same(plain, tiered);
  }
  check_same(plain, tiered);
}

TEST_CASE("device layer: layers that share tables in turn, until the first table of one is gone") {
  const Stream streams[2];
  Kind kind;
  kind.cache_rows = 100;
  Tables plain(std::vector<Kind>(4, kind), false), tiered(std::vector<Kind>(4, kind), true);
  const Executor executor;
  std::mt19937_64 random(13);
  const std::vector<std::vector<size_t>> layers = {{0, 1}, {0, 2}, {3, 0}, {1, 2}, {2, 1}};
  const auto train = [&](const std::vector<size_t>& layer) {
    Tables here({}, false), there({}, false);
    for (const size_t t : layer) {
      here.all.push_back(plain.all[t]);
      there.all.push_back(tiered.all[t]);
    }
    const std::vector<Input> inputs = inputs_of(random, here, 120, 600);
    HostSide host(here, inputs, executor);
    DeviceSide device(there, inputs, executor, streams[random() % 2]);
    host.backward(now(host.forward(true)));
    device.backward(now(device.forward(true)));
    REQUIRE(same_bits(host.outputs(), device.outputs()));
  };
  for (int step = 0; step < 40; ++step) train(layers[random() % layers.size()]);
  check_same(plain, tiered);
  train(layers[0]);
  for (Tables* tables : {&plain, &tiered}) {
    tables->owned.erase(tables->owned.begin());
    tables->all.erase(tables->all.begin());
  }
  for (int step = 0; step < 5; ++step) train(layers[step % 2 * 2]);
  check_same(plain, tiered);
}

TEST_CASE("device layer: what cannot be is refused by name, and changes nothing") {
  const Stream stream;
  const Executor executor;
  std::mt19937_64 random(9);
  Kind kind;
  Tables plain({kind}, false), tiered({kind}, true);
  std::vector<Input> inputs = inputs_of(random, plain, 50);
  const auto code = [&](auto&& act) { return error_code(act); };
  {
    DeviceSide device(tiered, inputs, executor, stream);
    DeviceSide in_memory(plain, inputs, executor, stream);
    CHECK(code([&] { in_memory.forward(true); }) == Code::kFailedPrecondition);
    HostSide host(tiered, inputs, executor);
    CHECK(code([&] { host.forward(true); }) == Code::kFailedPrecondition);
    CHECK(code([&] { host.backward(now(0)); }) == Code::kFailedPrecondition);
    const std::vector<float> commit_token(GradientPasses::kSlots, 0.0f);
    CHECK(code([&] { commit(tiered.all, commit_token.data(), nullptr, 0.0f, executor); }) ==
          Code::kFailedPrecondition);
    CHECK(code([&] {
            device_commit(plain.all, commit_token.data(), nullptr, 0.0f, executor, stream.get());
          }) == Code::kFailedPrecondition);
  }
  CHECK(tiered.all[0]->size() == 0);
  Input ragged;
  ragged.combiner = Combiner::kSum;
  ragged.keys = {1, 2, 3, 4};
  ragged.samples = 2;
  ragged.gradients.assign(2 * kind.width, 1.0f);
  for (const std::vector<int64_t>& splits :
       {std::vector<int64_t>{0, 5, 4}, {1, 2, 4}, {0, 2, 3}, {0, -1, 4}}) {
    ragged.splits = splits;
    DeviceSide device(tiered, {inputs[0], ragged}, executor, stream);
    CHECK(code([&] { device.forward(true); }) == Code::kInvalidArgument);
  }
  CHECK(tiered.all[0]->size() == 0);
  TableOptions options = options_of(kind, true);
  options.vocabulary_size = 10;
  Tables bounded({}, false);
  bounded.owned.push_back(std::make_unique<Table>("b", options, 1, false));
  bounded.all = {bounded.owned[0].get()};
  for (const int64_t key : {int64_t{10}, int64_t{-1}}) {
    Input input;
    input.keys = {3, 9, 0, key, 9};
    input.gradients.assign(5 * kind.width, 1.0f);
    DeviceSide device(bounded, {input}, executor, stream);
    CHECK(code([&] { device.forward(true); }) == Code::kOutOfRange);
    CHECK(bounded.all[0]->size() == 0);
  }
  Input input;
  input.keys = {3, 9, 0, 9};
  input.gradients.assign(4 * kind.width, 1.0f);
  DeviceSide good(bounded, {input}, executor, stream);
  good.backward(now(good.forward(true)));
  CHECK(bounded.all[0]->size() == 3);
  options.disk = ".";
  CHECK(code([&] { Table("t", options, 1, false); }) == Code::kInvalidArgument);
}

TEST_CASE("device layer: a batch without keys") {
  const Stream stream;
  const Executor executor;
  const std::vector<Kind> kinds(2);
  Tables plain(kinds, false), tiered(kinds, true);
  std::mt19937_64 random(10);
  std::vector<Input> inputs = inputs_of(random, plain, 30);
  for (const bool all : {true, false}) {
    std::vector<Input> some = inputs;
    some[0].keys.clear();
    some[0].gradients.clear();
    some[0].splits.clear();
    some[0].weights.clear();
    some[0].combiner = Combiner::kNone;
    if (all) some.resize(1);
    HostSide host(plain, some, executor);
    DeviceSide device(tiered, some, executor, stream);
    host.backward(now(host.forward(true)));
    device.backward(now(device.forward(true)));
    REQUIRE(same_bits(host.outputs(), device.outputs()));
    check_same(plain, tiered);
  }
}

TEST_CASE("device layer: features that are plain, pooled or empty, many of a table, in any order") {
  const Stream stream;
  const Executor executor;
  Kind kind;
  kind.cache_rows = 500;
  const std::vector<Kind> kinds(4, kind);
  Tables plain(kinds, false), tiered(kinds, true);
  std::mt19937_64 random(15);
  for (int step = 0; step < 12; ++step) {
    std::vector<Input> inputs;
    // The third table has no feature.
    for (size_t f = 0; f < 12; ++f) {
      const size_t table = random() % 3;
      const size_t samples = random() % 4 == 0 ? 0 : 1 + random() % 50;
      Input input = input_of(random, plain, table == 2 ? 3 : table, samples, 400, nullptr);
      // In some steps, all are plain, or none is.
      while (step % 4 < 2 && (input.combiner == Combiner::kNone) != (step % 4 == 0)) {
        input = input_of(random, plain, input.table, samples, 400, nullptr);
      }
      inputs.push_back(std::move(input));
    }
    HostSide host(plain, inputs, executor);
    DeviceSide device(tiered, inputs, executor, stream);
    host.backward(now(host.forward(true)));
    device.backward(now(device.forward(true)));
    REQUIRE(same_bits(host.outputs(), device.outputs()));
    check_same(plain, tiered);
  }
}

#if defined(HOTROW_SIMT)
TEST_CASE("device layer: a step takes no memory once it has seen such batches") {
  const Stream stream;
  Kind kind;
  kind.cache_rows = 300;
  Tables tiered({kind, kind}, true);
  std::mt19937_64 random(12);
  size_t before = 0;
  for (int step = 0; step < 30; ++step) {
    const std::vector<Input> inputs = inputs_of(random, tiered, step < 15 ? 300 : 150);
    DeviceSide device(tiered, inputs, Executor(), stream);
    const size_t own = simt::allocations();
    device.backward(now(device.forward(true)));
    if (step >= 15) before += simt::allocations() - own;
  }
  CHECK(before == 0);
}
#endif

}  // namespace hotrow
