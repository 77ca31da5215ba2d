#include "core/serving/cut_layer.h"

#include <doctest/doctest.h>

#include <fstream>

#include "tests/error_code.h"
#include "tests/serving/cut_blocks.h"
#include "tests/serving/random_request.h"
#include "tests/temporary_directory.h"

namespace hotrow {
namespace {

void put_tombstones(MemoryReader& reader, size_t table, int64_t first, int64_t last, int64_t step,
                    RowVersion version) {
  const std::vector<std::byte> row(reader.tables()[table].row_bytes());
  for (int64_t key = first; key < last; key += step) {
    const RowVersion gone = version | kTombstone;
    reader.put(table, &key, 1, row.data(), &gone);
  }
}

}  // namespace

TEST_CASE("cut layer: finds the rows and the tombstones of its cut, and nothing else") {
  const TemporaryDirectory directory;
  const std::vector<StoredTable> tables = all_tables();
  const auto layer = Blocks(tables, 9)
                         .add(0, -50, 50)
                         .add(2, 0, 1000, 3)
                         .add(0, 100, 200)
                         .add(2, 1, 1000, 3, /*gone=*/true)
                         .layer(directory / "blocks");
  CHECK(layer->version() == 9);
  CHECK(layer->rows() == 100 + 334 + 100 + 333);
  for (size_t t = 0; t < tables.size(); ++t) {
    for (int64_t key = -100; key < 1100; ++key) {
      const bool of_0 = t == 0 && ((key >= -50 && key < 50) || (key >= 100 && key < 200));
      const bool of_2 = t == 2 && key >= 0 && key < 1000;
      const CutLayer::Row row = layer->find(t, key);
      REQUIRE(row.known == (of_0 || (of_2 && key % 3 != 2)));
      if (!row.known) continue;
      if (of_2 && key % 3 == 1) {
        REQUIRE(row.stored == nullptr);
      } else {
        const std::vector<std::byte> expected = stored_row(tables[t], t, key, 9);
        REQUIRE(std::memcmp(row.stored, expected.data(), expected.size()) == 0);
      }
    }
  }
}

TEST_CASE("cut layer: of a key that comes twice the first row stays, as in the store") {
  const TemporaryDirectory directory;
  const auto layer =
      Blocks(all_tables(), 9).add(0, 5, 6).add(0, 5, 6, 1, /*gone=*/true).layer(directory / "b");
  CHECK(layer->rows() == 1);
  CHECK(layer->find(0, 5).stored != nullptr);
}

TEST_CASE("cut layer: a file that is damaged anywhere, cut, or of another cut is refused") {
  const TemporaryDirectory directory;
  const std::vector<StoredTable> tables = all_tables();
  const std::string whole = Blocks(tables, 9).add(1, 0, 3).add(3, 0, 2, 1, true).bytes();
  const size_t first = Blocks(tables, 9).add(1, 0, 3).bytes().size();
  const std::string path = directory / "blocks";
  const auto code_of = [&](const std::string& bytes, RowVersion version) {
    std::ofstream(path, std::ios::binary) << bytes;
    return error_code([&] { CutLayer(path, version, tables); });
  };
  CHECK(code_of(whole, 9) == Code::kOk);
  CHECK(code_of("", 9) == Code::kOk);  // a cut of dense weights alone
  CHECK(code_of(whole, 8) == Code::kDataLoss);
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
    REQUIRE(code_of(damaged, 9) == Code::kDataLoss);
    if (i == 0 || i == first) continue;
    REQUIRE(code_of(whole.substr(0, i), 9) == Code::kDataLoss);
  }
  // Of generations with other tables.
  CHECK(error_code([&] {
          std::ofstream(path, std::ios::binary) << whole;
          CutLayer(path, 9, {tables[0], tables[1]});
        }) == Code::kDataLoss);
  CHECK(error_code([&] { CutLayer(directory / "none", 9, tables); }) == Code::kNotFound);
}

