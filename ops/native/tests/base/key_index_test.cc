#include "core/base/key_index.h"

#include <doctest/doctest.h>

#include <random>
#include <unordered_map>

#include "tests/failing_memory.h"

namespace hotrow {
namespace {

// An index with the keys of its rows, as in a partition.
struct Index {
  SlabMemory memory;
  KeyIndex index{memory};
  std::vector<int64_t> keys;  // by row
  std::vector<uint32_t> free;

  static uint64_t hash(int64_t key) { return mix64(static_cast<uint64_t>(key)); }
  uint32_t find(int64_t key) const {
    return index.find(hash(key), [&](uint32_t row) { return keys[row] == key; });
  }
  uint32_t insert(int64_t key) {
    uint32_t row = static_cast<uint32_t>(keys.size());
    if (free.empty()) {
      keys.push_back(key);
    } else {
      row = free.back();
      free.pop_back();
      keys[row] = key;
    }
    index.insert(hash(key), row, [&](uint32_t r) { return hash(keys[r]); }, [](uint32_t) {});
    return row;
  }
  void erase(int64_t key, uint32_t row) {
    index.erase(hash(key), row);
    free.push_back(row);
  }
};

// Keys of partition 3 of 32, as one index of a table holds them.
int64_t partition_key(std::mt19937_64& random) {
  for (;;) {
    const int64_t key = static_cast<int64_t>(random());
    if (Index::hash(key) >> 59 == 3) return key;
  }
}

}  // namespace

TEST_CASE("key index: an empty index knows nothing, also after it was cleared") {
  Index it;
  CHECK(it.find(0) == KeyIndex::kAbsent);
  CHECK(it.index.size() == 0);
  CHECK(it.memory.bytes() == 0);
  for (int64_t key = 0; key < 5000; ++key) it.insert(key);
  CHECK(it.find(4999) == 4999);
  it.index.clear();
  it.memory.clear();
  it.keys.clear();
  CHECK(it.find(4999) == KeyIndex::kAbsent);
  CHECK(it.insert(4999) == 0);
  CHECK(it.find(4999) == 0);
}

TEST_CASE("key index: agrees with std::unordered_map while keys come and go") {
  Index it;
  std::unordered_map<int64_t, uint32_t> model;
  std::vector<int64_t> known;
  std::mt19937_64 random(1);
  // The share of insertions varies: the index grows to about 200,000 keys, empties, and grows
  // again.
  for (const unsigned inserts_of_100 : {90u, 50u, 10u, 95u}) {
    for (int i = 0; i < 150000; ++i) {
      if (random() % 100 < inserts_of_100 || known.empty()) {
        const int64_t key = partition_key(random);
        REQUIRE(it.find(key) == KeyIndex::kAbsent);
        model[key] = it.insert(key);
        known.push_back(key);
      } else {
        const size_t at = random() % known.size();
        const int64_t key = known[at];
        REQUIRE(it.find(key) == model[key]);
        it.erase(key, model[key]);
        model.erase(key);
        known[at] = known.back();
        known.pop_back();
        REQUIRE(it.find(key) == KeyIndex::kAbsent);
      }
    }
    REQUIRE(it.index.size() == model.size());
    for (const auto& [key, row] : model) REQUIRE(it.find(key) == row);
  }
}

TEST_CASE("key index: keys of every partition and pattern are found") {
  for (const int64_t stride : {int64_t{1}, int64_t{1} << 32, int64_t{1} << 58, int64_t{-1000003}}) {
    Index it;
    for (int64_t i = 0; i < 20000; ++i) {
      // Multiples wrap round 2^64 for the widest stride: 64 distinct ones.
      const int64_t key =
          static_cast<int64_t>(static_cast<uint64_t>(i) * static_cast<uint64_t>(stride));
      if (it.find(key) == KeyIndex::kAbsent) it.insert(key);
    }
    CHECK(it.index.size() == (stride == int64_t{1} << 58 ? 64 : 20000));
    for (uint32_t row = 0; row < it.keys.size(); ++row) REQUIRE(it.find(it.keys[row]) == row);
  }
}

TEST_CASE("key index: memory stays near 64 bytes for 12 keys while it grows") {
  Index it;
  std::mt19937_64 random(2);
  for (size_t size = 1; size <= 400000; ++size) {
    it.insert(partition_key(random));
    if (size < 20000) continue;
    const double bytes = static_cast<double>(it.memory.bytes()) / static_cast<double>(size);
    // At most 86 % full; a split briefly lowers a segment's load to 7/12 at least.
    REQUIRE(bytes >= 64.0 / 12.0 / 0.86);
    REQUIRE(bytes <= 12.0);
  }
}

TEST_CASE("key index: no insertion moves more than one segment") {
  Index it;
  std::mt19937_64 random(3);
  size_t most = 0;
  for (int i = 0; i < 300000; ++i) {
    const int64_t key = partition_key(random);
    const uint32_t row = static_cast<uint32_t>(it.keys.size());
    it.keys.push_back(key);
    size_t moved = 0;
    it.index.insert(
        Index::hash(key), row,
        [&](uint32_t r) {
          ++moved;
          return Index::hash(it.keys[r]);
        },
        [](uint32_t) {});
    most = std::max(most, moved);
  }
  CHECK(most > 0);
  // 12 units of 64 buckets of 12 rows.
  CHECK(most <= 12 * 64 * 12);
}

TEST_CASE("key index: keys whose hashes agree in all that the index looks at are kept apart") {
  // Same home, same tag, same directory place at every depth reached: only the key differs.
  SlabMemory memory;
  KeyIndex index(memory);
  const uint64_t hash = 0x1234567890abcdefULL;
  for (uint32_t row = 0; row < 500; ++row)
    index.insert(hash, row, [&](uint32_t) { return hash; }, [](uint32_t) {});
  for (uint32_t row = 0; row < 500; ++row) {
    REQUIRE(index.find(hash, [&](uint32_t r) { return r == row; }) == row);
  }
  for (uint32_t row = 0; row < 500; row += 2) index.erase(hash, row);
  for (uint32_t row = 0; row < 500; ++row) {
    const uint32_t expected = row % 2 == 0 ? KeyIndex::kAbsent : row;
    REQUIRE(index.find(hash, [&](uint32_t r) { return r == row; }) == expected);
  }
  CHECK(index.size() == 250);
}

TEST_CASE("key index: an insertion without memory leaves the index as it was") {
  if (!kFailingMemory) return;
  for (int64_t from = 0; from < 8; ++from) {
    CAPTURE(from);
    Index it;
    it.keys.reserve(30000);
    std::mt19937_64 random(7);
    size_t failures = 0;
    for (uint32_t row = 0; row < 30000; ++row) {
      const int64_t key = partition_key(random);
      bool failed = false;
      {
        const FailingMemory memory(from, true);
        try {
          it.insert(key);
        } catch (const std::exception&) {
          failed = true;
        }
      }
      if (!failed) continue;
      ++failures;
      REQUIRE(it.index.size() == row);
      it.keys.pop_back();
      REQUIRE(it.find(key) == KeyIndex::kAbsent);
      for (uint32_t r = 0; r < row; ++r) REQUIRE(it.find(it.keys[r]) == r);
      REQUIRE(it.insert(key) == row);
    }
    if (from == 0) CHECK(failures > 5);
    for (uint32_t row = 0; row < 30000; ++row) REQUIRE(it.find(it.keys[row]) == row);
  }
}

}  // namespace hotrow
