#include "core/lmdb_store.h"

#include <doctest/doctest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "error_code.h"
#include "temporary_directory.h"

namespace hotrow {
namespace {

constexpr size_t kWidth = 3;

// The row of a key in its n-th version.
std::vector<float> row_of(int64_t key, int version) {
  const float value = static_cast<float>(key % 1000) + static_cast<float>(version) * 1000.0f;
  return {value, -value, 0.5f};
}

void write(const std::string& directory, int64_t first, int64_t last, int version) {
  std::vector<int64_t> keys;
  std::vector<float> rows;
  for (int64_t key = first; key < last; ++key) {
    keys.push_back(key);
    const std::vector<float> row = row_of(key, version);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  LmdbWriter(directory, "g", "t", kWidth).put(keys.data(), keys.size(), rows.data());
}

}  // namespace

TEST_CASE("lmdb store: rows are read back, unknown keys read the default, a scan gives all") {
  const TemporaryDirectory directory;
  write(directory / "s", -500, 500, 1);
  const LmdbReader reader(directory / "s", "g", "t", kWidth, 9.0f);
  CHECK(reader.size() == 1000);
  const int64_t keys[] = {-500, 499, 500, INT64_MIN, 0};
  std::vector<float> rows(5 * kWidth);
  CHECK(reader.read(keys, 5, rows.data()) == 2);
  CHECK(std::vector<float>(rows.begin(), rows.begin() + 3) == row_of(-500, 1));
  CHECK(rows[6] == 9.0f);
  CHECK(std::vector<float>(rows.begin() + 12, rows.end()) == row_of(0, 1));

  std::vector<int64_t> found(7);
  std::vector<float> found_rows(7 * kWidth);
  size_t total = 0;
  int64_t after = 0;
  for (bool start = true;; start = false) {
    const size_t count = reader.scan(start, after, 7, found.data(), found_rows.data());
    for (size_t i = 0; i < count; ++i) {
      if (total + i > 0) REQUIRE(static_cast<uint64_t>(found[i]) > static_cast<uint64_t>(after));
      after = found[i];
      REQUIRE(found_rows[i * kWidth] == row_of(after, 1)[0]);
    }
    total += count;
    if (count < 7) break;
  }
  CHECK(total == 1000);
}

TEST_CASE("lmdb store: a data file cut at any page is refused or read whole, never a crash") {
  const TemporaryDirectory directory;
  write(directory / "whole", 0, 3000, 1);
  const std::string whole = directory / "whole/data.mdb";
  const size_t size = std::filesystem::file_size(whole);
  size_t refused = 0, cuts = 0;
  for (size_t cut = 0; cut < size; cut += cut < 8192 ? 777 : 40000, ++cuts) {
    const std::string place = directory / ("cut" + std::to_string(cut));
    std::filesystem::create_directory(place);
    std::filesystem::copy_file(whole, place + "/data.mdb");
    std::filesystem::resize_file(place + "/data.mdb", cut);
    const Code code = error_code([&] {
      const LmdbReader reader(place, "g", "t", kWidth, 0.0f);
      uint64_t digest[2];
      reader.digest(digest);
      CHECK(reader.size() == 3000);
    });
    // LMDB makes a new store of an empty file; there is no table in it.
    const bool said = code == Code::kDataLoss || (cut == 0 && code == Code::kNotFound);
    CAPTURE(cut);
    CAPTURE(static_cast<int>(code));
    CHECK(said);
    refused += said;
  }
  CHECK(cuts > 10);
  CHECK(refused == cuts);
}

TEST_CASE("lmdb store: readers see whole writes only while a writer goes on") {
  const TemporaryDirectory directory;
  const std::string store = directory / "s";
  constexpr int64_t kKeys = 50;
  write(store, 0, kKeys, 0);
  std::atomic<bool> done{false};
  std::atomic<int> mixed{0}, reads{0};
  std::vector<std::thread> readers;
  for (int t = 0; t < 3; ++t) {
    readers.emplace_back([&] {
      const LmdbReader reader(store, "g", "t", kWidth, 0.0f);
      std::vector<int64_t> keys(kKeys);
      for (int64_t key = 0; key < kKeys; ++key) keys[static_cast<size_t>(key)] = key;
      std::vector<float> rows(kKeys * kWidth);
      while (!done) {
        reader.read(keys.data(), kKeys, rows.data());
        const int version = static_cast<int>(rows[0]) / 1000;
        for (int64_t key = 0; key < kKeys; ++key) {
          mixed += rows[static_cast<size_t>(key) * kWidth] != row_of(key, version)[0];
        }
        ++reads;
      }
    });
  }
  for (int version = 1; version < 30 || reads < 30; ++version) write(store, 0, kKeys, version);
  done = true;
  for (std::thread& reader : readers) reader.join();
  CHECK(mixed == 0);
}

}  // namespace hotrow
