#include "core/base/key_map.h"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <vector>

namespace hotrow {
namespace {

using Model = std::map<int64_t, uint32_t>;

// Keys of partition 3 of 32, as one map of a table holds them.
std::vector<int64_t> partition_keys(size_t count) {
  std::vector<int64_t> keys;
  for (int64_t key = 0; keys.size() < count; ++key) {
    if (mix64(static_cast<uint64_t>(key)) >> 59 == 3) keys.push_back(key);
  }
  return keys;
}

Model contents(const KeyMap& map) {
  Model found;
  uint64_t last = 0;
  map.each([&](uint64_t mixed, uint32_t value) {
    CHECK((found.empty() || mixed > last));
    last = mixed;
    CHECK(found.emplace(KeyMap::key_of(mixed), value).second);
  });
  return found;
}

}  // namespace

TEST_CASE("key map: agrees with std::map over random changes, growing and shrinking") {
  KeyMap map;
  Model model;
  std::mt19937_64 random(1);
  const std::vector<int64_t> keys = partition_keys(20000);
  for (size_t phase = 0; phase < 6; ++phase) {
    const uint64_t inserts = phase % 2 == 0 ? 9 : 1;  // of 10
    for (size_t i = 0; i < 30000; ++i) {
      const int64_t key = keys[random() % keys.size()];
      uint32_t* value = map.find(key);
      REQUIRE((value != nullptr) == (model.count(key) == 1));
      if (value != nullptr) REQUIRE(*value == model[key]);
      if (random() % 10 >= inserts) {
        if (value != nullptr) map.erase(value);
        model.erase(key);
      } else if (value == nullptr) {
        map.insert(key, model[key] = 1 + random() % 1000);
      }
    }
    REQUIRE(map.size() == model.size());
    REQUIRE(contents(map) == model);
    const uint32_t least = static_cast<uint32_t>(phase * 200);
    map.erase_up_to(least);
    for (auto at = model.begin(); at != model.end();) {
      at = at->second <= least ? model.erase(at) : std::next(at);
    }
    REQUIRE(map.size() == model.size());
    REQUIRE(contents(map) == model);
  }
}

TEST_CASE("key map: takes 16 to 32 bytes a key, and none once all keys were dropped") {
  KeyMap map;
  CHECK(map.bytes() == 0);
  const std::vector<int64_t> keys = partition_keys(100000);
  for (size_t i = 0; i < keys.size(); ++i) {
    map.insert(keys[i], static_cast<uint32_t>(1 + i));
    if (i > 1000) REQUIRE(map.bytes() >= 16 * map.size());
    if (i > 1000) REQUIRE(map.bytes() <= 33 * map.size());
  }
  map.erase_up_to(99000);
  CHECK(map.size() == 1000);
  CHECK(map.bytes() <= 12 * 9 * 1000);
  map.erase_up_to(100000);
  CHECK(map.bytes() == 0);
}

TEST_CASE("key map: recorded changes are taken back, whatever they grew or removed") {
  std::mt19937_64 random(2);
  const std::vector<int64_t> keys = partition_keys(20000);
  for (size_t round = 0; round < 30; ++round) {
    KeyMap map;
    const size_t before = random() % 2000, changes = random() % 6000;
    for (size_t i = 0; i < before; ++i) {
      if (map.find(keys[i]) == nullptr) map.insert(keys[i], static_cast<uint32_t>(i) + 1);
    }
    const Model model = contents(map);
    const size_t removed_first = round % 2 == 0 ? before : 0;
    map.begin_changes();
    for (size_t i = 0; i < removed_first; ++i) map.erase(map.find(keys[i]));
    for (size_t i = 0; i < changes; ++i) {
      const int64_t key = keys[random() % (1 + random() % keys.size())];
      uint32_t* value = map.find(key);
      if (value == nullptr) {
        map.insert(key, static_cast<uint32_t>(i) + 1);
      } else if (random() % 2 == 0) {
        map.set(value, *value + 1);
      } else {
        map.erase(value);
      }
    }
    map.undo_changes();
    CHECK(map.size() == model.size());
    CHECK(contents(map) == model);
  }
}

TEST_CASE("key map: what was reserved is inserted without moving the others") {
  const std::vector<int64_t> keys = partition_keys(5000);
  KeyMap map;
  // The last homes of the map, so that the keys fill the slots behind them.
  std::vector<int64_t> last;
  for (int64_t key : keys) {
    if (KeyMap::mixed_of(key) >> 56 == 0xff) last.push_back(key);
  }
  REQUIRE(last.size() > 10);
  map.reserve(keys.size());
  const size_t bytes = map.bytes();
  for (int64_t key : last) map.insert(key, 1);
  for (int64_t key : keys) {
    if (map.find(key) == nullptr) map.insert(key, 2);
  }
  CHECK(map.size() == keys.size());
  CHECK(map.bytes() == bytes);
}

}  // namespace hotrow
