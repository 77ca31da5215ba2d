// Prefetching and warm-up of tables on a GPU: three known hazards (FBGEMM #1883, #1893), and other
// cases. Rows equal those of a table without a device tier, bit for bit.
#include "core/gpu/step/prefetch.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "core/gpu/step/tier.h"
#include "tests/error_code.h"
#include "tests/gpu/prefetched_pair.h"

namespace hotrow {

TEST_CASE("device prefetching, hazard 1: a row that a window needs is not evicted before") {
  // Of 512 slots, 200 are the window's. Many other keys come and are used often.
  Pair pair(kind_of(512));
  const auto wanted = range(0, 200), others = range(1000, 2000);
  for (const auto& keys : {wanted, others, others}) pair.train(keys);
  ahead_and_wait(pair.table(), wanted);
  pair.train(others);
  const CacheCounts counts = pair.measure(wanted);
  CHECK(counts.hits >= 198);
  CHECK(counts.hits + counts.misses == 200);
  pair.check();
}

TEST_CASE("device prefetching, hazard 1: the rows of a running pass are evicted without harm") {
  Pair pair(kind_of(512));
  const auto keys = range(0, 400), others = range(1000, 1500);
  pair.train(others);
  pair.train(keys, [&] {
    const uint64_t evicted = counts_of(pair.table()).evicted;
    ahead_and_wait(pair.table(), others);
    REQUIRE(counts_of(pair.table()).evicted > evicted);
  });
  pair.check();
}

TEST_CASE("device prefetching, hazard 2: a row written back a moment ago is fetched as it is") {
  // Three parts, of which two fit: each evicts another, which is dirty; few pauses.
  for (const size_t piece_bytes : {size_t{3000}, size_t{1} << 20}) {
    Kind kind = kind_of(512);
    kind.piece_bytes = piece_bytes;
    Pair pair(kind);
    const std::vector<std::vector<int64_t>> parts = {range(0, 250), range(1000, 250),
                                                     range(2000, 250)};
    const int rounds = kLess ? 4 : 20;
    for (int round = 1; round <= rounds; ++round) {
      for (size_t i = 0; i < 3; ++i) {
        ahead(pair.table(), parts[(i + 1) % 3]);
        if (round % 2 == 0) pair.table().wait_for_prefetch();
        pair.train(parts[i]);
      }
      if (round % 4 == 0) pair.check();
    }
    CHECK(counts_of(pair.table()).prefetched > static_cast<size_t>(rounds) * 100);
    CHECK(counts_of(pair.table()).written_back > static_cast<size_t>(rounds) * 100);
  }
}

TEST_CASE(
    "device prefetching, hazard 3: a row missed by a forward pass, in a slot before backward") {
  // The pass works on rows beside the cache, which is full of hotter ones.
  Pair pair(kind_of(512));
  const auto hot = range(0, 1500), keys = range(5000, 300);
  for (int i = 0; i < 3; ++i) pair.train(hot);
  pair.train(keys);
  for (int i = 0; i < 3; ++i) pair.train(hot);
  const CacheCounts before = counts_of(pair.table());
  pair.train(keys, [&] {
    // Most do not beat the hot ones.
    REQUIRE(counts_of(pair.table()).inserted - before.inserted <= 150);
    ahead_and_wait(pair.table(), keys);
    REQUIRE(counts_of(pair.table()).prefetched >= 150);
  });
  pair.check();
  CHECK(pair.measure(keys).hits >= 290);
  pair.check();
}

TEST_CASE("device prefetching: a batch of a window finds its rows in slots, and the host idle") {
  Pair pair(kind_of(2000));
  const auto keys = range(0, 500);
  pair.train(range(0, 6000));
  pair.train(range(0, 6000));
  ahead_and_wait(pair.table(), keys);
#if defined(HOTROW_SIMT)
  // No thread waits for lines on their way.
  CHECK(simt::waiting() > 0);
#endif
  const CacheCounts counts = pair.measure(keys);
  CHECK(counts.hits == 500);
  CHECK(counts.misses == 0);
  CHECK(counts.inserted == 0);
  pair.check();
}

TEST_CASE("device prefetching: keys without a row are left to the step") {
  Pair pair(kind_of(512));
  ahead_and_wait(pair.table(), range(0, 100));
  CHECK(pair.table().size() == 0);
  CHECK(counts_of(pair.table()).prefetched == 0);
  pair.train(range(50, 100));
  pair.check();
}

TEST_CASE("device prefetching: a window larger than the cache, one without keys, many that wait") {
  Pair pair(kind_of(1));
  const auto keys = range(0, 3000);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 6; ++i) ahead(pair.table(), keys);
    ahead(pair.table(), {});
    pair.train(keys);
  }
  pair.table().wait_for_prefetch();
  pair.check();
  const CacheCounts before = counts_of(pair.table());
  ahead_and_wait(pair.table(), range(1000, 1000));
  CHECK(counts_of(pair.table()).prefetched - before.prefetched <=
        pair.table().statistics().cache_slots);
}

