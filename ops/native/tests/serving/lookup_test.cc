#include "core/serving/lookup.h"

#include <doctest/doctest.h>

#include <thread>

#include "tests/error_code.h"
#include "tests/serving/random_request.h"
#include "tests/serving/slow_reader.h"
#include "tests/stored_rows.h"

namespace hotrow {
namespace {

// Two threads that share the tasks.
const hr_executor* two_threads() {
  static const hr_executor executor = {
      nullptr, 2, [](void*, size_t tasks, void (*task)(void*, size_t), void* argument) {
        std::vector<std::thread> threads;
        for (size_t i = 0; i < tasks; ++i) threads.emplace_back([=] { task(argument, i); });
        for (std::thread& thread : threads) thread.join();
      }};
  return &executor;
}

// A lookup of plain keys of table 0.
struct Plain {
  Plain(const ServingLookup& lookup, std::vector<int64_t> keys, Deadline deadline)
      : rows(keys.size() * lookup.tables()[0].width) {
    ServingFeature feature;
    feature.keys = keys.data();
    feature.segments.keys = feature.segments.samples = keys.size();
    float* out = rows.data();
    report = lookup.lookup(&feature, 1, &out, deadline);
  }
  std::vector<float> row(size_t i, size_t width = 16) const {
    const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(i * width);
    return {begin, begin + static_cast<std::ptrdiff_t>(width)};
  }
  std::vector<float> rows;
  LookupReport report;
};

}  // namespace

TEST_CASE("serving lookup: the same bits as without a cache, at every size of it, on 8 threads") {
  const std::vector<StoredTable> tables = all_tables();
  const auto reader = stored(tables);
  const uint64_t all = tables.size() * kStored;
  for (const uint64_t rows : {uint64_t{0}, uint64_t{1}, all / 10, all / 2, all, 2 * all}) {
    for (const CachePolicy policy : {CachePolicy::kLfu, CachePolicy::kLru}) {
      CAPTURE(rows);
      const auto cache = rows == 0 ? nullptr : cache_of(tables, rows, policy);
      for (const bool share : {false, true}) {
        ServingLookupOptions options;
        options.share_fetches = share;
        const ServingLookup lookup(reader, cache, options);
        std::atomic<int> wrong{0};
        std::atomic<uint64_t> keys{0}, hits{0};
        std::vector<std::thread> threads;
        for (unsigned t = 0; t < 8; ++t) {
          threads.emplace_back([&, t] {
            for (unsigned i = 0; i < 6; ++i) {
              Request request(tables, i == 0 ? 1 : 50, 100 * t + i);
              const LookupReport report = request.run(lookup);
              wrong += request.outputs != request.expected(*reader);
              wrong += report.failed != 0;
              keys += report.keys;
              hits += report.hits;
            }
          });
        }
        for (std::thread& thread : threads) thread.join();
        CHECK(wrong == 0);
        if (rows == 0) CHECK(hits == 0);
        if (rows >= all / 2) CHECK(hits > keys / 3);
      }
    }
  }
}

TEST_CASE("serving lookup: a large lookup over threads has the same bits") {
  const std::vector<StoredTable> tables = all_tables();
  const auto reader = stored(tables);
  const ServingLookup lookup(reader, cache_of(tables, 1000), {});
  const ServingLookup uncached(reader, nullptr, {});
  for (unsigned seed = 0; seed < 3; ++seed) {
    Request request(tables, 3000, seed);
    request.run(lookup, Executor(two_threads()));
    const auto expected = request.expected(*reader);
    CHECK(request.outputs == expected);
    request.run(uncached, Executor(two_threads()));
    CHECK(request.outputs == expected);
  }
}

TEST_CASE("serving lookup: the report has hits, unknown keys and fetches, and so do the counts") {
  const std::vector<StoredTable> tables = all_tables();
  const ServingLookup lookup(stored(tables), cache_of(tables, 10000), {});
  const Plain first(lookup, {1, 2, 2, 9999, 9999, 9999, -5}, never());
  CHECK(first.report.keys == 7);
  CHECK(first.report.hits == 0);
  CHECK(first.report.fetched == 4);
  CHECK(first.report.unknown == 2);
  CHECK(first.report.failed == 0);
  CHECK(first.row(1) == served_row(tables[0], 0, 2, 1));
  CHECK(first.row(4) == std::vector<float>(16, 0.25f));
  const Plain second(lookup, {1, 2, 2, 9999}, never());
  CHECK(second.report.hits == 3);
  CHECK(second.report.fetched == 1);
  CHECK(second.report.unknown == 1);
  const LookupCounts counts = lookup.counts(0);
  CHECK(counts.fetched == 5);
  CHECK(counts.unknown == 3);
  CHECK(counts.failed == 0);
  CHECK(lookup.counts(1).fetched == 0);
  CHECK(lookup.lookup(nullptr, 0, nullptr, never()).keys == 0);
  CHECK(Plain(lookup, {}, never()).report.keys == 0);
}

TEST_CASE("serving lookup: an unknown key is asked for again, and found once the store has it") {
  const std::vector<StoredTable> tables = all_tables();
  const auto reader = stored(tables);
  const auto cache = cache_of(tables, 10000);
  const ServingLookup lookup(reader, cache, {});
  CHECK(Plain(lookup, {5000}, never()).report.unknown == 1);
  put_rows(*reader, 0, 5000, 5001, 3);
  const Plain found(lookup, {5000}, never());
  CHECK(found.report.unknown == 0);
  CHECK(found.row(0) == served_row(tables[0], 0, 5000, 3));
  CHECK(Plain(lookup, {5000}, never()).report.hits == 1);
  // And again unknown, when it is removed.
  const int64_t key = 5000;
  const RowVersion version = 4 | kTombstone;
  reader->put(0, &key, 1, nullptr, &version);
  cache->update(0, &key, 1, nullptr, &version);
  const Plain gone(lookup, {5000}, never());
  CHECK(gone.report.unknown == 1);
  CHECK(gone.row(0) == std::vector<float>(16, 0.25f));
}

TEST_CASE("serving lookup: keys that cannot be read fail the lookup, or read the default row") {
  const std::vector<StoredTable> tables = all_tables();
  const auto memory = stored(tables);
  for (const bool share : {false, true}) {
    const auto slow = std::make_shared<SlowReader>(*memory);
    const auto cache = cache_of(tables, 10000);
    ServingLookupOptions options;
    options.share_fetches = share;
    const ServingLookup strict(slow, cache, options);
    options.on_store_failure = OnStoreFailure::kDefault;
    const ServingLookup lenient(slow, cache, options);
    Plain(strict, {1}, never());
    slow->set_failing({1, 2, 3});
    const Plain half(lenient, {1, 2, 3, 3, 4, 9999}, never());
    CHECK(half.report.hits == 1);
    CHECK(half.report.failed == 2);
    CHECK(half.report.unknown == 1);
    CHECK(half.report.failure.message == "shard 3 is away");
    CHECK(half.row(0) == served_row(tables[0], 0, 1, 1));
    CHECK(half.row(2) == std::vector<float>(16, 0.25f));
    CHECK(half.row(4) == served_row(tables[0], 0, 4, 1));
    CHECK(lenient.counts(0).failed == 2);
    CHECK(lenient.counts(0).defaulted == 3);
    try {
      Plain(strict, {2, 3, 5}, never());
      FAIL("must throw");
    } catch (const Error& error) {
      CHECK(error.code() == Code::kUnavailable);
      const std::string message = error.what();
      CHECK(message.find("table a: 2 of 3 rows") != std::string::npos);
      CHECK(message.find("shard 3 is away") != std::string::npos);
    }
    // Rows that were read are cached; rows that failed are not.
    slow->set_failing({});
    CHECK(Plain(strict, {5, 2}, never()).report.hits == 1);
    slow->set_open(false);
    const Plain late(lenient, {1, 20}, in_milliseconds(30));
    CHECK(late.report.hits == 1);
    CHECK(late.report.failed == 1);
    CHECK(late.row(0) == served_row(tables[0], 0, 1, 1));
    CHECK(error_code([&] { Plain(strict, {20}, in_milliseconds(30)); }) == Code::kUnavailable);
    slow->set_open(true);
    slow->set_throwing(true);
    CHECK(error_code([&] { Plain(strict, {20}, never()); }) == Code::kInternal);
    slow->set_throwing(false);
    CHECK(Plain(strict, {20}, never()).row(0) == served_row(tables[0], 0, 20, 1));
  }
}

TEST_CASE("serving lookup: all tables count what failed, and the first is named") {
  const std::vector<StoredTable> tables = all_tables();
  const auto memory = stored(tables);
  const auto slow = std::make_shared<SlowReader>(*memory);
  slow->set_failing({2});
  const ServingLookup lookup(slow, nullptr, {});
  const int64_t keys[] = {1, 2, 2};
  ServingFeature features[3];
  std::vector<std::vector<float>> rows(3, std::vector<float>(3 * 32));
  std::vector<float*> outputs;
  for (size_t f = 0; f < 3; ++f) {
    features[f].table = 4 - f;
    features[f].keys = keys;
    features[f].segments.keys = features[f].segments.samples = 3;
    outputs.push_back(rows[f].data());
  }
  try {
    lookup.lookup(features, 3, outputs.data(), never());
    FAIL("must throw");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("table c: 1 of 2 rows") != std::string::npos);
  }
  for (size_t t = 0; t < 5; ++t) CHECK(lookup.counts(t).failed == (t < 2 ? 0 : 1));
}

