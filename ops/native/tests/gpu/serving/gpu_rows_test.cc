// Lookups with hot rows on a GPU against lookups without: the same bits, whatever is cached.
#include "core/gpu/serving/gpu_rows.h"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "core/base/warning.h"
#include "tests/error_code.h"
#include "tests/gpu/serving/gpu_lookup.h"
#include "tests/serving/cut_blocks.h"
#include "tests/serving/slow_reader.h"
#include "tests/temporary_directory.h"

namespace hotrow {
namespace {

struct Served {
  explicit Served(uint64_t gpu_bytes, CachePolicy policy = CachePolicy::kLfu,
                  const ServingLookupOptions& options = {})
      : tables(all_tables()),
        reader(stored(tables)),
        cache(cache_of(tables, 10000, policy)),
        lookup(reader, cache, options),
        rows(make_device_rows(cache, on_gpu_0(gpu_bytes, policy))) {}

  LookupReport run(Request* request, const Overlay& overlay = Overlay(), SampleCounts counts = {}) {
    return run_on_gpu(lookup, *rows, stream.get(), request->features, &request->outputs, overlay,
                      counts);
  }
  // Plain keys of a table.
  std::vector<float> row_of(size_t table, int64_t key, const Overlay& overlay = Overlay()) {
    ServingFeature feature;
    feature.table = table;
    feature.keys = &key;
    feature.segments.keys = feature.segments.samples = 1;
    std::vector<std::vector<float>> outputs{std::vector<float>(tables[table].width)};
    run_on_gpu(lookup, *rows, stream.get(), {feature}, &outputs, overlay);
    return outputs[0];
  }
  // No rows come in afterwards, as they do when the GPU's lookups miss them.
  void fill_all(int64_t first = 0, int64_t last = kStored) {
    std::vector<int64_t> keys;
    for (int64_t key = first; key < last; ++key) keys.push_back(key);
    for (size_t t = 0; t < tables.size(); ++t) {
      ServingFeature feature;
      feature.table = t;
      feature.keys = keys.data();
      feature.segments.keys = feature.segments.samples = keys.size();
      std::vector<float> into_ram(keys.size() * tables[t].width);
      float* const out = into_ram.data();
      lookup.lookup(&feature, 1, &out, never(), Executor());
      rows->fill(t, keys.data(), keys.size());
    }
  }
  // What the store's rows become, in the caches, too.
  void put(size_t table, int64_t key, RowVersion version) {
    put_rows(*reader, table, key, key + 1, version);
    const std::vector<std::byte> row = stored_row(tables[table], table, key, version);
    cache->update(table, &key, 1, row.data(), &version);
    rows->update(table, &key, 1, row.data(), &version);
  }
  DeviceLookupCounts lookups() const {
    DeviceLookupCounts sums;
    for (size_t t = 0; t < tables.size(); ++t) {
      sums.hits += rows->lookups(t).hits;
      sums.misses += rows->lookups(t).misses;
    }
    return sums;
  }