TEST_CASE("device prefetching: rows come in clean, with a pin for each window that has them") {
  Kind kind = kind_of(2000);
  kind.piece_bytes = 1000;  // many pieces
  Pair pair(kind);
  // Slots by the number of their pins, and how many are dirty.
  struct Slots {
    size_t pinned[4] = {};
    size_t dirty = 0;
  };
  const auto look = [&] {
    GpuTier& tier = *gpu_tier_of(pair.table());
    tier.begin(pair.stream.get());
    std::vector<DeviceSet> sets(tier.cache().set_count);
    must(cudaMemcpyAsync(sets.data(), tier.cache().sets, sets.size() * sizeof(DeviceSet),
                         cudaMemcpyDefault, pair.stream.get()));
    pair.stream.wait();
    Slots slots;
    for (const DeviceSet& set : sets) {
      for (uint32_t way = 0; way < kDeviceWays; ++way) {
        if (set.tags[way] == 0) continue;
        ++slots.pinned[std::min(set.states[way] & 0x7f, 3)];
        slots.dirty += (set.states[way] & 0x80) != 0 ? 1 : 0;
      }
    }
    return slots;
  };
  pair.train(range(0, 4000));
  const int64_t absent = 9999;
  for (const Tables* tables : {&pair.plain, &pair.tiered}) tables->all[0]->remove_rows(&absent, 1);
  ahead_and_wait(pair.table(), range(0, 300));
  ahead_and_wait(pair.table(), range(200, 300));
  pair.train(range(0, 50));
  CHECK(look().dirty == 50);
  pair.check();  // writes rows back, and leaves them pinned
  CHECK(look().dirty == 0);
  CHECK(look().pinned[0] == 0);
  CHECK(look().pinned[1] == 400);
  CHECK(look().pinned[2] == 100);
  for (const size_t kept : {300, 0}) {
    ahead_and_wait(pair.table(), {});
    CHECK(look().pinned[0] == 500 - kept);
    CHECK(look().pinned[1] == kept);
  }
}

TEST_CASE("device prefetching: the pins of windows before last are given back") {
  Pair pair(kind_of(512));
  pair.train(range(0, 3000));
  // Two windows of 300 rows would fill the 512 slots if all windows stayed pinned.
  for (int64_t w = 0; w < 6; ++w) {
    CAPTURE(w);
    ahead_and_wait(pair.table(), range(w * 300, 1));  // the window before the last is released
    ahead_and_wait(pair.table(), range(w * 300, 300));
    CHECK(pair.measure(range(w * 300, 300)).hits >= 290);
  }
  pair.check();
}

TEST_CASE("device prefetching: a row of two windows stays until both are gone") {
  Pair pair(kind_of(32, CachePolicy::kLru));
  const auto keys = range(0, 20), others = range(100, 200);
  pair.train(keys);
  pair.train(others);
  for (int i = 0; i < 2; ++i) ahead_and_wait(pair.table(), keys);
  ahead_and_wait(pair.table(), {});
  pair.train(others);
  CHECK(pair.measure(keys).hits == 20);
  for (int i = 0; i < 2; ++i) ahead_and_wait(pair.table(), {});
  pair.train(others);
  CHECK(pair.measure(keys).hits == 0);
  pair.check();
}

TEST_CASE("device prefetching: the slot of a row that expired is no window's any more") {
  // A window pins 32 rows in all 32 slots; they expire, and others take their slots, for the next
  // window. When the first window is released, the second's pins stay.
  Kind kind = kind_of(32, CachePolicy::kLru);
  kind.expiry = true;
  Pair pair(kind);
  const auto first = range(0, 32), second = range(200, 32), none = range(100, 1);
  for (int i = 0; i < 3; ++i) pair.train(first);
  ahead_and_wait(pair.table(), first);
  const auto expired = [&] { return pair.table().statistics().expired; };
  for (int i = 0; i < 40 && expired() < 32; ++i) pair.train(none);
  REQUIRE(expired() == 32);
  pair.train(second);
  ahead_and_wait(pair.table(), second);
  ahead_and_wait(pair.table(), {});
  pair.train(range(1000, 100));
  CHECK(pair.measure(second).hits == 32);
  pair.check();
}