TEST_CASE("serving lookup: a row that changes while it is fetched is not cached as it was") {
  const std::vector<StoredTable> tables = all_tables();
  const auto memory = stored(tables);
  const auto slow = std::make_shared<SlowReader>(*memory);
  const auto cache = cache_of(tables, 10000);
  const ServingLookup lookup(slow, cache, {});
  slow->set_open(false);
  std::vector<float> first, second;
  std::thread old([&] { first = Plain(lookup, {7}, never()).row(0); });
  slow->await_reads(1);
  put_rows(*memory, 0, 7, 8, 2);
  const int64_t key = 7;
  const RowVersion version = 2;
  cache->update(0, &key, 1, stored_row(tables[0], 0, 7, 2).data(), &version);
  // A lookup that begins now must not wait for the old fetch.
  std::thread fresh([&] { second = Plain(lookup, {7}, never()).row(0); });
  slow->await_reads(2);
  slow->set_open(true);
  old.join();
  fresh.join();
  CHECK(first == served_row(tables[0], 0, 7, 1));
  CHECK(second == served_row(tables[0], 0, 7, 2));
  CHECK(Plain(lookup, {7}, never()).row(0) == served_row(tables[0], 0, 7, 2));
}

TEST_CASE("serving lookup: concurrent lookups that miss a key fetch it once") {
  const std::vector<StoredTable> tables = all_tables();
  const auto memory = stored(tables);
  const auto slow = std::make_shared<SlowReader>(*memory);
  const auto cache = cache_of(tables, 10000);
  const ServingLookup lookup(slow, cache, {});
  slow->set_open(false);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back(
        [&] { wrong += Plain(lookup, {7, 7}, never()).row(1) != served_row(tables[0], 0, 7, 1); });
  }
  while (lookup.waited() < 7) std::this_thread::yield();
  slow->set_open(true);
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(slow->reads() == 1);
  CHECK(slow->keys() == 1);
}

