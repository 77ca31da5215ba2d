#include "core/table/row_cache.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "core/base/hash.h"
#include "tests/error_code.h"

namespace hotrow {
namespace {

constexpr size_t kStride = 32;

uint64_t hash_of(int64_t key) { return mix64(static_cast<uint64_t>(key)); }

// Looks a key up as a step does: counts the use, and inserts the row if it may. Returns whether it
// was there.
bool use(RowCache& cache, int64_t key) {
  const uint32_t found = cache.find(hash_of(key), key);
  cache.note_use(hash_of(key), found);
  if (found != RowCache::kNone) return true;
  const uint32_t slot = cache.choose(hash_of(key), RowCache::Admit::kIfWorthMore);
  if (slot == RowCache::kNone) return false;
  cache.release(slot);
  cache.put(slot, hash_of(key), key, static_cast<uint32_t>(key));
  return false;
}

// Keys whose hashes fall into one set of a cache of 32 sets: those of partition 0.
std::vector<int64_t> keys_of_a_set(size_t count) {
  std::vector<int64_t> keys;
  for (int64_t key = 0; keys.size() < count; ++key) {
    if (hash_of(key) >> 59 == 0) keys.push_back(key);
  }
  return keys;
}

// Shares of batches' distinct keys that were there.
double hits(RowCache& cache, const std::vector<std::vector<int64_t>>& batches, size_t warm) {
  size_t all = 0, found = 0;
  for (size_t b = 0; b < batches.size(); ++b) {
    for (const int64_t key : batches[b]) {
      const bool hit = use(cache, key);
      if (b < warm) continue;
      ++all;
      found += hit ? 1 : 0;
    }
  }
  return static_cast<double>(found) / static_cast<double>(all);
}

// Distinct keys of batches that are drawn from Zipf(1.05) over keys 0, 1, ... in this order of
// rank, which starts at `shift`.
std::vector<std::vector<int64_t>> zipf_batches(size_t batches, size_t lookups, size_t rows,
                                               size_t shift, uint64_t seed) {
  std::vector<double> sums(rows);
  double sum = 0;
  for (size_t i = 0; i < rows; ++i) sums[i] = sum += std::pow(static_cast<double>(i + 1), -1.05);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(0, sum);
  std::vector<std::vector<int64_t>> made(batches);
  for (auto& batch : made) {
    std::set<int64_t> seen;
    for (size_t i = 0; i < lookups; ++i) {
      const auto at = std::lower_bound(sums.begin(), sums.end(), uniform(random));
      seen.insert(static_cast<int64_t>((static_cast<size_t>(at - sums.begin()) + shift) % rows));
    }
    batch.assign(seen.begin(), seen.end());
    std::shuffle(batch.begin(), batch.end(), random);
  }
  return made;
}

}  // namespace

TEST_CASE("row cache: a row that was put in is found with its place until it is released") {
  RowCache cache(kStride, 5000, CachePolicy::kLru);
  std::map<int64_t, uint32_t> slots;
  for (int64_t key : {int64_t{0}, int64_t{-1}, INT64_MIN, INT64_MAX, int64_t{77}}) {
    REQUIRE(cache.find(hash_of(key), key) == RowCache::kNone);
    const uint32_t slot = cache.choose(hash_of(key), RowCache::Admit::kIfWorthMore);
    REQUIRE(!cache.used(slot));
    cache.put(slot, hash_of(key), key, static_cast<uint32_t>(slots.size()));
    slots[key] = slot;
  }
  uint32_t place = 0;
  for (int64_t key : {int64_t{0}, int64_t{-1}, INT64_MIN, INT64_MAX, int64_t{77}}) {
    CHECK(cache.find(hash_of(key), key) == slots[key]);
    CHECK(cache.place(slots[key]) == place++);
    CHECK(cache.header(slots[key]).key == key);
  }
  cache.release(slots[77]);
  CHECK(cache.find(hash_of(77), 77) == RowCache::kNone);
  CHECK(cache.find(hash_of(-1), -1) == slots[-1]);
  cache.clear();
  CHECK(cache.find(hash_of(-1), -1) == RowCache::kNone);
}

TEST_CASE("row cache: it has at least the slots asked for, evenly in all partitions") {
  for (const size_t rows : {size_t{1}, size_t{512}, size_t{513}, size_t{100000}}) {
    RowCache cache(kStride, rows, CachePolicy::kLfu);
    CHECK(cache.slots() >= rows);
    CHECK(cache.slots() < rows + 32 * RowCache::kWays);
    CHECK(cache.slots() % (32 * RowCache::kWays) == 0);
  }
  CHECK(RowCache::overhead() <= 32);
  RowCache cache(kStride, 100000, CachePolicy::kLfu);
  CHECK(cache.bytes() <= cache.slots() * (kStride - sizeof(RowHeader) + 32) + 8192);
}

TEST_CASE("row cache: more rows than slots can be numbered are refused") {
  for (const size_t rows : {size_t{4294966785}, SIZE_MAX - 3, SIZE_MAX}) {
    CHECK(error_code([&] { RowCache(kStride, rows, CachePolicy::kLfu); }) ==
          Code::kInvalidArgument);
  }
}

TEST_CASE("row cache: lru gives up what was not used for longest") {
  RowCache cache(kStride, 512, CachePolicy::kLru);
  const std::vector<int64_t> keys = keys_of_a_set(18);
  for (size_t i = 0; i < 16; ++i) CHECK(!use(cache, keys[i]));
  // Uses that are many ticks of the set's clock apart.
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < 16; ++i) {
      if (i != 5) CHECK(use(cache, keys[i]));
    }
  }
  CHECK(!use(cache, keys[16]));
  CHECK(cache.find(hash_of(keys[5]), keys[5]) == RowCache::kNone);
  for (size_t i = 0; i < 17; ++i) {
    if (i != 5) CHECK(cache.find(hash_of(keys[i]), keys[i]) != RowCache::kNone);
  }
}

