// Prefetching: three known hazards (FBGEMM #1883, #1893), and other cases.
#include "core/table/prefetch.h"

#include <doctest/doctest.h>

#include <numeric>
#include <random>

#include "tests/error_code.h"
#include "tests/one_table.h"
#include "tests/temporary_directory.h"

namespace hotrow {
namespace {

TableOptions cached_options(size_t cache_rows) {
  TableOptions options = plain_options();
  options.cache.rows = cache_rows;
  return options;
}

// The same; the test case runs once with lines in memory, and once with lines on disk.
TableOptions on_each_host(const TemporaryDirectory& directory, size_t cache_rows) {
  TableOptions options = cached_options(cache_rows);
  SUBCASE("lines in memory") {}
  SUBCASE("lines on disk") { options.disk = directory / ""; }
  return options;
}

std::vector<int64_t> range(int64_t first, size_t count) {
  std::vector<int64_t> keys(count);
  std::iota(keys.begin(), keys.end(), first);
  return keys;
}

void ahead(Table& table, const std::vector<int64_t>& keys) {
  table.prefetch(keys.data(), keys.size());
}

void ahead_and_wait(Table& table, const std::vector<int64_t>& keys) {
  ahead(table, keys);
  table.wait_for_prefetch();
}

std::vector<float> ones(const Table& table, size_t keys) {
  return std::vector<float>(keys * table.width(), 1.0f);
}

CacheCounts counts_of(const Table& table) { return table.statistics().cache; }

}  // namespace

TEST_CASE("prefetching, hazard 1: a row that a window needs is not evicted before its batch") {
  // Of 512 slots, 200 are the window's. Thousands of other keys come and are used often.
  const TemporaryDirectory directory;
  Table table("t", on_each_host(directory, 512), 1, false);
  const auto wanted = range(0, 200), others = range(1000, 4000);
  train(table, wanted, 1.0f);
  train(table, others, 1.0f);
  train(table, others, 1.0f);
  ahead_and_wait(table, wanted);
  train(table, others, 1.0f);
  const CacheCounts before = counts_of(table);
  train(table, wanted, 1.0f);
  // All but those of overfull sets: 200 rows in 32 sets of 16 ways.
  CHECK(counts_of(table).hits - before.hits >= 195);
  CHECK(look_up(table, wanted, false) == std::vector<float>(200 * table.width(), -2.0f));
}

TEST_CASE("prefetching, hazard 1: the rows of a running pass are evicted without harm") {
  // The backward pass of `keys` comes after a window filled the cache with others.
  const TemporaryDirectory directory;
  Table table("t", on_each_host(directory, 512), 1, false);
  const auto keys = range(0, 400), others = range(1000, 3000);
  train(table, others, 1.0f);
  std::vector<float> rows(keys.size() * table.width());
  BackwardOptions options;
  options.what = Backward::kUpdate;
  const LayerCall call = call_of(table, keys);
  options.ticket = forward(call, true, {rows.data()}, nullptr);
  const uint64_t evicted = counts_of(table).evicted;
  ahead_and_wait(table, others);
  REQUIRE(counts_of(table).evicted > evicted);
  const auto gradients = ones(table, keys.size());
  backward(call, {gradients.data()}, options);
  CHECK(look_up(table, keys, false) == std::vector<float>(rows.size(), -1.0f));
  CHECK(look_up(table, others, false) == std::vector<float>(others.size() * table.width(), -1.0f));
}

TEST_CASE("prefetching, hazard 2: a row that was written back a moment ago is fetched as it is") {
  // Three parts, of which two fit: each evicts another, which is dirty; few pauses.
  const TemporaryDirectory directory;
  Table table("t", on_each_host(directory, 512), 1, false);
  const std::vector<std::vector<int64_t>> parts = {range(0, 250), range(1000, 250),
                                                   range(2000, 250)};
  for (int round = 1; round <= 100; ++round) {
    for (size_t i = 0; i < 3; ++i) {
      ahead(table, parts[(i + 1) % 3]);
      if (round % 4 == 0) table.wait_for_prefetch();
      train(table, parts[i], 1.0f);
    }
    if (round % 10 != 0) continue;
    const std::vector<float> expected(250 * table.width(), -static_cast<float>(round));
    for (const auto& part : parts) REQUIRE(look_up(table, part, false) == expected);
  }
  CHECK(counts_of(table).prefetched > 1000);
}

TEST_CASE("prefetching, hazard 3: a row missed by a forward pass and brought in before backward") {
  // The pass works on rows beside the cache, which is full of hotter ones.
  const TemporaryDirectory directory;
  Table table("t", on_each_host(directory, 512), 1, false);
  const auto hot = range(0, 2000), keys = range(5000, 300), none = range(9000, 1);
  for (int i = 0; i < 5; ++i) train(table, hot, 1.0f);
  train(table, keys, 1.0f);
  for (int i = 0; i < 5; ++i) train(table, hot, 1.0f);
  std::vector<float> rows(keys.size() * table.width());
  BackwardOptions options;
  options.what = Backward::kUpdate;
  const LayerCall call = call_of(table, keys);
  const CacheCounts before = counts_of(table);
  options.ticket = forward(call, true, {rows.data()}, nullptr);
  // Most do not beat the hot ones.
  REQUIRE(counts_of(table).inserted - before.inserted <= 150);
  ahead_and_wait(table, none);
  ahead_and_wait(table, keys);
  REQUIRE(counts_of(table).prefetched >= 150);
  const auto gradients = ones(table, keys.size());
  backward(call, {gradients.data()}, options);
  CHECK(look_up(table, keys, false) == std::vector<float>(rows.size(), -2.0f));
  // And once more through a lookup of training, which reads the slots.
  CHECK(look_up(table, keys, true) == std::vector<float>(rows.size(), -2.0f));
}

TEST_CASE("prefetching: keys without a row are left to the step") {
  const TemporaryDirectory directory;
  Table table("t", on_each_host(directory, 512), 1, false);
  ahead_and_wait(table, range(0, 100));
  CHECK(table.size() == 0);
  CHECK(counts_of(table).prefetched == 0);
}

TEST_CASE("prefetching: a window larger than the cache, one without keys, and many that wait") {
  const TemporaryDirectory directory;
  Table table("t", on_each_host(directory, 1), 1, false), plain("t", plain_options(), 1, false);
  const auto keys = range(0, 20000);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 10; ++i) ahead(table, keys);
    ahead(table, {});
    train(table, keys, 0.5f);
    train(plain, keys, 0.5f);
  }
  table.wait_for_prefetch();
  CHECK(digest_of(table) == digest_of(plain));
}