  const std::vector<StoredTable> tables;
  const std::shared_ptr<MemoryReader> reader;
  const std::shared_ptr<HotRows> cache;
  const ServingLookup lookup;
  const std::unique_ptr<DeviceRows> rows;
  const OwnStream stream;
};

constexpr uint64_t kAllRows = 4 << 20, kFewRows = 70 << 10;

}  // namespace

TEST_CASE("gpu rows: the same bits as without, at any size of the cache, and all counts") {
  for (const uint64_t bytes : {uint64_t{1}, kFewRows, kAllRows}) {
    for (const CachePolicy policy : {CachePolicy::kLfu, CachePolicy::kLru}) {
      CAPTURE(bytes);
      Served served(bytes, policy);
      uint64_t keys = 0, hits = 0;
      for (unsigned seed = 0; seed < 12; ++seed) {
        Request request(served.tables, seed == 0 ? 1 : 30, seed);
        const LookupReport report = served.run(&request);
        REQUIRE(request.outputs == request.expected(*served.reader));
        keys += report.keys;
        hits += report.hits;
        CHECK(report.failed == 0);
        // The rows that were missed come in by themselves.
        if (seed == 0) wait_until([&] { return served.rows->counts().inserted > 0; });
      }
      const DeviceLookupCounts looked = served.lookups();
      CHECK(looked.hits + looked.misses == keys);
      CHECK(hits >= looked.hits);
      CHECK(looked.hits > 0);
      const DeviceRowCounts counts = served.rows->counts();
      CHECK(counts.updated + counts.removed == 0);
      CHECK(counts.rows() <= served.rows->slots());
      if (bytes != 1) CHECK(served.rows->bytes() <= bytes);
      CHECK(counts.rows() > 0);
      if (bytes == kAllRows) CHECK(counts.evicted == 0);
      if (bytes == 1) CHECK(served.rows->slots() == 3 * 32);  // a set for each size of rows
      CHECK(served.rows->why_off().empty());
    }
  }
}

TEST_CASE("gpu rows: several lookups at a time, beside rows that come in") {
  Served served(kFewRows);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const OwnStream stream;
      for (unsigned i = 0; i < 6 * kScale; ++i) {
        Request request(served.tables, 20, 100 * t + i);
        run_on_gpu(served.lookup, *served.rows, t % 2 == 0 ? stream.get() : served.stream.get(),
                   request.features, &request.outputs);
        wrong += request.outputs != request.expected(*served.reader);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(served.lookups().hits > 0);
}

TEST_CASE("gpu rows: layers of cuts are read over them, and become theirs when they are folded") {
  const TemporaryDirectory directory;
  Served served(kAllRows);
  served.fill_all();
  const std::vector<StoredTable>& tables = served.tables;
  const auto folded = stored(tables);
  Blocks older(tables, 2), newer(tables, 3);
  for (size_t t = 0; t < tables.size(); ++t) {
    older.add(t, 0, kStored + 20, 5).add(t, 1, kStored, 10, /*gone=*/true);
    newer.add(t, 2, kStored + 20, 4);
    for (int64_t key = 0; key < kStored + 20; key += 5) put_rows(*folded, t, key, key + 1, 2);
    for (int64_t key = 1; key < kStored; key += 10) {
      const RowVersion gone = 2 | kTombstone;
      folded->put(t, &key, 1, stored_row(tables[t], t, key, 2).data(), &gone);
    }
    for (int64_t key = 2; key < kStored + 20; key += 4) put_rows(*folded, t, key, key + 1, 3);
  }
  const auto layer = [&](const Blocks& blocks, const char* name) {
    const auto read = std::const_pointer_cast<CutLayer>(blocks.layer(directory / name));
    read->set_on_device(served.rows->keys_of(*read));
    return read;
  };
  Overlay overlay;
  overlay.version = 3;
  overlay.layers = {layer(newer, "3"), layer(older, "2")};
  for (unsigned seed = 0; seed < 6; ++seed) {
    Request request(tables, 40, seed);
    const uint64_t hits = served.lookups().hits;
    served.run(&request, overlay);
    REQUIRE(request.outputs == request.expected(*folded));
    CHECK(served.lookups().hits > hits);
    // Another session shows the rows as they were.
    served.run(&request);
    REQUIRE(request.outputs == request.expected(*served.reader));
  }
  // Folded: the oldest first.
  for (size_t l = 2; l-- > 0;) {
    overlay.layers[l]->visit([&](size_t table, const int64_t* keys, size_t count,
                                 const std::byte* rows, const RowVersion* versions) {
      served.reader->put(table, keys, count, rows, versions);
      served.cache->update(table, keys, count, rows, versions);
      served.rows->update(table, keys, count, rows, versions);
    });
  }
  CHECK(served.rows->counts().updated > 0);
  CHECK(served.rows->counts().removed > 0);
  overlay.layers.clear();
  const uint64_t misses = served.lookups().misses;
  for (unsigned seed = 0; seed < 6; ++seed) {
    Request request(tables, 40, seed);
    served.run(&request, overlay);
    REQUIRE(request.outputs == request.expected(*folded));
  }
  CHECK(served.lookups().misses > misses);  // new keys, and tombstones
  // A session that has not taken the cut reads nothing of it.
  const float newest = served.row_of(0, 2, overlay)[0];
  CHECK(newest == served_row(tables[0], 0, 2, 3)[0]);
  Overlay earlier;
  earlier.version = 2;
  const uint64_t before = served.rows->lookups(0).misses;
  served.row_of(0, 2, earlier);
  CHECK(served.rows->lookups(0).misses == before + 1);
}

TEST_CASE("gpu rows: with too many layers, or layers not on the GPU, the rows in RAM are asked") {
  const TemporaryDirectory directory;
  Served served(kAllRows);
  served.fill_all(0, 50);
  const auto off_device = Blocks(served.tables, 2).add(0, 0, 10).layer(directory / "2");
  const auto on_device = std::const_pointer_cast<CutLayer>(
      Blocks(served.tables, 2).add(0, 0, 10).layer(directory / "3"));
  on_device->set_on_device(served.rows->keys_of(*on_device));
  Overlay overlay;
  overlay.version = 2;
  const auto is_asked = [&] {
    const uint64_t before = served.lookups().hits + served.lookups().misses;
    CHECK(served.row_of(0, 3, overlay) == served_row(served.tables[0], 0, 3, 2));
    CHECK(served.row_of(0, 13, overlay) == served_row(served.tables[0], 0, 13, 1));
    return served.lookups().hits + served.lookups().misses > before;
  };
  overlay.layers = {on_device};
  CHECK(is_asked());
  overlay.layers.assign(kMostDeviceLayers, on_device);
  CHECK(is_asked());
  overlay.layers.push_back(on_device);
  CHECK(!is_asked());
  overlay.layers = {on_device, off_device};
  CHECK(!is_asked());
}

TEST_CASE("gpu rows: keys that cannot be read fail the lookup, or count for their samples") {
  const std::vector<StoredTable> tables = all_tables();
  const auto memory = stored(tables);
  const auto slow = std::make_shared<SlowReader>(*memory);
  const auto cache = cache_of(tables, 10000);
  ServingLookupOptions options;
  const ServingLookup strict(slow, cache, options);
  options.on_store_failure = OnStoreFailure::kDefault;
  const ServingLookup lenient(slow, cache, options);
  const auto rows = make_device_rows(cache, on_gpu_0(kAllRows));
  const OwnStream stream;
  // Three samples of two features: a sum of two keys each, and a plain one.
  const std::vector<int64_t> bags{1, 2, 3, 4, 5, 6}, plain{7, 8, 9}, splits{0, 2, 4, 6};
  ServingFeature sums, rows_of;
  sums.keys = bags.data();
  sums.segments.combiner = Combiner::kSum;
  sums.segments.keys = 6;
  sums.segments.samples = 3;
  sums.segments.row_splits = splits.data();
  rows_of.table = 2;
  rows_of.keys = plain.data();
  rows_of.segments.keys = rows_of.segments.samples = 3;
  const std::vector<ServingFeature> features{sums, rows_of};
  std::vector<std::vector<float>> outputs{std::vector<float>(3 * 16), std::vector<float>(3 * 32)};
  const auto run = [&](const ServingLookup& lookup, SampleCounts counts) {
    return run_on_gpu(lookup, *rows, stream.get(), features, &outputs, Overlay(), counts);
  };
  std::vector<int32_t> defaulted(3, -1), from_memory(3, -1);
  run(strict, {defaulted.data(), nullptr, 3});
  CHECK(defaulted == std::vector<int32_t>{0, 0, 0});
  rows->fill(0, bags.data(), 6);
  rows->fill(2, plain.data(), 3);
  run(strict, {defaulted.data(), nullptr, 3});
  CHECK(rows->lookups(0).hits == 6);
  CHECK(rows->lookups(2).hits == 3);
  // Rows leave, and cannot be read again: those of keys 3 and 9.
  cache->clear(), rows->clear();
  rows->fill(0, bags.data(), 6);
  slow->set_failing({3, 9});
  CHECK(error_code([&] { run(strict, {defaulted.data(), nullptr, 3}); }) == Code::kUnavailable);
  const LookupReport report = run(lenient, {defaulted.data(), nullptr, 3});
  CHECK(report.failed == 2);
  CHECK(defaulted == std::vector<int32_t>{0, 1, 1});
  std::vector<float> expected(16);
  for (size_t j = 0; j < 16; ++j) expected[j] = 0.25f + served_row(tables[0], 0, 4, 1)[j];
  CHECK(std::equal(expected.begin(), expected.end(), outputs[0].begin() + 16));
  CHECK(outputs[1][2 * 32] == 0.25f);
  // While rows may be old, the samples' rows from memory are counted.
  run(lenient, {defaulted.data(), from_memory.data(), 3});
  CHECK(from_memory == std::vector<int32_t>{3, 2, 2});
  slow->set_failing({});
  slow->set_open(false);
  CHECK(error_code([&] {
          run_on_gpu(strict, *rows, stream.get(), features, &outputs, Overlay(), {},
                     in_milliseconds(20));
        }) == Code::kUnavailable);
  slow->set_open(true);
  run(strict, {});
  CHECK(outputs[0][16] != expected[0]);
}

TEST_CASE("gpu rows: no lookup is older than an update that had returned") {
  Served served(kFewRows);
  const size_t width = served.tables[0].width;
  std::vector<std::atomic<uint64_t>> announced(60);
  for (auto& version : announced) version = 1;
  std::atomic<bool> over{false};
  std::atomic<int> old{0};
  std::thread writer([&] {
    std::mt19937_64 random(5);
    for (size_t i = 0; i < 300 * kScale; ++i) {
      const size_t key = random() % announced.size();
      served.put(0, static_cast<int64_t>(key), announced[key] + 1);
      ++announced[key];
      if (i % 16 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    over = true;
  });
  std::vector<std::thread> readers;
  for (unsigned t = 0; t < 2; ++t) {
    readers.emplace_back([&, t] {
      const OwnStream stream;
      std::mt19937_64 random(t);
      while (!over) {
        std::vector<int64_t> keys(12);
        std::vector<uint64_t> least;
        for (int64_t& key : keys) {
          key = static_cast<int64_t>(random() % announced.size());
          least.push_back(announced[static_cast<size_t>(key)]);
        }
        ServingFeature feature;
        feature.keys = keys.data();
        feature.segments.keys = feature.segments.samples = keys.size();
        std::vector<std::vector<float>> outputs{std::vector<float>(keys.size() * width)};
        run_on_gpu(served.lookup, *served.rows, stream.get(), {feature}, &outputs);
        for (size_t i = 0; i < keys.size(); ++i) {
          const std::vector<float> row(
              outputs[0].begin() + static_cast<std::ptrdiff_t>(i * width),
              outputs[0].begin() + static_cast<std::ptrdiff_t>((i + 1) * width));
          const uint64_t latest = announced[static_cast<size_t>(keys[i])] + 1;
          bool is_some = false;
          for (uint64_t version = least[i]; version <= latest && !is_some; ++version) {
            is_some = row == served_row(served.tables[0], 0, keys[i], version);
          }
          old += !is_some;
        }
      }
    });
  }
  writer.join();
  for (std::thread& reader : readers) reader.join();
  CHECK(old == 0);
  CHECK(served.rows->lookups(0).hits > 0);
  CHECK(served.rows->counts().updated > 0);
}

TEST_CASE("gpu rows: a shard that is invalidated is read anew, and so is all after a clear") {
  Served served(kAllRows);
  served.fill_all(0, 100);
  const uint64_t before = served.rows->counts().rows();
  CHECK(before == 500);
  // Else rows that were missed would come in again from there.
  served.cache->clear();
  served.rows->invalidate_shard(1, 4);
  CHECK(served.rows->counts().rows() < before);
  CHECK(served.rows->counts().rows() > 0);
  served.rows->clear();
  CHECK(served.rows->counts().rows() == 0);
  CHECK(served.row_of(1, 7) == served_row(served.tables[1], 1, 7, 1));
}

TEST_CASE("gpu rows: what does not fit is refused by name, and wrong features as in RAM") {
  const std::vector<StoredTable> wide{stored_table("wide", 1025, StoredType::kInt8, 10)};
  const auto refused = [](const std::vector<StoredTable>& tables, DeviceRowsOptions options) {
    try {
      make_device_rows(cache_of(tables, 100), options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refused(wide, on_gpu_0(1 << 20)).find("table wide: rows of dim 1025") == 0);
  CHECK(refused(all_tables(), on_gpu_0(0)).find("0 bytes") != std::string::npos);
  DeviceRowsOptions far = on_gpu_0(1 << 20);
  far.gpu = 99;
  CHECK(refused(all_tables(), far).find("a cache of rows on GPU 99: there are 0 to") == 0);
  CHECK(refused(all_tables(), on_gpu_0(1 << 20)).empty());
  Served served(kAllRows);
  Request request(served.tables, 4, 1);
  request.features[3].table = 9;
  CHECK(error_code([&] { served.run(&request); }) == Code::kInvalidArgument);
  std::vector<std::vector<float>> none;
  CHECK(run_on_gpu(served.lookup, *served.rows, served.stream.get(), {}, &none).keys == 0);
}

TEST_CASE("gpu rows: only lookups that gain from it use the GPU, if that is asked for") {
  Served served(kAllRows);
  CHECK(served.rows->least_keys() == 0);
  DeviceRowsOptions options = on_gpu_0(kAllRows);
  options.if_faster = true;
  const auto rows = make_device_rows(served.cache, options);
  CHECK(rows->least_keys() == ~uint64_t{0});  // until it is measured
  std::vector<std::vector<float>> outputs{std::vector<float>(16)};
  const int64_t key = 5;
  ServingFeature feature;
  feature.keys = &key;
  feature.segments.keys = feature.segments.samples = 1;
  run_on_gpu(served.lookup, *rows, served.stream.get(), {feature}, &outputs);
  CHECK(outputs[0] == served_row(served.tables[0], 0, 5, 1));
  CHECK(rows->lookups(0).misses == 0);
  std::vector<int64_t> keys(kStored);
  for (int64_t k = 0; k < kStored; ++k) keys[static_cast<size_t>(k)] = k;
  rows->measure(0, keys.data(), keys.size());
  CHECK(rows->least_keys() > 0);
}

#if defined(HOTROW_SIMT)
TEST_CASE("gpu rows: a lookup whose rows are all there is one copy, one launch and one wait") {
  Served served(kAllRows);
  served.fill_all(0, 100);
  const auto costs = [&](int64_t first) {
    std::vector<int64_t> keys(40);
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = first + static_cast<int64_t>(i);
    std::vector<ServingFeature> features(5);
    std::vector<std::vector<float>> sizes;
    for (size_t t = 0; t < features.size(); ++t) {
      features[t].table = t;
      features[t].keys = keys.data();
      features[t].segments.keys = features[t].segments.samples = keys.size();
      sizes.emplace_back(40 * served.tables[t].width);
    }
    const GpuOutputs outputs(sizes);
    LookupReport report;
    simt::Counts spent;
    for (int i = 0; i < 2; ++i) {  // memory is there for the second
      const simt::Counts before = simt::counts();
      begin_on_device(served.lookup, *served.rows, served.stream.get(), features.data(), 5,
                      outputs.pointers(), Executor(), {}, Overlay(), &report);
      spent = simt::counts() - before;
      must(cudaStreamSynchronize(served.stream.get()));
    }
    return spent;
  };
  const simt::Counts hits = costs(0);
  CHECK(hits.launches == 1);
  CHECK(hits.copies == 1);
  CHECK(hits.waits == 2);  // the first one for the memory of the call before
  CHECK(hits.stream_waits == 0);
}

TEST_CASE("gpu rows: a failing call of CUDA fails its lookup, and the next one is right") {
  Served served(kAllRows);
  served.fill_all(0, 40);
  Request request(served.tables, 20, 3);
  const auto expected = request.expected(*served.reader);
  size_t failures = 0;
  for (size_t first = 0; first < 12; ++first) {
    const GpuOutputs outputs(request.outputs);
    Code code = Code::kOk;
    {
      simt::Failures failing(simt::kEnqueued | simt::kAllocations | simt::kWaits, first);
      code = error_code([&] {
        LookupReport report;
        auto rest = begin_on_device(served.lookup, *served.rows, served.stream.get(),
                                    request.features.data(), request.features.size(),
                                    outputs.pointers(), Executor(), {}, Overlay(), &report);
        if (rest != nullptr) rest->finish(never(), Executor());
      });
    }
    must(cudaStreamSynchronize(served.stream.get()));
    if (code == Code::kOk) {
      outputs.read(&request.outputs);
      CHECK(request.outputs == expected);
    }
    failures += code != Code::kOk;
    served.run(&request);
    CHECK(request.outputs == expected);
  }
  CHECK(failures > 0);
}

TEST_CASE("gpu rows: a cut whose keys find no memory is laid over the rows in RAM") {
  static std::string warned;
  set_warn([](const char* message) { warned += message; });
  const TemporaryDirectory directory;
  Served served(kAllRows);
  served.fill_all(0, 50);
  const auto layer = std::const_pointer_cast<CutLayer>(
      Blocks(served.tables, 2).add(0, 0, 10).layer(directory / "2"));
  {
    simt::Failures failing(simt::kAllocations, 0, 1);
    layer->set_on_device(served.rows->keys_of(*layer));
  }
  CHECK(layer->on_device() == nullptr);
  CHECK(warned.find("GPU 0 does not take the keys of a cut with 10 rows") == 0);
  Overlay overlay;
  overlay.version = 2;
  overlay.layers = {layer};
  const uint64_t before = served.lookups().hits;
  CHECK(served.row_of(0, 3, overlay) == served_row(served.tables[0], 0, 3, 2));
  CHECK(served.row_of(0, 13, overlay) == served_row(served.tables[0], 0, 13, 1));
  CHECK(served.lookups().hits == before);
  CHECK(served.rows->why_off().empty());
  set_warn(nullptr);
}

TEST_CASE("gpu rows: an update that fails turns the GPU off, and lookups are still right") {
  static std::string warned;
  set_warn([](const char* message) { warned += message; });
  for (const bool clears : {false, true}) {
    warned.clear();
    Served served(kAllRows);
    served.fill_all(0, 40);
    {
      simt::Failures failing(simt::kEnqueued, 0, 1);
      if (clears) {
        served.rows->clear();
      } else {
        served.put(0, 5, 7);
      }
      CHECK(failing.count() > 0);
    }
    if (clears) served.put(0, 5, 7);
    CHECK(served.rows->why_off().find("unknown") != std::string::npos);
    CHECK(warned.find("rows on GPU 0 are given up, and read from RAM from now on") == 0);
    CHECK(warned.find(served.rows->why_off()) != std::string::npos);
    const uint64_t before = served.lookups().hits;
    CHECK(served.row_of(0, 5) == served_row(served.tables[0], 0, 5, 7));
    CHECK(served.row_of(0, 6) == served_row(served.tables[0], 0, 6, 1));
    CHECK(served.lookups().hits == before);
    CHECK(served.rows->counts().rows() == 0);
    const TemporaryDirectory directory;
    const auto layer = Blocks(served.tables, 8).add(0, 0, 10).layer(directory / "8");
    CHECK(served.rows->keys_of(*layer) == nullptr);
  }
  set_warn(nullptr);
}
#endif

}  // namespace hotrow