TEST_CASE("row cache: with lfu a newcomer comes in when it was used more than the least") {
  RowCache cache(kStride, 512, CachePolicy::kLfu);
  const std::vector<int64_t> keys = keys_of_a_set(17);
  for (size_t i = 0; i < 16; ++i) {
    for (int n = 0; n < 3; ++n) use(cache, keys[i]);
  }
  const auto is_in = [&](int64_t key) { return cache.find(hash_of(key), key) != RowCache::kNone; };
  int uses = 0;
  while (!is_in(keys[16])) {
    use(cache, keys[16]);
    REQUIRE(++uses < 10);
  }
  CHECK(uses >= 3);
}

TEST_CASE("row cache: a pinned row is not evicted") {
  RowCache cache(kStride, 512, CachePolicy::kLru);
  const std::vector<int64_t> keys = keys_of_a_set(40);
  for (size_t i = 0; i < 16; ++i) use(cache, keys[i]);
  std::vector<uint32_t> slots;
  for (size_t i = 0; i < 16; ++i) {
    slots.push_back(cache.find(hash_of(keys[i]), keys[i]));
    cache.pin(slots.back(), RowCache::kLookup);
    cache.pin(slots.back(), RowCache::kEvenWindow);
    cache.pin(slots.back(), RowCache::kEvenWindow);
  }
  const auto victim = [&] {
    return cache.choose(hash_of(keys[20]), RowCache::Admit::kIfWorthMore);
  };
  CHECK(victim() == RowCache::kNone);
  cache.unpin(&slots[3], 1, RowCache::kLookup);
  cache.unpin(&slots[3], 1, RowCache::kOddWindow);
  CHECK(cache.pinned(slots[3]));
  CHECK(victim() == RowCache::kNone);
  cache.unpin(&slots[3], 1, RowCache::kEvenWindow);
  CHECK(!cache.pinned(slots[3]));
  CHECK(victim() == slots[3]);
  // Pins and dirty marks do not affect each other.
  cache.set_dirty(slots[7], true);
  cache.unpin(slots.data(), slots.size(), RowCache::kLookup);
  CHECK(cache.dirty(slots[7]));
  cache.set_dirty(slots[7], false);
  CHECK(cache.pinned(slots[7]));
  CHECK(!cache.dirty(slots[7]));
}

TEST_CASE("row cache: lfu keeps nearly what an oracle would, and forgets old counts") {
  constexpr size_t kRows = 100000;
  const auto batches = zipf_batches(120, 20000, kRows, 0, 3);
  for (const double share : {0.05, 0.1, 0.2}) {
    const size_t rows = static_cast<size_t>(share * kRows);
    RowCache lfu(kStride, rows, CachePolicy::kLfu), lru(kStride, rows, CachePolicy::kLru);
    const double lfu_hits = hits(lfu, batches, 60), lru_hits = hits(lru, batches, 60);
    size_t all = 0, oracle = 0;
    for (size_t b = 60; b < batches.size(); ++b) {
      for (const int64_t key : batches[b]) {
        ++all;
        oracle += key < static_cast<int64_t>(lfu.slots()) ? 1 : 0;
      }
    }
    const double oracle_hits = static_cast<double>(oracle) / static_cast<double>(all);
    MESSAGE("slots ", lfu.slots(), ": lfu ", lfu_hits, ", lru ", lru_hits, ", oracle ",
            oracle_hits);
    CHECK(lfu_hits > 0.9 * oracle_hits);
    CHECK(lfu_hits > lru_hits);
  }
  // Other keys become hot.
  RowCache lfu(kStride, kRows / 10, CachePolicy::kLfu);
  const double before = hits(lfu, batches, 60);
  const double after = hits(lfu, zipf_batches(120, 20000, kRows, kRows / 2, 4), 60);
  MESSAGE("before the change ", before, ", after it ", after);
  CHECK(after > 0.95 * before);
}

}  // namespace hotrow