TEST_CASE("prefetching: the pins of windows before last are given back") {
  const TemporaryDirectory directory;
  Table table("t", on_each_host(directory, 512), 1, false);
  const auto rows = range(0, 5000);
  train(table, rows, 1.0f);
  // Two windows of 300 rows would fill the 512 slots if all windows stayed pinned.
  for (int64_t w = 0; w < 10; ++w) {
    const auto keys = range(w * 300, 300);
    ahead_and_wait(table, range(w * 300, 1));  // the window before the last is released
    ahead_and_wait(table, keys);
    const CacheCounts before = counts_of(table);
    train(table, keys, 1.0f);
    CHECK(counts_of(table).hits - before.hits >= 270);
  }
}

TEST_CASE("prefetching: removing, clearing, importing and exporting beside it") {
  const TemporaryDirectory directory;
  Table table("t", on_each_host(directory, 1000), 1, false), plain("t", plain_options(), 1, false);
  std::mt19937_64 random(3);
  const auto keys = range(0, 3000);
  for (int round = 0; round < 60; ++round) {
    const auto some = range(static_cast<int64_t>(random() % 2000), 700);
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
        REQUIRE(digest_of(table) == digest_of(plain));
        break;
      case 2: {
        const Rows rows = exported(plain, 500);
        REQUIRE(exported(table, 500) == rows);
        both([&](Table& t) { import_all(t, rows, false); });
        break;
      }
      case 3:
        if (round % 10 == 3) both([](Table& t) { t.clear(); });
        break;
      default: {
        auto snapshot = table.open_snapshot(Since::kAll);
        train(table, some, 1.0f);
        Rows before = sorted(read_all(table, *snapshot, 300));
        REQUIRE(before == sorted(exported(plain, 300)));
        train(plain, some, 1.0f);
      }
    }
    both([&](Table& t) { train(t, keys, 0.25f); });
    both([&](Table& t) { train(t, some, 0.25f); });
  }
  CHECK(digest_of(table) == digest_of(plain));
}

TEST_CASE("warm-up: the most frequent rows of a sample come in, and stay") {
  const TemporaryDirectory directory;
  Table table("t", on_each_host(directory, 1024), 1, false), plain("t", plain_options(), 1, false);
  const auto all = range(0, 20000), hot = range(15000, 600);
  for (int i = 0; i < 3; ++i) {
    train(table, all, 1.0f);
    train(plain, all, 1.0f);
  }
  std::vector<uint32_t> counts(all.size(), 1);
  for (int64_t key : hot) counts[static_cast<size_t>(key)] = 100;
  const size_t warmed = table.warm_up(all.data(), counts.data(), all.size(), 0.7);
  CHECK(warmed >= 580);
  CHECK(warmed <= 717);
  for (int round = 0; round < 3; ++round) {
    const CacheCounts before = counts_of(table);
    train(table, hot, 1.0f);
    train(plain, hot, 1.0f);
    CHECK(counts_of(table).hits - before.hits >= 580);
    train(table, all, 1.0f);
    train(plain, all, 1.0f);
  }
  CHECK(digest_of(table) == digest_of(plain));
  CHECK(error_code([&] { table.warm_up(all.data(), counts.data(), 1, 1.5); }) ==
        Code::kInvalidArgument);
  CHECK(table.warm_up(nullptr, nullptr, 0, 0.7) == 0);
}

TEST_CASE("prefetching: a table without a device tier takes windows and does nothing") {
  Table table("t", plain_options(), 1, false);
  ahead_and_wait(table, range(0, 10));
  CHECK(table.size() == 0);
}

TEST_CASE("prefetching: keys beyond the vocabulary are refused") {
  TableOptions options = cached_options(100);
  options.vocabulary_size = 10;
  Table table("t", options, 1, false);
  CHECK(error_code([&] { ahead(table, range(5, 10)); }) == Code::kOutOfRange);
}

}  // namespace hotrow