TEST_CASE("serving lookup: no lookup is older than an update that had returned, under a stream") {
  const std::vector<StoredTable> tables = {stored_table("a", 4, StoredType::kFloat32, 400)};
  const auto reader = std::make_shared<MemoryReader>(tables);
  constexpr int64_t kKeys = 100;
  // The first weight is the version, which must not go back.
  const auto put = [&](int64_t key, RowVersion version) {
    const std::vector<float> row(4, static_cast<float>(version));
    reader->put(0, &key, 1, reinterpret_cast<const std::byte*>(row.data()), &version);
    return row;
  };
  for (int64_t key = 0; key < kKeys; ++key) put(key, 1);
  const auto cache = cache_of(tables, 48);
  const ServingLookup lookup(reader, cache, {});
  std::vector<std::atomic<uint64_t>> announced(kKeys);
  for (auto& version : announced) version = 1;
  std::atomic<bool> stop{false};
  std::atomic<int> old{0};
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    std::mt19937_64 random(1);
    for (int i = 0; i < 20000; ++i) {
      const auto key = static_cast<int64_t>(random() % kKeys);
      const RowVersion version = announced[key] + 1;
      const std::vector<float> row = put(key, version);
      cache->update(0, &key, 1, reinterpret_cast<const std::byte*>(row.data()), &version);
      announced[key] = version;
    }
    stop = true;
  });
  for (unsigned t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      while (!stop) {
        std::vector<int64_t> keys(10);
        std::vector<uint64_t> least;
        for (int64_t& key : keys) {
          key = static_cast<int64_t>(random() % kKeys);
          least.push_back(announced[key]);
        }
        const Plain got(lookup, keys, never());
        for (size_t i = 0; i < keys.size(); ++i) {
          old += got.rows[i * 4] < static_cast<float>(least[i]);
          old += got.rows[i * 4] != got.rows[i * 4 + 3];
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(old == 0);
}

TEST_CASE("serving lookup: wrong features and caches are refused by name") {
  const std::vector<StoredTable> tables = all_tables();
  const auto reader = stored(tables);
  const ServingLookup lookup(reader, nullptr, {});
  const int64_t keys[] = {1, 2};
  const int64_t splits[] = {0, 3};
  float rows[64];
  float* out = rows;
  ServingFeature feature;
  feature.name = "f";
  feature.table = 5;
  feature.keys = keys;
  feature.segments.keys = feature.segments.samples = 2;
  const auto run = [&] { lookup.lookup(&feature, 1, &out, never()); };
  CHECK(error_code(run) == Code::kInvalidArgument);
  feature.table = 0;
  feature.segments.combiner = Combiner::kSum;
  feature.segments.samples = 1;
  CHECK(error_code(run) == Code::kInvalidArgument);
  feature.segments.row_splits = splits;
  CHECK(error_code(run) == Code::kInvalidArgument);
  auto others = tables;
  others[1].width = 6;
  CHECK(error_code([&] { ServingLookup(reader, cache_of(others, 10), {}); }) ==
        Code::kInvalidArgument);
  others.pop_back();
  CHECK(error_code([&] { ServingLookup(reader, cache_of(others, 10), {}); }) ==
        Code::kInvalidArgument);
  CHECK(error_code([&] { lookup.counts(5); }) == Code::kInvalidArgument);
}

}  // namespace hotrow