TEST_CASE("device prefetching: where all slots are freed, windows hold none of them") {
  Pair pair(kind_of(32, CachePolicy::kLru));
  const auto first = range(0, 32), second = range(200, 32);
  const int64_t other = 100;
  pair.train(first);
  ahead_and_wait(pair.table(), first);
  for (const Tables* tables : {&pair.plain, &pair.tiered}) tables->all[0]->remove_rows(&other, 1);
  pair.train(second);
  ahead_and_wait(pair.table(), second);
  ahead_and_wait(pair.table(), {});
  pair.train(range(1000, 100));
  CHECK(pair.measure(second).hits == 32);
  pair.check();
}

TEST_CASE("device prefetching: removing, clearing, importing, exporting and snapshots beside it") {
  Pair pair(kind_of(1000));
  Table &plain = *pair.plain.all[0], &table = pair.table();
  std::mt19937_64 random(3);
  const auto keys = range(0, 1500);
  for (int round = 0; round < (kLess ? 10 : 30); ++round) {
    CAPTURE(round);
    const auto some = range(static_cast<int64_t>(random() % 1000), 400);
    ahead(table, some);
    ahead(table, keys);
    const auto both = [&](auto&& act) {
      act(plain);
      act(table);
    };
    switch (round % 5) {
      case 0:
        both([&](Table& t) { t.remove_rows(some.data(), some.size()); });
        break;
      case 1:
        pair.check();
        break;
      case 2: {
        const Rows rows = exported(plain, 500);
        REQUIRE(exported(table, 500) == rows);
        both([&](Table& t) { import_all(t, rows, true); });
        break;
      }
      case 3:
        if (round % 10 == 3) both([](Table& t) { t.clear(); });
        break;
      default: {
        // Read while windows evict rows that steps have changed since.
        const Rows expected = sorted(exported(plain, 300));
        auto snapshot = table.open_snapshot(Since::kAll);
        pair.train(some);
        ahead(table, range(1500 - 400, 400));
        Rows read = read_all(table, *snapshot, 300);
        REQUIRE(sorted(read) == expected);
        snapshot->close(true);
      }
    }
    pair.train(keys);
    pair.train(some);
  }
  pair.check();
}

namespace {

// Steps over windows of `batches`, as a training loop prefetches them.
void check_windows(const std::vector<Kind>& kinds, size_t batches, size_t threads = 1) {
  ManyThreads pool(threads);
  const Executor executor = threads > 1 ? pool.executor() : Executor();
  const Stream streams[2];
  Tables plain(kinds, false), tiered(kinds, true);
  std::mt19937_64 random(batches + kinds[0].cache_rows);
  const size_t steps = kLess ? 8 : 24;
  std::vector<std::vector<Input>> all;
  for (size_t i = 0; i < steps; ++i) {
    all.push_back(spoiled(random, inputs_of(random, plain, i % 5 == 4 ? 3 : 150, 2000)));
  }
  const auto hand_over = [&](size_t window) {
    for (size_t t = 0; t < kinds.size(); ++t) {
      std::vector<int64_t> keys;
      for (size_t i = window * batches; i < std::min(steps, (window + 1) * batches); ++i) {
        for (const Input& input : all[i]) {
          if (input.table == t) keys.insert(keys.end(), input.keys.begin(), input.keys.end());
        }
      }
      ahead(*tiered.all[t], keys);
    }
  };
  hand_over(0);
  for (size_t step = 0; step < steps; ++step) {
    CAPTURE(step);
    if (step % batches == 0) hand_over(step / batches + 1);
    if (random() % 4 == 0) {
      for (Table* table : tiered.all) table->wait_for_prefetch();
    }
    HostSide host(plain, all[step], executor);
    const Stream& stream = streams[random() % 2];
    DeviceSide device(tiered, all[step], executor, stream);
    const bool again = random() % 4 == 0;  // a backward pass that looks its rows up
    const bool waits = step % 4 == 2;      // gradients wait while windows come in
    const auto run = [&](const Tables& tables, auto& side, auto&& apply) {
      BackwardOptions options = now(side.forward(true));
      if (again) options.ticket = 0;
      if (!waits) return side.backward(options);
      options.what = Backward::kAccumulate;
      options.slot = tables.all[0]->passes.next_slot();
      side.backward(options);
      std::vector<float> commit_token(GradientPasses::kSlots, 0.0f);
      commit_token[options.slot] = GradientPasses::kUnit;
      apply(commit_token.data());
    };
    run(plain, host, [&](const float* commit_token) {
      commit(plain.all, commit_token, nullptr, 0.0f, executor);
    });
    run(tiered, device, [&](const float* commit_token) {
      for (Table* table : tiered.all) table->wait_for_prefetch();
      device_commit(tiered.all, commit_token, nullptr, 0.0f, executor, stream.get());
    });
    REQUIRE(same_bits(host.outputs(), device.outputs()));
    REQUIRE(host.missing == device.missing);
    if (step % 6 == 5) check_same(plain, tiered);
  }
  check_same(plain, tiered);
}

}  // namespace

