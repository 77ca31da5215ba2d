#include "core/serving/hot_rows.h"

#include <doctest/doctest.h>

#include <atomic>
#include <random>
#include <thread>

#include "core/store/store_layout.h"
#include "tests/error_code.h"
#include "tests/stored_rows.h"

namespace hotrow {
namespace {

constexpr StoredType kTypes[] = {StoredType::kFloat32, StoredType::kBfloat16, StoredType::kFloat16,
                                 StoredType::kInt8};

HotRowsOptions options_of_rows(uint64_t rows, CachePolicy policy = CachePolicy::kLfu) {
  HotRowsOptions options;
  options.rows = rows;
  options.policy = policy;
  return options;
}

// Offers keys [first, last) in a version.
void fill(HotRows& cache, size_t number, int64_t first, int64_t last, RowVersion version,
          HotRows::Ticket ticket) {
  const StoredTable& table = cache.tables()[number];
  for (int64_t key = first; key < last; ++key) {
    std::vector<std::byte> row = stored_row(table, number, key, version);
    ReadState state = ReadState::kFound;
    const ReadRequest read = {number, &key, 1, row.data(), &version, &state};
    cache.fill(read, ticket);
  }
}
void fill(HotRows& cache, size_t number, int64_t first, int64_t last, RowVersion version) {
  fill(cache, number, first, last, version, cache.ticket());
}

void update(HotRows& cache, size_t number, int64_t key, RowVersion version) {
  const std::vector<std::byte> row = stored_row(cache.tables()[number], number, key, version);
  cache.update(number, &key, 1, row.data(), &version);
}

// The row of a key, or nothing.
std::vector<float> get(HotRows& cache, size_t number, int64_t key) {
  std::vector<float> row(cache.tables()[number].width, -1.0f);
  HotRows::Probe probe;
  probe.table = number;
  probe.keys = &key;
  probe.count = 1;
  probe.rows = row.data();
  std::vector<HotRows::Miss> misses;
  cache.gather(&probe, 1, &misses);
  if (!misses.empty()) row.clear();
  return row;
}
bool cached(HotRows& cache, size_t number, int64_t key) { return !get(cache, number, key).empty(); }

size_t count_cached(HotRows& cache, size_t number, int64_t first, int64_t last) {
  size_t count = 0;
  for (int64_t key = first; key < last; ++key) count += cached(cache, number, key);
  return count;
}

}  // namespace

TEST_CASE("hot rows: what was filled is found, decoded or as stored, in every type and width") {
  for (const StoredType type : kTypes) {
    for (const size_t width : {size_t{1}, size_t{7}, size_t{16}, size_t{33}, size_t{1100}}) {
      CAPTURE(name_of(type));
      CAPTURE(width);
      HotRows cache({stored_table("t", width, type, 200)}, options_of_rows(4000));
      fill(cache, 0, -50, 50, 3);
      std::vector<int64_t> keys;
      for (int64_t key = -60; key < 60; ++key) keys.push_back(key);
      keys.push_back(-50);  // once more
      const StoredTable& table = cache.tables()[0];
      std::vector<float> rows(keys.size() * width, -1.0f);
      std::vector<std::byte> records(keys.size() * table.row_bytes());
      HotRows::Probe probes[2];
      for (HotRows::Probe& probe : probes) {
        probe.keys = keys.data();
        probe.count = keys.size();
      }
      probes[0].rows = rows.data();
      probes[1].records = records.data();
      std::vector<HotRows::Miss> misses;
      cache.gather(probes, 2, &misses);
      REQUIRE(misses.size() == 40);
      for (size_t m = 0; m < misses.size(); ++m) {
        REQUIRE(misses[m].probe == m / 20);
        REQUIRE(misses[m].position == (m % 20 < 10 ? m % 20 : m % 20 + 100));
      }
      for (size_t i = 0; i < keys.size(); ++i) {
        if (keys[i] < -50 || keys[i] >= 50) continue;
        const std::vector<float> row = served_row(table, 0, keys[i], 3);
        REQUIRE(std::memcmp(row.data(), rows.data() + i * width, width * sizeof(float)) == 0);
        const std::vector<std::byte> record = stored_row(table, 0, keys[i], 3);
        REQUIRE(std::memcmp(record.data(), records.data() + i * record.size(), record.size()) == 0);
      }
      const HotCounts counts = cache.counts(0);
      CHECK(counts.hits == 202);
      CHECK(counts.misses == 40);
      CHECK(counts.inserted == 100);
      CHECK(counts.rows() == 100);
    }
  }
}

TEST_CASE("hot rows: tables with rows of one size share room and keep their rows apart") {
  HotRows cache({stored_table("a", 4, StoredType::kFloat32, 1000),
                 stored_table("b", 8, StoredType::kBfloat16, 1000),
                 stored_table("c", 12, StoredType::kInt8, 1000),
                 stored_table("d", 5, StoredType::kFloat32, 1000)},
                options_of_rows(6400));
  for (size_t t = 0; t < 4; ++t) fill(cache, t, 0, 100, t + 1);
  for (size_t t = 0; t < 4; ++t) {
    for (int64_t key = 0; key < 100; ++key) {
      REQUIRE(get(cache, t, key) == served_row(cache.tables()[t], t, key, t + 1));
    }
  }
  update(cache, 1, 5, 0 | kTombstone);  // older than what is there
  CHECK(cached(cache, 1, 5));
  update(cache, 1, 5, 9 | kTombstone);
  CHECK(!cached(cache, 1, 5));
  CHECK(cached(cache, 0, 5));
  CHECK(cached(cache, 2, 5));
}

TEST_CASE("hot rows: more than 256 tables of one row size keep their rows apart, too") {
  std::vector<StoredTable> tables;
  for (int t = 0; t < 300; ++t) tables.push_back(stored_table("t", 2, StoredType::kFloat32, 10));
  HotRows cache(tables, options_of_rows(100000));
  for (size_t t = 0; t < tables.size(); ++t) fill(cache, t, 1, 3, 1);
  size_t found = 0;
  for (size_t t = 0; t < tables.size(); ++t) {
    for (int64_t key = 1; key < 3; ++key) {
      const std::vector<float> row = get(cache, t, key);
      if (row.empty()) continue;
      ++found;
      REQUIRE(row == served_row(tables[t], t, key, 1));
    }
  }
  CHECK(found > 590);
}

TEST_CASE("hot rows: the bounds hold, in rows and in bytes, and wrong ones are refused") {
  const std::vector<StoredTable> tables = {stored_table("a", 16, StoredType::kFloat32, 1000000),
                                           stored_table("b", 4, StoredType::kFloat32, 1000)};
  HotRows by_rows(tables, options_of_rows(10000));
  CHECK(by_rows.slots() <= 10000 + 16);
  CHECK(by_rows.slots() > 9900);
  HotRowsOptions options;
  options.bytes = 1 << 20;
  HotRows by_bytes(tables, options);
  CHECK(by_bytes.bytes() <= (1 << 20));
  CHECK(by_bytes.bytes() > (1 << 20) - 2048);
  fill(by_bytes, 0, 0, 30000, 1);
  const HotCounts counts = by_bytes.counts(0);
  CHECK(counts.inserted + counts.refused == 30000);
  CHECK(counts.rows() <= by_bytes.slots());
  CHECK(counts.rows() == count_cached(by_bytes, 0, 0, 30000));
  // Not more than the tables can use.
  HotRows small({stored_table("b", 4, StoredType::kFloat32, 1000)}, options_of_rows(1 << 30));
  CHECK(small.slots() < 2100);
  StoredTable growing = stored_table("b", 4, StoredType::kFloat32, 1000);
  growing.planned_rows = 2000;
  CHECK(HotRows({growing}, options_of_rows(1 << 30)).slots() > 15900);
  CHECK(HotRows({growing}, options_of_rows(10000)).slots() <= 10000 + 16);
  options.rows = 5;
  CHECK(error_code([&] { HotRows(tables, options); }) == Code::kInvalidArgument);
  CHECK(error_code([&] { HotRows(tables, HotRowsOptions()); }) == Code::kInvalidArgument);
  CHECK(error_code([&] { get(by_rows, 0, 0), by_rows.counts(2); }) == Code::kInvalidArgument);
  CHECK(error_code([&] { by_rows.invalidate_shard(4, 4); }) == Code::kInvalidArgument);
}

TEST_CASE("hot rows: a slow fetch never undoes a newer update, whether the row is cached or not") {
  HotRows cache({stored_table("a", 4, StoredType::kFloat32, 1000)}, options_of_rows(1000));
  const StoredTable table = cache.tables()[0];
  // Cached: versions are compared.
  fill(cache, 0, 1, 2, 5);
  const HotRows::Ticket before = cache.ticket();
  update(cache, 0, 1, 7);
  CHECK(get(cache, 0, 1) == served_row(table, 0, 1, 7));
  fill(cache, 0, 1, 2, 6, before);
  fill(cache, 0, 1, 2, 6);
  CHECK(get(cache, 0, 1) == served_row(table, 0, 1, 7));
  update(cache, 0, 1, 6);
  CHECK(get(cache, 0, 1) == served_row(table, 0, 1, 7));
  fill(cache, 0, 1, 2, 8);
  CHECK(get(cache, 0, 1) == served_row(table, 0, 1, 8));
  // Not cached: the ticket is older than the update.
  update(cache, 0, 2, 7);
  CHECK(!cached(cache, 0, 2));
  fill(cache, 0, 2, 3, 6, before);
  CHECK(!cached(cache, 0, 2));
  fill(cache, 0, 2, 3, 7);
  CHECK(get(cache, 0, 2) == served_row(table, 0, 2, 7));
  // Removed while the fetch was on its way.
  const HotRows::Ticket on_its_way = cache.ticket();
  update(cache, 0, 2, 9 | kTombstone);
  fill(cache, 0, 2, 3, 7, on_its_way);
  CHECK(!cached(cache, 0, 2));
  // Cached, updated and evicted while the fetch was on its way.
  fill(cache, 0, 3, 4, 1);
  const HotRows::Ticket long_ago = cache.ticket();
  update(cache, 0, 3, 2);
  fill(cache, 0, 100, 20000, 1);
  for (int64_t key = 100; key < 20000 && cached(cache, 0, 3); ++key)
    fill(cache, 0, key, key + 1, 1);
  if (!cached(cache, 0, 3)) {
    fill(cache, 0, 3, 4, 1, long_ago);
    CHECK(!cached(cache, 0, 3));
  }
}

TEST_CASE("hot rows: invalidation takes a virtual shard or everything, and fetches on their way") {
  HotRows cache({stored_table("a", 4, StoredType::kFloat32, 4000),
                 stored_table("b", 6, StoredType::kFloat32, 4000)},
                options_of_rows(16000));
  for (size_t t = 0; t < 2; ++t) fill(cache, t, 0, 1000, 1);
  const size_t before = count_cached(cache, 0, 0, 1000);
  CHECK(before > 950);
  const HotRows::Ticket ticket = cache.ticket();
  cache.invalidate_shard(3, 8);
  for (int64_t key = 0; key < 1000; ++key) {
    if (store_shard_of(key, 8) != 3) continue;
    REQUIRE(!cached(cache, 0, key));
    REQUIRE(!cached(cache, 1, key));
    fill(cache, 0, key, key + 1, 1, ticket);
    REQUIRE(!cached(cache, 0, key));
  }
  const size_t after = count_cached(cache, 0, 0, 1000);
  CHECK(after > before * 6 / 8);
  CHECK(after < before * 15 / 16);
  CHECK(cache.counts(0).rows() == after);
  cache.clear();
  CHECK(count_cached(cache, 0, 0, 1000) == 0);
  CHECK(count_cached(cache, 1, 0, 1000) == 0);
  fill(cache, 0, 0, 10, 1, ticket);
  CHECK(count_cached(cache, 0, 0, 10) == 0);
  fill(cache, 0, 0, 10, 1);
  CHECK(count_cached(cache, 0, 0, 10) == 10);
}

TEST_CASE("hot rows: LFU keeps what is used much against a scan, and old counts decay") {
  HotRows cache({stored_table("a", 4, StoredType::kFloat32, 100000)}, options_of_rows(160));
  fill(cache, 0, 0, 60, 1);
  for (int round = 0; round < 5; ++round) count_cached(cache, 0, 0, 60);
  const size_t hot = count_cached(cache, 0, 0, 60);
  CHECK(hot > 55);
  for (int64_t key = 1000; key < 4000; ++key) {
    fill(cache, 0, key, key + 1, 1);
    if (key % 50 == 0) count_cached(cache, 0, 0, 60);
  }
  CHECK(count_cached(cache, 0, 0, 60) == hot);
  CHECK(cache.counts(0).refused > 2000);
}

TEST_CASE("hot rows: LFU evicts rows that are no longer requested") {
  HotRows cache({stored_table("a", 4, StoredType::kFloat32, 100000)}, options_of_rows(160));
  const auto ask = [&](int64_t first, int rounds) {
    for (int round = 0; round < rounds; ++round) {
      for (int64_t key = first; key < first + 160; ++key) {
        if (!cached(cache, 0, key)) fill(cache, 0, key, key + 1, 1);
      }
    }
  };
  ask(0, 1000);
  const size_t before = count_cached(cache, 0, 0, 160);
  CHECK(before > 120);
  ask(5000, 2);
  CHECK(count_cached(cache, 0, 0, 160) > before * 3 / 4);
  ask(5000, 200);
  CHECK(count_cached(cache, 0, 5000, 5160) > 120);
}

TEST_CASE("hot rows: LRU takes every newcomer, in the place of what was not used for longest") {
  HotRows cache({stored_table("a", 4, StoredType::kFloat32, 100000)},
                options_of_rows(16, CachePolicy::kLru));
  REQUIRE(cache.slots() == 16);
  fill(cache, 0, 0, 16, 1);
  for (int64_t key = 100; key < 1000; ++key) {
    REQUIRE(count_cached(cache, 0, 0, 4) == 4);
    fill(cache, 0, key, key + 1, 1);
    REQUIRE(cached(cache, 0, key));
  }
  CHECK(count_cached(cache, 0, 4, 16) == 0);
  CHECK(cache.counts(0).evicted == 900);
  CHECK(cache.counts(0).rows() == 16);
}

TEST_CASE("hot rows: no lookup sees a torn row or an older one than an update that had returned") {
  // Each row holds its version in all of its words.
  constexpr size_t kWidth = 17;
  constexpr int64_t kKeys = 200;
  for (const CachePolicy policy : {CachePolicy::kLfu, CachePolicy::kLru}) {
    for (const uint64_t slots : {64u, 400u}) {
      HotRows cache({stored_table("a", kWidth, StoredType::kFloat32, 10000)},
                    options_of_rows(slots, policy));
      const auto row_of = [](int64_t key, RowVersion version) {
        std::vector<uint32_t> row(kWidth);
        for (uint32_t j = 0; j < kWidth; ++j) {
          row[j] = static_cast<uint32_t>(version * 1000 + static_cast<uint64_t>(key)) ^ (j << 28);
        }
        return row;
      };
      std::vector<std::atomic<uint64_t>> stored(kKeys), announced(kKeys);
      for (auto& version : stored) version = 1;
      for (auto& version : announced) version = 1;
      std::atomic<bool> stop{false};
      std::atomic<uint64_t> torn{0}, old{0}, hits{0};
      std::vector<std::thread> threads;
      for (unsigned w = 0; w < 2; ++w) {
        threads.emplace_back([&, w] {
          std::mt19937_64 random(w);
          for (int i = 0; i < 10000; ++i) {
            const auto key = static_cast<int64_t>(random() % (kKeys / 2) * 2 + w);
            const RowVersion version = stored[key] + 1;
            stored[key] = version;  // first the store, then the cache
            const std::vector<uint32_t> row = row_of(key, version);
            cache.update(0, &key, 1, reinterpret_cast<const std::byte*>(row.data()), &version);
            announced[key] = version;
            if (i % 5000 == 0) cache.invalidate_shard(0, 2);
            // Fills need a moment without updates of their set.
            if (i % 20 == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
          }
          stop = true;
        });
      }
      for (unsigned r = 0; r < 3; ++r) {
        threads.emplace_back([&, r] {
          std::mt19937_64 random(r + 10);
          std::vector<int64_t> keys(40);
          std::vector<uint32_t> rows(keys.size() * kWidth);
          std::vector<uint64_t> least(keys.size());
          std::vector<HotRows::Miss> misses;
          while (!stop) {
            for (size_t i = 0; i < keys.size(); ++i) {
              keys[i] = static_cast<int64_t>(random() % kKeys);
              least[i] = announced[keys[i]];
            }
            HotRows::Probe probe;
            probe.keys = keys.data();
            probe.count = keys.size();
            probe.rows = reinterpret_cast<float*>(rows.data());
            misses.clear();
            cache.gather(&probe, 1, &misses);
            std::vector<bool> missed(keys.size());
            for (const HotRows::Miss& miss : misses) missed[miss.position] = true;
            for (size_t i = 0; i < keys.size(); ++i) {
              if (missed[i]) continue;
              ++hits;
              const uint32_t* row = &rows[i * kWidth];
              for (uint32_t j = 0; j < kWidth; ++j) torn += (row[j] ^ (j << 28)) != row[0];
              torn += row[0] % 1000 != static_cast<uint32_t>(keys[i]);
              old += row[0] / 1000 < least[i];
            }
            // A fetch, which may be slow.
            const HotRows::Ticket ticket = cache.ticket();
            for (const HotRows::Miss& miss : misses) {
              const int64_t key = keys[miss.position];
              RowVersion version = stored[key];
              std::vector<uint32_t> row = row_of(key, version);
              if (random() % 64 == 0) std::this_thread::yield();
              ReadState state = ReadState::kFound;
              const ReadRequest read = {
                  0, &key, 1, reinterpret_cast<std::byte*>(row.data()), &version, &state};
              cache.fill(read, ticket);
            }
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      CHECK(torn == 0);
      CHECK(old == 0);
      CHECK(hits > 0);
    }
  }
}

}  // namespace hotrow