TEST_CASE("cut layer: layers that are merged are found as those that they came from") {
  const TemporaryDirectory directory;
  const std::vector<StoredTable> tables = all_tables();
  std::vector<std::shared_ptr<const CutLayer>> layers;
  for (RowVersion version = 9; version > 2; --version) {
    Blocks cut(tables, version);
    const auto step = static_cast<int64_t>(version);
    // Some rows of all cuts, some of one alone; a table that most cuts do not change.
    cut.add(0, 0, 400, step).add(0, 1000 * step, 1000 * step + 50);
    cut.add(2, 1, 300, step, /*gone=*/true).add(2, 0, 5);
    if (version == 4) cut.add(1, 0, 9);
    layers.push_back(cut.layer(directory / std::to_string(version)));
  }
  layers.push_back(Blocks(tables, 1).layer(directory / "1"));  // without rows
  const std::vector<std::shared_ptr<const CutLayer>> newer(layers.begin(), layers.begin() + 3);
  const std::vector<std::shared_ptr<const CutLayer>> older(layers.begin() + 3, layers.end());
  const auto one = std::make_shared<const CutLayer>(newer, tables);
  const auto other = std::make_shared<const CutLayer>(older, tables);
  const CutLayer all({one, other}, tables);
  CHECK(all.version() == 9);
  REQUIRE(all.files().size() == layers.size());
  size_t known = 0;
  for (size_t t = 0; t < tables.size(); ++t) {
    for (int64_t key = -10; key < 10'000; ++key) {
      CutLayer::Row expected;
      for (const auto& layer : layers) {
        if (!expected.known) expected = layer->find(t, key);
      }
      const CutLayer::Row row = all.find(t, key);
      REQUIRE(row.known == expected.known);
      if (!row.known) continue;
      ++known;
      REQUIRE((row.stored == nullptr) == (expected.stored == nullptr));
      if (row.stored == nullptr) continue;
      REQUIRE(std::memcmp(row.stored, expected.stored, tables[t].row_bytes()) == 0);
    }
  }
  CHECK(all.rows() == known);
  for (size_t i = 0; i < layers.size(); ++i) CHECK(all.files()[i] == layers[i]->files()[0]);
  // What a cache learns has the version of the cut that each row is of.
  size_t visited = 0;
  all.visit([&](size_t table, const int64_t* keys, size_t count, const std::byte* rows,
                const RowVersion* versions) {
    visited += count;
    for (size_t i = 0; i < count; ++i) {
      const CutLayer::Row row = all.find(table, keys[i]);
      REQUIRE((row.stored == nullptr) == ((versions[i] & kTombstone) != 0));
      const auto version = versions[i] & ~kTombstone;
      REQUIRE(layers[9 - version]->find(table, keys[i]).known);
      for (size_t newer_one = 0; newer_one < 9 - version; ++newer_one) {
        REQUIRE(!layers[newer_one]->find(table, keys[i]).known);
      }
      if (row.stored == nullptr) continue;
      const std::byte* const visited_row = rows + i * tables[table].row_bytes();
      REQUIRE(std::memcmp(visited_row, row.stored, tables[table].row_bytes()) == 0);
    }
  });
  CHECK(visited == known);
  size_t bytes = 0;
  for (const auto& layer : layers) bytes += layer->bytes();
  CHECK(all.bytes() < bytes);
}

TEST_CASE("overlay: lookups are those of a store into which the cuts were folded") {
  const TemporaryDirectory directory;
  const std::vector<StoredTable> tables = all_tables();
  const auto reader = stored(tables), folded = stored(tables);
  Blocks older(tables, 2), newer(tables, 3);
  for (size_t t = 0; t < tables.size(); ++t) {
    // Rows and tombstones of both, of stored keys and of new ones; some of both cuts.
    older.add(t, 0, kStored + 20, 5).add(t, 1, kStored, 5, /*gone=*/true);
    newer.add(t, 2, kStored + 20, 4).add(t, 3, kStored, 20, /*gone=*/true);
    for (int64_t key = 0; key < kStored + 20; key += 5) put_rows(*folded, t, key, key + 1, 2);
    put_tombstones(*folded, t, 1, kStored, 5, 2);
    for (int64_t key = 2; key < kStored + 20; key += 4) put_rows(*folded, t, key, key + 1, 3);
    put_tombstones(*folded, t, 3, kStored, 20, 3);
  }
  Overlay overlay;
  overlay.version = 3;
  overlay.layers = {newer.layer(directory / "3"), older.layer(directory / "2")};
  for (const uint64_t rows : {uint64_t{0}, uint64_t{200}, tables.size() * kStored * 2}) {
    CAPTURE(rows);
    const auto cache = rows == 0 ? nullptr : cache_of(tables, rows);
    const ServingLookup lookup(reader, cache, {});
    for (unsigned seed = 0; seed < 20; ++seed) {
      Request request(tables, 64, seed);
      const LookupReport report = request.run(lookup, Executor(), overlay);
      REQUIRE(request.outputs == request.expected(*folded));
      CHECK(report.keys > report.hits);
      CHECK(report.hits > 0);
      // Without it, and in between, the rows are those of the store.
      request.run(lookup);
      REQUIRE(request.outputs == request.expected(*reader));
    }
    CHECK(lookup.counts(0).of_cuts > 0);
  }
}

