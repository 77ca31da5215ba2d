#include "core/lmdb/rows.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/lmdb/records.h"
#include "tests/error_code.h"
#include "tests/temporary_directory.h"

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
  LmdbWriter(directory, "g", "t", kWidth * sizeof(float))
      .write(keys.data(), keys.size(), reinterpret_cast<const std::byte*>(rows.data()), 1);
  LmdbRecords(directory, true)
      .swap({{"whole/g", std::nullopt, "[]"},
             {"generation/g", std::nullopt,
              R"({"format": 1, "generation": "g", "number": 1, "shards": 4, "state": "complete",
                "epoch": 0, "seq": 1, "tables": [{"name": "t", "dim": 3, "row_type": "float32", "default_value": 0.0,
                            "rows": 0, "pages": 0}]})"}});
}

// Reads rows of `count` keys; returns how many are unknown.
size_t read(const LmdbReader& reader, const int64_t* keys, size_t count, float* rows) {
  std::vector<ReadState> states(count);
  const ReadRequest request{0,       keys,         count, reinterpret_cast<std::byte*>(rows),
                            nullptr, states.data()};
  REQUIRE(reader.read(&request, 1, Deadline::max()).code == Code::kOk);
  return static_cast<size_t>(std::count(states.begin(), states.end(), ReadState::kUnknown));
}

}  // namespace

TEST_CASE("lmdb rows: rows are read back, other keys are unknown, a scan gives all") {
  const TemporaryDirectory directory;
  write(directory / "s", -500, 500, 1);
  const LmdbReader reader(directory / "s", "g", true);
  CHECK(reader.size(0) == 1000);
  const int64_t keys[] = {-500, 499, 500, INT64_MIN, 0};
  std::vector<float> rows(5 * kWidth);
  CHECK(read(reader, keys, 5, rows.data()) == 2);
  CHECK(std::vector<float>(rows.begin(), rows.begin() + 3) == row_of(-500, 1));
  CHECK(std::vector<float>(rows.begin() + 12, rows.end()) == row_of(0, 1));

  std::vector<int64_t> found(7);
  std::vector<float> found_rows(7 * kWidth);
  std::vector<RowVersion> versions(7);
  size_t total = 0;
  int64_t after = 0;
  for (bool start = true;; start = false) {
    const size_t count =
        reader.scan(0, start, after, 7, found.data(),
                    reinterpret_cast<std::byte*>(found_rows.data()), versions.data());
    for (size_t i = 0; i < count; ++i) {
      if (total + i > 0) REQUIRE(static_cast<uint64_t>(found[i]) > static_cast<uint64_t>(after));
      after = found[i];
      REQUIRE(found_rows[i * kWidth] == row_of(after, 1)[0]);
      REQUIRE(versions[i] == 1);
    }
    total += count;
    if (count < 7) break;
  }
  CHECK(total == 1000);
}

TEST_CASE("lmdb rows: a data file cut at any page is refused or read whole, never a crash") {
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
      const LmdbReader reader(place, "g", true);
      std::vector<uint64_t> digests(3 * reader.shards());
      reader.digests(0, digests.data());
      CHECK(reader.size(0) == 3000);
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

TEST_CASE("lmdb rows: readers see whole writes only while a writer goes on") {
  const TemporaryDirectory directory;
  const std::string store = directory / "s";
  constexpr int64_t kKeys = 50;
  write(store, 0, kKeys, 0);
  std::atomic<bool> done{false};
  std::atomic<int> mixed{0}, reads{0};
  std::vector<std::thread> readers;
  for (int t = 0; t < 3; ++t) {
    readers.emplace_back([&] {
      const LmdbReader reader(store, "g", true);
      std::vector<int64_t> keys(kKeys);
      for (int64_t key = 0; key < kKeys; ++key) keys[static_cast<size_t>(key)] = key;
      std::vector<float> rows(kKeys * kWidth);
      while (!done) {
        read(reader, keys.data(), kKeys, rows.data());
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
