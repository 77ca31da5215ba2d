#include "core/base/unique.h"

#include <doctest/doctest.h>

#include <random>
#include <unordered_map>

namespace hotrow {
namespace {

void check_unique(Unique& unique, const std::vector<int64_t>& keys) {
  unique.run(keys.data(), keys.size());
  std::unordered_map<int64_t, size_t> first;  // key -> its place among the distinct ones
  for (size_t i = 0; i < keys.size(); ++i) {
    const size_t place = first.emplace(keys[i], first.size()).first->second;
    REQUIRE(static_cast<size_t>(unique.inverse()[i]) == place);
    REQUIRE(unique.keys()[place] == keys[i]);
  }
  REQUIRE(unique.size() == first.size());
}

}  // namespace

TEST_CASE("unique: distinct keys come in the order of their first appearance") {
  Unique unique;
  check_unique(unique, {7, -3, 7, INT64_MIN, 0, -3, INT64_MAX, 0});
  CHECK(std::vector(unique.keys(), unique.keys() + unique.size()) ==
        std::vector<int64_t>{7, -3, INT64_MIN, 0, INT64_MAX});
}

TEST_CASE("unique: batches of any size one after the other do not disturb each other") {
  Unique unique;
  std::mt19937_64 random(1);
  for (const size_t count : {0, 1, 100000, 2, 17, 3000, 0, 65536, 65535}) {
    std::vector<int64_t> keys(count);
    const uint64_t range = 1 + random() % (2 * count + 1);
    for (int64_t& key : keys) key = static_cast<int64_t>(random() % range) - 50;
    check_unique(unique, keys);
  }
}

}  // namespace hotrow