TEST_CASE("overlay: a cache learns of a layer whose rows have become the store's own") {
  const TemporaryDirectory directory;
  const std::vector<StoredTable> tables = all_tables();
  const auto reader = stored(tables);
  const auto cache = cache_of(tables, tables.size() * kStored * 2);
  const ServingLookup lookup(reader, cache, {});
  for (unsigned seed = 0; seed < 20; ++seed) Request(tables, 64, seed).run(lookup);
  Blocks cut(tables, 2);
  for (size_t t = 0; t < tables.size(); ++t) {
    cut.add(t, 0, kStored, 2).add(t, 1, kStored, 6, /*gone=*/true);
    for (int64_t key = 0; key < kStored; key += 2) put_rows(*reader, t, key, key + 1, 2);
    put_tombstones(*reader, t, 1, kStored, 6, 2);
  }
  cut.layer(directory / "blocks")
      ->visit(
          [&](size_t table, const int64_t* keys, size_t count, const std::byte* rows,
              const RowVersion* versions) { cache->update(table, keys, count, rows, versions); });
  CHECK(cache->counts(0).updated > 0);
  CHECK(cache->counts(0).removed > 0);
  for (unsigned seed = 0; seed < 20; ++seed) {
    Request request(tables, 64, seed);
    request.run(lookup);
    REQUIRE(request.outputs == request.expected(*reader));
  }
}

TEST_CASE("overlay: rows of a cut that was not taken fail the lookup and are not cached") {
  const std::vector<StoredTable> tables = all_tables();
  const auto reader = stored(tables);
  put_rows(*reader, 0, 10, 11, 5);
  put_tombstones(*reader, 0, 11, 12, 1, 5);
  const auto cache = cache_of(tables, 1000);
  for (const bool share : {false, true}) {
    ServingLookupOptions options;
    options.share_fetches = share;
    const ServingLookup strict(reader, cache, options);
    options.on_store_failure = OnStoreFailure::kDefault;
    const ServingLookup lenient(reader, cache, options);
    Overlay overlay;
    overlay.version = 4;
    for (const int64_t key : {10, 11}) {
      ServingFeature feature;
      feature.keys = &key;
      feature.segments.keys = feature.segments.samples = 1;
      std::vector<float> row(tables[0].width);
      float* out = row.data();
      const auto run = [&](const ServingLookup& lookup) {
        return lookup.lookup(&feature, 1, &out, never(), Executor(), {}, overlay);
      };
      overlay.version = 4;
      const uint64_t before = cache->counts(0).inserted;
      CHECK(error_code([&] { run(strict); }) == Code::kUnavailable);
      CHECK(run(lenient).failed == 1);
      CHECK(row == std::vector<float>(tables[0].width, tables[0].default_value));
      CHECK(cache->counts(0).inserted == before);
      // A lookup that has taken the cut reads it.
      overlay.version = 5;
      if (key == 11) {
        CHECK(run(strict).unknown == 1);
      } else if (share) {  // then it is cached, for the next lookup
        CHECK(run(strict).failed == 0);
        CHECK(row == served_row(tables[0], 0, 10, 5));
      }
    }
  }
}

TEST_CASE("overlay: a cache takes no row that another one who uses it must not see yet") {
  const std::vector<StoredTable> tables = all_tables();
  const auto reader = stored(tables);
  put_rows(*reader, 0, 10, 11, 5);
  const auto cache = cache_of(tables, 1000);
  const ServingLookup lookup(reader, cache, {});
  const int64_t keys[] = {10, 20};
  ServingFeature feature;
  feature.keys = keys;
  feature.segments.keys = feature.segments.samples = 2;
  std::vector<float> rows(2 * tables[0].width);
  float* out = rows.data();
  const auto run = [&](RowVersion shown) {
    Overlay overlay;
    overlay.version = shown;
    return lookup.lookup(&feature, 1, &out, never(), Executor(), {}, overlay);
  };
  cache->set_newest(4);
  run(5);  // who has taken the cut reads its row, but does not leave it there
  CHECK(cache->counts(0).inserted == 1);
  CHECK(run(5).hits == 1);
  CHECK(error_code([&] { run(4); }) == Code::kUnavailable);
  cache->set_newest(5);
  run(5);
  CHECK(run(5).hits == 2);
}

TEST_CASE("overlay: each sample counts how many of its rows came from memory") {
  const TemporaryDirectory directory;
  const std::vector<StoredTable> tables = all_tables();
  const auto reader = stored(tables);
  const auto cache = cache_of(tables, 1000);
  const ServingLookup lookup(reader, cache, {});
  Overlay overlay;
  overlay.layers = {Blocks(tables, 2).add(0, 4, 6).layer(directory / "blocks")};
  const std::vector<int64_t> keys = {1, 2, 4, 5, 5, 3};
  const std::vector<int64_t> splits = {0, 3, 3, 6};
  ServingFeature feature;
  feature.keys = keys.data();
  feature.segments = {Combiner::kSum, keys.size(), 3, splits.data(), nullptr};
  std::vector<float> pooled(3 * tables[0].width);
  float* out = pooled.data();
  std::vector<int32_t> from_memory(3, -1);
  const SampleCounts counts{nullptr, from_memory.data(), from_memory.size()};
  lookup.lookup(&feature, 1, &out, never(), Executor(), counts, overlay);
  CHECK(from_memory == std::vector<int32_t>{1, 0, 2});
  lookup.lookup(&feature, 1, &out, never(), Executor(), counts, overlay);
  CHECK(from_memory == std::vector<int32_t>{3, 0, 3});
}

}  // namespace hotrow
