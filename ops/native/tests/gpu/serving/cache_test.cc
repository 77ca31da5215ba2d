// The serving cache: what comes in, changes and leaves, against a map.
#include "core/gpu/serving/cache.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "core/store/store_layout.h"
#include "tests/error_code.h"
#include "tests/gpu/serving/served_rows.h"

namespace hotrow {

using namespace served;

TEST_CASE("device serving: rows are those of a map, old rows do not undo new ones") {
  Cache cache(2000);
  std::map<int64_t, uint32_t> expected;
  std::mt19937 random(1);
  for (uint32_t step = 1; step <= 30; ++step) {
    std::map<int64_t, bool> drawn;
    for (size_t i = 0; i < 60; ++i) drawn[static_cast<int64_t>(random() % 300) - 150] = true;
    if (step == 4) drawn[INT64_MIN] = drawn[INT64_MAX] = true;
    std::vector<int64_t> keys;
    for (const auto& [key, is] : drawn) keys.push_back(key);
    std::shuffle(keys.begin(), keys.end(), random);
    const bool removes = step % 5 == 0, fills = step % 3 != 0;
    // Every seventh update is an old one that arrives late.
    const uint32_t version = step % 7 == 0 ? step - 6 : step;
    if (removes) {
      cache.remove(keys, version);
    } else {
      cache.update(fills ? ServingUpdate::kFill : ServingUpdate::kWrite, keys, version,
                   static_cast<uint8_t>(step));
    }
    for (const int64_t key : keys) {
      const auto cached = expected.find(key);
      if (removes && cached != expected.end()) {
        if (version > cached->second) expected.erase(cached);
      } else if (removes) {
        continue;
      } else if (cached != expected.end()) {
        cached->second = std::max(cached->second, version);
      } else if (fills) {
        expected[key] = version;
      }
    }
    std::vector<int64_t> asked{INT64_MIN, INT64_MAX, 7, 7, 7};
    for (int64_t key = -160; key < 160; ++key) asked.push_back(key);
    std::vector<Found> rows;
    const auto found = cache.look_up(asked, static_cast<uint8_t>(step), &rows);
    size_t wrong = 0;
    for (size_t i = 0; i < asked.size(); ++i) {
      const auto at = expected.find(asked[i]);
      wrong += found[i] != (at != expected.end());
      if (at == expected.end() || !found[i]) continue;
      wrong += !whole(rows[i], asked[i]) || rows[i].version() != at->second;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("device serving: what was not asked for longest is evicted") {
  Cache cache(32);
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 32; ++key) keys.push_back(key);
  std::vector<Found> rows;
  cache.update(ServingUpdate::kFill, keys, 1, 250);
  cache.look_up({0,  1,  2,  3,  4,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16,
                 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31},
                3, &rows);  // all but 5, after the clock turned over
  cache.update(ServingUpdate::kFill, {100}, 1, 4);
  CHECK(cache.look_up({100, 5, 6}, 5, &rows) == std::vector<bool>{true, false, true});
}

TEST_CASE("device serving: LFU keeps what is used most, and lets a new row in that is used more") {
  Cache cache(32, CachePolicy::kLfu);
  std::vector<int64_t> keys(32);
  std::iota(keys.begin(), keys.end(), 0);
  std::vector<Found> rows;
  cache.update(ServingUpdate::kFill, keys, 1, 0);
  // All but 5 are used several times.
  std::vector<int64_t> used = keys;
  used.erase(used.begin() + 5);
  for (int i = 0; i < 6; ++i) cache.look_up(used, 0, &rows);
  const auto is_cached = [&](int64_t key) -> bool { return cache.look_up({key}, 0, &rows)[0]; };
  CHECK(cache.counts().inserted == 32);
  // Asked for twice: more often than 5, less often than the others.
  for (int i = 0; i < 4 && !is_cached(100); ++i) {
    cache.update(ServingUpdate::kFill, {100}, 1, 0);
  }
  CHECK(is_cached(100));
  CHECK(!is_cached(5));
  cache.update(ServingUpdate::kFill, {200}, 1, 0);
  CHECK(!is_cached(200));
  CHECK(cache.counts().evicted == 1);
  CHECK(cache.counts().refused >= 1);
  // Asked for again and again, it comes in at last: the frequencies of the others are halved.
  size_t asked = 0;
  while (!is_cached(200) && asked < 2000) {
    ++asked;
    cache.update(ServingUpdate::kFill, {200}, 1, 0);
  }
  CHECK(is_cached(200));
}

TEST_CASE("device serving: keys of two tables of a cache are apart") {
  Cache cache(64);
  std::vector<Found> rows;
  cache.update(ServingUpdate::kFill, {1, 2}, 3, 0);
  const DeviceArray<int64_t> keys({1, 2});
  const DeviceArray<Found> outputs(2);
  for (const ServedTable other : {ServedTable{0, kSalts[0]}, ServedTable{0, kTable.salt}}) {
    ServedFeature feature = feature_of(cache.cache, keys.data(), outputs.data());
    feature.table = other;
    const DeviceArray<ServedFeature> features({feature});
    const DeviceArray<uint8_t> left(std::vector<uint8_t>(2, 0));
    device_serving_lookup(features.data(), 1, 2, nullptr, 0, 0, 0, 1, left.data(), kStream);
    CHECK(left.read() == std::vector<uint8_t>{1, 1});
  }
}

TEST_CASE("device serving: a row newer than a session's cut, or in a layer of it, is not read") {
  Cache cache(64);
  cache.update(ServingUpdate::kFill, {1, 2}, 3, 0);
  cache.update(ServingUpdate::kFill, {4}, 5, 0);
  const DeviceArray<int64_t> keys({1, 2, 4});
  const DeviceArray<Found> outputs(3);
  ServedFeature feature = feature_of(cache.cache, keys.data(), outputs.data());
  feature.table_in_all = 6;
  const DeviceArray<ServedFeature> features({feature});
  // Key 2 of table 6 and key 1 of table 5.
  std::vector<LayerKeys::Slot> slots(8, LayerKeys::Slot{0, 0, 0});
  const auto add = [&](int64_t key, uint32_t table) {
    size_t at = LayerKeys::home(key, table) & 7;
    while (slots[at].table != 0) at = (at + 1) & 7;
    slots[at] = {key, table + 1, 0};
  };
  add(2, 6), add(1, 5);
  const DeviceArray<LayerKeys::Slot> on_device(slots);
  const DeviceArray<LayerKeys> layers({LayerKeys{on_device.data(), 7}});
  const auto left_of = [&](size_t layer_count, RowVersion newest) {
    const DeviceArray<uint8_t> left(std::vector<uint8_t>(3, 0));
    device_serving_lookup(features.data(), 1, 3, layers.data(), layer_count, newest, 0, 1,
                          left.data(), kStream);
    return left.read();
  };
  CHECK(left_of(0, 0) == std::vector<uint8_t>{0, 0, 0});
  CHECK(left_of(0, 5) == std::vector<uint8_t>{0, 0, 0});
  CHECK(left_of(0, 4) == std::vector<uint8_t>{0, 0, 1});
  CHECK(left_of(1, 0) == std::vector<uint8_t>{0, 1, 0});
}

TEST_CASE("device serving: a shard is removed, or all rows") {
  Cache cache(3200);
  std::vector<int64_t> keys(200);
  std::iota(keys.begin(), keys.end(), -100);
  cache.update(ServingUpdate::kFill, keys, 1, 0);
  std::vector<Found> rows;
  const ServingTicket before = cache.tickets.fetch();
  device_serving_remove(cache.cache, 2, 4, cache.tickets.change(), kStream);
  const auto found = cache.look_up(keys, 0, &rows);
  size_t removed = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    const bool of_shard = store_shard_of(keys[i], 4) == 2;
    CHECK(found[i] == !of_shard);
    removed += of_shard;
  }
  CHECK(cache.counts().removed == removed);
  // A fetch from before brings nothing back.
  cache.put(ServingUpdate::kFill, keys, std::vector<RowVersion>(keys.size(), 2), before);
  CHECK(cache.look_up(keys, 0, &rows) == found);
  device_serving_remove(cache.cache, 0, 1, cache.tickets.change(), kStream);
  CHECK(cache.look_up(keys, 0, &rows) == std::vector<bool>(keys.size(), false));
}

TEST_CASE("device serving: a key of a set that keeps changing is missing, not waited for") {
  Cache cache(32);
  cache.update(ServingUpdate::kFill, {1, 2}, 1, 0);
  auto sets = read_device(cache.cache.sets, 1);
  for (const bool changing : {true, false}) {
    ++sets[0].version;
    must(cudaMemcpyAsync(cache.cache.sets, sets.data(), sizeof(DeviceSet), cudaMemcpyDefault,
                         kStream));
    std::vector<Found> rows;
    CHECK(cache.look_up({1, 3}, 1, &rows) == std::vector<bool>{!changing, false});
  }
}

TEST_CASE("device serving: a slow fetch never undoes a newer write, cached or not") {
  Cache cache(32);  // one set
  const auto fill = [&](int64_t key, uint32_t version, ServingTicket ticket) {
    cache.put(ServingUpdate::kFill, {key}, {version}, ticket);
  };
  const auto fetched = [&](int64_t key, uint32_t version) {
    fill(key, version, cache.tickets.fetch());
  };
  // The version of a cached row; 0: it is not cached.
  const auto version_of = [&](int64_t key) {
    std::vector<Found> rows;
    return cache.look_up({key}, 1, &rows)[0] ? rows[0].version() : 0;
  };
  // Not cached: the fetch reads the store, the row is written, the fetch brings what it read.
  const ServingTicket before = cache.tickets.fetch();
  cache.update(ServingUpdate::kWrite, {1}, 7, 1);
  fill(1, 6, before);
  CHECK(version_of(1) == 0);
  fetched(1, 7);
  CHECK(version_of(1) == 7);
  // Cached: versions are compared.
  cache.update(ServingUpdate::kWrite, {1}, 9, 1);
  fill(1, 8, before);
  fetched(1, 8);
  CHECK(version_of(1) == 9);
  fetched(1, 10);
  CHECK(version_of(1) == 10);
  // Removed while the fetch was on its way, cached and not.
  for (const int64_t key : {1, 2}) {
    const ServingTicket on_its_way = cache.tickets.fetch();
    cache.remove({key}, 20);
    fill(key, 10, on_its_way);
    CHECK(version_of(key) == 0);
  }
  // Cached, written and evicted while the fetch was on its way.
  fetched(3, 1);
  const ServingTicket long_ago = cache.tickets.fetch();
  cache.update(ServingUpdate::kWrite, {3}, 2, 1);
  for (int64_t key = 100; version_of(3) != 0 && key < 200; ++key) {
    cache.update(ServingUpdate::kFill, {key}, 1, 2);
  }
  REQUIRE(version_of(3) == 0);
  fill(3, 1, long_ago);
  CHECK(version_of(3) == 0);
}

TEST_CASE("device serving: a write refuses older fetches of its sets only") {
  Cache cache(3200);
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 400; ++key) keys.push_back(key);
  const ServingTicket before = cache.tickets.fetch();
  cache.update(ServingUpdate::kWrite, {-1, -2, -3, -4, -5}, 2, 1);
  cache.put(ServingUpdate::kFill, keys, std::vector<RowVersion>(keys.size(), 1), before);
  std::vector<Found> rows;
  const auto served = cache.look_up(keys, 1, &rows);
  const auto found = std::count(served.begin(), served.end(), true);
  CHECK(found < 400);
  CHECK(found > 350);
}

TEST_CASE("device serving: rows of the wrong size are refused") {
  ServingCache cache;
  cache.stride = 64;
  for (const size_t stride : {size_t{48}, size_t{72}}) {
    CHECK(error_code([&] {
            device_serving_update(cache, kTable, ServingUpdate::kFill, nullptr, 1, 0, 0, nullptr,
                                  stride, nullptr, 0, kStream);
          }) == Code::kInvalidArgument);
  }
}

}  // namespace hotrow