TEST_CASE("device prefetching: windows of one batch and of eight give the table without a cache") {
  for (const size_t batches : {size_t{1}, size_t{8}}) {
    for (const size_t rows : {size_t{1}, size_t{300}, size_t{6000}}) {
      if (kLess && rows == 6000) continue;
      CAPTURE(batches);
      CAPTURE(rows);
      std::vector<Kind> kinds(2);
      kinds[0].cache_rows = kinds[1].cache_rows = rows;
      kinds[0].optimizer = OptimizerKind::kAdam;
      kinds[1].width = 16;
      kinds[1].shards = 3;
      kinds[1].policy = CachePolicy::kLru;
      kinds[1].piece_bytes = batches == 1 ? 1 : 100000;
      check_windows(kinds, batches, rows == 300 ? 3 : 1);
    }
  }
}

TEST_CASE("device prefetching: admission, expiry and 16-bit rows between windows") {
  for (const size_t rows : {size_t{1}, size_t{300}, size_t{6000}}) {
    if (kLess && rows != 300) continue;
    CAPTURE(rows);
    std::vector<Kind> kinds(2);
    kinds[0].expiry = kinds[1].expiry = true;
    kinds[0].cache_rows = kinds[1].cache_rows = rows;
    kinds[0].type = RowType::kBfloat16;
    kinds[1].admission = true;
    kinds[1].width = 7;
    check_windows(kinds, 1);
    check_windows(kinds, 3, 3);
  }
}

TEST_CASE("device warm-up: the most frequent rows of a sample come in, and stay") {
  Pair pair(kind_of(1024));
  const auto all = range(0, 6000), hot = range(4000, 600);
  for (int i = 0; i < 2; ++i) pair.train(all);
  std::vector<uint32_t> counts(all.size(), 1);
  for (int64_t key : hot) counts[static_cast<size_t>(key)] = 100;
  const size_t warmed = pair.table().warm_up(all.data(), counts.data(), all.size(), 0.7);
  // Some of the 600 rows were in the cache before.
  CHECK(warmed >= 400);
  CHECK(warmed <= 717);
  for (int round = 0; round < 2; ++round) {
    CHECK(pair.measure(hot).hits >= 590);
    pair.train(all);
  }
  pair.check();
  CHECK(error_code([&] { pair.table().warm_up(all.data(), counts.data(), 1, 1.5); }) ==
        Code::kInvalidArgument);
  CHECK(pair.table().warm_up(nullptr, nullptr, 0, 0.7) == 0);
}

TEST_CASE("device warm-up: keys without a row are expected, and its pins are given back") {
  Pair pair(kind_of(512));
  const auto all = range(0, 3000), coming = range(5000, 200);
  for (int i = 0; i < 2; ++i) pair.train(all);
  const std::vector<uint32_t> counts(coming.size(), 50);
  CHECK(pair.table().warm_up(coming.data(), counts.data(), coming.size(), 1.0) == 0);
  CHECK(pair.table().size() == 3000);
  CHECK(pair.measure(coming).inserted >= 195);

  Pair full(kind_of(256, CachePolicy::kLru));
  full.train(all);
  const std::vector<uint32_t> ones(all.size(), 1);
  CHECK(full.table().warm_up(all.data() + 1000, ones.data(), 1000, 1.0) >= 200);
  CHECK(full.measure(range(2000, 100)).inserted == 100);
  full.check();
}

TEST_CASE("device prefetching: keys beyond the vocabulary are refused") {
  TableOptions options = options_of(kind_of(64), true);
  options.vocabulary_size = 10;
  Table table("t", options, 1, false);
  CHECK(error_code([&] { ahead(table, range(5, 10)); }) == Code::kOutOfRange);
}

TEST_CASE("device prefetching: a table goes while windows come in") {
  const auto keys = range(0, 2000);
  for (int i = 0; i < 4; ++i) {
    Pair pair(kind_of(500));
    pair.train(keys);
    ahead(pair.table(), keys);
    ahead(pair.table(), range(500, 1000));
    if (i % 2 == 0) pair.train(keys);
  }
}

#if defined(HOTROW_SIMT)
TEST_CASE("device prefetching: windows take no memory once there were such windows") {
  Pair pair(kind_of(512));
  pair.train(range(0, 4000));
  size_t before = 0;
  for (int64_t w = 0; w < 8; ++w) {
    ahead_and_wait(pair.table(), range(w * 400, 400));
    if (w == 3) before = simt::allocations();
  }
  CHECK(simt::allocations() == before);
  CHECK(pair.table().bytes() > 0);
}
#endif

}  // namespace hotrow
